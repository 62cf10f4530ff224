"""What may be asked of a run from outside while it goes on: by hand, over the API.

Everything here is done on the supervisor's own thread (see `events.Asked`), between two events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from emulator.engines.base import Addressing, Engine, capable
from emulator.engines.requirements import require_of
from emulator.errors import UsageError
from emulator.plan import Plan
from emulator.scenario.faults import by_hand, strike_needs
from emulator.scenario.strikes import Strike, Trigger
from emulator.supervisor.injector import Injector
from emulator.supervisor.state import TaskState

__all__ = ["Desk"]


class Desk:
    """Answers for one supervisor; `phase` says how far the run is, `stop` ends it."""

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        injector: Injector,
        *,
        tasks: Callable[[], Mapping[str, TaskState]],
        phase: Callable[[], str],
        stop: Callable[[], None],
    ) -> None:
        self._plan, self._engine, self._injector = plan, engine, injector
        self._tasks, self._phase, self._stop = tasks, phase, stop

    @property
    def tasks(self) -> Sequence[str]:
        """The names of all tasks; may be read on any thread."""
        return [task.name for task in self._plan.tasks]

    def status(self) -> dict[str, Any]:
        """Return tasks and faults as they are now."""
        return {
            "run_id": self._plan.run_id,
            "scenario": self._plan.scenario.name,
            "engine": self._plan.engine,
            "state": self._phase(),
            "tasks": [
                {
                    "name": name,
                    "state": state.state,
                    "step": state.step,
                    "restarts": state.restarts,
                    "exit_code": state.exit_code,
                }
                for name, state in self._tasks().items()
            ],
            "faults": self._injector.stages(),
        }

    def strike(self, strike: Strike) -> list[str]:
        """Strike now; return the ids of the faults. Raises UsageError, Unsupported."""
        require_of(self._engine, strike_needs(strike))
        if strike.address and not capable(self._engine, Addressing).keeps_addresses:
            raise UsageError(
                f"Nobody can say which address {strike.target} comes back to in this run.",
                "Some fault of the scenario has to be a preemption from the start.",
            )
        before = {fault["id"].partition(":")[0] for fault in self._injector.stages()}
        number = next(n for n in range(1, len(before) + 2) if f"hand-{n}" not in before)
        names = list(self._tasks())
        faults = by_hand(f"hand-{number}", strike, names, Trigger.model_construct(time=0.0))
        self._injector.strike(faults)
        return [fault.id for fault in faults]

    def heal(self, fault: str) -> list[str]:
        """Heal a fault, by id or name, or all (empty); return which."""
        return self._injector.heal(fault)

    def stop(self) -> None:
        """End the job as Ctrl-C does; a second time: at once."""
        self._stop()
