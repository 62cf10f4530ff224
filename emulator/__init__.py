"""A training cluster on one machine: scenarios in, containers and verdicts out."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes as long to load as a command has until it takes its signals
if TYPE_CHECKING:
    from typing import Any

    from emulator.api.client import Cluster, connect
    from emulator.engines import choose
    from emulator.errors import EmulatorError
    from emulator.faults.checkpoint import Checkpoint
    from emulator.faults.disk import Disk
    from emulator.faults.held import Pause, Throttle
    from emulator.faults.kinds import RandomFaults, TraceFaults, TraceRow
    from emulator.faults.network import Partition, Shape
    from emulator.faults.preempt import Kill, Oom, Preempt, Restart, Terminate
    from emulator.faults.spec import Trigger
    from emulator.faults.traced import Hang, Visibility
    from emulator.record.reader import Record
    from emulator.results import Result, judge
    from emulator.scenario.given import load
    from emulator.scenario.schema import Expectations, Program, Role, Scenario
    from emulator.search.api import moments, sweep
    from emulator.session.from_python import run, up
    from emulator.session.history import compare, result, runs

    __version__: str

__all__ = [
    "Checkpoint",
    "Cluster",
    "Disk",
    "EmulatorError",
    "Expectations",
    "Hang",
    "Kill",
    "Oom",
    "Partition",
    "Pause",
    "Preempt",
    "Program",
    "RandomFaults",
    "Record",
    "Restart",
    "Result",
    "Role",
    "Scenario",
    "Shape",
    "Terminate",
    "Throttle",
    "TraceFaults",
    "TraceRow",
    "Trigger",
    "Visibility",
    "choose",
    "compare",
    "connect",
    "judge",
    "load",
    "moments",
    "result",
    "run",
    "runs",
    "sweep",
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
    "load": "scenario.given",
    "run": "session.from_python",
    "runs": "session.history",
    "result": "session.history",
    "compare": "session.history",
    "up": "session.from_python",
    "moments": "search.api",
    "sweep": "search.api",
    "Checkpoint": "faults.checkpoint",
    "Disk": "faults.disk",
    "Expectations": "scenario.schema",
    "Kill": "faults.preempt",
    "Oom": "faults.preempt",
    "Partition": "faults.network",
    "Pause": "faults.held",
    "Preempt": "faults.preempt",
    "Program": "scenario.schema",
    "RandomFaults": "faults.kinds",
    "Restart": "faults.preempt",
    "Role": "scenario.schema",
    "Shape": "faults.network",
    "Terminate": "faults.preempt",
    "Throttle": "faults.held",
    "TraceFaults": "faults.kinds",
    "TraceRow": "faults.kinds",
    "Hang": "faults.traced",
    "Visibility": "faults.traced",
    "Trigger": "faults.spec",
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
        return version("training-emulator")
    except PackageNotFoundError:  # a checkout that was never installed
        return "0"
