"""Faults for which the tracer of a task does something else than with the calls of its disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from emulator.errors import EngineError
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
        said = target.trace(self)
        return Effect(self.done(said)) if said else None

    def done(self, said: Mapping[str, Any]) -> str:
        """Return what was done in words, from what the tracer has said of it (pure)."""
        return ""


class Hang(Traced):
    """Its training processes stop `for` a time; their other threads, and launchers, go on."""

    kind = "hang"
    request = "hanging {}"
    blocks_job, ends_with_target = True, True
    applied = "{} hangs"
    state, colour = "hangs", "paused"

    hang: Glob
    """The task, or a glob such as `worker-*`."""

    @property
    def rule(self) -> Rule:
        """What the tracer does, see `hang_calls`."""
        return {"do": "hang"}

    def done(self, said: Mapping[str, Any]) -> str:
        """Return how many processes hang, and where (pure). Raises EngineError if none does."""
        hung, elsewhere, go_on = (int(said.get(key, 0)) for key in ("hung", "elsewhere", "go_on"))
        if not hung and go_on:
            raise EngineError("None of its processes can hang: each waits for one that it started.")
        words = "1 process, whose main thread waits in a call"
        if hung != 1:
            words = f"{hung} processes, whose main threads wait in calls"
        if elsewhere:
            words += f", but {elsewhere} elsewhere, because it did not come to wait"
        if go_on:
            words += f"; {go_on} that look after them go on"
        return words


class Visibility(Traced):
    """What is new on the shared volume is there for it only `by` a time later, `for` a time."""

    kind = "visibility"
    target_key: ClassVar[str] = "seen_by"
    request = "late visibility for {}"
    applied = "{} sees new files late"
    healed = "{} sees all files"
    state, colour = "sees files late", "impaired"

    visibility: Literal["late"]
    """`late`: a name that appears is not there for the task until later."""
    seen_by: Glob = Field(description="The task that sees it late, or a glob such as `worker-*`.")
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
