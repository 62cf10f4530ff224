"""A training cluster on one machine: scenarios in, containers and verdicts out."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes as long to load as a command has until it takes its signals
if TYPE_CHECKING:
    from typing import Any

    from emulator.api.client import Cluster, connect
    from emulator.engines import choose
    from emulator.errors import EmulatorError
    from emulator.manifests.convert import load
    from emulator.record.reader import Record, runs
    from emulator.results import Result, judge
    from emulator.run import up
    from emulator.scenario.schema import Scenario

    __version__: str

__all__ = [
    "Cluster",
    "EmulatorError",
    "Record",
    "Result",
    "Scenario",
    "choose",
    "connect",
    "judge",
    "load",
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
    "runs": "record.reader",
    "up": "run",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  whatever the name stands for
    """Import a public name when it is first asked for: `import emulator` costs nothing."""
    if name == "__version__":
        return _version()
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f"emulator.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'emulator' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, for completion in a notebook."""
    return [*__all__, "__version__"]


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("emulator")
    except PackageNotFoundError:  # a checkout that was never installed
        return "0"
