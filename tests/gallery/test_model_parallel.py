"""The table of traffic; model_parallel.py judges the runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gallery.model_parallelism import blocks
from benchmarks.gallery.runs import Run


def a_run(backward: str, kib: int) -> Run:
    usage = {"received": 300 * kib * 1024, "sent": 300 * 1024}
    summary = {
        "usage": {"chief-0": usage, "worker-0": usage},
        "steps": {"final": 300},
        "values": {"loss": {"chief-0": 0.0173}},
        "throughput": {"steps_per_second": 100.0},
    }
    return Run("layer-placement", f"program.env.BACKWARD={backward}", summary, Path())


def test_traffic_is_of_one_step_and_by_place() -> None:
    lines = blocks([a_run("chief", 720), a_run("workers", 2)])["traffic"].splitlines()
    assert lines[2:] == [
        "| where the layer is | 2 KiB | 1 KiB | 2 KiB | 100 | 0.0173 |",
        "| on the chief | 720 KiB | 1 KiB | 720 KiB | 100 | 0.0173 |",
    ]


def test_a_missing_variant_is_an_error() -> None:
    with pytest.raises(LookupError, match="chief"):
        blocks([a_run("workers", 2)])
