"""Money in comparisons: on the terminal and on the page."""

from __future__ import annotations

import re
from dataclasses import replace

from emulator.analysis.comparison import Row, rows
from emulator.analysis.costs.costs import Costs, Preempted, TaskCost
from emulator.report.data import HTML
from tests.analysis.test_comparison import OK, RAN, plan, table
from tests.histories import happened, job
from tests.report.runs import PREEMPT, facts_of, preempted
from tests.report.test_page import overlaid


def priced(cost: float, lost: float, currency: str = "EUR", run_id: str = "run-1") -> Row:
    tasks = {"worker-0": TaskCost("spot", 0.1, 10.0, cost)}
    paid = Costs(tasks, {}, Preempted(1, lost, 5.0), None, currency, RAN.final_step)
    ran = replace(RAN, costs=paid)
    return rows([(plan(f"currency={currency}", run_id=run_id), ran, OK)])[0]


def test_runs_with_prices_have_a_table_of_money_with_their_ratios() -> None:
    lines = table(priced(0.004, 0.001), priced(0.006, 0.003, run_id="run-2"), width=80)
    assert lines[-4] == "run cost 1000 steps preempted"
    # RAN has made 50 steps.
    assert lines[-2:] == [
        "1 0.00400 EUR 0.0800 EUR 0.00100 EUR",
        "2 0.00600 EUR x1.50 0.120 EUR x1.50 0.00300 EUR x3.00",
    ]


def test_runs_with_prices_have_a_table_of_what_they_cost() -> None:
    priced = facts_of(preempted(), extra=f"{PREEMPT}prices: {{worker: 3600/h}}\ncurrency: EUR\n")
    html = overlaid((facts_of(preempted(), files={HTML}), "x=1"), (priced, "x=2"))
    # Only the first has a page.
    first = '<a href="r/report.html">x=1</a>'
    heads = re.findall('th scope="row" class="free">(.*?)</th>', html)
    assert heads == [first, "x=2", "x=1", "x=2"]
    (table,) = re.findall(r'(?s)<section id="costs".*?</table>', html)
    assert re.findall(r'data-label="Cost">(.*?)<', table) == ["", "35.00 EUR"]
    bare = overlaid((facts_of([happened(0, "run"), job(5)], extra=""), "x=1"))
    assert not re.search('id="costs"|Scaling efficiency', bare)
