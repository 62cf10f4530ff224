"""A checkpoint that is broken: cut short, changed, gone, or not what its name says."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import Field, model_validator

from emulator.errors import EngineError
from emulator.faults.spec import FOLDER, SHARED, Effect, FaultContext, FaultSpec
from emulator.validation.fields import Text

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

    def talk_at_files(
        self, where: str, program: str, request: Mapping[str, Any], said: str
    ) -> Generator[str, str | None, None]:
        """Do so, and yield each line that it prints; what is sent then is a line of its input.

        The first line of it is `said`, if anything. The program ends with the generator, and with
        this process. Where an engine has no way to its input, the request has `waits: false`.
        """


class Checkpoint(FaultSpec):
    """The latest checkpoint: `torn`, `bitflip`, `missing`, `stale`, `empty-newer` or `zeroed`."""

    kind = "checkpoint"
    capability, request = "files", "changing a checkpoint on {}"
    protocols = {"files": FileAccess}
    of_tasks = False
    is_found_first = True
    applied = "a checkpoint on {} is broken"

    checkpoint: Literal["torn", "bitflip", "missing", "stale", "empty-newer", "zeroed"]
    """`torn`: its largest file is cut to half. `bitflip`: one bit in the middle of that is flipped.
    `missing`: its files are removed. `stale`: they have the content of the checkpoint before it.
    `empty-newer`: there is a newer one, by its name, without content. `zeroed`: all its files are
    cut to nothing, as by a loss of power."""
    newest: int = Field(
        default=1,
        strict=True,
        ge=1,
        description="How many of the newest checkpoints are `zeroed`.",
        examples=[2],
    )
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
        if self.newest > 1 and self.checkpoint != "zeroed":
            raise ValueError("`newest` goes with `zeroed`")
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

    def find(
        self, target: FaultContext, found: Mapping[str, Any] | None
    ) -> tuple[Mapping[str, Any], Callable[[], Effect]]:
        """Find the file, which stays as it is until the change is made, or was made before."""
        of = self.of[len(FOLDER) :] if self.on == SHARED and self.of.startswith("/") else self.of
        asked = {
            "how": self.checkpoint,
            "of": of,
            # A task that is held has it open for as long as this lasts, and can't save again.
            "even_open": self.even_open or target.at_call,
            "held": target.at_call,
            "newest": self.newest,
            "since": target.since,
            "waits": True,
            "again": found is not None,
        }
        program = PROGRAM.read_text("utf-8")
        said = "" if found is None else json.dumps(found)
        talk = target.engine_as(FileAccess).talk_at_files(target.task, program, asked, said)
        first = _answer(talk, None)
        if "error" in first:
            raise EngineError(f"{first['error']}.")

        def change() -> Effect:
            done = _answer(talk, "go") if "plan" in first else first
            talk.close()
            if "error" in done:
                raise EngineError(f"{done['error']}.")
            return Effect(in_words(self.checkpoint, done), changed={"how": self.checkpoint, **done})

        return first.get("plan", {}), change

    def apply(self, target: FaultContext) -> Effect:
        """Break it, or raise EngineError with why that can't be."""
        return self.find(target, None)[1]()


def _answer(talk: Generator[str, str | None, None], said: str | None) -> dict[str, Any]:
    """Return what the program answers to a line, or at first. Raises EngineError."""
    printed = ""
    try:
        printed = talk.send(said)
        answer: dict[str, Any] = json.loads(printed)
    except (StopIteration, ValueError):
        said = printed.strip()[-300:] or "what does it has ended, as if its task had"
        raise EngineError(f"Breaking the checkpoint failed: {said}.") from None
    return answer


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
        case "zeroed":
            saves = " and ".join(done.get("saves", [path]))
            words = (
                f"{saves} ({before:,} bytes) {'are' if 'saves' in done else 'is'} cut to nothing"
            )
        case _:
            words = f"{path} is newer than {done['checkpoint']}, and empty"
    return f"{words} ({done['format']})"
