"""Rates of steps; every number here was worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from emulator.analysis.rate_estimator import FINE, WINDOW, RateEstimator


def paced(*events: tuple[float, int]) -> RateEstimator:
    pace = RateEstimator()
    for t, step in events:
        pace.advance(t, step)
    return pace


def steady(seconds: float, per_second: int) -> RateEstimator:
    return paced(*((n / per_second, n) for n in range(int(seconds * per_second) + 1)))


def test_one_step_has_no_rate() -> None:
    pace = paced((1.0, 5))
    assert (pace.step, pace.rate(1.0), pace.rate(99.0), pace.undisturbed) == (5, None, None, None)
    assert not pace.stalled(99.0)


@pytest.mark.parametrize("per_second", [1, 10, 300])
def test_a_steady_rate_is_what_it_is(per_second: int) -> None:
    pace = steady(100, per_second)
    assert pace.rate(100.0) == pytest.approx(per_second, rel=0.01)
    assert pace.undisturbed == pytest.approx(per_second, rel=0.01)


def test_a_restart_from_an_older_step_counts_nothing_backwards() -> None:
    pace = steady(10, 10)
    pace.advance(10.1, 40)
    assert pace.rate(10.1) is None
    pace.advance(11.1, 50)
    assert pace.rate(11.1) == pytest.approx(10.0)
    assert pace.undisturbed == pytest.approx(10.0, rel=0.01)


def test_several_at_the_same_moment_divide_by_nothing() -> None:
    pace = paced((1.0, 1), (1.0, 2), (1.0, 3))
    assert pace.rate(1.0) is None
    pace.advance(2.0, 13)
    assert pace.rate(2.0) == pytest.approx(12.0)  # from the first that the moment had


def test_a_long_run_takes_no_more_room_than_a_minute() -> None:
    pace = steady(600, 100)
    assert len(pace._steps) <= 2 * WINDOW / FINE
    assert len(pace._stretches) <= 62


@pytest.mark.parametrize(
    ("events", "undisturbed"),
    [
        ([(0, 0), (3, 3)], 1.0),
        ([(0, 0), (2.875, 3)], None),  # too little
        ([(0, 0), (1, 4), (1.5, 4), (2, 4), (3, 4)], 4 / 3),
        ([(0, 0), *((t, 99 + t) for t in range(1, 61))], 159 / 60),
        # The first is more than a minute ago.
        ([(0, 0), *((t, 99 + t) for t in range(1, 62))], 1.0),
        ([(0, 0), (100, 100), (200, 110)], 110 / 200),
        ([(0, 0), (100, 100), (200, 110), (300, 120)], 20 / 200),
    ],
)
def test_which_training_an_estimate_is_of(
    events: Sequence[tuple[float, int]], undisturbed: float | None
) -> None:
    assert paced(*events).undisturbed == undisturbed


@pytest.mark.parametrize(
    ("events", "gap"),
    [
        # Of steps within a tenth of a second the last is kept.
        ([(0, 0), (0.0625, 1), (0.09375, 2)], 0.09375),
        ([(0, 0), (0.0625, 1), (0.09375, 2), (0.1, 3)], 0.05),
        # Of those before the last ten seconds one is kept.
        ([(0, 0), (1, 1), (11, 2)], 5.5),
        ([(0, 0), (1, 1), (11, 2), (11.5, 3)], 5.25),
        ([(0, 0), (20, 1), (41, 2)], 21),
        # The same step again is no step back.
        ([(0, 0), (1, 1), (2, 1)], 1),
        ([(0, 0), (1, 1), (2, 0)], None),
    ],
)
def test_which_steps_a_rate_is_of(events: Sequence[tuple[float, int]], gap: float | None) -> None:
    pace = paced(*events)
    assert (pace.usual_gap, pace.at) == (gap, events[-1][0])


def test_a_step_is_late_after_the_usual_gap_and_a_stall_is_ten_of_them() -> None:
    pace = paced((0, 0), (2, 10))
    assert [pace.rate(t) for t in (2, 4, 6, 22, 22.5)] == [5, 5, 2.5, 10 / 20, 0]
    assert [paced((0, 0), (0.5, 1)).stalled(t) for t in (10.5, 10.625)] == [False, True]


def test_a_break_is_no_training() -> None:
    pace = steady(10, 10)
    pace.interrupt()
    assert not pace.is_continuous
    assert (pace.step, pace.rate(11.0)) == (100, None)
    pace.advance(30.0, 200)
    pace.advance(31.0, 210)
    assert pace.undisturbed == pytest.approx(10.0, rel=0.01)
