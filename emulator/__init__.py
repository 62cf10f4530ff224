"""A training cluster on one machine: scenarios in, containers and verdicts out."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes as long to load as a command has until it takes its signals
if TYPE_CHECKING:
    from typing import Any

    from emulator.api.client import Cluster, connect
    from emulator.engines import choose
    from emulator.errors import EmulatorError
    from emulator.manifests.convert import load
    from emulator.record.reader import Record
    from emulator.results import Result, judge
    from emulator.scenario.constructors import *  # noqa: F403  one for each kind of fault
    from emulator.scenario.schema import Scenario
    from emulator.session.history import compare, result, runs
    from emulator.session.up import run, up

    __version__: str

__all__ = [
    "Cluster",
    "EmulatorError",
    "Record",
    "Result",
    "Scenario",
    "choose",
    "compare",
    "connect",
    "judge",
    "load",
    "result",
    "run",
    "runs",
    "up",
]

_HOMES = {
    "Cluster": "api.client",
    "connect": "api.client",
    "EmulatorError": "errors",
    "Record": "record.reader",
    "Result": "results",
    "Scenario": "scenario.schema",
    "choose": "engines",
    "judge": "results",
    "load": "manifests.convert",
    "run": "session.up",
    "runs": "session.history",
    "result": "session.history",
    "compare": "session.history",
    "up": "session.up",
}
_FAULTS = "emulator.scenario.constructors"
"""Has a constructor for each kind of fault, and those of triggers."""


def __getattr__(name: str) -> Any:  # noqa: ANN401  whatever the name stands for
    """Import a public name when it is first asked for: `import emulator` costs nothing."""
    if name == "__version__":
        return _version()
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f"emulator.{_HOMES[name]}"), name)
    if name[:1].isupper():
        faults = import_module(_FAULTS)
        if name in faults.names():
            return getattr(faults, name)
    raise AttributeError(f"module 'emulator' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, for completion in a notebook."""
    from importlib import import_module

    return [*__all__, *import_module(_FAULTS).names(), "__version__"]


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("training-emulator")
    except PackageNotFoundError:  # a checkout that was never installed
        return "0"
