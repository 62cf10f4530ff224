"""Faults of nodes: what administrators do to those of a cluster for maintenance."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from emulator.faults.preempt import Preempt
from emulator.faults.signals import Signals
from emulator.faults.spec import Cordoned, Cordoning, Effect, FaultContext, LastingFault
from emulator.validation.fields import Duration, Glob


class Cordon(LastingFault):
    """Its node takes no new tasks `for` a time; those that it has keep running."""

    kind = "cordon"
    capability, request = "nodes", "cordoning the node of {}"
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


class Drain(Signals, LastingFault):
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
        if self.to_all:
            yield f"SIGTERM to all processes of what is evicted with {self.target}", "signal-all"

    def apply(self, target: FaultContext) -> Effect | None:
        """Cordon the task's node; the evictions follow."""
        cordoned = target.engine_as(Cordoning).cordon(target.task)
        evictions = (
            Preempt.model_construct(
                preempt=task, grace=self.grace, down=0.0, via="eviction", signals=self.signals
            )
            for task in cordoned.tasks
        )
        return Effect(_words(cordoned), tuple(evictions))

    def heal(self, target: FaultContext) -> None:
        """Let the node take tasks again."""
        target.engine_as(Cordoning).uncordon(target.task)


def _words(cordoned: Cordoned) -> str:
    tasks = ", ".join(cordoned.tasks) or "no task"
    return f"{cordoned.node} is cordoned, where {tasks} of this run ran"
