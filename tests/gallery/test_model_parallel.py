"""The tables and charts of pipelines and of placed layers.

Each run is judged by its scenario's `expect:` and by model_parallel.py: which idle times and
activations were measured, and that the schedule and the number of stages change no loss.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks.gallery import model_parallelism
from benchmarks.gallery.pipeline_parallelism import blocks, bubble, charts
from benchmarks.gallery.recovery_ladder import (
    Costs,
    costs,
    daly,
    expected_efficiency,
    time_shares,
    young,
)
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


# --- The formulas for checkpoint intervals, and what is read from the run that measures them ------


@pytest.mark.parametrize(
    ("save", "mtbf", "seconds"), [(0.5, 100, 10), (2, 9, 6), (300, 86_400, 7200)]
)
def test_youngs_interval(save: float, mtbf: float, seconds: float) -> None:
    assert young(save, mtbf) == pytest.approx(seconds)


def test_dalys_interval() -> None:
    # sqrt(2 * 2 * 100) = 20; the ratio is 0.01: 20 * (1 + 0.1 / 3 + 0.01 / 9) - 2
    assert daly(2, 100) == pytest.approx(18.6889, abs=1e-4)
    assert daly(5, 2) == daly(4, 2) == 2  # a save that takes longer than two failures are apart


@pytest.mark.parametrize(("save", "mtbf"), [(0.2, 9.5), (1, 100), (5, 60), (10, 40)])
def test_dalys_interval_is_the_best_of_his_model(save: float, mtbf: float) -> None:
    """No other interval is better by more than a thousandth; Young's is not better either."""

    def kept(interval: float) -> float:
        return expected_efficiency(interval, save, 3, mtbf)

    best = kept(daly(save, mtbf))
    others = (daly(save, mtbf) * 1.01**step for step in range(-200, 201))
    assert max(map(kept, others)) < best * 1.001
    assert kept(young(save, mtbf)) <= best * 1.0001
    assert kept(daly(save, mtbf) / 4) < best * 0.95


def test_without_failures_only_saves_cost_time() -> None:
    assert expected_efficiency(9, 1, 5, 1e9) == pytest.approx(0.9, abs=1e-6)


def test_costs_are_read_from_the_run() -> None:
    faults = [*(("applied", after) for after in (2.0, 4.0, None, 2.0)), ("skipped", 2.0)]
    values = {
        **{"save_seconds": 0.25, "step_cost": 0.02, "best": 25},
        **{"efficiency_200": 0.5, "efficiency_25": 0.6},
    }
    summary = {
        "duration": 42.0,
        "startup": {"first_step": 2.0},
        "faults": [{"status": status, "first_step_after": after} for status, after in faults],
        "values": {name: {"worker-0": value} for name, value in values.items()},
    }
    measured = costs(summary)
    assert measured == Costs(0.25, 8 / 3, 10, {0.5: 0.6, 4: 0.5})
    assert list(measured.efficiencies) == [0.5, 4]
    assert measured.best == 0.5
    assert measured.nearest(math.sqrt(2) - 0.01) == 0.5
    assert measured.nearest(math.sqrt(2) + 0.01) == 4


def test_the_time_until_the_first_step_is_no_part_of_the_shares() -> None:
    time = {"startup": 30, "productive": 6, "wasted": 1, "recovery": 2, "eval": 0.5, "stall": 0.5}
    assert time_shares({"time": time}) == pytest.approx(
        {"productive": 0.6, "checkpoint": 0, "wasted": 0.1, "recovery": 0.2, "other": 0.1}
    )
