"""The engines, and how one is chosen."""

from __future__ import annotations

from emulator.engines.base import Engine
from emulator.errors import EngineMissing, UsageError

__all__ = ["NAMES", "Engine", "choose"]

NAMES = ("auto", "docker", "process")


def choose(name: str = "auto") -> Engine:
    """Return the engine of that name; `auto` takes Docker where it answers, else processes.

    Raises EngineMissing, UsageError.
    """
    from emulator.engines.process import ProcessEngine

    if name == "process":
        return ProcessEngine()
    if name not in NAMES:
        raise UsageError(f"There is no engine {name!r}.", f"Engines: {', '.join(NAMES)}.")
    from emulator.engines.docker import DockerEngine  # the SDK takes a while to import

    try:
        return DockerEngine()
    except EngineMissing:
        if name == "docker":
            raise
        return ProcessEngine()
