"""The engine's calls, each made on another thread: the loop never waits for one task.

What comes of a call arrives in the inbox as `Called`. Network links are the exception that needs
order: the engine is told all of them each time, as they were last asked for on the loop's thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from emulator.engines.base import (
    Engine,
    Inbox,
    OomKilling,
    Pausing,
    Shaping,
    Throttling,
    capable,
)
from emulator.errors import EmulatorError, EngineLost
from emulator.netem import Link
from emulator.plan import Plan, Task
from emulator.scenario.faults import PlannedFault
from emulator.supervisor.events import Called, Operation, Preparing

__all__ = ["Calls"]

BASE = ""
"""In place of a fault's id: the links that a scenario has all the time."""


class Calls:
    """What the supervisor asks of the engine."""

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        inbox: Inbox,
        submit: Callable[[Callable[[], None]], object],
        aside: Callable[[Callable[[], None]], object],
    ) -> None:
        self._plan, self._engine, self._inbox = plan, engine, inbox
        self._submit, self._aside = submit, aside
        self._links: dict[str, Sequence[Link]] = {BASE: plan.links} if plan.links else {}
        self._links_lock = threading.Lock()

    def start(self, task: Task, *, fresh: bool = False, same_address: bool = False) -> None:
        """Start a task, on a fresh disk if asked to."""

        def start() -> str:
            if fresh:
                self._engine.remove(task.name)
            return self._engine.start(task, same_address=same_address)

        self._call("start", task.name, start)

    def signal(self, task: str, number: int) -> None:
        """Signal a task."""
        self._call("signal", task, lambda: self._engine.signal(task, number))

    def impair(self, fault: PlannedFault, *, on: bool) -> None:
        """Pause, throttle, squeeze, cut off or shape, or let go on as before."""
        engine, name = self._engine, fault.target
        if fault.links:
            self._links = {**self._links, fault.id: fault.links if on else ()}

        def act() -> None:
            match fault.kind:
                case "throttle":
                    capable(engine, Throttling).throttle(
                        name, fault.cpus if on else self._plan.task(name).cpus
                    )
                case "pause" if on:
                    capable(engine, Pausing).pause(name)
                case "pause":
                    capable(engine, Pausing).resume(name)
                case "oom":
                    capable(engine, OomKilling).oom_kill(name)
                case _:
                    self.link()

        self._call("impair" if on else "restore", name, act, answer=fault.id)

    def equip(self) -> None:
        """Have the engine make what links take; that may take minutes, and nobody waits for it."""

        def equip() -> None:
            capable(self._engine, Shaping).equip(lambda what: self._inbox.put(Preparing(what)))

        self._call("equip", "", equip, submit=self._aside)

    def link(self) -> None:
        """Tell the engine every link that there is now; blocks."""
        with self._links_lock:
            if links := self._links:
                capable(self._engine, Shaping).shape(
                    [link for of_fault in links.values() for link in of_fault]
                )

    def _call(
        self,
        operation: Operation,
        task: str,
        call: Callable[[], str | None],
        answer: str = "",
        submit: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """Make an engine call elsewhere."""

        def perform() -> None:
            try:
                self._inbox.put(Called(operation, task, answer=call() or answer))
            except EmulatorError as error:
                self._inbox.put(Called(operation, task, answer=answer, error=error))
            except Exception as error:  # a defect must end the run, not hang it
                failure = EngineLost(f"Calling the engine to {operation} {task} failed: {error!r}")
                self._inbox.put(Called(operation, task, error=failure))

        (submit or self._submit)(perform)
