"""A checkpoint that is broken: cut short, changed, gone, or not what its name says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import Field, model_validator

from emulator.errors import EngineError
from emulator.faults.spec import Effect, FaultContext, FaultSpec
from emulator.validation.fields import Text

SHARED, FOLDER = "shared", "/shared"
"""What the volume of all tasks is called where a task can be named, and where tasks have it."""
PROGRAM = Path(__file__).with_name("saved_files.py")
"""What finds the checkpoint and breaks it, where the files are."""


@runtime_checkable
class FileAccess(Protocol):
    """Capability `files`."""

    def run_at_files(self, where: str, program: str, request: Mapping[str, Any]) -> str:
        """Run a Python program that has the files of a task, or those that all tasks share.

        `where`: a task, or `shared`. Its argument is the request as JSON, to which the engine adds
        `folder`, `anywhere: true` if the task has files elsewhere, and `since`, in seconds since
        1970, if older ones are not the task's. Returns what it prints.
        Raises NotRunning, EngineError, also if it fails.
        """


class Checkpoint(FaultSpec):
    """The latest checkpoint is broken: `torn`, `bitflip`, `missing`, `stale` or `empty-newer`."""

    kind = "checkpoint"
    capability, request = "files", "changing a checkpoint on {}"
    protocols = {"files": FileAccess}
    of_tasks = False
    applied = "a checkpoint on {} is broken"

    checkpoint: Literal["torn", "bitflip", "missing", "stale", "empty-newer"]
    """`torn`: its largest file is cut to half. `bitflip`: one bit in the middle of that is flipped.
    `missing`: its files are removed. `stale`: they have the content of the checkpoint before it.
    `empty-newer`: there is a newer one, by its name, without content."""
    of: Text = Field(
        default="latest",
        description="The `latest`, whatever wrote it, or a glob, of which the newest match is "
        "meant; `*` is part of a name, `**` any folders.",
        examples=["*.pt", "run/**/model-*.npz"],
    )
    on: Text = Field(
        default=SHARED,
        description="`shared`, or the task on whose disk it is.",
        examples=["worker-1"],
    )
    even_open: bool = Field(
        default=False,
        strict=True,
        description="Whether a file is changed while a process has it open; otherwise it is "
        "changed as soon as none has. Just before a call, it always is.",
    )

    @model_validator(mode="after")
    def _checked(self) -> Checkpoint:
        if self.on == SHARED and self.of.startswith("/") and not self.of.startswith(f"{FOLDER}/"):
            raise ValueError(f"`of` is not in {FOLDER}; on the disk of a task: `on: worker-0`")
        return self

    @property
    def target(self) -> str:
        """The volume `shared`, or the task on whose disk it is."""
        return self.on

    @property
    def heals_after(self) -> float:
        """Zero: what is broken stays so, and needs no healing."""
        return 0.0

    def named(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield each name of a task with its path below the entry."""
        if self.on != SHARED:
            yield ("on",), self.on
        yield from super().named()

    def apply(self, target: FaultContext) -> Effect:
        """Break it, or raise EngineError with why that can't be."""
        of = self.of[len(FOLDER) :] if self.on == SHARED and self.of.startswith("/") else self.of
        # A task that is held has it open for as long as this lasts, and can't save again.
        even_open = self.even_open or target.at_call
        asked = {"how": self.checkpoint, "of": of, "even_open": even_open}
        if target.at_call:
            asked["held"] = True
        program = PROGRAM.read_text("utf-8")
        printed = target.engine_as(FileAccess).run_at_files(target.task, program, asked)
        try:
            done = json.loads(printed)
        except ValueError:
            raise EngineError(f"Breaking the checkpoint failed: {printed.strip()[-300:]}") from None
        if "error" in done:
            raise EngineError(f"{done['error']}.")
        return Effect(in_words(self.checkpoint, done), changed={"how": self.checkpoint, **done})


def in_words(how: str, done: Mapping[str, Any]) -> str:
    """Return what was changed in words, from the answer of `saved_files` (pure)."""
    path, before, after = done["path"], done["before"], done["after"]
    match how:
        case "torn":
            words = f"{path} is cut from {before:,} to {after:,} bytes"
        case "bitflip":
            words = f"bit {done['bit']} of byte {done['byte']:,} of {path} ({before:,}) is flipped"
        case "missing":
            words = f"{path} ({before:,} bytes) is removed"
        case "stale":
            words = f"{path} ({before:,} bytes) has the content of {done['version']} ({after:,})"
        case _:
            words = f"{path} is newer than {done['checkpoint']}, and empty"
    return f"{words} ({done['format']})"
