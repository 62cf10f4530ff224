"""`emulate export`: write a run in the formats of other tools."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from csv import writer as csv_writer
from pathlib import Path
from types import MappingProxyType

from emulator.analysis.analyse import Analysis, analyse
from emulator.analysis.run_tables import Cell, Table, arrow, described, tables
from emulator.errors import UsageError
from emulator.plugins.exports.destination import claim_file, claimed, writing
from emulator.plugins.exports.event_files import moments, write_event_file
from emulator.plugins.exports.services import SERVICES, Exported
from emulator.plugins.exports.trace import HEAD, MOST_STEPS, as_json, trace_events
from emulator.record.reader import Record
from emulator.runtime.files import atomic_write

Report = Callable[[str], None]
NO_SERVICES: Mapping[str, str | None] = MappingProxyType({})

LIBRARIES = {"TensorBoard": "tensorboard", "Parquet": "pyarrow"}
"""Libraries that formats need; the extra `export` installs them."""


def export(
    record: Record,
    report: Report,
    *,
    tensorboard: Path | None = None,
    csv: Path | None = None,
    parquet: Path | None = None,
    trace: Path | None = None,
    services: Mapping[str, str | None] = NO_SERVICES,
) -> None:
    """Write a run to folders, the trace file, and SERVICES; report each in one line.

    `services` are names in them, by their keys: of a project, an experiment, a service. Raises
    UsageError if nothing is given, if a library is missing (before anything is written), if a file
    exists that no export has written, or if a service does not take the run.
    """
    named = {key: name for key, name in services.items() if name is not None}
    if not any((tensorboard, csv, parquet, trace, named)):
        raise UsageError(
            "Nothing to export to.",
            "Give --tensorboard DIR, --csv DIR, --parquet DIR, --trace FILE, --wandb PROJECT, "
            "--mlflow EXPERIMENT or --otel SERVICE, or several.",
        )
    senders = {key: SERVICES[key].send for key in named}
    if tensorboard:
        _require("TensorBoard")
    if parquet:
        _require("Parquet")
    if notes := _notes(record):
        report(f"{record.run_id} {notes}")
    analysis = analyse(record.timeline)
    if csv or parquet:
        found = tables(record.in_time_order, record.samples, analysis.faults)
        if csv:
            _export_tables(record, found, "CSV", csv, report)
        if parquet:
            _export_tables(record, found, "Parquet", parquet, report)
    if tensorboard:
        _export_event_files(record, analysis, tensorboard, report)
    if trace:
        _export_trace(record, analysis, trace, report)
    for key, send in senders.items():
        report(send(Exported(record, analysis), named[key]))


def _require(tool: str) -> None:
    library = LIBRARIES[tool]
    if importlib.util.find_spec(library) is None:
        raise UsageError(
            f"An export for {tool} needs {library}, which is not installed here.",
            f"`pip install {library}` installs it.",
        )


def _notes(record: Record) -> str:
    """Return what is missing in a record; empty if it is complete."""
    gpus = any(sample.gpus for sample in record.samples)
    needs_gpus = any(task.gpus for task in record.plan.tasks)
    present = {
        "steps": bool(record.timeline.steps),
        "samples": bool(record.samples),
        "samples of GPUs": gpus or not needs_gpus,
    }
    missing = " and no ".join(what for what, is_present in present.items() if not is_present)
    notes = ["is still running: the export has what was recorded so far"] if record.live else []
    notes += [f"has no {missing}: their exports are empty"] if missing else []
    return ", and ".join(notes)


def _about(record: Record) -> dict[str, str]:
    plan = record.plan
    about = {"run_id": plan.run_id, "scenario": plan.scenario.name, "engine": plan.engine}
    return {**about, "variant": plan.variant} if plan.variant else about


def _replaced(run_id: str, record: Record) -> str:
    """Return a note on the export that was replaced, if there was one."""
    if not run_id:
        return ""
    return f", replacing {'an earlier export' if run_id == record.run_id else f'that of {run_id}'}"


def _export_tables(
    record: Record, found: Sequence[Table], kind: str, folder: Path, report: Report
) -> None:
    about = _about(record)
    files = {f"{table.name}.{kind.lower()}": table for table in found}
    columns = {table.name: described(table.columns) for table in found}
    with claimed(folder, kind.lower(), list(files), {**about, "columns": columns}) as earlier:
        for name, table in files.items():
            if kind == "CSV":
                write_csv(table, folder / name)
            else:
                write_parquet(table, folder / name, about)
    rows = ", ".join(f"{table.name} ({len(table.rows)})" for table in found)
    report(f"{rows} as {kind} in {folder}{_replaced(earlier, record)}")


def _export_event_files(record: Record, analysis: Analysis, folder: Path, report: Report) -> None:
    history = record.in_time_order
    runs = moments(record.timeline, record.samples, analysis.duration)
    # A new name each time, in order, so that an open TensorBoard reads it as the next file.
    file = f"events.out.tfevents.{time.time():.6f}.emulate"
    began = history[0].wall if history else 0.0
    files = [f"{run}/{file}" for run in runs]
    with claimed(folder, "tensorboard", files, _about(record)) as earlier:
        for run, run_moments in runs.items():
            write_event_file(folder / run / file, run_moments, began)
    names = ", ".join(runs) or "nothing"
    report(f"{names} for `tensorboard --logdir {folder}`{_replaced(earlier, record)}")


def _export_trace(record: Record, analysis: Analysis, path: Path, report: Report) -> None:
    replaced = ", replacing an earlier export" if claim_file(path, HEAD) else ""
    events = trace_events(record.timeline, record.samples, analysis)
    with writing(path):
        about = {**_about(record), "outcome": analysis.outcome}
        atomic_write(path, as_json(events, about), many_writers=True)
    steps = len(record.timeline.steps)
    left_out = f"; {steps} steps are too many to show each" if steps > MOST_STEPS else ""
    report(f"{len(events)} events for https://ui.perfetto.dev in {path}{replaced}{left_out}")


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
