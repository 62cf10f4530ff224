"""What a session was told: options first, then the ini file, then the environment."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from emulator.errors import UsageError
from emulator.units import parse_size

__all__ = ["REQUIRABLE", "Settings"]

REQUIRABLE = ("docker", "gpu", "network")
"""What a test may lack on a machine: an engine, a device, netem in the kernel."""


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
        if unknown := sorted(set(required) - set(REQUIRABLE)):
            raise UsageError(
                f"--emulator-require {unknown[0]}: there is no such thing.",
                f"It takes {', '.join(REQUIRABLE)}.",
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
        out = option("emulator_out")
        return cls(
            engine=option("emulator_engine")
            or config.getini("emulator_engine")
            or os.environ.get("EMULATOR_ENGINE")
            or "auto",
            image=option("emulator_image"),
            out=None if out is None else Path(config.invocation_params.dir, out),
            keep=option("emulator_keep"),
            require=frozenset(required),
            sets=tuple(option("emulator_set")),
            varied=tuple(option("emulator_vary")),
            folders=tuple(config.getini("emulator_scenarios")),
            cpus=cpus,
            memory=size,
            update_baseline=option("emulator_update_baseline"),
            root=config.rootpath,
        )
