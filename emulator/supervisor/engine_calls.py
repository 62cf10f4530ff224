"""Calls of the engine, each on a worker thread: the supervisor never waits for one task.

The result of a call arrives in the inbox as `Called`.

Lasting faults are desired state. The supervisor's thread says which are in force; each call that
follows gives the engine all that holds then: every network link, and for a task the sum of its held
faults. So the order of the calls does not matter, two faults never undo each other, and a task that
starts again is brought into its state before it is reported as running.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Literal

from emulator.engines.base import Engine, Inbox, Publishing, Queueing, Shaping
from emulator.engines.capabilities import capable
from emulator.errors import EmulatorError, EngineLost, NotRunning
from emulator.faults.spec import NOTHING_MORE, Effect, EndingGrace, FaultContext, ends_grace_itself

if TYPE_CHECKING:
    from emulator.faults.netem import Link
    from emulator.faults.schedule import PlannedFault
    from emulator.planning.plan import Plan, Task
    from emulator.runtime.clock import Clock, Workers

BASE = ""
"""In place of a fault's id: the links that a scenario has all the time."""

Operation = Literal["start", "stop", "announce", "inject", "heal", "equip", "port lookup"]


@dataclass(frozen=True)
class Called:
    """An engine call has returned."""

    operation: Operation
    subject: str = ""
    """The fault's id of `announce`, `inject` and `heal`, otherwise the task."""
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
        self._asked: dict[str, float] = {}
        """When the engine was first asked for a fault (seconds since 1970), by id."""

    @property
    def can_shape(self) -> bool:
        """Whether the engine has what network faults need; else `equip` makes it."""
        return capable(self._engine, Shaping).can_shape

    def asked_at(self, fault: PlannedFault) -> float:
        """Return when the engine was asked for a fault (seconds since 1970); infinite: not yet."""
        return self._asked.get(fault.id, math.inf)

    def ends_grace_itself(self, fault: PlannedFault) -> bool:
        """Whether the engine kills the fault's target when its grace period is over."""
        return fault.spec.kills_after is not None and ends_grace_itself(self._engine)

    def kills_after(self, fault: PlannedFault) -> float | None:
        """Return the seconds from a fault to the SIGKILL that `kill` sends; None: there is none.

        An engine that ends the grace period itself gets so much longer that only a task which it
        has not ended, such as one on a lost node, is killed a second time.
        """
        after = fault.spec.kills_after
        if after is None or not self.ends_grace_itself(fault):
            return after
        return after + capable(self._engine, EndingGrace).kill_slack

    def start(self, task: Task, *, fresh: bool = False, same_address: bool = False) -> None:
        """Start a task, on a fresh disk if asked to."""
        queueing = isinstance(self._engine, Queueing) and self._engine.starts_wait
        if task.init or queueing:
            # What it waits for may be another task, which must not wait for a thread.
            self._workers.aside(partial(self._start, task, fresh, same_address))
        else:
            self._workers.submit(self._start, task, fresh, same_address)

    def look_up_ports(self, task: Task) -> None:
        """Ask where the ports of a running task are."""
        self._workers.submit(self._look_up_ports, task)

    def stop(self, task: str, number: signal.Signals) -> None:
        """Signal a task, not as a fault."""
        self._workers.submit(self._signal, Called("stop", task, number.name), task, number)

    def announce(self, fault: PlannedFault) -> None:
        """Tell the target of a fault that is to happen."""
        self._workers.submit(self._act, Called("announce", fault.id), fault)

    def inject(self, fault: PlannedFault) -> None:
        """Make a fault happen."""
        self._put_in_force(fault)
        self._workers.submit(self._act, Called("inject", fault.id), fault)

    def restore(self, fault: PlannedFault) -> None:
        """Have a fault in force that a killed supervisor had made happen.

        Network links are given to the engine with `update_links`.
        """
        self._put_in_force(fault)
        if fault.spec.is_held:
            self._workers.submit(self._act, Called("inject", fault.id), fault, NotRunning)

    def _put_in_force(self, fault: PlannedFault) -> None:
        if fault.links:
            self._links = {**self._links, fault.id: fault.links}
        if fault.spec.is_held:
            self._held = {**self._held, fault.id: fault}

    def kill(self, fault: PlannedFault) -> None:
        """Kill the target of a fault whose grace period is over."""
        self._workers.submit(self._signal, Called("inject", fault.id), fault.target, signal.SIGKILL)

    def heal(self, fault: PlannedFault) -> None:
        """Undo a lasting fault."""
        if fault.links:
            self._links = {**self._links, fault.id: ()}
        self._held = {id_: one for id_, one in self._held.items() if id_ != fault.id}
        self._workers.submit(self._act, Called("heal", fault.id), fault)

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
        held: dict[str, EmulatorError | None] = {}
        walls: list[float] = []
        with self._reported(Called("start", task.name, held=held), walls=walls) as answer:
            if fresh:
                self._engine.remove(task.name)
            answer.append(self._engine.start(task, same_address=same_address))
            held.update(self._hold(task.name, walls))
        if task.ports:
            self._look_up_ports(task)

    def _look_up_ports(self, task: Task) -> None:
        ports: dict[int, str] = {}
        with self._reported(Called("port lookup", task.name, ports=ports)):
            ports.update(capable(self._engine, Publishing).published(task.name))

    def _signal(self, call: Called, task: str, number: signal.Signals) -> None:
        with self._reported(call):
            self._engine.signal(task, number)

    def _act(self, call: Called, fault: PlannedFault, *ignored: type[EmulatorError]) -> None:
        effects: list[Effect] = []
        walls: list[float] = []
        with (
            self._reported(call, effects, walls),
            contextlib.suppress(*ignored),
            self._target(fault.target, held=fault.spec.is_held) as target,
        ):
            if call.operation == "heal":
                walls.append(self._wall())  # not before: until now a start may have held the task
                fault.spec.heal(target)
            elif call.operation == "announce":
                fault.spec.announce(target)
            else:
                self._asked.setdefault(fault.id, self._wall())
                effects.append(fault.spec.apply(target) or NOTHING_MORE)

    def _hold(self, task: str, walls: list[float]) -> dict[str, EmulatorError | None]:
        """Bring a task into the state of all held faults that are in force on it.

        Returns these, each with the engine's refusal if there was one; none of a task that has
        ended. Appends when that was done (seconds since 1970): before any of them is healed.
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
            walls.append(self._wall())
        return held

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
    def _reported(
        self, call: Called, effects: Sequence[Effect] = (), walls: Sequence[float] = ()
    ) -> Iterator[list[str]]:
        """Put the result of a call into the inbox; the block appends the answer."""
        answer = [call.answer]
        error: EmulatorError | None = None
        try:
            yield answer
        except EmulatorError as refusal:
            error = refusal
        except Exception as defect:  # it must end the run, not hang it
            what = f"{call.operation} {call.subject}".strip()
            error = EngineLost(f"Calling the engine to {what} failed: {defect!r}")
        effect = effects[-1] if effects else call.effect
        wall = walls[-1] if walls else self._wall()
        self._inbox.put(replace(call, answer=answer[-1], error=error, effect=effect, wall=wall))
