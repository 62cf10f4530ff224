"""The Chrome trace: the rules of the format, and the events of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.analysis.analyse import analyse
from emulator.metrics.samples import Sample
from emulator.planning.plan import Plan
from emulator.plugins.exports import trace as module
from emulator.plugins.exports.trace import HEAD, Event, as_json, pack_rows, trace_events
from emulator.record.events import Entry
from emulator.record.timeline import Interval, Timeline
from tests.histories import (
    began_again,
    ended,
    fault,
    happened,
    history,
    in_time,
    job,
    restart,
    steps_of,
)
from tests.plugins.exports.trace_format import problems, read
from tests.runs import TEXT, a_history, a_plan, some_samples


def traced(
    entries: list[Entry], samples: list[Sample] | None = None, plan: Plan | None = None
) -> list[Event]:
    """Return a trace as a viewer reads it; the rules of the format are checked."""
    plan = plan or a_plan()
    replay = Timeline(plan, entries)
    found = trace_events(replay, samples or [], analyse(replay))
    text = as_json(found, {"run_id": "run-1"})
    assert text.startswith(HEAD)
    whole = read(text)
    assert whole["otherData"] == {"writer": "emulate export", "run_id": "run-1"}
    events: list[Event] = whole["traceEvents"]
    assert problems(events) == []
    return events


@pytest.fixture
def events() -> list[Event]:
    return traced(a_history(), some_samples())


@pytest.mark.parametrize(
    ("entry", "name", "scope"),
    [
        (happened(1, "fault", kind="partition", target="a | b"), "partition a | b", "g"),
        (happened(1, "fault", "ps-0", stage="failed"), "preempt ps-0 failed", "g"),
        (happened(1, "fault", "ps-0", stage="healed"), "", ""),
        (happened(1, "stall", "ps-0"), "stall ps-0", "p"),
        (happened(1, "attached"), "attached", "p"),
        (happened(1, "error"), "error", "g"),
        (happened(1, "interrupted-again", signal="SIGINT"), "interrupted-again", "p"),
        (restart(1, "ps-0"), "restart ps-0", "p"),
        (job(1, "failed"), "job failed", "g"),
    ],
)
def test_what_happens_to_the_job_is_a_mark(entry: Entry, name: str, scope: str) -> None:
    found = traced(history([happened(0, "run"), entry]))
    assert [(e["name"], e["s"], e["ts"]) for e in found if e["ph"] == "i"] == [
        (name, scope, 10**6)
    ] * bool(name)


def test_a_trace_has_all_that_it_had_when_it_was_read_and_nothing_else(events: list[Event]) -> None:
    """Arrows may have other ids."""
    expected = json.loads((Path(__file__).parent / "expected" / "trace.json").read_text())
    assert [{**event, "id": 0} if "id" in event else event for event in events] == expected


def named(events: list[Event], what: str) -> dict[int, Any]:
    key = "pid" if what.startswith("process") else "tid"
    return {e[key]: e["args"] for e in events if e["ph"] == "M" and e["name"] == what}


def row(events: list[Event], process: str, name: str) -> list[tuple[str, int, int]]:
    """Return the slices of a row: name, begin and end in milliseconds."""
    (pid,) = [p for p, args in named(events, "process_name").items() if args["name"] == process]
    rows = named([e for e in events if e["pid"] == pid], "thread_name")
    tids = [tid for tid, args in rows.items() if args["name"] == name]
    return [
        (e["name"], e["ts"] // 1000, (e["ts"] + e["dur"]) // 1000)
        for e in events
        if e["ph"] == "X" and e["tid"] in tids
    ]


def test_faults_that_overlap_have_rows_and_an_arrow_to_what_restored_the_task() -> None:
    name, plan = "worker-1", a_plan(TEXT + "  - {preempt: worker-1, at: 4s}\n" * 2)
    stages = {2: "triggered 0", 2.5: "applied 0", 4: "triggered 1", 7: "healed 0", 8: "applied 1"}
    stages |= {9.4: "triggered 2", 9.5: "applied 2", 10: "healed 2"}
    entries = [
        *(fault(t, name, one.split()[0], id=one.split()[1]) for t, one in stages.items()),
        *(ended(t, name, 1) for t in (3, 5)),
        *(entry for t in (0, 3, 5) for entry in began_again(t, name)),
        *steps_of(name, {8.5: 0, 9: 1, 11: 2, 12: 3, 13: 4}),
        job(14),
    ]
    events = traced(history([happened(0, "run"), *in_time(entries)]), plan=plan)
    faults = {"faults": [(2000, 7000), (9400, 10_000)], "faults 2": [(4000, 8000)]}
    for title, spans in faults.items():
        assert row(events, name, title) == [("preempt (applied)", *span) for span in spans]
    arrows = [(e["ph"], e["ts"] // 1000) for e in events if e["name"] == "recovery"]
    assert arrows == [("s", 2000), ("f", 6000), ("s", 9400), ("f", 11_000)]


@pytest.mark.parametrize("length", range(len(a_history())))
def test_a_record_that_breaks_off_anywhere_is_a_trace(length: int) -> None:
    traced(a_history()[:length], some_samples())


def test_the_rules_are_rules() -> None:
    """The validator itself: each of these breaks one."""
    good = traced(a_history(), some_samples())

    def broken(number: int, **changed: object) -> list[str]:
        return problems([*good[:number], {**good[number], **changed}, *good[number + 1 :]])

    slice_ = next(n for n, e in enumerate(good) if e["ph"] == "X")
    arrow = next(n for n, e in enumerate(good) if e["ph"] == "f")
    counter = next(n for n, e in enumerate(good) if e["ph"] == "C")
    into_the_next = {"dur": 600_000}
    for changed in ({"ts": -1}, {"dur": 1.5}, {"pid": 77}, {"tid": 77}, {"ph": "B"}, into_the_next):
        assert broken(slice_, **changed), changed
    assert broken(arrow, ts=0)
    assert broken(arrow, id="other")
    assert broken(counter, args={"cores": "1"})
    with pytest.raises(ValueError, match="NaN is no JSON"):
        read('{"traceEvents": [NaN]}')


# --- Rows ---------------------------------------------------------------------------------------


SPANS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 10)).map(
        lambda at: Interval("x", float(at[0]), float(sum(at)))
    )
)


@given(SPANS)
def test_no_two_of_a_row_overlap_in_part(spans: list[Interval]) -> None:
    rows = pack_rows(spans)
    for row in rows:
        for one in row:
            for two in row:
                assert not one.begin < two.begin < one.end < two.end
    packed = [(span.begin, span.end) for row in rows for span in row]
    assert sorted(packed) == sorted((span.begin, span.end) for span in spans)
    assert all(rows)


def counted(events: list[Event], pid: int, name: str) -> list[tuple[int, float]]:
    return [
        (e["ts"], *e["args"].values())
        for e in events
        if e["ph"] == "C" and (e["pid"], e["name"]) == (pid, name)
    ]


def test_too_many_steps_are_shown_by_their_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_STEPS", 3)
    events = traced(a_history())
    assert row(events, "worker-0", "steps") == []
    assert counted(events, 2, "throughput")
