"""A run as a run of Weights & Biases: configuration, curves, summary, table of faults, files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from emulator.analysis.run_tables import tables
from emulator.errors import UsageError
from emulator.plugins.exports.services import FILES, Exported

SECONDS, STEP = "seconds", "step"
"""The axes: seconds since the run began, and the step of the training."""
_TRAINING = "training/"


def send(run: Exported, project: str) -> str:
    """Write a run to a project, as a new run of its name. Raises UsageError where that fails."""
    import wandb

    # What the command prints is not part of the run, and neither is this machine.
    settings = wandb.Settings(console="off", silent=True, x_disable_stats=True)
    try:
        with wandb.init(
            project=project,
            name=run.run_id,
            group=run.record.plan.scenario.name,
            config={**run.config, **run.about},
            job_type="emulator",
            settings=settings,
        ) as made:
            made.define_metric("*", step_metric=SECONDS)
            for task in run.moments:
                made.define_metric(f"{task}/{_TRAINING}*", step_metric=STEP)
            count = 0
            for row in _rows(run):
                made.log(row)
                count += 1
            made.summary.update(run.figures)
            faults = tables((), (), run.analysis.faults)[-1]
            if faults.rows:
                columns: list[str | int] = [column.name for column in faults.columns]
                made.log({"faults": wandb.Table(columns, [list(row) for row in faults.rows])})
            files = wandb.Artifact(run.run_id, type="emulator-run")
            for file in FILES:
                if (run.record.path / file).is_file():
                    files.add_file(str(run.record.path / file))
            made.log_artifact(files)
            folder = Path(made.dir).parent
            where = f"{folder} (`wandb sync {folder}` sends it)" if made.offline else made.url
    except (wandb.errors.Error, OSError) as error:
        raise UsageError(
            f"Weights & Biases did not take the run: {' '.join(str(error).split())}",
            "`wandb login` logs in; WANDB_MODE=offline writes a folder.",
        ) from None
    return f"{count} rows for Weights & Biases in {where}"


def _rows(run: Exported) -> Iterator[dict[str, Any]]:
    """Yield the values of each moment, in the order of time, with its place on the axis."""
    every = chain.from_iterable(
        ((moment.wall, task, moment) for moment in found) for task, found in run.moments.items()
    )
    for wall, task, moment in sorted(every, key=lambda one: one[0]):
        row: dict[str, Any] = {f"{task}/{tag}": value for tag, value in moment.scalars.items()}
        if any(tag.startswith(_TRAINING) for tag in moment.scalars):
            row[STEP] = moment.step
        yield {SECONDS: wall - run.began, **row}
