"""What docs/gallery/between-graph-replication.md computes: what each preemption did."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.gallery.graph_faults import table
from benchmarks.gallery.runs import Run, chosen


def blocks(runs: Sequence[Run]) -> dict[str, str]:
    """Return the tables of the page. Raises LookupError if one of the runs is missing."""
    return {"preemptions": table(list(chosen(runs, "between-graph between-graph-sync")))}
