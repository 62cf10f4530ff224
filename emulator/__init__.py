"""A training cluster on one machine: scenarios in, containers and verdicts out."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulator.client import Cluster, connect
    from emulator.engines import choose
    from emulator.errors import EmulatorError
    from emulator.reading import load
    from emulator.record import Record
    from emulator.results import Result, judge
    from emulator.run import up
    from emulator.scenario import Scenario

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
    "up",
]

try:
    __version__ = version("emulator")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0"

_HOMES = {
    "Cluster": "client",
    "connect": "client",
    "EmulatorError": "errors",
    "Record": "record",
    "Result": "results",
    "Scenario": "scenario",
    "choose": "engines",
    "judge": "results",
    "load": "reading",
    "up": "run",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  whatever the name stands for
    """Import a public name when it is first asked for: `import emulator` costs nothing."""
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f"emulator.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'emulator' has no attribute {name!r}")
