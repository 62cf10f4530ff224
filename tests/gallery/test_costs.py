"""What runs cost, by the script beside the scenarios, and the page of the gallery.

On which side of the break-even spot machines cost less is tried with the whole emulator on a manual
clock, so that seconds and money are exact. A machine on demand costs three times a spot machine. A
step takes a second, and each tenth is saved. A preempted machine is away for 30 s, and its
replacement takes 20 s to start.
"""

from __future__ import annotations

import json
import math
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gallery import costs as page
from benchmarks.gallery.runs import Run
from emulator.engines.memory import MemoryEngine, Script
from emulator.planning.requested import RunOptions
from emulator.record.events import line_of
from emulator.results import Result
from emulator.runtime.bundled import ROOT
from emulator.runtime.clock import ManualClock
from emulator.session.run import up
from scenarios.costs.costs import Costs, Price, costs_of, money, price_of
from tests.asked import asked
from tests.histories import (
    Told,
    began_again,
    ended,
    fault,
    happened,
    in_time,
    job,
    phase,
    restart,
    step,
    steps_of,
    written,
)
from tests.report.runs import step_line

STEPS = 300
START, DOWN, SAVE_EVERY = 20, 30, 10
ON_DEMAND = {"*": {"worker": "3/h"}}
SPOT = {"*": {"worker": {"spot": "1/h", "on_demand": "3/h"}}}
TEXT = (
    "name: test\nframework: none\nimage: none\nprogram: {command: [train]}\ncluster: {worker: 1}\n"
)


def run(folder: Path, every: int = 0) -> Result:
    """Train on one machine, which is preempted at each `every`th step."""
    steps = range(every, STEPS, every) if every else range(0)
    faults = [f"{{preempt: worker-0, at: {{step: {n}}}, grace: 5s, down: {DOWN}s}}" for n in steps]
    clock = ManualClock()

    def script(_: int) -> Script:
        last = len(engine.signals) * every // SAVE_EVERY * SAVE_EVERY
        lines = [(START + n - last, step_line(n)) for n in range(last + 1, STEPS + 1)]
        return Script(lines, exits_at=START + STEPS - last)

    engine = MemoryEngine(clock, {"worker-0": script})
    text = f"{TEXT}faults: [{', '.join(faults)}]\n"
    result = up(asked(text), engine, RunOptions(out=folder, reports=False), clock=clock)
    assert result.final_step == STEPS
    assert [fault.status for fault in result.analysis.faults] == ["applied"] * len(faults)
    return result


def test_what_each_preemption_costs_can_be_counted(tmp_path: Path) -> None:
    found = costs_of(run(tmp_path, every=75).folder, SPOT)
    # At 75 and 225 five steps are lost, at 150 none. Down takes 30 s, which nobody pays for; the
    # start 20 s; then the step that the job was about to make is made after the lost ones.
    assert found.preemptions == 3
    assert found.seconds == pytest.approx(3 * (30 + 20) + 5 + 0 + 5 + 3)
    assert found.lost == pytest.approx((3 * 20 + 5 + 0 + 5 + 3) / 3600)
    assert found.total == pytest.approx((20 + STEPS + 3 * 20 + 5 + 0 + 5) / 3600)


@pytest.mark.slow
@pytest.mark.parametrize(("every", "spot_is_cheaper"), [(5, False), (20, True), (60, True)])
def test_beyond_the_break_even_spot_machines_cost_less(
    tmp_path: Path, every: int, spot_is_cheaper: bool
) -> None:
    result = run(tmp_path, every)
    spot, on_demand = costs_of(result.folder, SPOT), costs_of(run(tmp_path).folder, ON_DEMAND)
    faults = [fault.triggered or 0.0 for fault in result.analysis.faults]
    between = (faults[-1] - faults[0]) / (len(faults) - 1)
    assert spot.break_even is not None
    assert (between > spot.break_even) == spot_is_cheaper
    assert (spot.total < on_demand.total) == spot_is_cheaper


# --- Histories; every expected amount here was worked out by hand ---------------------------------

ONE = {"*": {"worker": "3600/h"}}  # 1 a second
RUN = [happened(0, "run"), *began_again(1, "worker-0", "worker-1")]


def a_folder(folder: Path, *events: Told, roles: Sequence[str] = ("worker", "worker")) -> Path:
    """Write what the script reads of a run."""
    tasks = [{"name": f"{r}-{n}", "role": r, "before": None} for n, r in enumerate(roles)]
    (folder / "plan.json").write_text(json.dumps({"tasks": tasks}))
    (folder / "summary.json").write_text(json.dumps({"scenario": "test", "steps": {"final": 20}}))
    lines = [line_of(event) + "\n" for event in written(in_time(events))]
    (folder / "history.jsonl").write_text("".join([*lines, '{"torn"']))
    return folder


def lost(t: float, task: str) -> Told:
    """Return the exit of a task that was preempted."""
    return ended(t, task, 143, fault="0")


def preemptions(found: Costs) -> tuple[int, float, float]:
    """Return how many there were, and what they cost in money and in seconds."""
    return found.preemptions, found.lost, found.seconds


STEPPED = [*RUN, step(5, "worker-0", 10)]
FAILED = [*STEPPED, ended(8, "worker-1", 1), restart(8, "worker-1")]


@pytest.mark.parametrize(
    ("events", "seconds", "preempted"),
    [
        ([*STEPPED, job(20)], 19, 0),  # until the outcome
        ([*STEPPED, ended(8, "worker-1", 0), job(20)], 7, 0),
        # A machine that waits for a restart by the policy is paid for, also if it still waits.
        ([*FAILED, *began_again(12, "worker-1"), job(20)], 19, 0),
        ([*FAILED, job(20)], 19, 0),
        # One that never comes back is not paid for again.
        ([*STEPPED, fault(6, "worker-1", "triggered"), lost(8, "worker-1"), job(20)], 7, 1),
        # What follows the outcome is not counted.
        ([*STEPPED, job(20), lost(21, "worker-1"), *began_again(22, "worker-1")], 19, 0),
    ],
)
def test_until_when_a_machine_is_paid_for(
    tmp_path: Path, events: Sequence[Told], seconds: float, preempted: int
) -> None:
    found = costs_of(a_folder(tmp_path, *events), ONE)
    assert found.paid == {"worker-0": 19, "worker-1": seconds}
    assert found.preemptions == preempted
    assert found.total == pytest.approx(19 + seconds)
    assert found.per_thousand_steps == pytest.approx((19 + seconds) * 50)


def test_a_failure_right_after_a_recovery_is_another_one(tmp_path: Path) -> None:
    """Worker 1 is preempted at 7, exits at 9, and is started again at 12; worker 0 fails at 10.

    The job restarts from step 20 at 12; at 18 it is where it was, and at 19 it is further.
    """
    events = [
        *RUN,
        *steps_of("worker-0", {3: 10, 4: 20, 6: 30}),
        fault(7, "worker-1", "triggered"),
        lost(9, "worker-1"),
        fault(9, "worker-1", "applied", exit_code=143),
        ended(10, "worker-0", 1),
        restart(10, "worker-0", "job"),
        *began_again(12, "worker-0", "worker-1"),
        fault(13, "worker-1", "healed"),
        *phase(14, 15, "worker-0", "restore", step=20),
        *steps_of("worker-0", {17: 25, 18: 30, 19: 35}),
        ended(19.5, "worker-0", 1),
        job(20),
    ]
    found = costs_of(a_folder(tmp_path, *events), ONE)
    assert preemptions(found) == pytest.approx((1, 2 * 13 - 3, 13))


def test_of_a_job_that_goes_on_a_preemption_costs_only_until_the_next_step(tmp_path: Path) -> None:
    """Asynchronous: that the job is slower meanwhile shows in the price of its steps."""
    events = [*RUN, step(3, "worker-0", 10), step(5, "worker-0", 20)]
    events += [fault(5.5, "worker-1", "triggered"), lost(6, "worker-1"), step(7, "worker-0", 30)]
    events += [*began_again(10, "worker-1"), step(12, "worker-0", 40), job(12)]
    found = costs_of(a_folder(tmp_path, *events), ONE)
    assert preemptions(found) == pytest.approx((1, 2 * 1 + 1 * 1, 2))
    assert found.total == pytest.approx(11 + 5 + 2)


# --- Prices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "price"),
    [
        ("0.35/h", ("on demand", 0.35, None)),
        ("8.4/d", ("on demand", 0.35, None)),
        ("0/h", ("on demand", 0.0, None)),
        ({"spot": "0.11/h"}, ("spot", 0.11, None)),
        ({"spot": "0.11/h", "on_demand": "0.35/h"}, ("spot", 0.11, 0.24)),
        ({"purchase": 8760, "lifetime": "2y"}, ("own", 0.5, None)),
        ({"purchase": 8760, "lifetime": "730d", "used": 0.25}, ("own", 2.0, None)),
        ({"purchase": 8760, "lifetime": "17520h", "used": "50%"}, ("own", 1.0, None)),
    ],
)
def test_an_hour_costs_what_the_price_says(given: object, price: tuple[Any, ...]) -> None:
    for name in ("test", "te*", "*"):
        found = price_of({"currency": "EUR", name: {"worker": given}}, "test", "worker")
        assert [*found] == [price[0], pytest.approx(price[1]), pytest.approx(price[2])]


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ({}, "there is no price for worker of test"),
        ({"other": {"worker": "1/h"}}, "there is no price for worker of test"),
        ({"test": {"ps": "1/h"}, "*": {"worker": "1/h"}}, "there is no price for worker of test"),
        ({"test": "1/h"}, "there is no price for worker of test"),
        ({"test": {"worker": 0.35}}, "0.35 is no price"),
        ({"test": {"worker": "0.35/m"}}, "'0.35/m' is no price"),
        ({"test": {"worker": {"spot": "1/h", "ondemand": "2/h"}}}, "is no price"),
        ({"test": {"worker": {"purchase": 7, "lifetime": "4 years"}}}, "'4 years' is no price"),
    ],
)
def test_what_is_no_price_is_refused(file: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        price_of(file, "test", "worker")


def some(preempted: int, lost: float, seconds: float, saved: float | None) -> Costs:
    prices = {"chief-0": Price("on demand", 1.0), "worker-0": Price("spot", 0.1, saved)}
    return Costs(prices, {}, None, preempted, lost, seconds)


@pytest.mark.parametrize(
    ("run", "between"),
    [
        # 18 s of work save 0.6 / 3600 * 18 = 0.003.
        (some(1, 0.003, 60, saved=0.6), 18 + 60),
        (some(4, 0.012, 240, saved=0.6), 18 + 60),  # the average of several
        # If what is down were paid for, the share that is lost would equal the discount.
        (some(1, 2 * 0.10 * 60 / 3600, 60, saved=0.6), 60 / (1 - 0.10 / 0.40)),
        (some(0, 0.0, 0.0, saved=0.6), None),
        (some(1, 0.003, 60, saved=None), None),
        (some(1, 0.003, 60, saved=0.0), math.inf),  # spot machines that are not cheaper never are
    ],
)
def test_at_the_break_even_both_kinds_of_machines_cost_the_same(
    run: Costs, between: float | None
) -> None:
    assert run.break_even == pytest.approx(between)
    assert run.per_thousand_steps is None


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0.0, "0.00"), (12.5, "12.50"), (0.35, "0.350"), (0.0038912, "0.00389"), (3, "3.00")],
)
def test_an_amount_has_two_decimals_or_three_digits(amount: float, text: str) -> None:
    assert (money(amount), money(amount, "EUR")) == (text, f"{text} EUR")


# --- The command ----------------------------------------------------------------------------------


def called(monkeypatch: pytest.MonkeyPatch, *arguments: Path) -> None:
    path = str(ROOT / "scenarios" / "costs" / "costs.py")
    monkeypatch.setattr(sys, "argv", [path, *map(str, arguments)])
    runpy.run_path(path, run_name="__main__")


def test_the_script_prints_what_each_machine_cost_and_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\ntest: {worker: {spot: 3600/h, on_demand: 7200/h}}\n")
    events = [*STEPPED, fault(6, "worker-1", "triggered"), lost(8, "worker-1"), job(20)]
    called(monkeypatch, prices, a_folder(tmp_path, *events))
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        str(tmp_path),
        "machine of paid an hour seconds cost",
        "worker-0 spot 3600.00 19.00 19.00",
        "worker-1 spot 3600.00 7.00 7.00",
        "cost 26.00 EUR, 1300.00 EUR a thousand steps",
        "of it for preemptions (1): 18.00 EUR",
        "break-even of spot machines: a preemption every 24.0 s",
        "",
    ]


def test_the_script_says_what_it_needs_and_why_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=r"PRICES.yaml RUN_FOLDER"):
        called(monkeypatch, tmp_path / "prices.yaml")
    with pytest.raises(SystemExit, match=r"No such file .*prices.yaml"):
        called(monkeypatch, tmp_path / "prices.yaml", tmp_path)


# --- The page -------------------------------------------------------------------------------------


def a_cost(
    kind: str, hour: float, per_thousand: float, count: int = 0, lost: float = 0, took: float = 0
) -> Costs:
    """Return what a run of two machines cost that made a thousand steps."""
    tasks = ("worker-0", "worker-1")
    price = Price(kind, hour, 0.18 if count else None)
    paid = dict.fromkeys(tasks, per_thousand / 2 / hour * 3600)
    return Costs(dict.fromkeys(tasks, price), paid, 1000, count, lost, took, "EUR")


# 50 s for a thousand steps on both; two preemptions, each of which takes 20 s and costs 0.002.
FOUND = {
    page.OWN: a_cost("own", 0.36, 0.01),
    page.ON_DEMAND: a_cost("on demand", 0.36, 0.01),
    page.SPOT: a_cost("spot", 0.18, 0.009, 2, 0.004, 40.0),
}
RUNS = [Run(name, "", {"duration": 120.0, "goodput": 0.5}, Path()) for name in FOUND]


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Costs]:
    """What the runs of the page cost, by scenario."""
    costs = dict(FOUND)
    monkeypatch.setattr(page, "costs", lambda run: costs[run.scenario])
    return costs


def test_the_page_has_what_the_runs_cost_and_their_break_even() -> None:
    # 0.36 an hour is saved, 0.0001 a second: 20 s of work and 20 s of the preemption.
    assert page.measured(RUNS).between == pytest.approx(40)
    text = page.blocks(RUNS)["break-even"]
    assert "| `c`: a preemption costs | 0.00200 EUR |" in text
    assert "a preemption every | 40.0s |" in text
    assert "| that is, preemptions an hour | 90 |" in text
    assert "| in this run, preemptions an hour | 60 |" in text
    row = "| `spot-machines` | 2m 00s | 50% | 0.00900 | 0.00900 | 0.00400 |"
    assert page.blocks(RUNS)["runs"].splitlines()[-1] == row


def test_at_the_break_even_a_thousand_steps_cost_the_same() -> None:
    found = page.measured(RUNS)
    assert found.spot_at(0) == pytest.approx(0.005)
    # Every 60 s: 40 of them train, so that 1.25 preemptions come with a thousand steps.
    assert found.spot_at(60) == pytest.approx(0.005 + 1.25 * 0.002)
    assert found.spot_at(90) == pytest.approx(page.each(found.on_demand))
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
    assert (figure.data[-1].x, figure.data[-1].y) == ((60.0,), (pytest.approx(0.009),))


def test_a_page_without_a_preemption_is_refused(found: dict[str, Costs]) -> None:
    found[page.SPOT] = a_cost("spot", 0.18, 0.009)
    with pytest.raises(LookupError, match="was not preempted"):
        page.blocks(RUNS)
