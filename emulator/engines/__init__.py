"""The engines by name, and how one is chosen.

Another package adds an engine with an entry point in the group `emulator.engines`: its name, and a
class that can be called without arguments and follows `emulator.engines.base.Engine`. This module
imports no engine before it is asked for.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from emulator.errors import EngineMissing, UsageError

if TYPE_CHECKING:
    from emulator.engines.base import Engine

__all__ = ["AUTO", "HELP", "answering", "choose", "engine_class", "engine_classes", "names"]

GROUP = "emulator.engines"
AUTO = "auto"
BUILT_IN = {
    "docker": "emulator.engines.docker:DockerEngine",
    "process": "emulator.engines.process:ProcessEngine",
}
HELP = (
    f"{' or '.join(BUILT_IN)} (on this machine, without Docker), one of another package, or "
    f"{AUTO}: Docker, and processes only where no engine is configured"
)

log = logging.getLogger("emulator")


def _known() -> dict[str, EntryPoint]:
    """Return all engines; no other package can replace one of ours."""
    others = {one.name: one for one in entry_points(group=GROUP)}
    return {name: EntryPoint(name, place, GROUP) for name, place in BUILT_IN.items()} | {
        name: one for name, one in others.items() if name not in (AUTO, *BUILT_IN)
    }


def names() -> tuple[str, ...]:
    """Return the names of all engines, ours first."""
    return tuple(_known())


def engine_class(name: str) -> type[Engine]:
    """Return the class of an engine.

    Raises UsageError for a name that is not known, EngineMissing where the package of an engine
    can't be imported.
    """
    known = _known()
    if name not in known:
        raise UsageError(f"There is no engine {name!r}.", f"Engines: {', '.join((AUTO, *known))}.")
    try:
        found: type[Engine] = known[name].load()
    except Exception as error:  # another package's defect; `emulate clean` must survive it
        raise EngineMissing(
            f"The engine {name} can't be loaded from {known[name].value} ({error!r}).",
            "Update or remove the package that it comes from.",
            configured=True,
            engine=name,
        ) from None
    return found


def engine_classes() -> Iterator[type[Engine]]:
    """Yield the class of every engine that can be loaded, ours first."""
    for name in names():
        with contextlib.suppress(EngineMissing):
            yield engine_class(name)


def choose(name: str = AUTO, say: Callable[[str], None] = log.warning) -> Engine:
    """Open the engine of that name; the caller closes it.

    `auto` is Docker. It is processes, which is reported to `say`, only where no Docker engine is
    configured: one that DOCKER_HOST or a context names, or that listens on the default socket, must
    answer. Raises EngineMissing, UsageError.
    """
    if name != AUTO:
        return _open(name)
    try:
        return _open("docker")
    except EngineMissing as error:
        if error.configured:
            raise
        say("no Docker engine answers; tasks run as processes on this machine")
        return _open("process")


def answering(missing: Callable[[EngineMissing], None]) -> Iterator[Engine]:
    """Yield every engine that answers, opened; it is closed after its turn."""
    for name in names():
        try:
            engine = _open(name)
        except EngineMissing as error:
            missing(error)
            continue
        with contextlib.closing(engine):
            yield engine


def _open(name: str) -> Engine:
    try:
        return engine_class(name)()
    except EngineMissing as error:
        error.engine = name
        raise
