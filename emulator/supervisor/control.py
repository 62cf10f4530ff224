"""Requests to a running job: signals of the user, and commands of the API.

Requests travel in the supervisor's inbox and are performed on its own thread, between two events.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emulator.engines.base import Addressing, Engine, Inbox
from emulator.engines.capabilities import capable
from emulator.engines.requirements import require_of
from emulator.errors import RunOver, UsageError
from emulator.faults.schedule import MANUAL, expand_targets

if TYPE_CHECKING:
    from emulator.faults.spec import FaultSpec
    from emulator.planning.plan import Plan
    from emulator.supervisor.injector import Injector
    from emulator.supervisor.job import Job

TASK_KEYS = ("state", "step", "restarts", "exit_code")
"""What `status` has of each task."""


@dataclass(frozen=True)
class Interrupted:
    """The user pressed Ctrl-C or sent SIGTERM, or asked the API to stop."""

    signal: int


@dataclass(frozen=True)
class Asked:
    """A request; the supervisor performs it on its own thread."""

    call: Callable[[], Any]
    reply: Future[Any]

    def answer(self) -> None:
        """Make the call; the sender gets its result or error."""
        if self.reply.set_running_or_notify_cancel():
            try:
                self.reply.set_result(self.call())
            except Exception as error:
                self.reply.set_exception(error)

    def refuse(self) -> None:
        """Answer that the run is over."""
        if self.reply.set_running_or_notify_cancel():
            self.reply.set_exception(RunOver())


class RunControl:
    """The commands of the API for one run.

    Only `tasks`, `printing` and `ask` may be used on any thread.
    """

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        inbox: Inbox,
        job: Job,
        injector: Injector,
    ) -> None:
        self._plan, self._engine, self._inbox = plan, engine, inbox
        self._job, self._injector = job, injector
        self.ports: dict[tuple[str, int], str] = {}
        """Where the published ports are that were looked up, by name and number."""

    @property
    def tasks(self) -> Sequence[str]:
        """The names of all tasks."""
        return [task.name for task in self._plan.tasks]

    @property
    def printing(self) -> Sequence[str]:
        """The names of all that have a log: tasks and helpers."""
        return self._plan.printing

    def ask(self, call: Callable[[], Any]) -> Future[Any]:
        """Have the supervisor make a call; return its reply."""
        reply: Future[Any] = Future()
        self._inbox.put(Asked(call, reply), urgent=True)
        return reply

    def refuse_all(self) -> None:
        """Refuse the requests in the inbox: the supervisor has ended."""
        while not self._inbox.empty():
            if isinstance(event := self._inbox.get(), Asked):
                event.refuse()

    def status(self) -> dict[str, Any]:
        """Return tasks and faults as they are now."""
        return {
            "run_id": self._plan.run_id,
            "scenario": self._plan.scenario.name,
            "engine": self._plan.engine,
            "state": self._job.phase,
            "tasks": [
                {"name": name} | {key: getattr(state, key) for key in TASK_KEYS}
                for name, state in self._job.tasks.items()
            ],
            "faults": self._injector.stages(),
            "helpers": {
                name: {"state": state.state, "exit_code": state.exit_code}
                for name, state in self._job.helpers.items()
            },
            "ports": [
                {"name": name, "port": port, "address": address}
                for (name, port), address in self.ports.items()
            ],
        }

    def inject(self, spec: FaultSpec) -> list[str]:
        """Inject a fault now; return the ids. Raises UsageError, Unsupported."""
        scenario = self._plan.scenario
        spec = spec.at_scale(scenario.speed).by_default(scenario.signals)
        require_of(self._engine, spec.needs())
        needed = {capability for _, capability in spec.needs()}
        if needed & {"new-address", "same-address"} and not (
            capable(self._engine, Addressing).keeps_addresses
        ):
            raise UsageError(
                f"The address that {spec.target} comes back to can't be chosen in this run.",
                "Some fault of the scenario has to be a preemption from the start.",
            )
        known = {fault["id"].partition(":")[0] for fault in self._injector.stages()}
        number = next(n for n in range(1, len(known) + 2) if f"{MANUAL}{n}" not in known)
        faults = expand_targets(f"{MANUAL}{number}", spec, self.tasks)
        self._injector.inject_now(faults)
        return [fault.id for fault in faults]

    def heal(self, fault: str) -> list[str]:
        """Heal a fault, by id or name, or all (empty); return the ids."""
        return self._injector.heal_now(fault)

    def stop(self) -> None:
        """End the job as Ctrl-C does; a second time: at once."""
        self._inbox.put(Interrupted(signal.SIGTERM), urgent=True)
