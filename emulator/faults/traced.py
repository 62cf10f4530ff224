"""Faults for which the tracer of a task does something else than with the calls of its disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from emulator.faults.spec import Effect, FaultContext, HeldFault, Holding, Rule, path_pattern
from emulator.validation.fields import Duration, Glob, Text


class Traced(HeldFault):
    """A lasting fault that is in force as long as the tracer of its target follows its rule."""

    capability = "calls"
    protocols = {"calls": Holding}

    @classmethod
    def settle(cls, target: FaultContext, active: Sequence[Traced]) -> None:
        """Have the target traced for all that holds on it."""
        target.trace()

    def apply(self, target: FaultContext) -> Effect | None:
        """Bring the target into the state of all such faults, and say what was done."""
        return Effect(self.done(target.trace(self)))

    def done(self, said: Mapping[str, Any]) -> str:
        """Return what was done in words, from what the tracer has said of it (pure)."""
        return ""


class Hang(Traced):
    """The main thread of each of its processes stops `for` a time; its other threads go on."""

    kind = "hang"
    request = "hanging {}"
    blocks_job = True
    applied = "the main threads of {} hang"
    state, colour = "hangs", "paused"

    hang: Glob
    """The task, or a glob such as `worker-*`."""

    @property
    def rule(self) -> Rule:
        """What the tracer does, see `hang_calls`."""
        return {"do": "hang"}

    def done(self, said: Mapping[str, Any]) -> str:
        """Return how many threads hang, and where (pure)."""
        hung, elsewhere = int(said.get("hung", 0)), int(said.get("elsewhere", 0))
        where = "in a call in which it waits" if hung == 1 else "in calls in which they wait"
        if elsewhere:
            where += f", but {elsewhere} elsewhere, because it did not come to wait"
        return f"{hung} of them, {where}"


class Visibility(Traced):
    """What is new on the shared volume is there for it only `by` a time later, `for` a time."""

    kind = "visibility"
    target_key: ClassVar[str] = "to"
    request = "late visibility for {}"
    applied = "{} sees new files late"
    healed = "{} sees all files"
    state, colour = "sees files late", "impaired"

    visibility: Literal["late"]
    """`late`: a name that appears is not there for the task until later."""
    to: Glob = Field(description="The task that sees it late, or a glob such as `worker-*`.")
    by: Annotated[Duration, Field(gt=0)] = Field(
        description="Seconds until it is seen.", examples=["29s"]
    )
    of: Text = Field(
        default="*",
        description="The names that are late, a glob of the ends of their paths; default: all.",
        examples=["step-*"],
    )
    on: Literal["shared"] = Field(default="shared", description="The volume of all tasks.")

    @property
    def rule(self) -> Rule:
        """What the tracer does, see `late_calls`."""
        return {"do": "late", "seconds": self.by, "of": path_pattern(self.of.lstrip("/"))}
