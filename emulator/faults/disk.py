"""A disk that is full, read-only, slow, or that fails."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from pydantic import AfterValidator, Field, model_validator

from emulator.faults.spec import (
    FOLDER,
    SHARED,
    Effect,
    FaultContext,
    FaultSpec,
    HeldFault,
    path_pattern,
)
from emulator.validation.fields import Duration, Glob, Text

FILLED = Path(__file__).with_name("disk_filled.py")
"""The program that fills a volume."""
SIZE_HINT = "give it a size from the start: `shared_size: 64m`"
FULL_NEEDS_SIZE = "the volume shared has no size, and is as large as the machine's disk"
LONGEST_DELAY = 60.0
"""Seconds by which a call can be late."""

CallKind = Literal["open", "read", "write", "fsync", "rename", "unlink", "mkdir"]
_MISSING = {"slow": "by", "error": "errno"}
"""The option that a state needs, and no other has."""


def _errno(name: str) -> str:
    if name not in errno.errorcode.values():
        raise ValueError(f"{name!r} is no error of the kernel: EIO, ENOSPC, EDQUOT, ESTALE, ...")
    return name


@runtime_checkable
class Filling(Protocol):
    """Capability `fill`."""

    def fill(self, volume: str) -> int:
        """Leave no room on a volume that has a size, until `give_room`; return the bytes taken.

        A volume that was filled so stays so. Raises EngineError, also where it has no size.
        """

    def give_room(self, volume: str) -> None:
        """Give a volume its room back; nothing happens if it has it. Raises EngineError."""


class Disk(HeldFault):
    """A disk is `full`, `readonly`, `slow` or fails with an `error`, `for` a time."""

    kind = "disk"
    protocols = {"fill": Filling}
    applied, healed = "{} has a disk fault", "the disk fault of {} is over"
    state, colour = "disk fault", "cut-off"

    disk: Literal["full", "readonly", "slow", "error"]
    """`full`: nothing more can be written (ENOSPC). `readonly`: nothing can be changed (EROFS).
    `slow`: each call to a file is late. `error`: it fails."""
    on: Glob = Field(
        default=SHARED,
        description="`shared`, or the task, or a glob, whose own disk it is.",
        examples=["worker-1"],
    )
    task: Glob | None = Field(
        default=None,
        description="With `on: shared`: the tasks for which it is so; default: all. A full "
        "volume is full for all.",
        examples=["worker-1"],
    )
    by: Duration | None = Field(
        default=None,
        description="Of a slow disk: seconds by which each call to a file is late.",
        examples=["200ms"],
    )
    errno: Annotated[Text, AfterValidator(_errno)] | None = Field(
        default=None,
        description="Of an error: its name, such as EIO.",
        examples=["EIO"],
    )
    of: Text | None = Field(
        default=None,
        description="The files that are meant, by a glob as in triggers; default: all.",
        examples=["*.pt"],
    )
    calls: Annotated[list[CallKind], Field(min_length=1)] | None = Field(
        default=None,
        description="Of a slow disk and of an error: the calls that are meant; default: all.",
        examples=[["write", "fsync"]],
    )

    @model_validator(mode="after")
    def _checked(self) -> Disk:
        for state, key in _MISSING.items():
            given = getattr(self, key) is not None
            if self.disk == state and not given:
                example = {"by": "`by: 200ms`", "errno": "`errno: EIO`"}[key]
                raise ValueError(f"`disk: {state}` needs {example}")
            if self.disk != state and given:
                raise ValueError(f"`{key}` goes with `disk: {state}`")
        if self.by is not None and not 0 < self.by <= LONGEST_DELAY:
            raise ValueError(f"`by` is more than 0 and at most {LONGEST_DELAY:.0f}s")
        if self.calls and self.disk not in ("slow", "error"):
            raise ValueError("`calls` goes with `disk: slow` and `disk: error`")
        if self.task is not None and self.on != SHARED:
            raise ValueError("`task` goes with `on: shared`; on the disk of a task: `on: worker-0`")
        if self.fills_volume and (self.task is not None or self.of is not None):
            key = "task" if self.task is not None else "of"
            raise ValueError(f"a full volume is full for all tasks and files; leave `{key}` out")
        of = self.of or ""
        if self.on == SHARED and of.startswith("/") and not of.startswith(f"{FOLDER}/"):
            raise ValueError(f"`of` is not in {FOLDER}; on the disk of a task: `on: worker-0`")
        return self

    @property
    def fills_volume(self) -> bool:
        """Whether it is the volume itself that is full, whoever uses it."""
        return self.disk == "full" and self.on == SHARED

    @property
    def hits_tasks(self) -> bool:
        """Whether its targets are tasks."""
        return not self.fills_volume

    @property
    def target(self) -> str:
        """The volume, or the tasks whose calls are meant."""
        if self.on != SHARED:
            return self.on
        return SHARED if self.fills_volume else self.task or "*"

    def aimed_at(self, target: str) -> FaultSpec:
        """Return the same fault of one of its targets."""
        if self.fills_volume:
            return self
        return self.model_copy(update={"on" if self.on != SHARED else "task": target})

    def named(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield each name or glob of tasks with its path below the entry."""
        if self.on != SHARED:
            yield ("on",), self.on
        elif self.task is not None:
            yield ("task",), self.task
        if self.at and self.at.task:
            yield ("at", "task"), self.at.task

    def needs(self) -> Iterator[tuple[str, str]]:
        """Yield requests to the engine, in words, each with the capability that it needs."""
        yield from super().needs()
        if self.fills_volume:
            yield f"filling the volume {SHARED}", "fill"
        else:
            yield f"a disk of {self.target} that is {self.in_words}", "calls"

    @property
    def in_words(self) -> str:
        """What the disk is."""
        match self.disk:
            case "slow":
                return f"slow by {self.by:g}s"
            case "error":
                return f"failing with {self.errno}"
            case "readonly":
                return "read-only"
        return "full"

    @property
    def rule(self) -> dict[str, Any] | None:
        """What the tracer of a task does for it, see `disk_calls`."""
        if self.fills_volume:
            return None
        match self.disk:
            case "slow":
                how: dict[str, Any] = {"do": "delay", "seconds": self.by}
            case "error":
                how = {"do": "error", "errno": getattr(errno, str(self.errno))}
            case "readonly":
                how = {"do": "error", "errno": errno.EROFS, "only": "changes"}
            case _:
                how = {"do": "error", "errno": errno.ENOSPC, "only": "growth"}
        if self.calls:
            how["calls"] = list(self.calls)
        of = self.of or ""
        where = SHARED if self.on == SHARED else "" if of.startswith("/") else "home"
        return {**how, "of": path_pattern(of) if of else "", "in": where}

    @classmethod
    def settle(cls, target: FaultContext, active: Sequence[Disk]) -> None:
        """Bring the volume, or the calls of a task, into the state of these faults."""
        if target.task == SHARED:
            engine = target.engine_as(Filling)
            if active:
                engine.fill(SHARED)
            else:
                engine.give_room(SHARED)
        else:
            target.trace()

    def apply(self, target: FaultContext) -> Effect:
        """Bring the target into the state of all faults, of which this is one."""
        super().apply(target)
        return Effect(self._words)

    @property
    def _words(self) -> str:
        """What it does, and what it does not."""
        if self.fills_volume:
            return "the volume shared has no room for another byte"
        of = f", {self.of}" if self.of else ""
        where = "the shared volume" if self.on == SHARED else "its own disk"
        words = f"{where}{of} is {self.in_words} for its calls"
        if self.disk == "full":
            return f"{words}: its writes are refused; mapped memory is not"
        return words
