"""The page of a run that goes on, without a browser: what it keeps, draws, and injects."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from emulator.analysis.analyse import analyse
from emulator.analysis.steps_made import Stretch
from emulator.api.server import RecordWatcher
from emulator.faults.kinds import FAULTS, AnyEntry, OneFault
from emulator.faults.schedule import expand_targets, to_json
from emulator.faults.spec import Entry as ScenarioEntry
from emulator.faults.spec import FaultSpec
from emulator.metrics.samples import Sample
from emulator.record.events import Entry, Step
from emulator.record.history import as_it_happened
from emulator.record.timeline import Timeline
from emulator.report.charts import Chart
from emulator.report.timeline_chart import timeline as timeline_chart
from emulator.ui.live.by_hand import BUTTONS, GIVEN, as_scenario, asked, options, refused
from emulator.ui.live.feed import Reader
from emulator.ui.live.kept import AT_ONCE, SPAN, Batches, KeptHistory, thinned
from emulator.ui.live.run import LiveRun, in_bins
from tests.histories import Told, a_plan, began_again, ended, fault, happened, step, written

TASKS = ("worker-0", "worker-1")
PAUSED = {"pause": "worker-0", "for": "forever"}


def steps_of(begin: float, count: int, first: int = 1) -> list[Told]:
    """Return steps of both workers, ten a second."""
    return [
        step(begin + n / 10, task, first + n, loss=1 / (first + n))
        for n in range(count)
        for task in TASKS
    ]


def restarted() -> list[Told]:
    """Both train for 100 s, worker 1 dies, and both do the last 30 steps again."""
    return [
        happened(0, "run"),
        *began_again(1, *TASKS),
        happened(2, "all-running"),
        *steps_of(2, 1000),
        ended(102, "worker-1", 1),
        ended(102.5, "worker-0", 1),
        *began_again(105, *TASKS),
        *steps_of(106, 1000, first=971),
    ]


def kept(entries: Sequence[Entry], limit: int) -> KeptHistory:
    history = KeptHistory(limit)
    for entry in entries:
        history.add(entry)
    return history


def test_steps_and_times_of_failures_are_exact_however_few_events_are_kept() -> None:
    made_of = a_plan("{worker: 2}")
    entries = written(restarted())
    for limit in (10**6, 800, 200):
        history = kept(entries, limit)
        steps = [one for one in history.entries if isinstance(one, Step)]
        assert len(steps) <= limit
        assert history.is_exact == (limit == 10**6)
        assert sum(one.count for one in steps) == 4000
        assert len(history._entries) <= 2 * len(history.entries) + 1
        found = analyse(Timeline(made_of, as_it_happened(history.entries)))
        exact = analyse(Timeline(made_of, as_it_happened(entries)))
        assert (found.lost_steps, found.final_step) == (exact.lost_steps, exact.final_step)
        assert found.recoveries == pytest.approx(exact.recoveries)
        assert found.steps_per_second == pytest.approx(exact.steps_per_second)
        assert found.time["stall"] == exact.time["stall"] == 0
    # As coarse at the end as at the beginning.
    spans = [one.count for one in steps if one.count > 1]
    assert sorted(spans)[len(spans) // 10] * 4 >= max(spans)


@pytest.mark.parametrize("size", [7, 40, 100, 333, 10**5])
def test_many_steps_at_once_are_fewer_events_that_say_the_same(size: int) -> None:
    entries = written(restarted())
    batches = Batches()
    whole, parts = (LiveRun(a_plan("{worker: 2}")) for _ in range(2))
    merged: list[Entry] = []
    for begin in range(0, len(entries), size):
        merged += batches.merged(entries[begin : begin + size])
        parts.batch(entries[begin : begin + size])
        for entry in entries[begin : begin + size]:
            whole.entry(entry)
        assert parts.now()["tasks"] == whole.now()["tasks"]
        assert parts.state.step == whole.state.step
        assert parts.state._made == pytest.approx(whole.state._made)
    assert batches.is_exact == (size <= AT_ONCE) == (len(merged) == len(entries))
    steps = [one for one in merged if isinstance(one, Step)]
    assert sum(one.count for one in steps) == 4000
    assert max(one.count for one in steps) <= 10 * SPAN + 1e-9  # a curve stays as fine as that
    assert [one for one in merged if not isinstance(one, Step)] == [
        one for one in entries if not isinstance(one, Step)
    ]
    found, exact = (
        analyse(Timeline(whole.plan, as_it_happened(some))) for some in (merged, entries)
    )
    assert (found.lost_steps, found.final_step) == (exact.lost_steps, exact.final_step)
    assert found.recoveries == pytest.approx(exact.recoveries)
    assert found.steps_per_second == pytest.approx(exact.steps_per_second)
    assert found.time["stall"] == exact.time["stall"] == 0


def test_of_too_many_samples_every_second_is_kept_and_the_last() -> None:
    samples = [Sample(float(t), 1000.0 + t, {}) for t in range(11)]
    assert thinned(samples, 20) == samples
    assert [sample.t for sample in thinned(samples, 10)] == [0, 2, 4, 6, 8, 10]


# --- Charts that grow -----------------------------------------------------------------------------


def live_run(told: Sequence[Told], until: float) -> LiveRun:
    found = LiveRun(a_plan("{worker: 2}"))
    for entry in written(told):
        found.entry(entry)
    found.state.tick(until)
    return found


def drawn(run: LiveRun) -> Chart:
    return timeline_chart(run.seen().facts(Path("/runs/r"), "", frozenset()))


def rates(chart: Chart) -> dict[float, float]:
    points: dict[float, float] = {}
    for trace in chart["data"]:
        if trace["name"] in ("job", "repeated") and trace["type"] == "scatter":
            points |= zip(trace["x"], trace["y"], strict=True)
    return points


def lanes(chart: Chart, name: str) -> list[tuple[str, float, float]]:
    names = chart["layout"]["yaxis2"]["ticktext"]
    return sorted(
        (names[y], base, base + x)
        for trace in chart["data"]
        if trace["name"] == name and trace.get("orientation") == "h"
        for y, base, x in zip(trace["y"], trace["base"], trace["x"], strict=True)
    )


def test_the_timeline_grows_between_two_times_that_it_is_made_anew() -> None:
    told = [
        happened(0, "run"),
        *began_again(1, *TASKS),
        happened(2, "all-running"),
        *steps_of(2, 300),
    ]
    run = live_run(told, 32.0)
    before = drawn(run)
    assert lanes(before, "paused") == []
    later = [
        fault(32.0, "worker-0", "planned", id="manual-1", plan=by_hand("manual-1", PAUSED)),
        fault(32.0, "worker-0", "triggered", id="manual-1", kind="pause"),
        fault(32.0, "worker-0", "applied", id="manual-1", kind="pause"),
        fault(
            32.0,
            "worker-1",
            "planned",
            id="manual-2",
            plan=by_hand("manual-2", PAUSED | {"pause": "worker-1"}),
        ),
        fault(32.0, "worker-1", "triggered", id="manual-2", kind="pause"),
        fault(32.0, "worker-1", "applied", id="manual-2", kind="pause"),
    ]
    for entry in written([*told, *later])[len(told) :]:
        run.entry(entry)
    run.state.tick(40.0)
    grown = run.grown(before)
    assert grown["layout"]["xaxis"]["range"] == [0, 40.0]
    assert lanes(grown, "paused") == [("worker-0", 32.0, 40.0), ("worker-1", 32.0, 40.0)]
    assert lanes(grown, "paused") == lanes(drawn(run), "paused")
    assert lanes(grown, "running") == lanes(drawn(run), "running")
    found = rates(grown)
    assert all(rate == pytest.approx(10, rel=0.01) for at, rate in found.items() if 5 < at < 30)
    assert {rate for at, rate in found.items() if at > 33} == {0.0}
    assert max(found) == pytest.approx(39, abs=0.5)
    assert before["layout"]["xaxis"]["range"] == [0, 32.0]  # as it was


def by_hand(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Return what the history has of a fault that was injected with this entry."""
    spec = TypeAdapter[FaultSpec](OneFault).validate_python(entry)
    (planned,) = expand_targets(name, spec, TASKS)
    return to_json(planned)


def test_what_a_slow_page_has_not_read_is_one_update_with_the_latest_charts() -> None:
    async def read() -> tuple[dict[str, Any], dict[str, Any]]:
        reader = Reader()
        reader.tell({"html": "1", "charts": {"a": {"x": 1}, "b": {"x": 1}}})
        reader.tell({"now": {"t": 2}, "charts": {"a": {"x": 2}}})
        return reader.take(), reader.take()

    first, second = asyncio.run(read())
    assert first == {"html": "1", "now": {"t": 2}, "charts": {"a": {"x": 2}, "b": {"x": 1}}}
    assert second == {}


# --- Faults by hand -------------------------------------------------------------------------------


def test_each_button_is_a_fault_that_the_command_line_can_inject() -> None:
    for button in BUTTONS:
        entry = asked(button.kind, "worker-0", "worker-1", GIVEN)
        spec = TypeAdapter[FaultSpec](OneFault).validate_python(entry)
        assert spec.kind == button.kind
        assert not spec.lasting or spec.heals_after == math.inf  # until it is healed
    assert asked("preempt", "worker-0", "", {"grace": " 2s ", "down": "", "cpus": "1"}) == {
        "preempt": "worker-0",
        "grace": "2s",
    }
    assert asked("throttle", "worker-0", "", {"cpus": "0.5", "for": "4s"}) == {
        "throttle": "worker-0",
        "cpus": 0.5,
        "for": "4s",
    }
    assert asked("partition", "a", "b", {})["partition"] == [["a"], ["b"]]
    for option in options():
        assert all(option["key"] in FAULTS[kind].key_fields() for kind in option["kinds"].split())


def test_the_engine_decides_which_buttons_it_can_do() -> None:
    every = {kind.capability for kind in FAULTS.values()}
    assert refused(every, "docker") == {}
    assert {"pause", "throttle"} <= refused(set(), "memory").keys()
    assert "kill" not in refused(set(), "memory")


@pytest.mark.parametrize(
    ("spec", "healed", "step_", "expected"),
    [
        ({"pause": "worker-0", "for": "forever"}, 9.5, 120, {"for": "4.50s", "at": {"step": 120}}),
        ({"pause": "worker-0", "for": "forever"}, None, 7, {"for": "forever", "at": {"step": 7}}),
        ({"pause": "worker-0", "for": "3s"}, 8.0, 7, {"for": "3s", "at": {"step": 7}}),
        ({"kill": "worker-0"}, None, None, {"at": "3.00s"}),
        ({"preempt": "worker-0", "grace": "1s"}, 9.0, 7, {"grace": "1s", "at": {"step": 7}}),
        ({"preempt": "worker-0", "down": "forever"}, 9.0, 7, {"down": "4.00s", "at": {"step": 7}}),
    ],
)
def test_a_fault_by_hand_can_be_repeated_by_a_scenario(
    spec: dict[str, Any], healed: float | None, step_: int | None, expected: dict[str, Any]
) -> None:
    planned = by_hand("manual-1", spec)
    kind = next(iter(spec))
    told = [
        happened(0, "run"),
        happened(2, "all-running"),
        fault(5, "worker-0", "planned", id="manual-1", kind=kind, plan=planned),
        fault(5, "worker-0", "triggered", id="manual-1", kind=kind),
        fault(5, "worker-0", "applied", id="manual-1", kind=kind),
        *(
            []
            if healed is None
            else [fault(healed, "worker-0", "healed", id="manual-1", kind=kind)]
        ),
    ]
    found = Timeline(a_plan("{worker: 1}"), written(told)).faults["manual-1"]
    (entry,) = yaml.safe_load(as_scenario(found, step_, 2.0))
    assert entry == {kind: "worker-0"} | expected
    again = TypeAdapter[ScenarioEntry](AnyEntry).validate_python(entry)
    assert isinstance(again, FaultSpec)
    assert again.kind == kind
    if healed is None:
        assert replace(found.planned, spec=again.model_copy(update={"at": None})).spec == (
            found.planned.spec
        )


# --- The run's API --------------------------------------------------------------------------------


def test_a_stream_that_takes_its_time_does_not_hurry_the_run(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text("1\n")

    async def read(every: float) -> tuple[bool, list[bytes]]:
        watcher, seen = RecordWatcher(), []
        stream = watcher.lines(lambda: {"history": file}, every=every)
        _, _, some = await anext(stream)
        is_followed = watcher.is_followed
        seen += some
        watcher.close()
        async for _, _, some in stream:
            seen += some
        assert not watcher.is_followed
        return is_followed, seen

    assert asyncio.run(read(0.0)) == (True, [b"1\n"])
    assert asyncio.run(read(0.01)) == (False, [b"1\n"])


def test_steps_are_counted_in_the_bins_in_which_they_were_made() -> None:
    assert in_bins([], 1.0, 0.5, -1) == []
    made = [
        Stretch(0.0, 1.5, 9, 0.1),  # six a second, the last third of them in the first bin
        Stretch(1.5, 1.5, 2, 0.1),  # at once: in the bin that begins then
        Stretch(1.75, 2.75, 4, 0.25),  # reaches beyond the last bin
    ]
    assert in_bins(made, 1.0, 0.5, 3) == pytest.approx([6, 2 / 0.5 + 4 * 0.25 / 0.5, 4])
