"""Faults that code inside the task brings about, and one that a signal does.

The code is a hook that Python programs get with `EMULATE_INSIDE: "1"` (`hook/emulate_inside.py`);
`tell.py` tells it what to do.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from emulator.errors import EngineError
from emulator.faults.checkpoint import FileAccess
from emulator.faults.ending import EndingFault
from emulator.faults.held import HeldFault
from emulator.faults.inside.optin import ASKED, VARIABLE
from emulator.faults.spec import Effect, FaultContext, FaultSpec
from emulator.validation.fields import Duration, Glob

PROGRAM = Path(__file__).with_name("tell.py")


def tell(target: FaultContext, order: Mapping[str, Any], *, once: bool = False) -> list[Any]:
    """Give an order to the processes of a task that have the hook; return what they answered.

    `once`: only to those that do the work. Raises NotRunning, and EngineError if none has done it.
    """
    asked = {"order": order, "once": once}
    program = PROGRAM.read_text("utf-8")
    printed = target.engine_as(FileAccess).run_at_files(target.task, program, asked)
    try:
        said = json.loads(printed)
    except ValueError:
        raise EngineError(f"Telling {target.task} failed: {printed.strip()[-300:]}") from None
    return answers(target.task, said)


def answers(task: str, said: Mapping[str, Any]) -> list[Any]:
    """Return what the processes have done, from what `tell.py` printed (pure).

    Raises EngineError if none has done anything.
    """
    if "error" in said:
        raise EngineError(f"{task}: {said['error']}.")
    given: Sequence[Mapping[str, Any]] = said["answers"]
    done = [one for one in given if "error" not in one]
    if done:
        return done
    if given:
        raise EngineError(f"{task}: {given[0]['error']}.")
    raise EngineError(
        f"{task}: none of its processes listens.",
        f'Give it {VARIABLE}: "{ASKED}" in `env:`; it must be a Python program, on Linux, that has '
        "loaded the hook at its start.",
    )


class Hooked(FaultSpec):
    """A fault that needs the hook."""

    capability = "files"
    protocols = {"files": FileAccess}
    needs_hook = asks_target = True


class RaisedException(Hooked):
    """A Python exception is raised in the main thread of the processes that do its work."""

    kind = "exception"
    request = "raising an exception in {}"
    applied = "an exception is raised in {}"

    exception: Glob
    """The task, or a glob such as `worker-*`."""

    @property
    def heals_after(self) -> float:
        """Zero: what follows is up to the program."""
        return 0.0

    def apply(self, target: FaultContext) -> Effect:
        """Have it raised, and return once it was."""
        done = tell(target, {"raise": True}, once=True)
        pids = ", ".join(str(one["pid"]) for one in done)
        return Effect(f"EmulatedFault is raised in the main thread of process {pids}")


class HeldHook(HeldFault, Hooked):
    """A state of the hook in all processes of a task."""

    @classmethod
    def order(cls, active: Sequence[Any]) -> Mapping[str, Any]:
        """Return the state that these faults cause together (pure)."""
        raise NotImplementedError

    @classmethod
    def settle(cls, target: FaultContext, active: Sequence[Any]) -> None:
        """Bring the hook into the state that these faults cause together."""
        tell(target, cls.order(active))

    def apply(self, target: FaultContext) -> Effect:
        """Bring it into that state; say that this is a stand-in, and whether the program asks."""
        done = tell(target, self.order(self.active_of_kind(target.active)))
        asks = any(self.function in one.get("used", ()) for one in done)
        never = "" if asks else f"; the program has not called emulate_inside.{self.function} yet"
        return Effect(f"a stand-in: {self.stand_in}{never}")

    @property
    def function(self) -> str:
        """The function of `emulate_inside` that the program calls."""
        raise NotImplementedError


class NanLoss(HeldHook):
    """Its loss is NaN `for` a time, where it asks `emulate_inside.loss`."""

    kind = "nan_loss"
    request = "a NaN in the loss of {}"
    applied = "the loss of {} is NaN"
    state, colour = "loss is NaN", "impaired"
    stand_in = "its program gets NaN from emulate_inside.loss; its arithmetic is sound"

    nan_loss: Glob
    """The task, or a glob such as `worker-*`."""

    @classmethod
    def order(cls, active: Sequence[Any]) -> Mapping[str, Any]:
        """Return the state that these faults cause together (pure)."""
        return {"nan": bool(active)}

    @property
    def function(self) -> str:
        """The function of `emulate_inside` that the program calls."""
        return "loss"


class SlowInput(HeldHook):
    """Each batch of its input comes later `by` a time, where it asks `emulate_inside.batch`."""

    kind = "slow_input"
    request = "slowing the input of {}"
    applied = "the input of {} is slow"
    state, colour = "slow input", "impaired"
    stand_in = "its program waits in emulate_inside.batch; its storage and network are as before"

    slow_input: Glob
    """The task, or a glob such as `worker-*`."""
    by: Annotated[Duration, Field(gt=0)] = Field(
        description="Seconds that are added to each batch.", examples=["200ms"]
    )

    @classmethod
    def order(cls, active: Sequence[Any]) -> Mapping[str, Any]:
        """Return the state that these faults cause together (pure): the slowest of them."""
        return {"slow": max((one.by for one in active), default=0.0)}

    @property
    def function(self) -> str:
        """The function of `emulate_inside` that the program calls."""
        return "batch"


class Abort(EndingFault):
    """SIGABRT, as a failed check or `abort()` of a library ends a process; the disk is kept."""

    kind = "abort"
    ended = "{} aborted"
    capability, request = "abort", "aborting {}"

    abort: Glob
    """The task, or a glob such as `worker-*`."""

    @property
    def kills(self) -> bool:
        """Whether the target has no chance to end cleanly."""
        return True

    def apply(self, target: FaultContext) -> Effect | None:
        """Send SIGABRT."""
        target.engine.signal(target.task, signal.SIGABRT)
        return None

    def other_cause(self, exit_code: int, *, oom_killed: bool) -> str:
        """Describe what else ended the target; empty if it was this fault."""
        ended = exit_code == 128 + signal.SIGABRT and not oom_killed
        return "" if ended else f"ended otherwise, with {exit_code}"
