"""Calls of the engine, each on a worker thread: the supervisor never waits for one task.

The result of a call arrives in the inbox as `Called`.

Lasting faults are desired state. The supervisor's thread says which are in force; each call that
follows gives the engine all that holds then: every network link, and for a task the sum of its held
faults. So the order of the calls does not matter, two faults never undo each other, and a task that
starts again is brought into its state before it is reported as running.

A start waits until the calls that may end its task have returned: a late SIGKILL must not end what
has replaced its target.
"""

from __future__ import annotations

import contextlib
import json
import math
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from emulator.engines.base import (
    Engine,
    Inbox,
    Looking,
    Publishing,
    Queueing,
    Reading,
    Shaping,
    Witnessing,
)
from emulator.engines.capabilities import capable
from emulator.errors import EmulatorError, EngineLost, NotRunning
from emulator.faults.platforms.notices import Announcing
from emulator.faults.spec import NOTHING_MORE, Effect, FaultContext, ending_grace
from emulator.record.events import SavedFiles
from emulator.runtime.programs import program_of
from emulator.supervisor.task_processes import described, listed
from emulator.supervisor.tracing import Tracing

if TYPE_CHECKING:
    from emulator.faults.netem import Link
    from emulator.faults.schedule import PlannedFault
    from emulator.planning.plan import Plan, Task
    from emulator.runtime.clock import Clock, Workers

READER = ("faults.saved_files", "supervisor.witness.arrays")
"""The program that reads what tasks have left."""
BASE = ""
"""In place of a fault's id: the links that a scenario has all the time."""

FaultOperation = Literal["announce", "find", "inject", "repeat", "kill", "heal"]
Operation = Literal["start", "stop", "equip", "port lookup", "watch"] | FaultOperation


@dataclass(frozen=True)
class Called:
    """An engine call has returned."""

    operation: Operation
    subject: str = ""
    """The fault's id of a `FaultOperation` and of `watch`, otherwise the task."""
    answer: str = ""
    """Of `start` the container's id or the process id, of `stop` the signal's name."""
    error: EmulatorError | None = None
    ports: Mapping[int, str] = field(default_factory=dict)
    """Where the ports of a task are that was started."""
    effect: Effect = NOTHING_MORE
    """Of `inject`: what the engine did for the fault; of `find`: what it would change."""
    wall: float = 0.0
    """When the engine had answered; of `heal` when it was asked, of `start` when the task had all
    faults again that hold on it (seconds since 1970)."""
    held: Mapping[str, EmulatorError | None] = field(default_factory=dict)
    """Of `start`: the faults that the task has again, with the engine's refusal if there is one."""


@dataclass(frozen=True)
class Preparing:
    """The engine makes something that faults wait for."""

    what: str


class EngineCalls:
    """The engine's calls for supervisor, injector and watchdog; they return at once."""

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        inbox: Inbox,
        workers: Workers,
        clock: Clock,
        *,
        started: Mapping[str, float] | None = None,
    ) -> None:
        """`started`: when a supervisor before this one first started each task; None: none did."""
        self._plan, self._engine, self._inbox, self._workers = plan, engine, inbox, workers
        self._wall = clock.wall
        self._links: dict[str, Sequence[Link]] = {BASE: plan.links} if plan.links else {}
        self._links_lock = threading.Lock()
        self._held: dict[str, PlannedFault] = {}
        """The held faults that are in force, by id."""
        self._held_locks = {one.name: threading.Lock() for one in plan.everything}
        self._tracing = Tracing(plan, engine, inbox, workers, clock.wall, Called, self._lost)
        self.watch, self.let_go = self._tracing.watch, self._tracing.let_go
        self.go, self.miss = self._tracing.go, self._tracing.miss
        self._looks = isinstance(engine, Looking) and started is None
        self._first_starts = dict(started or {})
        """When each task was first started (seconds since 1970)."""
        self._changes: dict[str, Callable[[], Effect]] = {}
        """What makes the changes of faults that were found, by the fault's id."""
        self._looking = False
        """A look at /shared is under way."""
        self._asked: dict[str, float] = {}
        """When the engine was first asked for a fault (seconds since 1970), by id."""
        self._signals_lock = threading.Lock()
        self._signals = Counter[str]()
        """How many calls are under way that may end a task."""
        self._waiting: dict[str, Callable[[], object]] = {}
        """The start of a task that waits for these."""
        self._renewed = set[str]()
        """The tasks that are new machines at their next start, which was told of nothing."""
        itself = ending_grace(engine)
        self.kill_slack = None if itself is None else itself.kill_slack
        """Seconds after a grace period in which the engine itself has killed the task; None: it
        kills none by itself."""

    @property
    def can_shape(self) -> bool:
        """Whether the engine has what network faults need; else `equip` makes it."""
        return capable(self._engine, Shaping).can_shape

    def asked_at(self, fault: PlannedFault) -> float:
        """Return when the engine was asked for a fault (seconds since 1970); infinite: not yet."""
        return self._asked.get(fault.id, math.inf)

    def start(self, task: Task, *, fresh: bool = False, same_address: bool = False) -> None:
        """Start a task, on a fresh disk if asked to."""
        queueing = isinstance(self._engine, Queueing) and self._engine.starts_wait
        if self._looks and task.name in self._first_starts and not self._looking:
            self._looking = True
            self._workers.aside(self._look_at_shared)
        start = partial(self._start, task, fresh, same_address)
        # What it waits for may be another task, which must not wait for a thread.
        aside = task.init or queueing or task.held
        begin = partial(self._workers.aside if aside else self._workers.submit, start)
        with self._signals_lock:
            if self._signals[task.name]:
                self._waiting[task.name] = begin
                return
        begin()

    def look_up_ports(self, task: Task) -> None:
        """Ask where the ports of a running task are."""
        self._workers.submit(self._look_up_ports, task)

    def stop(self, task: str, number: signal.Signals) -> None:
        """Signal a task, not as a fault."""
        self._begin_signal(task)
        self._workers.submit(self._signal, Called("stop", task, number.name), number)

    def perform(
        self,
        operation: FaultOperation,
        fault: PlannedFault,
        announced: float = 0.0,
        found: Mapping[str, Any] | None = None,
    ) -> None:
        """Announce a fault, make it happen, kill its target after the grace period, or heal it.

        `announced` is when it was, or the time now (seconds since 1970); `found`: what a killed
        supervisor was about to change.
        """
        if operation == "inject":
            self._put_in_force(fault)
        elif operation == "heal":
            if fault.links:
                self._links = {**self._links, fault.id: ()}
            self._held = {id_: one for id_, one in self._held.items() if id_ != fault.id}
            # A killed supervisor may have put it in force.
            self._held_locks.setdefault(fault.target, threading.Lock())
        if fault.spec.ends_target:
            self._begin_signal(fault.target)
        if operation == "find":
            self._workers.submit(self._find, Called(operation, fault.id), fault, found)
        else:
            self._workers.submit(self._act, Called(operation, fault.id), fault, announced)

    def expect_new_machine(self, fault: PlannedFault) -> None:
        """Have what a target was told withdrawn before it is started the next time."""
        if any(capability == "notices" for _, capability in fault.spec.needs()):
            self._renewed.add(fault.target)

    def restore(self, fault: PlannedFault) -> None:
        """Have a fault in force that a killed supervisor had made happen.

        Network links are given to the engine with `update_links`.
        """
        self._put_in_force(fault)
        if fault.spec.is_held:
            self._workers.submit(
                self._act, Called("inject", fault.id), fault, self._wall(), NotRunning
            )

    def _put_in_force(self, fault: PlannedFault) -> None:
        if fault.links:
            self._links = {**self._links, fault.id: fault.links}
        if fault.spec.is_held:
            self._held = {**self._held, fault.id: fault}
            self._held_locks.setdefault(fault.target, threading.Lock())

    def _begin_signal(self, task: str) -> None:
        with self._signals_lock:
            self._signals[task] += 1

    def equip(self) -> None:
        """Have the engine make what network faults need; this may take minutes."""
        self._workers.aside(self._equip)

    def update_links(self) -> None:
        """Give the engine all links that should exist now; unlike the others this one blocks."""
        with self._links_lock:
            if links := self._links:
                capable(self._engine, Shaping).shape(list(chain.from_iterable(links.values())))

    def look_at_end(self, task: str) -> SavedFiles | None:
        """Return what a task that has ended has saved on its own disk; None: it is not known.

        Blocks: Docker walks through the files of the image for it, which takes it up to seconds.
        """
        if not isinstance(self._engine, Looking) or task not in self._first_starts:
            return None
        with contextlib.suppress(EmulatorError):
            return SavedFiles(**self._engine.look(task, self._first_starts[task]), task=task)
        return None

    def read_results(self, known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return what the tasks of the training have left, as `results.json` has it; blocks.

        What is `known` of files is what another run has left: of one of the same digest, only that
        is read.
        """
        found: dict[str, Any] = {"files": {}, "unread": []}
        if not isinstance(self._engine, Reading) or not self._first_starts:
            return found
        since = min(self._first_starts.values())
        places = ["shared", *(task.name for task in self._plan.in_training)]
        program = program_of(*READER, main=READER[-1])
        for where in places:
            begin = f"/{where}/" if where == "shared" else f"{where}/"
            here = {
                path.removeprefix(begin): file
                for path, file in known.items()
                if path.startswith(begin)
            }
            asked = {
                "known": {path: file["digest"] for path, file in here.items() if "digest" in file},
                "wanted": [*here],
                "since": self._first_starts.get(where, since),
            }
            try:
                printed = self._engine.read_files(where, program, asked)
                files = json.loads(printed.splitlines()[-1])["files"]
            except (EmulatorError, ValueError, LookupError) as error:
                found["unread"].append(f"what is in {begin}: {error}")
                continue
            found["files"].update({f"{begin}{path}": file for path, file in files.items()})
        return found

    # --- On a worker ----------------------------------------------------------------------------

    def _start(self, task: Task, fresh: bool, same_address: bool) -> None:
        answer = ""
        with self._reported(Called("start", task.name), only_errors=task.held) as found:
            if task.name in self._renewed:
                self._renewed.discard(task.name)
                capable(self._engine, Announcing).withdraw(task.name)
            self._look_at_disk(task.name, removed=fresh)
            if fresh:
                self._engine.remove(task.name)
            found["answer"] = answer = self._engine.start(task, same_address=same_address)
            if not task.held:
                found["held"], found["wall"] = self._hold(task.name)
        if task.held and "error" not in found:
            self._begin(task, answer)
        elif task.ports:
            self._look_up_ports(task)

    def _look_at_disk(self, task: str, *, removed: bool) -> None:
        """Report what a task that is started again has on its disk."""
        if task not in self._first_starts:
            self._first_starts[task] = self._wall()
        elif self._looks:
            self._look(task, self._first_starts[task], task=task, removed=removed)

    def _look_at_shared(self) -> None:
        self._look("shared", min(self._first_starts.values()))
        self._looking = False

    def _look(self, where: str, since: float, **of: Any) -> None:  # noqa: ANN401  fields
        assert isinstance(self._engine, Looking)
        with contextlib.suppress(EmulatorError):  # it is unknown then
            self._inbox.put(SavedFiles(**self._engine.look(where, since), **of))

    def begin_again(self, task: Task, answer: str) -> None:
        """Trace a task that may wait behind its gate since its emulator was killed."""
        self._workers.aside(partial(self._begin, task, answer))

    def _begin(self, task: Task, answer: str) -> None:
        """Report that a task runs, which has started behind a gate, once it is held there.

        Blocks as long as it is traced.
        """

        def ran() -> None:
            with self._reported(Called("start", task.name, answer)) as found:
                found["held"], found["wall"] = self._hold(task.name)
            if task.ports:
                self._look_up_ports(task)

        self._tracing.begin(task.name, ran)

    def _look_up_ports(self, task: Task) -> None:
        with self._reported(Called("port lookup", task.name)) as found:
            found["ports"] = capable(self._engine, Publishing).published(task.name)

    def _signal(self, call: Called, number: signal.Signals) -> None:
        with self._reported(call):
            self._engine.signal(call.subject, number)
        self._end_signal(call.subject)

    def _end_signal(self, task: str) -> None:
        """A call that may end a task has returned: begin what has waited for the last of them."""
        with self._signals_lock:
            self._signals[task] -= 1
            begin = None if self._signals[task] else self._waiting.pop(task, None)
        if begin is not None:
            begin()

    def _act(
        self, call: Called, fault: PlannedFault, announced: float, *ignored: type[EmulatorError]
    ) -> None:
        with (
            self._reported(call) as found,
            contextlib.suppress(*ignored),
            self._target(fault.target, held=fault.spec.is_held) as acted_on,
        ):
            target = replace(acted_on, announced=announced, at_call=bool(fault.watched))
            match call.operation:
                case "announce":
                    fault.spec.announce(target)
                case "repeat":
                    fault.spec.repeat(target)
                case "kill":
                    self._note_processes(fault, "kill")
                    fault.spec.end_grace(target)
                case "heal":
                    # Not before: until now a start may have held the task.
                    found["wall"] = self._wall()
                    fault.spec.heal(target)
                case _:
                    self._note_processes(fault, "signal")
                    self._asked.setdefault(fault.id, self._wall())
                    change = self._changes.pop(fault.id, partial(fault.spec.apply, target))
                    found["effect"] = change() or NOTHING_MORE
        if fault.spec.ends_target:
            self._end_signal(fault.target)

    def _find(self, call: Called, fault: PlannedFault, earlier: Mapping[str, Any] | None) -> None:
        with self._reported(call) as found, self._target(fault.target, held=False) as acted_on:
            target = replace(acted_on, at_call=bool(fault.watched))
            changed, self._changes[fault.id] = fault.spec.find(target, earlier)
            found["effect"] = Effect(changed=changed)

    def _note_processes(self, fault: PlannedFault, moment: Literal["signal", "kill"]) -> None:
        """Report which processes a task has just before it gets a signal."""
        engine, task, spec = self._engine, fault.target, fault.spec
        if "processes" not in engine.capabilities or not (
            spec.replaces_target or spec.sends != "none"
        ):
            return
        assert isinstance(engine, Witnessing), "its capability"
        with contextlib.suppress(EmulatorError):  # then it is unknown, which is no failure
            found = engine.processes(task)
            # Else, as in a container, nothing outlives the command: all of it ends at once.
            if moment == "signal" and spec.replaces_target and spec.to_all:
                engine.watch_end(task)
            seen = [described(one, spec, moment) for one in found]
            self._inbox.put(listed(task, fault.id, moment, seen))

    def _hold(self, task: str) -> tuple[dict[str, EmulatorError | None], float]:
        """Bring a task into the state of all held faults that are in force on it.

        Returns these, each with the engine's refusal if there was one; none of a task that has
        ended. And when that was done (seconds since 1970): before any of them is healed.
        """
        held: dict[str, EmulatorError | None] = {}
        with self._target(task, held=True) as target:
            for one in [one for one in self._held.values() if one.target == task]:
                try:
                    one.spec.apply(target)
                    held[one.id] = None
                except NotRunning:
                    pass
                except EmulatorError as refusal:
                    held[one.id] = refusal
            return held, self._wall()

    @contextlib.contextmanager
    def _target(self, name: str, *, held: bool) -> Iterator[FaultContext]:
        """Return a task for a fault to act on; alone, if the fault is `held`."""
        cpus = next((task.cpus for task in self._plan.tasks if task.name == name), None)
        with self._held_locks[name] if held else contextlib.nullcontext():
            active = [one.spec for one in self._held.values() if one.target == name]
            follow = partial(self._tracing.follow, name)
            first = {**self._first_starts}
            since = first.get(name, min(first.values(), default=0.0))
            context = FaultContext(self._engine, name, cpus, self.update_links, active, follow)
            yield replace(context, since=since)

    def _lost(self, task: str, refusal: EmulatorError) -> None:
        """A tracer that has held faults on a task can't go on: they have failed."""
        for one in list(self._held.values()):
            if one.target == task and one.spec.rule is not None:
                self._inbox.put(Called("inject", one.id, error=refusal, wall=self._wall()))

    def _equip(self) -> None:
        with self._reported(Called("equip")):
            capable(self._engine, Shaping).equip(lambda what: self._inbox.put(Preparing(what)))

    @contextlib.contextmanager
    def _reported(self, call: Called, *, only_errors: bool = False) -> Iterator[dict[str, Any]]:
        """Put the result of a call into the inbox, with the fields that the block finds."""
        found: dict[str, Any] = {}
        try:
            yield found
        except EmulatorError as refusal:
            found["error"] = refusal
        except Exception as defect:  # it must end the run, not hang it
            what = f"{call.operation} {call.subject}".strip()
            found["error"] = EngineLost(f"Calling the engine to {what} failed: {defect!r}")
        if "error" in found or not only_errors:
            self._inbox.put(replace(call, **{"wall": self._wall(), **found}))
