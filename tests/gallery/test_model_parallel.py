"""The tables and charts of pipelines and of placed layers.

Each run is judged by its scenario's `expect:` and by model_parallel.py: which idle times and
activations were measured, and that the schedule and the number of stages change no loss.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gallery import model_parallelism
from benchmarks.gallery.pipeline_parallelism import blocks, bubble, charts
from benchmarks.gallery.runs import Run


def a_run(scenario: str, stages: int, counts: dict[int, float], *, in_flight: int = 2) -> Run:
    values: dict[str, dict[str, float]] = {"loss": {"worker-1": 0.5}}
    for count, idle in counts.items():
        numbers = {"bubble": idle, "theory": 0.0, "in_flight": in_flight, "kept_kib": 320}
        values |= {f"{name}_{count}": {"worker-0": one} for name, one in numbers.items()}
    tasks: dict[str, dict[str, str]] = {f"worker-{rank}": {} for rank in range(stages)}
    variant = "" if scenario == "pipeline-computing" else f"cluster.worker={stages}"
    return Run(scenario, variant, {"values": values, "tasks": tasks}, Path())


RUNS = [
    a_run("pipeline-gpipe", 2, {8: 0.125, 1: 0.5}),
    a_run("pipeline-gpipe", 4, {8: 0.25}, in_flight=8),
    a_run("pipeline-1f1b", 2, {8: 0.13}),
    a_run("pipeline-1f1b", 4, {8: 0.26}, in_flight=4),
    a_run("pipeline-computing", 2, {8: 0.2, 1: 0.51}),
]


@pytest.mark.parametrize(
    ("stages", "count", "idle"), [(1, 8, 0), (2, 1, 1 / 2), (4, 1, 3 / 4), (4, 13, 3 / 16)]
)
def test_the_idle_share_of_the_paper(stages: int, count: int, idle: float) -> None:
    assert bubble(stages, count) == idle


def test_the_table_has_both_schedules_beside_the_theory() -> None:
    tables = blocks(RUNS)
    assert tables["bubbles"].splitlines()[2:] == [
        "| 2 | 1 | 0.500 | 0.500 | — | 2 | — | 320 KiB | — |",
        "| 2 | 8 | 0.111 | 0.125 | 0.130 | 2 | 2 | 320 KiB | 320 KiB |",
        "| 4 | 8 | 0.273 | 0.250 | 0.260 | 8 | 4 | 320 KiB | 320 KiB |",
    ]
    assert tables["computing"].splitlines()[2:] == [
        "| 1 | 0.500 | 0.510 |",
        "| 8 | 0.111 | 0.200 |",
    ]


def test_the_charts_have_a_line_of_the_theory_and_the_points_of_each_schedule() -> None:
    drawn = charts(RUNS)
    names = [trace.name for trace in drawn["pipeline-bubbles"].data]
    assert names == [
        *("theory, 2 stages", "GPipe, 2 stages", "1F1B, 2 stages"),
        *("theory, 4 stages", "GPipe, 4 stages", "1F1B, 4 stages"),
    ]
    assert [list(trace.y) for trace in drawn["pipeline-activations"].data] == [[320], [320]]


def a_placement(backward: str, kib: int) -> Run:
    usage = {"received": 300 * kib * 1024, "sent": 300 * 1024}
    summary = {
        "usage": {"chief-0": usage, "worker-0": usage},
        "steps": {"final": 300},
        "values": {"loss": {"chief-0": 0.0173}},
        "throughput": {"steps_per_second": 100.0},
    }
    return Run("layer-placement", f"program.env.BACKWARD={backward}", summary, Path())


def test_traffic_is_of_one_step_and_by_place() -> None:
    lines = model_parallelism.blocks([a_placement("chief", 720), a_placement("workers", 2)])[
        "traffic"
    ].splitlines()
    assert lines[2:] == [
        "| where the layer is | 2 KiB | 1 KiB | 2 KiB | 100 | 0.0173 |",
        "| on the chief | 720 KiB | 1 KiB | 720 KiB | 100 | 0.0173 |",
    ]


def test_a_missing_run_is_an_error() -> None:
    with pytest.raises(LookupError, match="pipeline-1f1b"):
        blocks(RUNS[:2])
    with pytest.raises(LookupError, match="chief"):
        model_parallelism.blocks([a_placement("workers", 2)])
