"""The formulas for checkpoint intervals, and what is read from the run that measures them."""

from __future__ import annotations

import math

import pytest

from benchmarks.gallery.recovery_ladder import (
    Costs,
    costs,
    daly,
    expected_efficiency,
    time_shares,
    young,
)


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
