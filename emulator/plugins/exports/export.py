"""Write a run in the formats of other tools; `formats.py` has their options."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from csv import writer as csv_writer
from pathlib import Path

from emulator.analysis.analyse import Analysis
from emulator.analysis.run_tables import Cell, Table, arrow, described, tables
from emulator.plugins.exports.destination import claim_file, claimed, writing
from emulator.plugins.exports.event_files import moments, write_event_file
from emulator.plugins.exports.services import SERVICES, Exported
from emulator.plugins.exports.trace import HEAD, MOST_STEPS, as_json, trace_events
from emulator.record.reader import Record
from emulator.runtime.files import atomic_write


def _about(record: Record) -> dict[str, str]:
    plan = record.plan
    about = {"run_id": plan.run_id, "scenario": plan.scenario.name, "engine": plan.engine}
    return {**about, "variant": plan.variant} if plan.variant else about


def _replaced(run_id: str, record: Record) -> str:
    """Return a note on the export that was replaced, if there was one."""
    if not run_id:
        return ""
    return f", replacing {'an earlier export' if run_id == record.run_id else f'that of {run_id}'}"


def export_tables(kind: str, record: Record, analysis: Analysis, target: str) -> str:
    """Write the tables of a run into a folder, as `CSV` or `Parquet`."""
    about, found = _about(record), tables(record.in_time_order, record.samples, analysis.faults)
    folder = Path(target)
    files = {f"{table.name}.{kind.lower()}": table for table in found}
    columns = {table.name: described(table.columns) for table in found}
    with claimed(folder, kind.lower(), list(files), {**about, "columns": columns}) as earlier:
        for name, table in files.items():
            if kind == "CSV":
                write_csv(table, folder / name)
            else:
                write_parquet(table, folder / name, about)
    rows = ", ".join(f"{table.name} ({len(table.rows)})" for table in found)
    return f"{rows} as {kind} in {folder}{_replaced(earlier, record)}"


def export_event_files(record: Record, analysis: Analysis, target: str) -> str:
    """Write the event files of a run into a folder."""
    history, folder = record.in_time_order, Path(target)
    runs = moments(record.timeline, record.samples, analysis.duration)
    # A new name each time, in order, so that an open TensorBoard reads it as the next file.
    file = f"events.out.tfevents.{time.time():.6f}.emulate"
    began = history[0].wall if history else 0.0
    files = [f"{run}/{file}" for run in runs]
    with claimed(folder, "tensorboard", files, _about(record)) as earlier:
        for run, run_moments in runs.items():
            write_event_file(folder / run / file, run_moments, began)
    names = ", ".join(runs) or "nothing"
    return f"{names} for `tensorboard --logdir {folder}`{_replaced(earlier, record)}"


def export_trace(record: Record, analysis: Analysis, target: str) -> str:
    """Write the timeline of a run into a file."""
    path = Path(target)
    replaced = ", replacing an earlier export" if claim_file(path, HEAD) else ""
    events = trace_events(record.timeline, record.samples, analysis)
    with writing(path):
        about = {**_about(record), "outcome": analysis.outcome}
        atomic_write(path, as_json(events, about), many_writers=True)
    steps = len(record.timeline.steps)
    left_out = f"; {steps} steps are too many to show each" if steps > MOST_STEPS else ""
    return f"{len(events)} events for https://ui.perfetto.dev in {path}{replaced}{left_out}"


# --- Tables as files ------------------------------------------------------------------------------

# CSV is what Python's csv module writes (RFC 4180): a header, nothing where a value is not known,
# floats with the digits that read back as the same float. Parquet has the columns' types, and their
# units in its metadata.


def write_csv(table: Table, path: Path) -> None:
    """Write a table as CSV in UTF-8."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv_writer(file)
        writer.writerow([column.name for column in table.columns])
        writer.writerows(_as_text(row) for row in table.rows)


def _as_text(row: Sequence[Cell]) -> list[Cell]:
    """Write truth as JSON does; the csv module does the rest."""
    return [str(cell).lower() if isinstance(cell, bool) else cell for cell in row]


def write_parquet(table: Table, path: Path, about: Mapping[str, str]) -> None:
    """Write a table as Parquet; `about` and the columns' units go into the file's metadata."""
    import pyarrow.parquet as pq

    pq.write_table(arrow(table, about), path)


# --- Services -------------------------------------------------------------------------------------


def send(service: str, record: Record, analysis: Analysis, name: str) -> str:
    """Send a run to one of SERVICES; say in one line what, and where. Raises UsageError."""
    return SERVICES[service].send(Exported(record, analysis), name)
