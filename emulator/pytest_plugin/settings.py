"""The settings of a session: options first, then the ini file, then the environment."""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from emulator.engines import AUTO, names
from emulator.errors import UsageError
from emulator.validation.units import parse_size

RUNS = "runs"
"""Where run folders are by default, below pytest's root directory."""
PARTS = ("gpu", "network")
"""What a machine may lack besides an engine: a device, netem in the kernel."""


@dataclass(frozen=True)
class Settings:
    """The settings that all tests of a session share."""

    engine: str
    image: str | None
    out: Path
    """Where the run folders are."""
    keep: bool
    warm: bool
    """Tasks start from processes that have imported their frameworks (docs/warm.md)."""
    require: frozenset[str]
    sets: tuple[str, ...]
    varied: tuple[str, ...]
    folders: tuple[Path, ...]
    """Folders whose scenarios are collected, and where a test's scenario is looked up."""
    cpus: float | None
    memory: int | None
    """The cores and bytes that scenarios share; None: those of the engine."""
    root: Path

    @property
    def is_in_project(self) -> bool:
        """Whether the run folders are where they are by default."""
        return self.out == self.root / RUNS

    @classmethod
    def from_config(cls, config: pytest.Config) -> Settings:
        """Read them; raises UsageError."""
        option = config.getoption
        required = [name for text in option("emulator_require") for name in text.split(",") if name]
        if unknown := sorted({*required} - {*names(), *PARTS}):
            raise UsageError(
                f"--emulator-require {unknown[0]}: there is no such thing.",
                f"It takes {', '.join((*names(), *PARTS))}.",
            )
        memory = option("emulator_memory")
        try:
            size = None if memory is None else parse_size(memory)
        except ValueError as error:
            raise UsageError(f"--emulator-memory: {error}.") from None
        if size == 0:
            raise UsageError(f"--emulator-memory {memory}: that is nothing to share.")
        cpus = option("emulator_cpus")
        if cpus is not None and not 0 < cpus < math.inf:
            raise UsageError(f"--emulator-cpus {cpus:g}: that is nothing to share.")
        sets, varied = tuple(option("emulator_set")), tuple(option("emulator_vary"))
        for text in sets:
            key, equals, _ = text.partition("=")
            if not (key and equals):
                example = "For example: --emulator-set cluster.worker=4"
                raise UsageError(f"--emulator-set {text} is not KEY=VALUE.", example)
        if varied:
            from emulator.scenario.matrix import variants  # imports YAML

            variants(varied, sets)
        out = option("emulator_out")
        return cls(
            engine=_engine(config),
            image=option("emulator_image"),
            out=config.rootpath / RUNS if out is None else config.invocation_params.dir / out,
            keep=option("emulator_keep"),
            warm=option("emulator_warm") or config.getini("emulator_warm"),
            require=frozenset(required),
            sets=sets,
            varied=varied,
            folders=tuple(_folders(config.getini("emulator_scenarios"))),
            cpus=cpus,
            memory=size,
            root=config.rootpath,
        )


def _folders(given: Iterable[Path]) -> Iterator[Path]:
    """Yield the folders of scenarios; in a name, `*` stands for each folder that it matches."""
    for path in given:
        # pytest gives files without `..`; a folder with it would never be their parent.
        name = os.path.abspath(path)
        found = [Path(one) for one in sorted(glob.glob(name)) if os.path.isdir(one)]
        yield from found or [Path(name)]  # which is reported as missing


def _engine(config: pytest.Config) -> str:
    """Return the engine's name: option, ini file, environment; raises UsageError."""
    sources = {
        "--emulator-engine": config.getoption("emulator_engine"),
        "emulator_engine": config.getini("emulator_engine"),
        "EMULATOR_ENGINE": os.environ.get("EMULATOR_ENGINE"),
    }
    source, name = next(((source, name) for source, name in sources.items() if name), ("", AUTO))
    known = (AUTO, *names())
    if name not in known:
        raise UsageError(
            f"{source} {name}: there is no such engine.", f"One of {', '.join(known)}."
        )
    return str(name)
