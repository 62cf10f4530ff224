"""Maintenance of the node that a task runs on, as an administrator does it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pydantic import Field

from emulator.faults.preempt import Preempt
from emulator.faults.spec import Effect, FaultContext, LastingFault
from emulator.validation.fields import Duration, Glob


@dataclass(frozen=True)
class Cordoned:
    """A node that takes no new tasks."""

    node: str
    tasks: tuple[str, ...]
    """The tasks of this run that run on it, and no others; in the order of the plan."""


@runtime_checkable
class Cordoning(Protocol):
    """Capability `nodes`."""

    def cordon(self, task: str) -> Cordoned:
        """Let the task's node take no new tasks; those that it has stay.

        A node that this fault has cordoned already stays so. Raises EngineError, also where
        somebody else has cordoned it.
        """

    def uncordon(self, task: str) -> None:
        """Undo `cordon` of the same task, wherever that task is now.

        A node that somebody else has cordoned or uncordoned meanwhile stays as it is. Raises
        EngineError.
        """


class Cordon(LastingFault):
    """Its node takes no new tasks `for` a time; those that it has keep running."""

    kind = "cordon"
    capability, request = "nodes", "cordoning the node of {}"
    protocols = {"nodes": Cordoning}
    applied, healed = "the node of {} takes no new tasks", "the node of {} takes tasks again"
    state = "cordoned"

    cordon: Glob
    """The task whose node is meant, or a glob."""

    def apply(self, target: FaultContext) -> Effect | None:
        """Cordon the task's node."""
        return Effect(_words(target.engine_as(Cordoning).cordon(target.task)))

    def heal(self, target: FaultContext) -> None:
        """Let the node take tasks again."""
        target.engine_as(Cordoning).uncordon(target.task)


class Drain(LastingFault):
    """Its node takes no new tasks `for` a time, and the run's tasks there are evicted.

    Each eviction is a preemption of its own, which a disruption budget may forbid. A task that was
    evicted is started again at once: it waits until a node takes it.
    """

    kind = "drain"
    capability, request = "nodes", "draining the node of {}"
    applied, healed = Cordon.applied, Cordon.healed
    state = "cordoned"

    drain: Glob
    """The task whose node is meant, or a glob."""
    grace: Duration = Field(default=30.0, description="Seconds between SIGTERM and SIGKILL.")

    def needs(self) -> Iterator[tuple[str, str]]:
        """Yield requests to the engine, in words, each with the capability that it needs."""
        yield from super().needs()
        yield f"evicting {self.target}", "eviction"

    def apply(self, target: FaultContext) -> Effect | None:
        """Cordon the task's node; the evictions follow."""
        cordoned = target.engine_as(Cordoning).cordon(target.task)
        evictions = (
            Preempt.model_construct(preempt=task, grace=self.grace, down=0.0, via="eviction")
            for task in cordoned.tasks
        )
        return Effect(_words(cordoned), tuple(evictions))

    def heal(self, target: FaultContext) -> None:
        """Let the node take tasks again."""
        target.engine_as(Cordoning).uncordon(target.task)


def _words(cordoned: Cordoned) -> str:
    tasks = ", ".join(cordoned.tasks) or "no task"
    return f"{cordoned.node} is cordoned, where {tasks} of this run ran"
