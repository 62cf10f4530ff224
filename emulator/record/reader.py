"""The reading side of a run folder, during the run or at any time after.

A torn last line, which a crash or a full disk leaves, is left out.
"""

from __future__ import annotations

import contextlib
import gc
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from emulator.errors import RecordError, UsageError
from emulator.metrics import sample_file
from emulator.metrics.samples import Sample
from emulator.planning.plan import Plan
from emulator.record.events import Entry, RunStarted, entry_of
from emulator.record.history import as_it_happened
from emulator.record.lock import is_live
from emulator.record.tail import last_lines
from emulator.record.timeline import Timeline
from emulator.record.version import check_format
from emulator.validation.run_id import is_run_id


@dataclass(frozen=True)
class Record:
    """The reading side: a run folder, finished or not."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> Record:
        """Return the record in `path`; raises UsageError if there is none."""
        if not (path / "plan.json").is_file():
            raise UsageError(
                f"{path} is no run folder: it has no plan.json.", "`emulate ps --all` lists runs."
            )
        return cls(path)

    @classmethod
    def find(cls, name: str, out: Path) -> Record:
        """Return the run that `name` means: an id, the beginning of one, a folder, or `last`.

        Raises UsageError if there is none in the folder `out`.
        """
        with contextlib.suppress(ValueError):  # no path has a NUL byte
            if Path(name, "plan.json").is_file():
                return cls(Path(name).resolve())
        runs = runs_in(out)
        if name == "last" and runs:
            return runs[-1]
        exact = [run for run in runs if run.run_id == name]
        matching = exact or [run for run in runs if run.run_id.startswith(name)]
        if len(matching) == 1:
            return matching[0]
        why = "fits several runs" if matching else f"is no run in {out}"
        raise UsageError(
            f"{name} {why}.", "`emulate ps --all` lists them; --out names another folder."
        )

    @property
    def run_id(self) -> str:
        """The folder's name is the run's."""
        return self.path.name

    def check_name(self) -> None:
        """Raise UsageError if the folder was renamed or copied since its run.

        Such a folder can be read. But resources are found by run id when a run is removed or taken
        over: they may belong to another run by now.
        """
        if self.plan.run_id != self.run_id:
            raise UsageError(
                f"{self.path} holds the record of {self.plan.run_id} under another name.",
                f"Give the folder the name {self.plan.run_id} to do this.",
            )

    @cached_property
    def plan(self) -> Plan:
        """The plan as it was when the run began.

        Raises RecordError if it can't be read, or is of another format.
        """
        try:
            text = (self.path / "plan.json").read_bytes()
            with contextlib.suppress(ValueError):  # pydantic has the better message
                check_format(json.loads(text), self.path)
            # Paths in it are absolute and may be gone by now: that is no longer a mistake.
            return Plan.model_validate_json(text, context={"stored": True})
        except OSError as error:
            raise RecordError(f"Can't read the plan in {self.path}: {error.strerror}.") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(step) for step in first["loc"]) or "plan.json"
            raise RecordError(
                f"The plan in {self.path} is none of this version: {where}: {first['msg']}.",
                "Judge it with the version that ran it.",
            ) from None

    @cached_property
    def history(self) -> Sequence[Entry]:
        """Every event that was written completely, in order.

        Raises RecordError if it is of another format.
        """
        try:
            with gc_paused(), (self.path / "history.jsonl").open("rb") as lines:
                return tuple(_entries(lines, self.path))
        except FileNotFoundError:
            return ()

    @cached_property
    def in_time_order(self) -> Sequence[Entry]:
        """The history with the times at which events happened, in that order.

        Every number and picture is made from this; see `history.HappenedAt` for the rule.
        """
        return tuple(as_it_happened(self.history))

    @cached_property
    def timeline(self) -> Timeline:
        """The run over time. Raises RecordError if it can't be read."""
        with gc_paused():
            return Timeline(self.plan, self.in_time_order)

    @cached_property
    def samples(self) -> Sequence[Sample]:
        """All samples, in order. Raises RecordError if they can't be read."""
        path = self.path / sample_file.NAME
        try:
            with gc_paused():
                return tuple(sample_file.read(path))
        except OSError as error:
            raise RecordError(f"Can't read {path}: {error.strerror}.") from None

    def log(self, task: str) -> list[str]:
        """Return what the task printed."""
        try:
            text = (self.path / "logs" / f"{task}.log").read_text("utf-8", "replace")
        except FileNotFoundError:
            return []
        return text.splitlines()

    def last_words(self, task: str, count: int) -> list[str]:
        """Return the last lines that the task printed; reads no more than those."""
        path = self.path / "logs" / f"{task}.log"
        try:
            with path.open("rb") as file:
                file.seek(last_lines(path, count))
                return file.read().decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return []

    def result(self, name: str) -> dict[str, Any] | None:
        """Return a result file; None if the run has not written it yet."""
        try:
            value: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return value

    @property
    def summary(self) -> dict[str, Any] | None:
        """The summary; None if the run has not written it yet.

        Raises RecordError if it is of another format.
        """
        if (summary := self.result("summary.json")) is not None:
            check_format(summary, self.path)
        return summary

    @property
    def live(self) -> bool:
        """Whether it has a supervisor now."""
        return is_live(self.path)


def runs_in(folder: Path) -> list[Record]:
    """Return the runs in a folder, oldest first; other folders are left out."""
    plans = [plan for plan in folder.glob("*/plan.json") if is_run_id(plan.parent.name)]
    return [Record(plan.parent) for plan in sorted(plans, key=lambda p: p.stat().st_mtime)]


def _entries(lines: IO[bytes], path: Path) -> Iterator[Entry]:
    for number, line in enumerate(lines):
        if not line.endswith(b"\n"):
            return  # torn by a crash or a full disk
        try:
            fields = json.loads(line)
            if number == 0 and fields["event"] == RunStarted.event:
                check_format(fields, path)
            yield entry_of(fields)
        except (ValueError, KeyError, TypeError):
            return  # a torn line and what was written after it, once there was room again


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Pause Python's search for reference cycles: a record has a million objects and no cycle.

    Searching them again and again takes longer than reading and judging them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
