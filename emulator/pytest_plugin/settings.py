"""What a session was told: options first, then the ini file, then the environment."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from emulator.engines import AUTO, names
from emulator.errors import UsageError
from emulator.validation.units import parse_size

__all__ = ["Settings"]

PARTS = ("gpu", "network")
"""What a test may lack on a machine beside an engine: a device, netem in the kernel."""


@dataclass(frozen=True)
class Settings:
    """What all tests of a session share."""

    engine: str
    image: str | None
    out: Path | None
    keep: bool
    require: frozenset[str]
    sets: tuple[str, ...]
    varied: tuple[str, ...]
    folders: tuple[Path, ...]
    """Where scenarios lie that are collected, and where a test's are looked for."""
    cpus: float | None
    memory: int | None
    """What scenarios share, in cores and bytes; None: what the engine has."""
    update_baseline: bool
    root: Path

    @classmethod
    def of(cls, config: pytest.Config) -> Settings:
        """Read them; raises UsageError."""
        option = config.getoption
        required = [name for text in option("emulator_require") for name in text.split(",") if name]
        if required and (unknown := sorted(set(required) - {*names(), *PARTS})):
            raise UsageError(
                f"--emulator-require {unknown[0]}: there is no such thing.",
                f"It takes {', '.join((*names(), *PARTS))}.",
            )
        try:
            memory = option("emulator_memory")
            size = None if memory is None else parse_size(memory)
        except ValueError as error:
            raise UsageError(f"--emulator-memory: {error}.") from None
        cpus = option("emulator_cpus")
        if cpus is not None and not 0 < cpus < math.inf:
            raise UsageError(f"--emulator-cpus {cpus:g}: that is nothing to share.")
        if size == 0:
            raise UsageError("--emulator-memory 0: that is nothing to share.")
        sets, varied = tuple(option("emulator_set")), tuple(option("emulator_vary"))
        _check(sets, varied)
        out = option("emulator_out")
        return cls(
            engine=_engine(config),
            image=option("emulator_image"),
            out=None if out is None else Path(config.invocation_params.dir, out),
            keep=option("emulator_keep"),
            require=frozenset(required),
            sets=sets,
            varied=varied,
            # pytest gives files without `..`; a folder with it would be none of theirs.
            folders=tuple(Path(os.path.abspath(f)) for f in config.getini("emulator_scenarios")),
            cpus=cpus,
            memory=size,
            update_baseline=option("emulator_update_baseline"),
            root=config.rootpath,
        )


def _engine(config: pytest.Config) -> str:
    """Return the engine's name from the first that says one; raises UsageError."""
    told = {
        "--emulator-engine": config.getoption("emulator_engine"),
        "emulator_engine": config.getini("emulator_engine"),
        "EMULATOR_ENGINE": os.environ.get("EMULATOR_ENGINE"),
    }
    where, name = next(((where, name) for where, name in told.items() if name), ("", AUTO))
    if name not in (AUTO, *names()):
        raise UsageError(
            f"{where} {name}: there is no such engine.", f"One of {', '.join((AUTO, *names()))}."
        )
    return str(name)


def _check(sets: Sequence[str], varied: Sequence[str]) -> None:
    """Refuse what is wrong whatever the scenario; raises UsageError."""
    for text in sets:
        key, equals, _ = text.partition("=")
        if not (key and equals):
            raise UsageError(
                f"--emulator-set {text} is not KEY=VALUE.",
                "For example: --emulator-set cluster.worker=4",
            )
    if varied:
        from emulator.scenario.matrix import variants  # YAML; only where it is asked for

        variants(varied, sets)
