"""The plan, the events and the samples of a run folder, during the run or at any time after.

A torn last line, which a crash or a full disk leaves, is left out.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from emulator.errors import RecordError, shown
from emulator.faults.kinds import FAULTS
from emulator.metrics import sample_file
from emulator.metrics.samples import Sample
from emulator.planning.plan import Plan
from emulator.record.events import Entry, FaultEvent, RunStarted, entry_of
from emulator.record.folder import RunFolder, no_plan, other_version
from emulator.record.history import as_it_happened
from emulator.record.timeline import Timeline
from emulator.record.version import check_format
from emulator.validation.stored import open_stored, read_stored, stored_json, stored_lines


@dataclass(frozen=True)
class Record(RunFolder):
    """The reading side: a run folder, finished or not."""

    @cached_property
    def plan(self) -> Plan:
        """The plan as it was when the run began.

        Raises RecordError if it can't be read, or is of another format.
        """
        try:
            text = read_stored(self.path / "plan.json")
            with contextlib.suppress(ValueError):  # pydantic has the better message
                check_format(stored_json(text), self.path)
            # Paths in it are absolute and may be gone by now: that is no longer a mistake.
            return Plan.model_validate_json(text, context={"stored": True})
        except FileNotFoundError as error:
            raise no_plan(error) from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(step) for step in first["loc"]) or "plan.json"
            raise other_version(self.path, f"{where}: {first['msg']}") from None

    @cached_property
    def history(self) -> Sequence[Entry]:
        """Every event that was written completely, in order.

        Raises RecordError if it is of another format, or can't be read.
        """
        path = self.path / "history.jsonl"
        try:
            with gc_paused(), open_stored(path) as file:
                return tuple(_entries(stored_lines(file), path))
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
            timeline = Timeline(self.plan, self.in_time_order)
        known = {task.name for task in self.plan.everything}
        if unknown := sorted({*timeline.tasks, *timeline.helpers} - known):
            raise RecordError(
                f"Can't read {self.path / 'history.jsonl'}: it has events of "
                f"{shown(unknown[0], 30)}, which the plan does not have.",
                "Something has changed one of the two.",
            )
        return timeline

    @cached_property
    def samples(self) -> Sequence[Sample]:
        """All samples, in order. Raises RecordError if they can't be read."""
        with gc_paused():
            return tuple(sample_file.read(self.path / sample_file.NAME))


def _entries(lines: Iterable[bytes], path: Path) -> Iterator[Entry]:
    for number, line in enumerate(lines):
        if not line.endswith(b"\n"):
            return  # torn by a crash or a full disk
        try:
            fields = stored_json(line)
            name = fields["event"]
        except (ValueError, KeyError, TypeError, IndexError):
            return  # a torn line and what was written after it, once there was room again
        try:
            if number == 0 and name == RunStarted.event:
                check_format(fields, path.parent)
            entry = entry_of(fields)
            if isinstance(entry, FaultEvent) and entry.kind not in FAULTS:
                raise ValueError(f"there is no kind of fault {shown(entry.kind, 30)}")
            yield entry
        except ValueError as error:
            raise RecordError(
                f"Can't read {path}, line {number + 1}: {error}.",
                "Something has changed it; nothing after it is known.",
            ) from None


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
