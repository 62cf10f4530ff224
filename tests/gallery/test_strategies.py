"""The tables of the pages about TensorFlow's strategies, and of what preemptions did to jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.gallery.graph_faults import goes_back, paces, trains_again
from benchmarks.gallery.parameter_server import evaluations
from benchmarks.gallery.preemptions import TITLES, preemptions
from benchmarks.gallery.runs import Run
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


def a_row(**values: Any) -> dict[str, Any]:
    stages = dict.fromkeys(("applied_after", "detected_after", "restored_after"))
    rates = {f"rate_{when}": 100.0 for when in ("before", "during", "after")}
    begin = {"kind": "preempt", "target": "worker-1", "status": "applied", "first_step_after": 4.06}
    return {**begin, **stages, **rates, **values}


def test_each_applied_fault_has_a_row() -> None:
    faults = [a_row(rate_during=12.345), a_row(status="skipped"), a_row(detected_after=1.26)]
    run = Run("ring", "", {"faults": faults, "steps": {"lost": 50}}, Path())
    *head, first, second = preemptions([run]).splitlines()
    assert head[0] == f"| {' | '.join(TITLES)} |"
    assert first == ("| `ring` | preempt worker-1 | — | — | — | 4.1 s | 50 | 100 → 12.3 → 100 |")
    assert "| 1.3 s |" in second


def test_an_evaluation_is_behind_the_furthest_step_so_far() -> None:
    told = [
        step(0, "chief-0", 200),
        step(0, "chief-0", 230),
        step(0, "evaluator-0", 200, accuracy=0.9),
        step(0, "chief-0", 400),
        step(0, "evaluator-0", 400, accuracy=0.95),
    ]
    assert evaluations(told).splitlines()[2:] == ["| 200 | 0.900 | 30 |", "| 400 | 0.950 | 0 |"]
