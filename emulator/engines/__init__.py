"""The engines, and how one is chosen."""

from __future__ import annotations

import logging
from collections.abc import Callable

from emulator.engines.base import Engine
from emulator.errors import EngineMissing, UsageError

__all__ = ["NAMES", "Engine", "choose"]

NAMES = ("auto", "docker", "process")

log = logging.getLogger("emulator")


def choose(name: str = "auto", say: Callable[[str], None] = log.warning) -> Engine:
    """Return the engine of that name; `auto` takes Docker, else processes, and says so.

    Processes are taken only where no Docker engine is configured: one that DOCKER_HOST or a context
    names, or that listens on the default socket, must answer. Raises EngineMissing, UsageError.
    """
    from emulator.engines.process import ProcessEngine

    if name == "process":
        return ProcessEngine()
    if name not in NAMES:
        raise UsageError(f"There is no engine {name!r}.", f"Engines: {', '.join(NAMES)}.")
    from emulator.engines.docker import DockerEngine  # the SDK takes a while to import

    try:
        return DockerEngine()
    except EngineMissing as error:
        if name == "docker" or error.configured:
            raise
        say("no Docker engine answers; tasks run as processes on this machine")
        return ProcessEngine()
