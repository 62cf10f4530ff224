"""The engines by name, and how one is chosen.

Another package adds an engine with an entry point in the group `emulator.engines`: a name, and a
class that follows `emulator.engines.base.Engine` and is called without arguments. This module
imports no engine before it is asked for.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from emulator.errors import EngineMissing, UsageError
from emulator.runtime import plugins

if TYPE_CHECKING:
    from emulator.engines.base import Engine

__all__ = [
    "AUTO",
    "BUILT_IN",
    "HELP",
    "WARM_SESSION",
    "answering",
    "choose",
    "engine_class",
    "engine_classes",
    "names",
]

AUTO = "auto"
BUILT_IN = {
    "docker": "emulator.engines.docker:DockerEngine",
    "process": "emulator.engines.process:ProcessEngine",
}
"""Found without a look at installed packages. Those of plug-ins may be far away, and of others:
`auto` looks at one only where a run is on it."""
WARM_SESSION = "EMULATOR_WARM_SESSION"
"""The environment variable of a test session: at its end the warm clusters it made are removed."""
HELP = (
    "docker, process (on this machine, without Docker), {engines}, or "
    f"{AUTO}: Docker, and processes only where no engine is configured"
)

log = logging.getLogger("emulator")


def names() -> tuple[str, ...]:
    """Return the names of all engines, ours first."""
    others = (name for name in plugins.names("engines") if name != AUTO)
    return tuple(dict.fromkeys((*BUILT_IN, *others)))


def with_engine_names(help_text: str) -> str:
    """Return the help of an option with the names of the engines that plug-ins add."""
    others = [name for name in names() if name not in BUILT_IN]
    return help_text.replace("{engines}", ", ".join(others) or "one of another package")


def engine_class(name: str) -> type[Engine]:
    """Return the class of an engine.

    Raises UsageError for a name that is not known, EngineMissing where the package of an engine
    can't be imported.
    """
    if name not in names():
        from emulator.validation.similar import suggestion

        hint = suggestion(name, (AUTO, *names()), "Engines")
        raise UsageError(f"There is no engine {name!r}.", hint)
    found: type[Engine]
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        found = getattr(import_module(module), attribute)
        return found
    try:
        found = plugins.load("engines", name)
    except UsageError as error:  # `emulate clean` must survive it
        raise EngineMissing(f"The engine {error.message}", error.hint, configured=True) from None
    return found


def engine_classes() -> Iterator[type[Engine]]:
    """Yield the class of every engine that can be loaded, the built-in ones first."""
    for name in names():
        with contextlib.suppress(EngineMissing):
            yield engine_class(name)


def choose(name: str = AUTO, say: Callable[[str], None] = log.warning) -> Engine:
    """Open the engine of that name; the caller closes it.

    `auto` is Docker. Only where no Docker engine is configured (by DOCKER_HOST, a context or a
    default socket on which something listens), it is processes, which is reported to `say`. Raises
    EngineMissing, UsageError.
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


def answering(
    name: str, missing: Callable[[EngineMissing], None], used: Collection[str] = ()
) -> Iterator[Engine]:
    """Yield the engine of that name, for `auto` every one that answers; each is closed afterwards.

    With `auto` one that does not answer is reported to `missing`, and those of plug-ins are left
    out unless they are in `used`. Raises EngineMissing, UsageError.
    """
    added = (one for one in names() if one not in BUILT_IN and one in used) if used else ()
    for candidate in (*BUILT_IN, *added) if name == AUTO else (name,):
        try:
            engine = _open(candidate)
        except EngineMissing as error:
            if name != AUTO:
                raise
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
