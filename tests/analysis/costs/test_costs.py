"""What runs and their preemptions cost; every expected amount here was worked out by hand.

A machine costs 3600 an hour, which is 1 a second, unless a test says otherwise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.analysis.analyse import analyse
from emulator.analysis.costs.costs import Costs, Preempted, TaskCost, break_even, costs
from emulator.analysis.figures import FIGURES, in_summary
from emulator.analysis.goodput import split
from emulator.results import summary
from tests.analysis.test_goodput import ENTRIES, TIMES
from tests.histories import (
    Told,
    a_plan,
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
    timeline,
)

TWO = "{worker: 2}"
ONE = "prices: {worker: 3600/h}\n"
PREEMPT = "faults: [{preempt: worker-1, at: 5s, down: 3s}]\n"
RUN = [happened(0, "run"), *began_again(1, "worker-0", "worker-1")]


def cost_of(*events: Told, until: float = 20, extra: str = ONE, cluster: str = TWO) -> Costs:
    replay = timeline(in_time(events), cluster, extra)
    found = costs(replay, split(replay, until))
    assert found is not None
    return found


def lost(t: float, task: str) -> Told:
    """Return the exit of a task that was preempted."""
    return ended(t, task, 143, fault="0")


def spent(found: Costs) -> dict[str, float]:
    return {cause: money for cause, money in found.time.items() if money}


def preemptions(found: Costs) -> tuple[int, float, float]:
    """Return how many there were, and what they cost in money and in seconds."""
    return found.preempted.count, found.preempted.cost, found.preempted.seconds


def paid(found: Costs) -> dict[str, float]:
    return {name: task.paid for name, task in found.tasks.items()}


def test_a_machine_is_paid_for_from_the_start_of_its_task_until_the_outcome() -> None:
    found = cost_of(*RUN, *steps_of("worker-0", {5: 10, 7: 12, 9: 14, 15: 20}), job(20))
    assert paid(found) == {"worker-0": 19, "worker-1": 19}
    assert found.cost == pytest.approx(38)
    # Nothing is paid for in the first second, which is startup as well.
    assert spent(found) == pytest.approx({"startup": 2 * 4, "productive": 2 * 10, "other": 2 * 5})
    assert preemptions(found) == pytest.approx((0, 0.0, 0.0))


def test_each_role_has_its_price() -> None:
    prices = "prices: {worker: 3600/h, ps: 86400/d}\ncurrency: EUR\n"
    events = [*began_again(0, "worker-0", "ps-0"), step(5, "worker-0", 1), job(20)]
    found = cost_of(*events, extra=prices, cluster="{worker: 1, ps: 1}")
    assert found.tasks.keys() == {"worker-0", "ps-0"}
    assert [task.per_hour for task in found.tasks.values()] == [3600, 3600]
    assert [task.cost for task in found.tasks.values()] == pytest.approx([20, 20])
    assert found.currency == "EUR"


@pytest.mark.parametrize(
    ("price", "kind", "per_hour"),
    [
        ("0.35/h", "on demand", 0.35),
        ("8.4/d", "on demand", 0.35),
        ("{on_demand: 0.35/h}", "on demand", 0.35),
        ("{on_demand: 0.35/h, spot: 0.11/h}", "spot", 0.11),
        ("{spot: 0.11/h}", "spot", 0.11),
        ("{purchase: 8760, lifetime: 2y}", "own", 0.5),
        ("{purchase: 8760, lifetime: 730d, used: 0.25}", "own", 2.0),
        ("{purchase: 8760, lifetime: 2y, used: 50%}", "own", 1.0),
        ("0/h", "on demand", 0.0),
    ],
)
def test_an_hour_costs_what_the_price_says(price: str, kind: str, per_hour: float) -> None:
    found = cost_of(*RUN, job(20), extra=f"prices: {{worker: {price}}}\n")
    task = found.tasks["worker-0"]
    assert task.kind == kind
    assert (task.per_hour, task.cost) == pytest.approx((per_hour, per_hour * 19 / 3600))


STEPPED = [*RUN, step(5, "worker-0", 10)]
FAILED = [*STEPPED, ended(8, "worker-1", 1), restart(8, "worker-1")]


@pytest.mark.parametrize(
    ("events", "seconds", "preempted"),
    [
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
    events: Sequence[Told], seconds: float, preempted: int
) -> None:
    found = cost_of(*events, extra=ONE + PREEMPT)
    assert paid(found) == {"worker-0": 19, "worker-1": seconds}
    assert found.preempted.count == preempted


# --- Preemptions --------------------------------------------------------------------------------


def synchronous() -> list[Told]:
    """Worker 1 is preempted at 7, exits at 9, and is started again at 12; worker 0 fails at 10.

    The job restarts from step 20 at 12; at 18 it is where it was, and at 19 it is further.
    """
    return [
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
        job(20),
    ]


def test_a_failure_right_after_a_recovery_is_another_one() -> None:
    events = [*synchronous()[:-1], ended(19.5, "worker-0", 1), job(20)]
    found = cost_of(*events, extra=ONE + PREEMPT)
    # 19 to 19.5 was cut off by worker 0, and 19.5 to 20 is its recovery.
    assert preemptions(found) == pytest.approx((1, 2 * 13 - 3, 13))
    assert spent(found)["wasted"] == pytest.approx(2 * 3 + 2 * 0.5)


def test_of_a_job_that_goes_on_a_preemption_costs_only_until_the_next_step() -> None:
    """Asynchronous: that the job is slower meanwhile shows in the price of its steps."""
    events = [*RUN, step(3, "worker-0", 10), step(5, "worker-0", 20)]
    events += [fault(5.5, "worker-1", "triggered"), lost(6, "worker-1"), step(7, "worker-0", 30)]
    events += [*began_again(10, "worker-1"), step(12, "worker-0", 40), job(12)]
    found = cost_of(*events, until=12, extra=ONE + PREEMPT)
    assert preemptions(found) == pytest.approx((1, 2 * 1 + 1 * 1, 2))
    assert found.cost == pytest.approx(11 + 5 + 2)


EVENTS = st.one_of(ENTRIES, st.builds(lost, TIMES, st.just("worker-1")))


@given(events=st.lists(EVENTS, max_size=40), duration=TIMES)
def test_the_causes_cost_together_what_the_tasks_cost(
    events: Sequence[Told], duration: float
) -> None:
    found = cost_of(*events, until=round(duration, 6), extra=ONE + PREEMPT)
    assert sum(found.time.values()) == pytest.approx(found.cost, abs=1e-6)
    assert 0 <= found.preempted.cost <= found.cost + 1e-6
    assert min(found.time.values()) >= 0
    assert all(0 <= task.paid <= duration + 1e-6 for task in found.tasks.values())


# --- The break-even -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preempted", "saved_per_hour", "between"),
    [
        # Two machines, 0.40 on demand and 0.10 as spot: 18 s of work save 0.6 / 3600 * 18 = 0.003.
        # In ten hours of work they are preempted 2000 times: 2 * 0.10 * 10 + 6 = 2 * 0.40 * 10.
        (Preempted(1, 0.003, 60), 0.6, 18 + 60),
        (Preempted(4, 0.012, 240), 0.6, 18 + 60),  # the average of several
        # If what is down were paid for, the share that is lost would equal the discount.
        (Preempted(1, 2 * 0.10 * 60 / 3600, 60), 0.6, 60 / (1 - 0.10 / 0.40)),
        (Preempted(0, 0.0, 0.0), 0.6, None),
        (Preempted(1, 0.003, 60), 0.0, math.inf),  # spot machines that are not cheaper never are
    ],
)
def test_at_the_break_even_both_kinds_of_machines_cost_the_same(
    preempted: Preempted, saved_per_hour: float, between: float | None
) -> None:
    assert break_even(preempted, saved_per_hour) == pytest.approx(between)


def test_only_roles_on_spot_machines_save() -> None:
    prices = "prices: {chief: 1/h, worker: {spot: 0.1/h, on_demand: 0.4/h}}\n"
    events = [*began_again(0, "chief-0", "worker-0", "worker-1"), job(20)]
    found = cost_of(*events, extra=prices, cluster="{chief: 1, worker: 2}")
    assert found.saved_per_hour == pytest.approx(2 * 0.3)


# --- As figures ---------------------------------------------------------------------------------


def summed_up(extra: str) -> tuple[dict[str, Any], dict[str, float | None]]:
    """Return the summary of a synchronous run, and its figures of money."""
    analysis = analyse(timeline(synchronous(), TWO, extra + PREEMPT))
    data = summary(a_plan(TWO), analysis, [])
    keys = [key for key, figure in FIGURES.items() if figure.path.startswith("cost.")]
    return data, {key: in_summary(data, key) for key in keys}


def test_the_summary_has_money_in_billionths_and_seconds_in_millionths() -> None:
    third = 1 / 3
    tasks = {"worker-0": TaskCost("spot", 1.0, 2.0, third)}
    data = Costs(tasks, {"eval": third}, Preempted(3, 1.0, third)).as_data()
    assert data["preemptions"] == {"count": 3, "each": 0.333333333, "seconds": 0.333333}
    assert (data["time"], data["tasks"]["worker-0"]["cost"]) == ({"eval": 0.333333333}, 0.333333333)


def test_what_is_unknown_or_infinite_is_no_figure() -> None:
    _, figures = summed_up("")
    assert [*figures.values()] == [None] * 4
    data, figures = summed_up("prices: {worker: {spot: 1/h, on_demand: 1/h}}\n")  # it never pays
    assert [key for key, value in figures.items() if value is None] == ["break_even"]
    json.dumps(data, allow_nan=False)


def test_no_steps_no_price_of_steps() -> None:
    analysis = analyse(timeline([*RUN, job(20)], TWO, ONE))
    assert analysis.costs is not None
    assert analysis.costs.cost == pytest.approx(38)
    assert analysis.costs.cost_per_thousand_steps is None


def test_an_amount_has_the_currency_a_time_does_not() -> None:
    assert FIGURES["cost"].in_words(0.0035, "EUR") == "cost 0.00350 EUR"
    assert FIGURES["cost"].in_words(0.0035) == "cost 0.00350"
    assert FIGURES["break_even"].in_words(24.5, "EUR").endswith("every 24.5s")
