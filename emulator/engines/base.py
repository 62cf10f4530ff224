"""The seam: what every engine can do, and what it tells the supervisor.

An engine starts tasks, signals them, removes them, and puts what happens into the supervisor's
inbox. Its calls block and may be made from several threads at once. Everything it made is found
again from outside by the run id it left on it; it keeps no state of its own on disk.

What only some engines can do is a capability. `require` refuses a plan before anything starts.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from emulator.broker import Capacity
from emulator.errors import EngineError, Misfit, Unsupported
from emulator.faults.netem import Link
from emulator.metrics.samples import Usage
from emulator.plan import Plan, Site, Task
from emulator.room import Disk
from emulator.scenario.model import Scenario
from emulator.units import format_size

__all__ = [
    "CAPABILITIES",
    "Engine",
    "Exited",
    "Found",
    "Happening",
    "Inbox",
    "Incapable",
    "Life",
    "Line",
    "Lost",
    "fits",
    "require",
    "require_of",
]


@dataclass(frozen=True)
class Line:
    """A task printed a line."""

    task: str
    wall: float
    """Seconds since 1970, by the engine's clock."""
    text: str


@dataclass(frozen=True)
class Exited:
    """A task ended. Each start is followed by exactly one of these, after its last line."""

    task: str
    wall: float
    exit_code: int
    """128 + the signal's number where a signal ended it."""
    oom_killed: bool = False


@dataclass(frozen=True)
class Lost:
    """The engine went away; no more events will come."""

    error: EngineError


Happening = Line | Exited | Lost


@dataclass(frozen=True)
class Life:
    """What a killed supervisor knew of a task."""

    printed: Sequence[str]
    """Its lines as far as they were read, of earlier starts as well."""
    since: float
    """The start that goes on was asked for at this time (seconds since 1970); infinite: none."""


LINES_WAITING = 10_000
"""Lines that may lie in an inbox; who prints faster than they are taken waits."""
CHARACTERS_WAITING = 32 * 2**20
"""Characters of all these lines: one line may have a million."""


class Inbox:
    """What an engine puts its happenings into; the supervisor's own events travel in it as well.

    Only lines wait for room. Anything else may be put from anywhere, a signal handler included.
    """

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._room = threading.Condition()
        self._lines = self._characters = 0

    def put(self, event: object) -> None:
        """Add an event; a line waits until there is room for it."""
        if isinstance(event, Line):
            with self._room:
                self._room.wait_for(self._has_room)
                self._lines += 1
                self._characters += len(event.text)
        self._events.put(event)

    def get(self, *, timeout: float | None = None) -> Any:  # noqa: ANN401  any event
        """Return the next event; raises queue.Empty after `timeout` seconds."""
        event = self._events.get(timeout=timeout)
        if isinstance(event, Line):
            with self._room:
                self._lines -= 1
                self._characters -= len(event.text)
                self._room.notify()
        return event

    def empty(self) -> bool:
        """Say whether nothing is there."""
        return self._events.empty()

    def _has_room(self) -> bool:
        return self._lines < LINES_WAITING and self._characters < CHARACTERS_WAITING


@dataclass(frozen=True)
class Found:
    """Something that an engine made for a run: a container, a network, a volume, a process."""

    run_id: str
    kind: str
    name: str
    state: str
    folder: str
    """The run folder on the machine that started it."""
    host: str


CAPABILITIES = frozenset(
    {
        "limits",
        "gpus",
        "isolation",
        "replace",
        "new-address",
        "same-address",
        "pause",
        "throttle",
        "oom",
        "adopt",
        "network",
        "usage",
    }
)
"""Everything that only some engines can do."""


class Engine(Protocol):
    """Where tasks run."""

    name: str
    capabilities: frozenset[str]

    @property
    def keeps_addresses(self) -> bool:
        """Whether a fault that nobody planned may say which address a task comes back to."""

    def site(self, run_id: str, folder: Path) -> Site:
        """Describe the engine to the plan."""

    def disks(self, scenario: Scenario) -> Sequence[Disk]:
        """Return disks of this machine that a run writes to, beside that of its folder."""

    def capacity(self) -> Capacity:
        """Return what the engine has: cores, memory, and the GPUs that it can hand out.

        Raises EngineError.
        """

    def provide(self, scenario: Scenario, say: Callable[[str], None]) -> None:
        """Have every image that the scenario names: find, build or pull it, saying so.

        Raises ImageError.
        """

    def requests(self, plan: Plan, folder: Path) -> list[dict[str, Any]]:
        """Return exactly what the engine will be asked for each task; nothing is done."""

    def prepare(self, plan: Plan, folder: Path, inbox: Inbox) -> None:
        """Make what the tasks share: the network and the volume.

        Raises EngineError.
        """

    def start(self, task: Task, *, same_address: bool = False) -> str:
        """Start a task, on the disk it had where it ran before; return its container id or pid.

        `same_address` gives a removed task its old one again (capability `same-address`). Raises
        EngineError.
        """

    def adopt(
        self, plan: Plan, folder: Path, inbox: Inbox, lives: Mapping[str, Life]
    ) -> dict[str, str]:
        """Take over the tasks of a run whose supervisor was killed. Capability `adopt`.

        Returns the tasks whose start was made, with their ids; what they have printed since, and
        their end, are told as of any other.
        """

    def signal(self, task: str, number: int) -> None:
        """Send a signal to a task; nothing happens where it has already ended."""

    def pause(self, task: str) -> None:
        """Freeze a task: it keeps everything and does nothing. Capability `pause`.

        Raises EngineError where it does not run.
        """

    def resume(self, task: str) -> None:
        """Let a frozen task go on."""

    def throttle(self, task: str, cpus: float | None) -> None:
        """Limit a running task to so many cores; None: no limit. Capability `throttle`."""

    def squeeze(self, task: str) -> None:
        """Have the kernel kill a task for want of memory. Capability `oom`.

        Returns once it is dead and has its limit again; raises EngineError where it survives.
        """

    @property
    def can_shape(self) -> bool:
        """Whether all is there that `shape` takes; if not, `equip` makes it. Costs nothing."""

    def equip(self, say: Callable[[str], None]) -> None:
        """Make what `shape` takes, and say what that is; it may take minutes.

        Raises ImageError, EngineError. Capability `network`.
        """

    def shape(self, links: Sequence[Link]) -> None:
        """Make packets between tasks meet `links` and nothing else, also after restarts.

        Capability `network`.
        """

    def usage(self) -> Mapping[str, Usage]:
        """Return what each running task has used since its start. Capability `usage`.

        Asked again and again: it is to be cheap. Raises EngineError.
        """

    def pids(self) -> Mapping[str, Collection[int]]:
        """Return each running task's processes as this machine numbers them; capability `usage`.

        Empty where the tasks run on another.
        """

    def remove(self, task: str) -> None:
        """Remove a task and its disk, running or not."""

    def tear_down(self, run_id: str) -> int:
        """Remove all that carries the run id, as far as it is there; return how many things."""

    def find(self, run_id: str | None = None) -> list[Found]:
        """Return what runs have made and not removed."""

    def close(self) -> None:
        """Let go of connections and reservations; tasks go on."""


class Incapable:
    """Says no to what only some engines can do; `require` has seen to it that nobody asks."""

    name = ""
    can_shape = False

    def disks(self, scenario: Scenario) -> Sequence[Disk]:
        """None."""
        return ()

    def pause(self, task: str) -> None:
        """Refused."""
        raise self._refusal(f"pause {task}")

    def resume(self, task: str) -> None:
        """Refused."""
        raise self._refusal(f"let {task} go on")

    def throttle(self, task: str, cpus: float | None) -> None:
        """Refused."""
        raise self._refusal(f"limit the CPU of {task}")

    def squeeze(self, task: str) -> None:
        """Refused."""
        raise self._refusal(f"limit the memory of {task}")

    def equip(self, say: Callable[[str], None]) -> None:
        """Refused."""
        raise self._refusal("change the network")

    def shape(self, links: Sequence[Link]) -> None:
        """Refused."""
        raise self._refusal("change the network")

    def adopt(
        self, plan: Plan, folder: Path, inbox: Inbox, lives: Mapping[str, Life]
    ) -> dict[str, str]:
        """Refused."""
        raise self._refusal("take over a run whose emulator is gone")

    def _refusal(self, what: str) -> Unsupported:
        return Unsupported(f"The {self.name} engine can't {what}.")


def require(scenario: Scenario, engine: Engine) -> None:
    """Refuse a scenario that asks for what `engine` can't do, or more than its machine has.

    Raises Unsupported with every such thing, and the engine that can; Misfit for a task that
    may take more memory than there is. The engine is asked for it only where a limit is set.
    """
    require_of(engine, needs(scenario))
    if any(spec.memory is not None for spec in scenario.cluster.values()):
        fits(scenario, engine.capacity())


def fits(scenario: Scenario, capacity: Capacity) -> None:
    """Refuse limits on memory beyond what the machine has: they would limit nothing (pure).

    Raises Misfit.
    """
    for role, spec in scenario.cluster.items():
        if (spec.memory or 0) > capacity.memory:
            raise Misfit(
                ("cluster", role, "memory"),
                f"{format_size(spec.memory or 0)} is more than the "
                f"{format_size(capacity.memory)} that the engine's machine has",
                "write less, or leave it out",
            )


def require_of(engine: Engine, asked: Iterable[tuple[str, str]]) -> None:
    """Refuse what `engine` has no capability for; `asked` pairs things with what they take."""
    lacking = [(what, needed) for what, needed in asked if needed not in engine.capabilities]
    if lacking:
        things = "; ".join(what for what, _ in lacking)
        raise Unsupported(
            f"The {engine.name} engine can't do this: {things}.",
            _advice(engine),
            lacks=machine_needs(lacking),
        )


def machine_needs(asked: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return what a machine must have for such things: docker, and gpu or network (pure)."""
    beside = {"gpus": "gpu", "network": "network"}
    return frozenset({"docker"}) | {beside[needed] for _, needed in asked if needed in beside}


def needs(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield what a scenario asks for beyond the mandatory, with the capability it takes (pure)."""
    for role, spec in scenario.cluster.items():
        if spec.cpus is not None:
            yield f"a CPU limit for {role}", "limits"
        if spec.memory is not None:
            yield f"a memory limit for {role}", "limits"
        if spec.processes is not None:
            yield f"a limit of processes for {role}", "limits"
        if spec.gpus.count:
            yield f"GPUs for {role}", "gpus"
    if not scenario.network.internet:
        yield "a network without internet", "isolation"
    if scenario.network.metadata == "closed":
        yield "a closed metadata address", "isolation"
    if scenario.network.delay:
        yield "network delay", "network"
    if scenario.network.bandwidth is not None:
        yield "limited bandwidth", "network"
    for fault in scenario.faults:
        yield from fault.needs()


def _advice(engine: Engine) -> str:
    if engine.name == "process":
        return "Use --engine docker, or leave these out."
    return "Leave these out."
