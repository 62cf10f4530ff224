"""What `emulate export` does: read a run folder, write what was asked for, say what it was."""

from __future__ import annotations

import csv
import importlib.util
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator.analysis.analyse import Analysis, analyse
from emulator.errors import UsageError
from emulator.exports.event_files import moments, write_event_file
from emulator.exports.places import claim, claim_file, writing
from emulator.exports.tables import Cell, Column, Table, tables
from emulator.exports.trace import HEAD, MOST_STEPS, as_json, trace
from emulator.record.reader import Record

__all__ = ["Wanted", "described", "export", "write_csv", "write_parquet"]

Say = Callable[[str], None]

LIBRARIES = {"TensorBoard": "tensorboard", "Parquet": "pyarrow"}
"""What the extra `export` installs, and a format needs."""


@dataclass(frozen=True)
class Wanted:
    """Which formats, and where to; None: not that one."""

    tensorboard: Path | None = None
    csv: Path | None = None
    parquet: Path | None = None
    trace: Path | None = None


def export(record: Record, wanted: Wanted, say: Say) -> None:
    """Write a run in the formats that are wanted.

    Raises UsageError where none is, where a library is missing (before anything is written), or
    where somebody else's file is in the way.
    """
    if wanted == Wanted():
        raise UsageError(
            "Nothing to export to.",
            "Say --tensorboard DIR, --csv DIR, --parquet DIR or --trace FILE, or several.",
        )
    _require("TensorBoard", wanted.tensorboard)
    _require("Parquet", wanted.parquet)
    analysis = analyse(record.timeline)
    if lacking := _lacking(record):
        say(f"{record.run_id} {lacking}")
    if wanted.csv or wanted.parquet:
        found = tables(record.in_time_order, record.samples, analysis.faults)
        if wanted.csv:
            _export_csv(record, found, wanted.csv, say)
        if wanted.parquet:
            _export_parquet(record, found, wanted.parquet, say)
    if wanted.tensorboard:
        _export_event_files(record, analysis, wanted.tensorboard, say)
    if wanted.trace:
        _export_trace(record, analysis, wanted.trace, say)


def _require(what: str, wanted: Path | None) -> None:
    library = LIBRARIES[what]
    if wanted is not None and importlib.util.find_spec(library) is None:
        raise UsageError(
            f"An export for {what} needs {library}, which is not installed here.",
            f"`pip install {library}` installs it.",
        )


def _lacking(record: Record) -> str:
    """Say what a reader may look for in vain; empty where all is there."""
    live = "goes on: this is what there is by now" if record.live else ""
    none = [
        what
        for what, there in (
            ("steps", bool(record.timeline.steps)),
            ("samples", record.samples),
            (
                "samples of GPUs",
                any(sample.gpus for sample in record.samples)
                or not any(task.gpus for task in record.plan.tasks),
            ),
        )
        if not there
    ]
    nothing = f"has no {' and no '.join(none)}: what is made of them is empty" if none else ""
    return ", and ".join(word for word in (live, nothing) if word)


def _about(record: Record) -> dict[str, str]:
    plan = record.plan
    about = {"run_id": plan.run_id, "scenario": plan.scenario.name, "engine": plan.engine}
    return {**about, "variant": plan.variant} if plan.variant else about


def _replacing(before: str, record: Record) -> str:
    if not before:
        return ""
    whose = "an earlier export" if before == record.run_id else f"that of {before}"
    return f", in place of {whose}"


def _export_csv(record: Record, found: Sequence[Table], folder: Path, say: Say) -> None:
    columns = {table.name: described(table.columns) for table in found}
    names = [f"{table.name}.csv" for table in found]
    before = claim(folder, "csv", names, {**_about(record), "columns": columns})
    with writing(folder):
        for name, table in zip(names, found, strict=True):
            write_csv(table, folder / name)
    say(f"{_listed(found)} as CSV in {folder}{_replacing(before, record)}")


def _export_parquet(record: Record, found: Sequence[Table], folder: Path, say: Say) -> None:
    about = _about(record)
    names = [f"{table.name}.parquet" for table in found]
    before = claim(folder, "parquet", names, about)
    with writing(folder):
        for name, table in zip(names, found, strict=True):
            write_parquet(table, folder / name, about)
    say(f"{_listed(found)} as Parquet in {folder}{_replacing(before, record)}")


def _listed(found: Sequence[Table]) -> str:
    return ", ".join(f"{table.name} ({len(table.rows)})" for table in found)


def _export_event_files(record: Record, analysis: Analysis, folder: Path, say: Say) -> None:
    history = record.in_time_order
    found = moments(record.timeline, record.samples, analysis.duration)
    # A name of its own each time, in order: a TensorBoard that is looking takes it for the next.
    file = f"events.out.tfevents.{time.time():.6f}.emulate"
    before = claim(folder, "tensorboard", [f"{run}/{file}" for run in found], _about(record))
    began = history[0].wall if history else 0.0
    with writing(folder):
        for run, of_run in found.items():
            write_event_file(folder / run / file, of_run, began)
    runs = ", ".join(found) or "nothing"
    say(f"{runs} for `tensorboard --logdir {folder}`{_replacing(before, record)}")


def _export_trace(record: Record, analysis: Analysis, path: Path, say: Say) -> None:
    before = claim_file(path, HEAD)
    events = trace(record.timeline, record.samples, analysis.faults, analysis.duration)
    about = {**_about(record), "outcome": analysis.outcome}
    with writing(path), path.open("w", encoding="utf-8") as file:
        file.writelines(as_json(events, about))
    steps = len(record.timeline.steps)
    left_out = f"; {steps} steps are too many to show each" if steps > MOST_STEPS else ""
    replaced = ", in place of an earlier export" if before else ""
    say(f"{len(events)} events for https://ui.perfetto.dev in {path}{replaced}{left_out}")


# --- Tables as files ------------------------------------------------------------------------------

# CSV is what Python's csv module writes (RFC 4180): a header, nothing where a value is not known,
# floats with the digits that read back as the same float. Parquet has the columns' types, and their
# units in its metadata.


def described(columns: Sequence[Column]) -> list[dict[str, str]]:
    """Return what columns hold, as data: name, type, unit, about."""
    return [{key: value for key, value in vars(column).items() if value} for column in columns]


def write_csv(table: Table, path: Path) -> None:
    """Write a table as CSV in UTF-8."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([column.name for column in table.columns])
        writer.writerows(_as_text(row) for row in table.rows)


def _as_text(row: Sequence[Cell]) -> list[Cell]:
    """Write truth as JSON does; the csv module does the rest."""
    return [str(cell).lower() if isinstance(cell, bool) else cell for cell in row]


def write_parquet(table: Table, path: Path, about: Mapping[str, str]) -> None:
    """Write a table as Parquet; `about` and the columns' units go into the file's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"text": pa.string(), "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64()}
    fields = [
        pa.field(
            column.name,
            types[column.type],
            metadata={"unit": column.unit, "about": column.about},
        )
        for column in table.columns
    ]
    # Arrow's own field metadata is seen by Arrow alone; the file's by every reader.
    metadata = {**about, "columns": json.dumps(described(table.columns))}
    arrays = [
        pa.array([row[number] for row in table.rows], type=types[column.type])
        for number, column in enumerate(table.columns)
    ]
    schema = pa.schema(fields, metadata=metadata)
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path)
