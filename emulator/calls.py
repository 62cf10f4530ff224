"""The engine's calls, each made on another thread: the loop never waits for one task.

What comes of a call arrives in the inbox as `Called`. Network links are the exception that needs
order: the engine is told all of them each time, and whoever comes last finds the links of all.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence

from emulator.engines.base import Engine, Inbox
from emulator.errors import EmulatorError, EngineLost
from emulator.events import Called, Operation
from emulator.faults import PlannedFault
from emulator.netem import Link
from emulator.plan import Plan, Task

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
    ) -> None:
        self._plan, self._engine, self._inbox, self._submit = plan, engine, inbox, submit
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

        def act() -> None:
            match fault.kind:
                case "throttle":
                    engine.throttle(name, fault.cpus if on else self._plan.task(name).cpus)
                case "pause" if on:
                    engine.pause(name)
                case "pause":
                    engine.resume(name)
                case "oom":
                    engine.squeeze(name)
                case _:
                    self.link(fault.id, fault.links if on else ())

        self._call("impair" if on else "restore", name, act, answer=fault.id)

    def link(self, fault: str = BASE, links: Sequence[Link] | None = None) -> None:
        """Make a fault's links those that are given; blocks. Without links: tell them all again.

        Links that the engine can't make are taken back: they must not stop tasks that start later.
        """
        with self._links_lock:
            before = dict(self._links)
            if links is not None:
                self._links[fault] = links
            if not self._every() and links is None:
                return
            try:
                self._engine.shape(self._every())
            except EmulatorError:
                if links:
                    self._links = before
                    with contextlib.suppress(EmulatorError):
                        self._engine.shape(self._every())
                raise

    def _every(self) -> list[Link]:
        return [link for of_fault in self._links.values() for link in of_fault]

    def _call(
        self, operation: Operation, task: str, call: Callable[[], str | None], answer: str = ""
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

        self._submit(perform)
