"""The computed tables of the pages about TensorFlow's strategies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.gallery.parameter_server import evaluations
from benchmarks.gallery.preemptions import TITLES, preemptions
from benchmarks.gallery.runs import Run
from emulator.record.events import Step


def fault(**values: Any) -> dict[str, Any]:
    stages = dict.fromkeys(("applied_after", "detected_after", "restored_after"))
    rates = {f"rate_{when}": 100.0 for when in ("before", "during", "after")}
    begin = {"kind": "preempt", "target": "worker-1", "status": "applied", "first_step_after": 4.06}
    return {**begin, **stages, **rates, **values}


def step(task: str, number: int, **values: Any) -> Step:
    return Step(n=0, t=0.0, wall=0.0, task=task, step=number, values=values)


def test_each_applied_fault_has_a_row() -> None:
    faults = [fault(rate_during=12.345), fault(status="skipped"), fault(detected_after=1.26)]
    run = Run("ring", "", {"faults": faults, "steps": {"lost": 50}}, Path())
    *head, first, second = preemptions([run]).splitlines()
    assert head[0] == f"| {' | '.join(TITLES)} |"
    assert first == ("| `ring` | preempt worker-1 | — | — | — | 4.1 s | 50 | 100 → 12.3 → 100 |")
    assert "| 1.3 s |" in second


def test_an_evaluation_is_behind_the_furthest_step_so_far() -> None:
    history = [
        step("chief-0", 200),
        step("chief-0", 230),
        step("evaluator-0", 200, accuracy=0.9),
        step("chief-0", 400),
        step("evaluator-0", 400, accuracy=0.95),
    ]
    assert evaluations(history).splitlines()[2:] == ["| 200 | 0.900 | 30 |", "| 400 | 0.950 | 0 |"]
