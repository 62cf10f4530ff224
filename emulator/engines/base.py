"""The interface between the emulator and the engines that run tasks.

`Engine` has the methods of every engine: it starts tasks, signals and removes them, and puts their
lines and exits into the supervisor's inbox; also entries for the history alone, which decide
nothing: `EngineNote`, `OutputLeftOut`. Calls block, and several threads may make them at once.
Everything that an engine makes is labelled with the run id, so that another process can find it; an
engine has no state of its own on disk.

Everything that only some engines can do is a capability, most with a protocol of their own:
`capabilities.py` lists them. `requirements.py` refuses a scenario before anything starts.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from emulator.errors import EngineError

if TYPE_CHECKING:
    from emulator.engines.kit.command_line import CommandLine
    from emulator.faults.netem import Link
    from emulator.metrics.catalog import Usage
    from emulator.planning.claims import Capacity
    from emulator.planning.context import PlanContext
    from emulator.planning.plan import Plan, Task
    from emulator.scenario.schema import Scenario


class Line(NamedTuple):
    """A task printed a line, or draws one that is not finished."""

    task: str
    """Or the init step of one: `worker-0.fetch`."""
    wall: float
    """Seconds since 1970, by the engine's clock."""
    text: str
    is_finished: bool = True
    """If not, the text is the end of what a progress bar has drawn, see `lines.DrawnLine`. It is
    not stored: the whole line follows when it is finished."""


@dataclass(frozen=True)
class Lines:
    """Lines of any tasks, in the order in which each task printed them."""

    lines: Sequence[Line]


@dataclass(frozen=True)
class Exited:
    """A task ended. Each start is followed by exactly one of these, after its last line."""

    task: str
    wall: float
    exit_code: int
    """128 + the signal's number where a signal ended it."""
    oom_killed: bool = False
    reason: str = ""
    """Why, in the engine's word, where it has one: `Evicted`, `DeadlineExceeded`."""
    precision: float = 0.0
    """Seconds by which it may have ended later than `wall`: a cluster cuts off fractions."""
    outlived: Sequence[Mapping[str, Any]] | None = None
    """Of a task whose end is watched: what ran on when its main process had ended, as
    `TaskProcesses` has it. None: unknown."""

    def was_before(self, wall: float) -> bool:
        """Return whether the task had surely ended by then (seconds since 1970)."""
        return self.wall + self.precision < wall


@dataclass(frozen=True)
class EngineDown:
    """The engine no longer answers; no more events will come."""

    error: EngineError


@dataclass(frozen=True)
class ResumePoint:
    """What is known of a task after its supervisor was killed."""

    printed: Sequence[str]
    """Its lines as far as they were read, including those of earlier starts."""
    since: float
    """When the start that is still running was requested (seconds since 1970); infinite: none."""


LINES_WAITING = 10_000
"""Lines in an inbox at most; a reader thread that has one more blocks until there is room."""
CHARACTERS_WAITING = 32 * 2**20
"""Characters of all these lines at most; one line may have a million."""
REST = 4 * 2**20
"""Bytes that are still read of each output once the outcome of a run is settled."""
LAST_LINES = 1000
"""Lines at the end of an output that are reported although more than that was left to read."""


_URGENT = object()
"""The place in the queue of an urgent event."""


class Inbox:
    """The queue of an engine's events; the supervisor's own events use it too.

    Only lines wait for room. Other events may be put from anywhere, even from a signal handler.
    Urgent ones overtake the lines: what the user wants does not wait for what tasks print.
    """

    def __init__(self) -> None:
        self.rest: int | None = None
        """Bytes that are still wanted of each output, from when this is set; None: all."""
        self._urgent: deque[object] = deque()
        self._hurry = threading.Event()
        self._hurry.set()
        self._events: queue.SimpleQueue[tuple[object, int, int]] = queue.SimpleQueue()
        """Events, and of lines their number and that of their characters."""
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._lines = self._characters = self._waiting = 0
        self._overtaken = 0
        """Urgent events that were taken before their place in the queue was reached."""

    @property
    def hurried(self) -> bool:
        """Whether lines should arrive at once, because something may follow from them."""
        return self._hurry.is_set()

    @hurried.setter
    def hurried(self, value: bool) -> None:
        if value != self._hurry.is_set():  # to set it takes a lock
            self._hurry.set() if value else self._hurry.clear()

    def wait_until_hurried(self, seconds: float) -> None:
        """Wait until lines should arrive at once, for so many seconds at most."""
        self._hurry.wait(seconds)

    def put(self, event: object, *, urgent: bool = False) -> None:
        """Add an event; lines wait until there is room for some."""
        if urgent:
            self._urgent.append(event)
            event = _URGENT
        if isinstance(event, Line):
            event = Lines((event,))
        lines = characters = 0
        if isinstance(event, Lines):
            lines, characters = len(event.lines), sum([len(line.text) for line in event.lines])
            with self._lock:
                while self._lines >= LINES_WAITING or self._characters >= CHARACTERS_WAITING:
                    self._waiting += 1
                    self._room.wait()
                    self._waiting -= 1
                self._lines += lines
                self._characters += characters
        self._events.put((event, lines, characters))

    def get(self, *, timeout: float | None = None) -> Any:  # noqa: ANN401  any event
        """Return the next event; raises queue.Empty after `timeout` seconds."""
        while True:
            if self._urgent:
                self._overtaken += 1
                return self._urgent.popleft()
            event, lines, characters = self._events.get(timeout=timeout)
            if event is not _URGENT:
                break
            self._overtaken -= 1
        if lines:
            with self._lock:
                self._lines -= lines
                self._characters -= characters
                if self._waiting:
                    self._room.notify()
        return event

    def empty(self) -> bool:
        """Say whether there is no event."""
        return self._events.qsize() <= self._overtaken


@dataclass(frozen=True)
class Resource:
    """Something that an engine made for a run: a container, a network, a volume, a process."""

    run_id: str
    kind: str
    name: str
    state: str
    folder: str
    """The run folder on the machine that started it."""
    host: str

    @property
    def is_lent(self) -> bool:
        """Whether it was there before the run, which has only changed it: that is undone."""
        return self.kind == "node"


Status = Literal["ok", "optional", "missing", "warning", "fatal"]
"""`optional`: it is not there, and most runs do not need it."""


@dataclass(frozen=True)
class Finding:
    """One result of `emulate doctor`."""

    what: str
    status: Status
    found: str
    advice: str = ""
    below: str = ""
    """Lines to be printed below all findings, such as a Role."""


class Engine(Protocol):
    """The methods of every engine.

    The code that opens an engine closes it: `with contextlib.closing(choose(...)) as engine`.
    """

    name: str
    capabilities: frozenset[str]
    """Names from `capabilities.capabilities`."""
    machine_needs: Mapping[str, str]
    """Capability -> what the machine needs for it besides the engine: `gpu`, `network`."""

    def plan_context(self, run_id: str, folder: Path) -> PlanContext:
        """Return what the plan of a run needs to know of the engine."""

    def capacity(self) -> Capacity:
        """Return the cores, memory in bytes and GPUs that tasks can get. Raises EngineError."""

    def ensure_images(self, scenario: Scenario, say: Callable[[str], None]) -> None:
        """Build or pull every image of the scenario that is missing; report progress to `say`.

        Raises ImageError.
        """

    def prepare(self, plan: Plan, folder: Path, inbox: Inbox) -> None:
        """Make the network and the volume that the tasks share; events go to `inbox`.

        Raises EngineError: NameTaken if something that is not this run's has such a name. Nothing
        was made then, and `tear_down` must not be called, as it may be another run's.
        """

    def start(self, task: Task, *, same_address: bool = False) -> str:
        """Start a task; return its container id or pid.

        With capability `same-disk` it has the disk it had if it ran before and was not removed.
        With `same_address` a removed task gets its address again (capability `same-address`).
        With capability `pods`, the init steps of a task on a fresh disk come first: this returns
        when they have succeeded and the task was started, or when one has failed or was stopped,
        which is then the exit of the task. `signal` may be called meanwhile. Raises EngineError.
        """

    def signal(self, task: str, number: int) -> None:
        """Send a signal to a task's own command, if that has not ended yet; SIGKILL ends all of it.

        Raises EngineError.
        """

    def remove(self, task: str) -> None:
        """Remove a task and its disk, running or not."""

    def tear_down(self, run_id: str) -> int:
        """Remove everything of a run; return how many resources were removed."""

    def find(self, run_id: str | None = None) -> list[Resource]:
        """Return what still exists of a run, or of all runs."""

    def close(self) -> None:
        """Close connections and release reservations; running tasks are left alone.

        A second call does nothing.
        """


@runtime_checkable
class Configuring(Protocol):
    """An engine that a scenario has settings of its own for. It has no capability name."""

    def configure(self, scenario: Scenario) -> None:
        """Take the settings, before anything else is asked of the engine. Raises EngineMissing."""

    @staticmethod
    def place_of(scenario: Scenario) -> Hashable:
        """Return where these settings lead: what is found at the same place is found once."""


@runtime_checkable
class Identifying(Protocol):
    """An engine that knows what its tasks run in. It has no capability name."""

    def software(self, plan: Plan) -> Mapping[str, Mapping[str, str]]:
        """Return what is known of each image (empty: this machine): `id`, `base`, versions by name.

        Called once, before the run begins: it must take milliseconds. An error fails no run.
        """


@runtime_checkable
class Queueing(Protocol):
    """An engine whose `start` may wait long for its turn, such as in a cluster's queue.

    It has no capability name. Each start then has a thread of its own.
    """

    starts_wait: bool


@runtime_checkable
class Storing(Protocol):
    """An engine that fills disks of this machine besides that of the run folder.

    It has no capability name.
    """

    def storage(self) -> Sequence[Path]:
        """Return a folder of each of these disks; none if the engine is elsewhere."""


@runtime_checkable
class Looking(Protocol):
    """An engine that can see which files tasks have left. It has no capability name."""

    def look(self, where: str, since: float) -> Mapping[str, Any]:
        """Return what was written on a task's own disk, or on the volume `shared`, since a time.

        As `saved_files.listed` has it; `since` in seconds since 1970. A task has ended.
        Raises EngineError where that can't be seen.
        """


@runtime_checkable
class Reading(Protocol):
    """An engine that can read the files that tasks have left. It has no capability name."""

    def read_files(self, where: str, program: str, request: Mapping[str, Any]) -> str:
        """Run a Python program that has the files of a task that has ended, or of `shared`.

        It has the packages that tasks have. Its argument is the request as JSON, to which the
        engine adds `folder`, and `since`, if older files are not the run's (seconds since 1970).
        Returns what it prints. Raises EngineError, also if it fails.
        """


@runtime_checkable
class Watched(Protocol):
    """An engine that lets a program watch the files of tasks. It has no capability name."""

    def watch_files(
        self,
        program: str,
        since: float,
        told: Callable[[str], object],
        opened: Callable[[Callable[[], object]], object],
    ) -> None:
        """Run a Python program that watches the files of a run; blocks until it ends.

        Its request has `since` (seconds since 1970), and `folders`: `shared`, and `own`, in which
        each task has a folder with its name, where the engine has such a one. `told` gets each line
        that it prints, and `opened` what ends its input, at any time and as often as one likes: it
        tells the rest then, and ends. One that a killed emulator has left is replaced. Raises
        EngineError where it can't run.
        """


@runtime_checkable
class GpusElsewhere(Protocol):
    """An engine whose GPUs are not this machine's, so that NVML here does not measure them.

    It has no capability name.
    """

    why_no_gpus: str
    """Why no GPUs are sampled, for the record."""


# --- Capabilities -------------------------------------------------------------------------------


@runtime_checkable
class Shaping(Protocol):
    """Capability `network`."""

    @property
    def can_shape(self) -> bool:
        """Whether everything that `shape` needs exists; if not, `equip` makes it. Cheap."""

    def equip(self, say: Callable[[str], None]) -> None:
        """Make what `shape` needs, which may take minutes; report progress to `say`.

        Raises ImageError, EngineError.
        """

    def shape(self, links: Sequence[Link]) -> None:
        """Apply `links` to the packets between tasks and to no others, also after restarts."""


@runtime_checkable
class Measuring(Protocol):
    """Capability `usage`. Called at every sampling interval: both must be cheap."""

    def usage(self) -> Mapping[str, Usage]:
        """Return the usage of each running task since its start. Raises EngineError."""

    def pids(self) -> Mapping[str, Collection[int]]:
        """Return each running task's process ids; empty where it runs on another machine."""


class TaskProcess(NamedTuple):
    """A process of a running task."""

    pid: int
    """As the engine's machine numbers it."""
    name: str
    main: bool
    """It runs the task's command, and its end is the end of the task."""
    handled: frozenset[int] | None = None
    """The signals that it catches or ignores; None: unknown."""


def numbers_in(*masks: str) -> frozenset[int] | None:
    """Return the signals in masks of the kernel, in hexadecimal; None where one is none (pure)."""
    try:
        bits = reduce(or_, (int(mask, 16) for mask in masks))
    except (TypeError, ValueError):
        return None
    return frozenset(bit + 1 for bit in range(bits.bit_length()) if bits >> bit & 1)


@runtime_checkable
class Witnessing(Protocol):
    """Capability `processes`: what processes a task has. Asked before and after a preemption."""

    def processes(self, task: str) -> Sequence[TaskProcess]:
        """Return the processes of a running task, its main one first.

        Raises NotRunning, EngineError.
        """

    def watch_end(self, task: str) -> None:
        """Have the exit of a running task say what outlives its main process (`Exited.outlived`).

        Its exit may be reported later for that, with the time at which the main process ended.
        Nothing happens where the engine can't see it: in a container the kernel ends everything
        with its first process.
        """


@runtime_checkable
class Reattaching(Protocol):
    """Capability `reattach`."""

    def reattach(
        self, plan: Plan, folder: Path, inbox: Inbox, lives: Mapping[str, ResumePoint]
    ) -> dict[str, str]:
        """Take over the tasks of a run whose supervisor was killed.

        Returns the ids of the tasks that were started. Their lines since then, and their exits, are
        reported to `inbox`.
        """


@runtime_checkable
class Warming(Protocol):
    """Capability `warm`: tasks are forked from a parent that has imported modules before."""

    def lease_warm(self, plan: Plan) -> Plan:
        """Return the plan with prepared containers, or new ones; called before `prepare`.

        Raises Unsupported if no task can start warm, EngineError.
        """

    def give_back(self, plan: Plan) -> int:
        """Let the containers wait for the next run, instead of `tear_down`.

        Returns how many resources were removed.
        """

    @staticmethod
    def waits(folder: Path) -> bool:
        """Return whether what is labelled with a folder waits for the next run."""

    @staticmethod
    def remove_waiting(session: str) -> None:
        """Remove what waits for runs of a test session. Raises EngineError."""


@runtime_checkable
class Addressing(Protocol):
    """Capabilities `new-address` and `same-address`."""

    @property
    def keeps_addresses(self) -> bool:
        """Whether a fault injected by hand may choose the address of a restarted task."""


@runtime_checkable
class Publishing(Protocol):
    """Capability `ports`: programs of this machine reach ports of tasks and helpers.

    An engine without the capability `port-mapping` has each port at its own number.
    """

    def published(self, task: str) -> Mapping[int, str]:
        """Return where each published port of a running task is: its number -> `host:port`.

        Empty if the task has ended. Raises EngineError.
        """


@runtime_checkable
class Executing(Protocol):
    """Capability `exec`."""

    def command_line(
        self, plan: Plan, folder: Path, task: str, command: Sequence[str], *, terminal: bool
    ) -> CommandLine:
        """Return what runs a command in a running task, and ends with its exit code.

        The run is under way in another process. The command has the environment of the task, its
        folder and network, and our stdin, stdout and stderr; with `terminal`, they are one. Raises
        UsageError if the task does not run, EngineError.
        """


@runtime_checkable
class Explaining(Protocol):
    """Shows users what the engine does. No scenario needs it, so it has no capability name."""

    def requests(self, plan: Plan, folder: Path) -> list[dict[str, Any]]:
        """Return exactly what the engine will be asked for each task, and do nothing."""

    def inspect_commands(self, run_id: str, folder: Path) -> Iterable[str]:
        """Yield shell commands that show what is left of a run."""

    @staticmethod
    def examine(scenario: Scenario | None = None) -> Iterable[Finding]:
        """Check this machine for the engine; the first finding says whether it can run tasks.

        With a scenario: for what that needs of it, as far as the engine knows.
        """


@runtime_checkable
class Granting(Protocol):
    """An engine whose login needs rights that somebody else grants."""

    @staticmethod
    def rights(scenario: Scenario | None = None) -> str:
        """Return these rights, as whoever grants them needs them: YAML with comments."""


def no_metadata(task: str) -> EngineError:
    """Return the error of a notice in a run that serves no metadata."""
    return EngineError(
        f"{task} can't be told: the run has no metadata server.",
        "A fault in the scenario with `metadata` makes one; strikes by hand then have it as well.",
    )
