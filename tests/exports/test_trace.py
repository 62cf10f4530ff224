"""The Chrome trace: the rules of the format, and the events of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.analysis.analyse import analyse
from emulator.exports import trace as module
from emulator.exports.trace import HEAD, Event, as_json, pack_rows, trace_events
from emulator.metrics.catalog import GpuShare, GpuUsage
from emulator.metrics.samples import Sample
from emulator.planning.plan import Plan
from emulator.record.events import Entry, FaultEvent
from emulator.record.timeline import Interval, Timeline
from tests.exports.runs import TEXT, a_history, a_plan, some_samples
from tests.exports.trace_format import problems, read
from tests.histories import (
    BEGAN,
    fault,
    happened,
    history,
    in_time,
    job,
    phase,
    restart,
    step,
    timeline,
)


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


def test_a_process_is_labelled_with_its_image_and_limits() -> None:
    cluster = "{worker: {replicas: 1, image: 'a:1', cpus: 1.5, memory: 1g}, ps: {replicas: 1}}"
    plan = a_plan(TEXT.replace("{worker: 2, ps: 1}", cluster).partition("faults")[0])
    labels = {e["pid"]: e["args"] for e in traced([], plan=plan) if e["name"] == "process_labels"}
    assert labels == {2: {"labels": "a:1, 1.5 cores, 1.0 GiB"}, 3: {"labels": "auto"}}


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


def test_every_task_is_a_process_below_the_job(events: list[Event]) -> None:
    names = named(events, "process_name")
    order = {pid: args["sort_index"] for pid, args in named(events, "process_sort_index").items()}
    shown = [names[pid]["name"] for pid in sorted(names, key=order.__getitem__)]
    assert shown == ["job", "worker-0", "worker-1", "ps-0"]


def test_rows_show_states_phases_and_steps(events: list[Event]) -> None:
    assert row(events, "worker-0", "state") == [
        ("starting", 500, 1000),
        ("running", 1000, 4500),
        ("backoff", 4500, 5500),
        ("starting", 5500, 5600),
        ("running", 5600, 9800),
    ]
    assert row(events, "worker-0", "phases") == [("checkpoint", 2200, 2800)]
    steps = [("steps to 20", 2000, 3000), ("steps to 30", 8000, 9000)]
    assert row(events, "worker-0", "steps") == steps
    assert row(events, "job", "stage") == [
        ("prepare", 0, 500),
        ("start tasks", 500, 1000),
        ("train", 1000, 10000),
        ("remove", 10000, 11000),
    ]


def arrows(events: list[Event]) -> list[tuple[str, int, str, int]]:
    """Return from which slice to which arrows lead, and where these begin, in milliseconds."""
    slices = {(e["tid"], e["ts"]): e["name"] for e in events if e["ph"] == "X"}
    ends = [(slices[e["tid"], e["ts"]], e["ts"] // 1000) for e in events if e["ph"] in "sf"]
    return [(*one, *two) for one, two in zip(ends[::2], ends[1::2], strict=True)]


def test_a_fault_is_a_slice_with_an_arrow_to_the_recovery(events: list[Event]) -> None:
    assert row(events, "worker-1", "faults") == [("preempt (applied)", 3000, 6600)]
    assert arrows(events) == [("preempt (applied)", 3000, "running", 6500)]
    (line,) = [e for e in events if e["name"] == "preempt worker-1"]
    assert (line["ph"], line["s"], line["ts"]) == ("i", "g", 3_000_000)


def counted(events: list[Event], pid: int, name: str) -> list[tuple[int, float]]:
    return [
        (e["ts"], *e["args"].values())
        for e in events
        if e["ph"] == "C" and (e["pid"], e["name"]) == (pid, name)
    ]


def test_counters_show_what_was_measured(events: list[Event]) -> None:
    assert counted(events, 2, "CPU") == [(4e6, 1.0), (4.5e6, 0.0), (7e6, 1.0), (9.8e6, 0.0)]
    # worker-1 was down from 4 s on, and its CPU at 7 s is unknown.
    assert counted(events, 3, "CPU") == [(4e6, 0.0), (10.5e6, 0.0)]
    assert counted(events, 3, "memory") == [(2e6, 512.0), (4e6, 0.0), (7e6, 512.0), (10.5e6, 0.0)]
    assert counted(events, 1, "GPU 0 power") == [(2_000_000, 212.5)]
    assert counted(events, 3, "GPU 0 memory") == [(2_000_000, 2048.0)]
    assert max(rate for _, rate in counted(events, 1, "throughput")) == pytest.approx(10)
    assert counted(events, 4, "throughput") == []  # a server makes none


def test_parts_of_a_divided_device_have_counters_of_their_own() -> None:
    shares = [{"worker-0": GpuShare(2**20)}, {"worker-1": GpuShare(2**21)}]
    parts = [GpuUsage(0, "GPU-a")]
    parts += [GpuUsage(0, f"MIG-{n}", memory=2**22, tasks=tasks) for n, tasks in enumerate(shares)]
    events = traced(a_history(), [Sample(1, BEGAN + 1, {}, parts)])
    assert counted(events, 1, "GPU 0.1 memory") == counted(events, 1, "GPU 0.2 memory")
    assert counted(events, 1, "GPU 0.1 memory") == [(1e6, 4.0)]
    assert counted(events, 3, "GPU 0.2 memory") == [(1e6, 2.0)]


def test_a_network_fault_shows_at_each_task_of_its_target() -> None:
    text = TEXT.replace(
        "{preempt: worker-1, at: 2s, grace: 1s, down: 2s}",
        "{partition: [[worker-0], [ps-0]], at: 1s, for: 3s}",
    )
    target = "worker-0 | ps-0"
    entries = [entry for entry in a_history() if entry.event != "fault"]
    stages = [
        fault(t, "", stage, kind="partition", target=target)
        for t, stage in ((2, "triggered"), (2.1, "applied"), (2.6, "healed"))
    ]
    whole = history(in_time([*entries, *stages]))
    events = traced(whole, plan=a_plan(text))
    for task in ("worker-0", "ps-0"):
        assert row(events, task, "faults") == [("partition (applied)", 2000, 2600)]
    assert row(events, "worker-1", "faults") == []
    # No task was restarted for it; ps-0 makes no steps.
    assert arrows(events) == [("partition (applied)", 2000, "steps to 30", 8000)]


def test_a_fault_that_was_skipped_has_a_mark_and_no_slice() -> None:
    later = [e for e in a_history() if isinstance(e, FaultEvent) and e.stage != "triggered"]
    entries = [entry for entry in a_history() if entry not in later]
    skipped = fault(3.1, "worker-1", "skipped", reason="worker-1 was not running")
    events = traced(history(in_time([*entries, skipped])))
    assert row(events, "worker-1", "faults") == []
    marks = [e["name"] for e in events if e["ph"] == "i" and "preempt" in e["name"]]
    assert marks == ["preempt worker-1", "preempt worker-1 skipped"]


def test_too_many_steps_are_shown_by_their_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_STEPS", 3)
    events = traced(a_history())
    assert row(events, "worker-0", "steps") == []
    assert counted(events, 2, "throughput")


@pytest.mark.parametrize("length", range(len(a_history())))
def test_a_record_that_breaks_off_anywhere_is_a_trace(length: int) -> None:
    traced(a_history()[:length], some_samples())


def test_values_that_json_lacks_are_text() -> None:
    steps = [step(1, "worker-0", 1), step(2, "worker-0", 2, loss=float("nan"))]
    events = traced(history([happened(1, "running", "worker-0"), *steps]))
    assert [e["args"]["loss"] for e in events if e["name"] == "steps to 2"] == ["nan"]


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


def test_phases_inside_each_other_share_a_row_and_others_do_not() -> None:
    entries = [
        *phase(1, 9, "a", "eval"),
        *phase(2, 3, "a", "restore"),
        *phase(8, 10, "a", "checkpoint"),
    ]
    found = timeline(in_time(entries)).tasks["a"].phases(11)
    assert [[one.name for one in row] for row in pack_rows(found)] == [
        ["eval", "restore"],
        ["checkpoint"],
    ]


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
