"""Faults that are a state of their target's processes: one is frozen, or a straggler."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from pydantic import Field

from emulator.errors import NotRunning
from emulator.faults.spec import Effect, FaultContext, FaultSpec, LastingFault
from emulator.validation.fields import Cores, Glob


class HeldFault(LastingFault):
    """A lasting fault that is a state of its target's processes.

    A state is the sum of all active faults of its kind, so that two of them never undo each other.
    Processes that replace the target's are brought into it as well.
    """

    is_held = True

    @classmethod
    def settle(cls, target: FaultContext, active: Sequence[Any]) -> None:
        """Bring the target into the state that these faults of the kind cause together; blocks.

        Without any it is as the scenario says. Raises NotRunning, EngineError.
        """
        raise NotImplementedError

    @classmethod
    def active_of_kind(cls, active: Sequence[FaultSpec]) -> list[FaultSpec]:
        """Return the faults of this kind."""
        return [one for one in active if isinstance(one, cls)]

    def apply(self, target: FaultContext) -> Effect | None:
        """Bring the target into the state of all faults, of which this is one."""
        self.settle(target, self.active_of_kind(target.active))
        return None

    def heal(self, target: FaultContext) -> None:
        """Bring the target into the state of the faults that are left."""
        with contextlib.suppress(NotRunning):  # what runs next has no more than those
            self.settle(target, self.active_of_kind(target.active))


@runtime_checkable
class Pausing(Protocol):
    """Capability `pause`."""

    def pause(self, task: str) -> None:
        """Freeze a task: it keeps everything and does nothing; one that is frozen stays so.

        It handles no signal before `resume`, except SIGKILL. A start ends the freeze. Raises
        NotRunning, EngineError.
        """

    def resume(self, task: str) -> None:
        """Let a frozen task run again, and take the signals that it got meanwhile.

        Nothing happens where it is not frozen, or no longer there. Raises EngineError.
        """


class Pause(HeldFault):
    """Frozen `for` a time: it answers nothing, and does not notice."""

    kind = "pause"
    capability, request = "pause", "pausing {}"
    protocols = {"pause": Pausing}
    blocks_job = True
    applied = "{} is frozen"
    state = colour = "paused"

    pause: Glob
    """The task, or a glob such as `worker-*`."""

    @classmethod
    def settle(cls, target: FaultContext, active: Sequence[Pause]) -> None:
        """Freeze the task as long as any of the faults lasts."""
        engine = target.engine_as(Pausing)
        if active:
            engine.pause(target.task)
        else:
            engine.resume(target.task)


@runtime_checkable
class Throttling(Protocol):
    """Capability `throttle`."""

    def throttle(self, task: str, cpus: float | None) -> None:
        """Limit a task to so many cores until it is replaced; None: no limit.

        Raises NotRunning where there is no such task, EngineError.
        """


class Throttle(HeldFault):
    """Limited to `cpus` cores `for` a time."""

    kind = "throttle"
    capability, request = "throttle", "throttling {}"
    protocols = {"throttle": Throttling}
    applied = "{} is throttled"
    state = colour = "throttled"

    throttle: Glob
    """The task, or a glob such as `worker-*`."""
    cpus: Cores = Field(description="The cores that are left to it.")

    @classmethod
    def settle(cls, target: FaultContext, active: Sequence[Throttle]) -> None:
        """Leave it the least that a fault or the scenario leaves to it."""
        limits = [one.cpus for one in active]
        if target.cpus is not None:
            limits.append(target.cpus)
        target.engine_as(Throttling).throttle(target.task, min(limits, default=None))
