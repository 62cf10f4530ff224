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

from emulator.engines.base import Engine, Inbox, Publishing, Queueing, Shaping
from emulator.engines.capabilities import capable
from emulator.errors import EmulatorError, EngineError, EngineLost, NotRunning
from emulator.faults.spec import (
    HELD_CALL,
    NOTHING_MORE,
    Effect,
    FaultContext,
    Holding,
    ending_grace,
)

if TYPE_CHECKING:
    from emulator.faults.netem import Link
    from emulator.faults.schedule import PlannedFault
    from emulator.planning.plan import Plan, Task
    from emulator.runtime.clock import Clock, Workers

BASE = ""
"""In place of a fault's id: the links that a scenario has all the time."""

FaultOperation = Literal["announce", "inject", "kill", "heal"]
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
    """Of `inject`: what the engine did for the fault."""
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
        self, plan: Plan, engine: Engine, inbox: Inbox, workers: Workers, clock: Clock
    ) -> None:
        self._plan, self._engine, self._inbox, self._workers = plan, engine, inbox, workers
        self._wall = clock.wall
        self._links: dict[str, Sequence[Link]] = {BASE: plan.links} if plan.links else {}
        self._links_lock = threading.Lock()
        self._held: dict[str, PlannedFault] = {}
        """The held faults that are in force, by id."""
        self._held_locks = {one.name: threading.Lock() for one in plan.everything}
        self._watch_locks = {one.name: threading.Lock() for one in plan.tasks}
        self._watching: dict[str, str] = {}
        """The fault for which each task is watched, by id."""
        self._asked: dict[str, float] = {}
        """When the engine was first asked for a fault (seconds since 1970), by id."""
        self._signals_lock = threading.Lock()
        self._signals = Counter[str]()
        """How many calls are under way that may end a task."""
        self._waiting: dict[str, Callable[[], object]] = {}
        """The start of a task that waits for these."""
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
        start = partial(self._start, task, fresh, same_address)
        # What it waits for may be another task, which must not wait for a thread.
        aside = task.init or queueing
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

    def perform(self, operation: FaultOperation, fault: PlannedFault) -> None:
        """Announce a fault, make it happen, kill its target after the grace period, or heal it."""
        if operation == "inject":
            self._put_in_force(fault)
        elif operation == "heal":
            if fault.links:
                self._links = {**self._links, fault.id: ()}
            self._held = {id_: one for id_, one in self._held.items() if id_ != fault.id}
        if fault.spec.ends_target:
            self._begin_signal(fault.target)
        self._workers.submit(self._act, Called(operation, fault.id), fault)

    def restore(self, fault: PlannedFault) -> None:
        """Have a fault in force that a killed supervisor had made happen.

        Network links are given to the engine with `update_links`.
        """
        self._put_in_force(fault)
        if fault.spec.is_held:
            self._workers.submit(self._act, Called("inject", fault.id), fault, NotRunning)

    def watch(self, fault: PlannedFault) -> None:
        """Have the task held before the call with which a fault happens."""
        self._workers.aside(partial(self._watch, fault))

    def let_go(self, fault: PlannedFault) -> None:
        """Let the task go on that is held, or watched, for a fault."""
        if self._watching.get(fault.watched) == fault.id:
            del self._watching[fault.watched]
            self._workers.submit(capable(self._engine, Holding).let_go, fault.watched)

    def _put_in_force(self, fault: PlannedFault) -> None:
        if fault.links:
            self._links = {**self._links, fault.id: fault.links}
        if fault.spec.is_held:
            self._held = {**self._held, fault.id: fault}

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

    # --- On a worker ----------------------------------------------------------------------------

    def _start(self, task: Task, fresh: bool, same_address: bool) -> None:
        with self._reported(Called("start", task.name)) as found:
            if fresh:
                self._engine.remove(task.name)
            found["answer"] = self._engine.start(task, same_address=same_address)
            found["held"], found["wall"] = self._hold(task.name)
        if task.ports:
            self._look_up_ports(task)

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

    def _act(self, call: Called, fault: PlannedFault, *ignored: type[EmulatorError]) -> None:
        with (
            self._reported(call) as found,
            contextlib.suppress(*ignored),
            self._target(fault.target, held=fault.spec.is_held) as target,
        ):
            match call.operation:
                case "announce":
                    fault.spec.announce(target)
                case "kill":
                    fault.spec.end_grace(target)
                case "heal":
                    # Not before: until now a start may have held the task.
                    found["wall"] = self._wall()
                    fault.spec.heal(target)
                case _:
                    self._asked.setdefault(fault.id, self._wall())
                    found["effect"] = fault.spec.apply(target) or NOTHING_MORE
        if fault.spec.ends_target:
            self._end_signal(fault.target)

    def _watch(self, fault: PlannedFault) -> None:
        trigger, call = fault.trigger, Called("watch", fault.id)
        request = {
            "call": trigger.call,
            "count": trigger.call_number,
            "of": path_pattern(trigger.of or "*"),
        }
        program = HELD_CALL.read_text("utf-8")

        def told(line: str) -> None:
            try:
                answer = json.loads(line)
            except ValueError:  # no answer of the program: it could not run
                answer = {"error": line.strip()}
            if "error" in answer:
                raise EngineError(f"{fault.watched}: {answer['error']}.")
            if "held" in answer:
                words = held_in_words(fault.watched, trigger.call, answer)
                self._inbox.put(replace(call, effect=Effect(words), wall=self._wall()))

        try:
            # The kernel lets one program trace a task. The next begins to count after this one.
            with self._watch_locks[fault.watched]:
                self._watching[fault.watched] = fault.id
                capable(self._engine, Holding).hold(fault.watched, program, request, told)
        except NotRunning:
            pass  # it is watched again as soon as it runs again
        except EmulatorError as refusal:
            self._inbox.put(replace(call, error=refusal, wall=self._wall()))
        except Exception as defect:
            failed = EngineLost(f"Watching {fault.watched} failed: {defect!r}")
            self._inbox.put(replace(call, error=failed, wall=self._wall()))

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
            yield FaultContext(self._engine, name, cpus, self.update_links, active)

    def _equip(self) -> None:
        with self._reported(Called("equip")):
            capable(self._engine, Shaping).equip(lambda what: self._inbox.put(Preparing(what)))

    @contextlib.contextmanager
    def _reported(self, call: Called) -> Iterator[dict[str, Any]]:
        """Put the result of a call into the inbox, with the fields that the block finds."""
        found: dict[str, Any] = {}
        try:
            yield found
        except EmulatorError as refusal:
            found["error"] = refusal
        except Exception as defect:  # it must end the run, not hang it
            what = f"{call.operation} {call.subject}".strip()
            found["error"] = EngineLost(f"Calling the engine to {what} failed: {defect!r}")
        self._inbox.put(replace(call, **{"wall": self._wall(), **found}))


def path_pattern(glob: str) -> str:
    """Return the regular expression of the paths that a trigger's `of` means (pure).

    What begins with `/shared` is meant in the folder that tasks have there as processes as well.
    """
    from emulator.faults.saved_files import translated  # only what is watched needs it

    pattern: str = translated(glob.lstrip("/"))
    if not glob.startswith("/"):
        return f"(?:.*/)?{pattern}"
    return f"{'.*' * glob.startswith('/shared/')}/{pattern}"


def held_in_words(task: str, call: str, answer: Mapping[str, Any]) -> str:
    """Return before what a task is held, from the answer of `held_call` (pure)."""
    size = f" of {answer['bytes']:,} bytes" if "bytes" in answer else ""
    return f"{task} was about to make {call} {answer['number']}{size}: {answer['path']}"
