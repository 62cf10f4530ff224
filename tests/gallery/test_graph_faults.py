"""The table of what preemptions did to jobs whose chief restores what all train."""

from __future__ import annotations

import pytest

from benchmarks.gallery.graph_faults import goes_back, paces, trains_again
from tests.histories import fault, happened, history, step

HISTORY = history(
    [
        step(1, "worker-0", 100),
        fault(2, "worker-1", "triggered", id="0"),
        step(2, "worker-1", 110),
        fault(3, "worker-1", "applied", id="0"),
        fault(4, "worker-1", "healed", id="0"),
        step(5, "worker-0", 200),
        # It joins where the others are, which is no step back.
        happened(6, "phase", "worker-1", phase="restore", state="end", step=190),
        step(7, "worker-1", 210),
        fault(8, "worker-0", "triggered", id="1"),
        fault(9, "worker-0", "healed", id="1"),
        step(10, "worker-1", 290),
        happened(11, "phase", "worker-0", phase="restore", state="end", step=200),
        happened(11.5, "phase", "worker-1", phase="restore", state="end", step=200),
        step(12, "worker-1", 210),
        step(12.5, "worker-0", 220),
    ]
)


@pytest.mark.parametrize(
    ("number", "target", "seconds", "steps"), [("0", "worker-1", 5, 0), ("1", "worker-0", 4.5, 90)]
)
def test_each_fault_has_its_own_restore(
    number: str, target: str, seconds: float, steps: int
) -> None:
    assert trains_again(HISTORY, number, target, "worker-0") == seconds
    assert goes_back(HISTORY, number, "worker-0") == steps


def test_rates_are_those_of_the_steps_that_were_made_also_again() -> None:
    told = history(
        [
            step(0, "worker-0", 0),
            *[step(t, "worker-0", 10 * t) for t in range(1, 21)],
            fault(20, "worker-1", "triggered"),
            fault(21, "worker-1", "applied"),
            step(21, "worker-0", 210),
            fault(22, "worker-1", "healed"),
            step(25, "worker-0", 220),
            happened(26, "phase", "worker-1", phase="restore", state="end", step=220),
            step(27, "worker-0", 230),
            step(30, "worker-1", 300),
        ]
    )
    assert trains_again(told, "0", "worker-1", "worker-0") == 10
    assert paces(told, "0", 10) == (9, 2)  # 100 to 190 in 10 s; 210 to 220 in 5 s


def test_a_task_that_reports_nothing_trains_with_the_chief() -> None:
    told = history(
        [
            step(1, "chief-0", 10),
            fault(2, "worker-1", "triggered"),
            fault(4, "worker-1", "healed"),
            step(8, "chief-0", 11),
        ]
    )
    assert trains_again(told, "0", "worker-1", "chief-0") == 6
    assert trains_again(told[:-1], "0", "worker-1", "chief-0") is None
