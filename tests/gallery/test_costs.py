"""Spot machines against machines on demand: on which side of the break-even which costs less.

The whole emulator runs here on a manual clock, so that seconds and money are exact. A machine on
demand costs three times a spot machine. A step takes a second, and each tenth is saved. A preempted
machine is away for 30 s, and its replacement takes 20 s to start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.gallery import costs as page
from benchmarks.gallery.runs import Run
from emulator.engines.memory import MemoryEngine, Script
from emulator.planning.requested import RunOptions
from emulator.results import Result
from emulator.runtime.clock import ManualClock
from emulator.session.execution import up
from tests.asked import asked
from tests.report.runs import step_line

STEPS = 300
START, DOWN, SAVE_EVERY = 20, 30, 10
ON_DEMAND = "prices: {worker: 3/h}\n"
SPOT = "prices: {worker: {spot: 1/h, on_demand: 3/h}}\n"
TEXT = (
    "name: test\nframework: none\nimage: none\nprogram: {command: [train]}\ncluster: {worker: 1}\n"
)


def run(folder: Path, prices: str, every: int = 0) -> Result:
    """Train on one machine, which is preempted at each `every`th step."""
    steps = range(every, STEPS, every) if every else range(0)
    faults = [f"{{preempt: worker-0, at: {{step: {n}}}, grace: 5s, down: {DOWN}s}}" for n in steps]
    clock = ManualClock()

    def script(_: int) -> Script:
        last = len(engine.signals) * every // SAVE_EVERY * SAVE_EVERY
        lines = [(START + n - last, step_line(n)) for n in range(last + 1, STEPS + 1)]
        return Script(lines, exits_at=START + STEPS - last)

    engine = MemoryEngine(clock, {"worker-0": script})
    text = f"{TEXT}{prices}faults: [{', '.join(faults)}]\n"
    result = up(asked(text), engine, RunOptions(out=folder, reports=False), clock=clock)
    assert result.final_step == STEPS
    assert [fault.status for fault in result.analysis.faults] == ["applied"] * len(faults)
    return result


def test_what_each_preemption_costs_can_be_counted(tmp_path: Path) -> None:
    result = run(tmp_path, SPOT, every=75)
    assert result.analysis.costs is not None
    preempted = result.analysis.costs.preempted
    # At 75 and 225 five steps are lost, at 150 none. Down takes 30 s, which nobody pays for; the
    # start 20 s; then the step that the job was about to make is made after the lost ones.
    assert preempted.count == 3
    assert preempted.seconds == pytest.approx(3 * (30 + 20) + 5 + 0 + 5 + 3)
    assert preempted.cost == pytest.approx((3 * 20 + 5 + 0 + 5 + 3) / 3600)
    assert result.cost == pytest.approx((20 + STEPS + 3 * 20 + 5 + 0 + 5) / 3600)


@pytest.mark.slow
@pytest.mark.parametrize(("every", "spot_is_cheaper"), [(5, False), (20, True), (60, True)])
def test_beyond_the_break_even_spot_machines_cost_less(
    tmp_path: Path, every: int, spot_is_cheaper: bool
) -> None:
    spot, on_demand = run(tmp_path, SPOT, every), run(tmp_path, ON_DEMAND)
    faults = [fault.triggered or 0.0 for fault in spot.analysis.faults]
    between = (faults[-1] - faults[0]) / (len(faults) - 1)
    assert (costs := spot.analysis.costs) is not None
    assert costs.break_even is not None
    assert on_demand.cost is not None
    assert (between > costs.break_even) == spot_is_cheaper
    assert (costs.cost < on_demand.cost) == spot_is_cheaper


# --- The page -------------------------------------------------------------------------------------


def a_run(name: str, per_hour: float, per_thousand: float, **preemptions: Any) -> Run:
    cost = {
        "per_thousand_steps": per_thousand,
        "tasks": {task: {"per_hour": per_hour} for task in ("worker-0", "worker-1")},
        "preemptions": {"count": 0, "cost": 0.0, "seconds": 0.0, **preemptions},
        "currency": "EUR",
    }
    return Run(name, "", {"cost": cost, "duration": 120.0}, Path())


# 50 s for a thousand steps on both; two preemptions, each of which takes 20 s and costs 0.002.
RUNS = [
    a_run(page.OWN, 0.36, 0.01),
    a_run(page.ON_DEMAND, 0.36, 0.01),
    a_run(page.SPOT, 0.18, 0.009, count=2, cost=0.004, seconds=40.0),
]


def test_the_page_has_the_break_even_of_the_runs() -> None:
    # 0.36 an hour is saved, 0.0001 a second: 20 s of work and 20 s of the preemption.
    assert page.measured(RUNS).between == pytest.approx(40)
    text = page.blocks(RUNS)["break-even"]
    assert "| `c`: a preemption costs | 0.00200 EUR |" in text
    assert "a preemption every | 40.0s |" in text
    assert "| that is, preemptions an hour | 90 |" in text
    assert "| in this run, preemptions an hour | 60 |" in text


def test_at_the_break_even_a_thousand_steps_cost_the_same() -> None:
    found = page.measured(RUNS)
    assert found.spot_at(0) == pytest.approx(0.005)
    # Every 60 s: 40 of them train, so that 1.25 preemptions come with a thousand steps.
    assert found.spot_at(60) == pytest.approx(0.005 + 1.25 * 0.002)
    assert found.spot_at(90) == pytest.approx(found.on_demand)
    assert "| 90 | 50% | 0.0100 EUR | 1.00 |" in page.blocks(RUNS)["rates"]
    with pytest.raises(ValueError, match="no time to train"):
        found.spot_at(180)


def test_the_chart_has_what_was_measured_as_a_point() -> None:
    (figure,) = page.charts(RUNS).values()
    assert [line.name for line in figure.data] == [
        "on demand, measured",
        "own, measured",
        "spot, from c and t",
        "spot, measured",
    ]
    assert (figure.data[-1].x, figure.data[-1].y) == ((60.0,), (0.009,))


def test_a_page_without_a_preemption_is_refused() -> None:
    with pytest.raises(LookupError, match="was not preempted"):
        page.blocks([*RUNS[:2], a_run(page.SPOT, 0.18, 0.009)])
