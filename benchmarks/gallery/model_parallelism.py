"""The table of traffic in docs/gallery/model-parallelism.md."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.gallery.pages import cell, markdown
from benchmarks.gallery.runs import Run, chosen

PLACES = {"workers": "where the layer is", "chief": "on the chief"}
TITLES = ["backward pass", "chief received", "chief sent", "worker-0 received", "steps/s", "loss"]


def blocks(runs: Sequence[Run]) -> dict[str, str]:
    """Return the tables of the page. Raises LookupError if a run is missing."""
    rows = [
        row(run, where)
        for variant, where in PLACES.items()
        for run in chosen(runs, f"layer-placement[*BACKWARD={variant}]")
    ]
    return {"traffic": markdown(TITLES, rows)}


def row(run: Run, where: str) -> list[str]:
    """Return what one run sent over the network in a step, on average."""
    usage, steps = run.summary["usage"], run.summary["steps"]["final"]
    moved = [("chief-0", "received"), ("chief-0", "sent"), ("worker-0", "received")]
    return [
        where,
        *(f"{usage[task][way] / steps / 1024:.0f} KiB" for task, way in moved),
        cell(run, "throughput.steps_per_second"),
        cell(run, "values.loss"),
    ]
