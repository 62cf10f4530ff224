"""Calls of the engine, each on a worker thread: the supervisor never waits for one task.

The result of a call arrives in the inbox as `Called`. The engine always gets all network links, as
they were last set on the supervisor's thread: so the order of the calls does not matter.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Literal

from emulator.engines.base import Engine, Inbox, Publishing, Queueing, Shaping
from emulator.engines.capabilities import capable
from emulator.errors import EmulatorError, EngineLost
from emulator.faults.netem import Link
from emulator.faults.schedule import PlannedFault
from emulator.faults.spec import NOTHING_MORE, Effect, Evicting, Target
from emulator.planning.plan import Plan, Task
from emulator.runtime.clock import Workers

BASE = ""
"""In place of a fault's id: the links that a scenario has all the time."""

Operation = Literal["start", "stop", "inject", "heal", "equip", "port lookup"]


@dataclass(frozen=True)
class Called:
    """An engine call has returned."""

    operation: Operation
    subject: str = ""
    """The fault's id of `inject` and `heal`, otherwise the task."""
    answer: str = ""
    """Of `start` the container's id or the process id, of `stop` the signal's name."""
    error: EmulatorError | None = None
    ports: Mapping[int, str] = field(default_factory=dict)
    """Where the ports of a task are that was started."""
    effect: Effect = NOTHING_MORE
    """Of `inject`: what the engine did for the fault."""


@dataclass(frozen=True)
class Preparing:
    """The engine makes something that faults wait for."""

    what: str


class EngineCalls:
    """The engine's calls for supervisor, injector and watchdog; they return at once."""

    def __init__(self, plan: Plan, engine: Engine, inbox: Inbox, workers: Workers) -> None:
        self._plan, self._engine, self._inbox, self._workers = plan, engine, inbox, workers
        self._links: dict[str, Sequence[Link]] = {BASE: plan.links} if plan.links else {}
        self._links_lock = threading.Lock()

    @property
    def can_shape(self) -> bool:
        """Whether the engine has what network faults need; else `equip` makes it."""
        return capable(self._engine, Shaping).can_shape

    def ends_grace_itself(self, fault: PlannedFault) -> bool:
        """Whether the engine kills the fault's target when its grace period is over."""
        return fault.spec.kills_after is not None and "eviction" in self._engine.capabilities

    def kills_after(self, fault: PlannedFault) -> float | None:
        """Return the seconds from a fault to the SIGKILL that `kill` sends; None: there is none.

        An engine that ends the grace period itself gets so much longer that only a task which it
        has not ended, such as one on a lost node, is killed a second time.
        """
        after = fault.spec.kills_after
        if after is None or not self.ends_grace_itself(fault):
            return after
        return after + capable(self._engine, Evicting).kill_slack

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

    def inject(self, fault: PlannedFault) -> None:
        """Make a fault happen."""
        if fault.links:
            self._links = {**self._links, fault.id: fault.links}
        self._workers.submit(self._act, Called("inject", fault.id), fault)

    def kill(self, fault: PlannedFault) -> None:
        """Kill the target of a fault whose grace period is over."""
        self._workers.submit(self._signal, Called("inject", fault.id), fault.target, signal.SIGKILL)

    def heal(self, fault: PlannedFault) -> None:
        """Undo a lasting fault."""
        if fault.links:
            self._links = {**self._links, fault.id: ()}
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
        with self._reported(Called("start", task.name)) as answer:
            if fresh:
                self._engine.remove(task.name)
            answer.append(self._engine.start(task, same_address=same_address))
        if task.ports:
            self._look_up_ports(task)

    def _look_up_ports(self, task: Task) -> None:
        ports: dict[int, str] = {}
        with self._reported(Called("port lookup", task.name, ports=ports)):
            ports.update(capable(self._engine, Publishing).published(task.name))

    def _signal(self, call: Called, task: str, number: signal.Signals) -> None:
        with self._reported(call):
            self._engine.signal(task, number)

    def _act(self, call: Called, fault: PlannedFault) -> None:
        effects: list[Effect] = []
        with self._reported(call, effects):
            cpus = next((t.cpus for t in self._plan.tasks if t.name == fault.target), None)
            target = Target(self._engine, fault.target, cpus, self.update_links)
            if call.operation == "heal":
                fault.spec.heal(target)
            else:
                effects.append(fault.spec.apply(target) or NOTHING_MORE)

    def _equip(self) -> None:
        with self._reported(Called("equip")):
            capable(self._engine, Shaping).equip(lambda what: self._inbox.put(Preparing(what)))

    @contextlib.contextmanager
    def _reported(self, call: Called, effects: Sequence[Effect] = ()) -> Iterator[list[str]]:
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
        self._inbox.put(replace(call, answer=answer[-1], error=error, effect=effect))
