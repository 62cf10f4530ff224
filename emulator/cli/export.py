"""`export`: a run in the formats of other tools, which plug-ins write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.cli.options import Out, RunArgument, find_run, note
from emulator.errors import UsageError
from emulator.runtime import plugins

if TYPE_CHECKING:
    from emulator.record.reader import Record


def export(
    run: RunArgument = None,
    exports: Mapping[str, str] | None = None,
    out: Out = Path("runs"),
) -> None:
    """Write a run for other tools.

    TensorBoard, pandas, DuckDB, Perfetto, Weights & Biases, MLflow or OpenTelemetry. An earlier
    export in the same place is replaced, other files never. Exit codes: 0, or 2 where nothing could
    be written.
    """
    from emulator.analysis.analyse import analyse

    wanted = [(plugins.load("exports", name), value) for name, value in (exports or {}).items()]
    if not wanted:
        formats = (f"--{name} {one.metavar}" for name, one in plugins.formats())
        known = ", ".join(formats) or "No package here has a format"
        raise UsageError("Nothing to export to.", f"Give one or several of: {known}.")
    for one, _ in wanted:
        one.require()
    record = find_run(run or "last", out)
    if notes := _notes(record):
        note(f"{record.run_id} {notes}")
    analysis = analyse(record.timeline)
    for one, value in wanted:
        note(one.write(record, analysis, value))


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
