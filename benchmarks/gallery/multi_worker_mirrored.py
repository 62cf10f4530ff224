"""What docs/gallery/multi-worker-mirrored.md computes: the course of the preemption."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.gallery.preemptions import preemptions
from benchmarks.gallery.runs import Run, chosen


def blocks(runs: Sequence[Run]) -> dict[str, str]:
    """Return the tables of the page. Raises LookupError if the run is missing."""
    return {"preemptions": preemptions(list(chosen(runs, "mwms-ring")))}
