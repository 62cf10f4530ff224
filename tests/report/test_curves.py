"""What tasks report with their steps, as charts."""

from __future__ import annotations

import math
from typing import Any

from emulator.analysis.values import NAMES, Reported, histories, last_values
from emulator.report import page
from emulator.report.curves import values_of
from tests.histories import began_again, ended, fault, happened, job, restart, step, timeline
from tests.report.runs import facts_of

PAUSE = "faults: [{pause: worker-1, at: 5s, for: 1m}, {pause: worker-0, at: 2s, for: 1s}]\n"

TRAINED = [
    happened(0, "run"),
    *began_again(1, "worker-0", "worker-1"),
    *(fault(2, "worker-0", stage, "pause", id="1") for stage in ("triggered", "applied", "healed")),
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
    back = histories(timeline([*TRAINED[:9], step(4, "worker-0", 5, loss=5.0)], extra=PAUSE))
    assert [len(life) for life in back["loss"]["worker-0"]] == [1, 1]
    many = timeline([step(1, "worker-0", 1, **{f"v{n}": n for n in range(NAMES + 2)})])
    assert list(histories(many)) == list(last_values(many)) == [f"v{n}" for n in range(NAMES)]


def test_a_value_is_drawn_by_step_and_over_time_with_a_gap_where_its_task_was_away() -> None:
    (loss, accuracy), once = values_of(facts_of(TRAINED, extra=PAUSE))
    assert (loss.name, accuracy.name) == ("loss", "accuracy")
    assert lines(loss.over_steps)["worker-0"] == [
        (10, 4.0), (20, 3.0), (30, None), (30, None), (20, 2.9)]  # fmt: skip
    assert lines(loss.over_time)["worker-0"] == [
        (3, 4.0), (4, 3.0), (5, None), (7, None), (9, 2.9)]  # fmt: skip
    assert [(o.name, o.text) for o in once] == [("final_accuracy", "0.9 at step 20 by worker-0")]
    # Faults are drawn where the job was, unless it had made no step.
    over_steps, over_time = (c["layout"] for c in (loss.over_steps, loss.over_time))
    assert [(s["type"], s["x0"]) for s in over_steps["shapes"]] == [("line", 30)]
    drawn = [(s["type"], s["x0"]) for s in over_time["shapes"]]
    assert drawn == [("rect", 2), ("rect", 5.5), ("line", 2), ("line", 5.5)]
    assert [a["text"] for a in over_steps["annotations"]] == ["pause worker-1"]


def test_where_no_number_is_reported_the_page_says_how_to_report_one() -> None:
    html = page.render(facts_of([happened(0, "run"), step(3, "worker-0", 1, note="x"), job(5)]))
    assert "No task reported a loss, an accuracy or another number with its steps" in html
    assert "Reported once" not in html


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


def test_the_axis_of_steps_begins_at_nought_unless_the_first_is_far_from_it() -> None:
    for first, last, begin in ((10, 100, 0), (11, 100, 11), (0, 5, 0), (5, 5, 5)):
        told = [step(t, "worker-0", n, loss=1.0) for t, n in ((1, first), (2, last))]
        facts = facts_of([happened(0, "run"), *told, job(3)], extra="")
        ((loss,), _) = values_of(facts)
        range_ = loss.over_steps["layout"]["xaxis"]["range"]
        assert range_ == [begin, max(last, first + 1)]
