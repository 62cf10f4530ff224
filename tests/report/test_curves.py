"""What tasks report with their steps, as charts."""

from __future__ import annotations

import math
from typing import Any

from emulator.analysis.values import Reported, histories
from emulator.report import page
from emulator.report.curves import leading_values, rate_over_steps, values_of
from tests.histories import began_again, ended, fault, happened, job, restart, step, timeline
from tests.report.runs import facts_of

PAUSE = "faults: [{pause: worker-1, at: 5s, for: 1m}]\n"

TRAINED = [
    happened(0, "run"),
    *began_again(1, "worker-0", "worker-1"),
    step(3, "worker-0", 10, loss=4.0, note="warm"),
    step(3, "worker-1", 10, loss=4.2),
    step(4, "worker-0", 20, loss=3.0, accuracy=0.5),
    step(5, "worker-0", 30, loss=math.nan),
    fault(5.5, "worker-1", "triggered", "pause"),
    fault(5.6, "worker-1", "applied", "pause"),
    ended(6, "worker-0", 1),
    restart(6, "worker-0"),
    *began_again(7, "worker-0"),
    step(9, "worker-0", 20, loss=2.9, accuracy=0.52, final_accuracy=0.9),
    job(10),
]


def lines(chart: dict[str, Any]) -> dict[str, list[tuple[float, float | None]]]:
    return {t["name"]: list(zip(t["x"], t["y"], strict=True)) for t in chart["data"]}


def test_the_values_of_each_life_of_a_task_are_kept_apart() -> None:
    found = histories(timeline(TRAINED, extra=PAUSE))
    assert list(found) == ["loss", "accuracy", "final_accuracy"]
    assert found["loss"]["worker-0"] == [
        [Reported(3, 10, 4.0), Reported(4, 20, 3.0), Reported(5, 30, None)],
        [Reported(9, 20, 2.9)],
    ]
    back = [*TRAINED[:6], step(4, "worker-0", 5, loss=5.0)]
    assert [len(life) for life in histories(timeline(back))["loss"]["worker-0"]] == [1, 1]


def test_a_value_is_drawn_by_step_and_over_time_with_a_gap_where_its_task_was_away() -> None:
    (loss, accuracy), once = values_of(facts_of(TRAINED, extra=PAUSE))
    assert (loss.name, accuracy.name) == ("loss", "accuracy")
    assert lines(loss.over_steps)["worker-0"] == [
        (10, 4.0), (20, 3.0), (30, None), (30, None), (20, 2.9)]  # fmt: skip
    assert lines(loss.over_time)["worker-0"] == [
        (3, 4.0), (4, 3.0), (5, None), (7, None), (9, 2.9)]  # fmt: skip
    said = [(one.name, one.text) for one in once]
    assert said == [("final_accuracy", "0.9 at step 20 by worker-0")]
    # Faults are drawn where the job was.
    over_steps, over_time = (c["layout"] for c in (loss.over_steps, loss.over_time))
    assert [(s["type"], s["x0"]) for s in over_steps["shapes"]] == [("line", 30)]
    assert [(s["type"], s["x0"]) for s in over_time["shapes"]] == [("rect", 5.5), ("line", 5.5)]
    assert [a["text"] for a in over_steps["annotations"]] == ["pause worker-1"]


def test_roles_have_gaps_in_time_while_all_were_away_and_none_by_step() -> None:
    names = [f"worker-{n}" for n in range(9)]
    events = [happened(0, "run"), *began_again(1, *names)]
    events += [step(3 + n, name, n, loss=1) for n in range(5) for name in names]
    events += [event for name in names for event in (ended(8, name, 1), restart(8, name))]
    events += began_again(20, *names)
    events += [step(23 + n, name, 2 + n, loss=1) for n in range(5) for name in names]
    ((loss,), _) = values_of(facts_of([*events, job(30)], "{worker: 9}", extra=""))
    for chart, gaps in ((loss.over_steps, 0), (loss.over_time, 1)):
        drawn = [t["y"].count(None) for t in chart["data"] if t["name"] == "worker (9)"]
        assert drawn == [gaps + 1, gaps]  # each part of the area is closed


def test_where_no_number_is_reported_the_page_says_how_to_report_one() -> None:
    html = page.render(facts_of([happened(0, "run"), step(3, "worker-0", 1, note="x"), job(5)]))
    assert "No task reported a loss, an accuracy or another number with its steps" in html
    assert "Reported once" not in html


def test_a_single_accuracy_is_a_sentence_and_no_chart() -> None:
    events = [happened(0, "run"), step(3, "worker-0", 1, accuracy=0.96666), job(5)]
    (loss,), _ = values_of(facts_of([step(n, "worker-0", 7, loss=n) for n in range(3)]))
    assert loss.over_steps["layout"]["xaxis"]["range"] == [7, 8]
    html = page.render(facts_of(events))
    assert "<strong>accuracy</strong> 0.967 at step 1 by worker-0" in html
    assert 'data-chart="value-0"' not in html


def test_the_rate_of_a_job_by_step_and_the_value_of_the_task_that_reports_most() -> None:
    events = [happened(0, "run"), *(step(1 + n, "worker-0", 10 * n, loss=n) for n in range(6))]
    events += [step(7, "worker-1", 50, loss=99), job(8)]
    facts = facts_of(events, extra="")
    by_step = list(rate_over_steps(facts))
    assert {round(rate or 0, 6) for _, rate in by_step} == {10}
    assert (by_step[0][0], by_step[-1][0]) == (2, 50)
    assert list(leading_values(facts, "loss")) == [(10 * n, n) for n in range(6)]
    assert list(leading_values(facts, "perplexity")) == []


def test_what_many_tasks_report_once_is_said_together_and_a_long_list_is_cut() -> None:
    names = [f"worker-{n}" for n in range(6)]
    begun = [happened(0, "run"), *began_again(0, *names)]

    def once(*values: float) -> str:
        told = zip(names, values, strict=False)
        events = [*begun, *(step(3, name, 7, accuracy=value) for name, value in told), job(9)]
        (_, (one,)) = values_of(facts_of(events, "{worker: 6}", extra=""))
        return one.text

    assert once(0.5, 0.5, 0.5) == "0.5 at step 7 by worker-0, worker-1, worker-2"
    assert once(0.5, 0.5, 0.5, 0.5) == "0.5 at step 7 by worker-0 .. worker-3 (4)"
    each = [f"0.{n} at step 7 by worker-{n - 1}" for n in range(1, 6)]
    assert once(0.1, 0.2, 0.3, 0.4) == "; ".join(each[:4])
    assert once(0.1, 0.2, 0.3, 0.4, 0.5) == "; ".join([*each[:4], "…"])
    assert once(0.5, math.nan) == "0.5 at step 7 by worker-0; no number at step 7 by worker-1"


def test_eight_values_are_drawn_and_the_others_named() -> None:
    for count, said in ((8, ""), (9, "Not drawn: v8."), (10, "Not drawn: v8, v9.")):
        told = {f"v{n}": 1.0 for n in range(count)}
        events = [happened(0, "run"), *(step(t, "worker-0", t, **told) for t in (1, 2)), job(3)]
        html = page.render(facts_of(events, extra=""))
        assert html.count('data-chart="value-') == 16
        assert ("Not drawn: v8" in html, said in html) == (bool(said), True)


def test_the_axis_of_steps_begins_at_nought_unless_the_first_is_far_from_it() -> None:
    for first, last, begin in ((10, 100, 0), (11, 100, 11), (0, 5, 0), (5, 5, 5)):
        told = [step(t, "worker-0", n, loss=1.0) for t, n in ((1, first), (2, last))]
        facts = facts_of([happened(0, "run"), *told, job(3)], extra="")
        ((loss,), _) = values_of(facts)
        range_ = loss.over_steps["layout"]["xaxis"]["range"]
        assert range_ == [begin, max(last, first + 1)]
