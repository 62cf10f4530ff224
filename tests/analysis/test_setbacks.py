"""How many steps a task makes again: exactly, or between two numbers; worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from emulator.analysis.analyse import Analysis, analyse
from emulator.analysis.expectations import judge
from emulator.analysis.explanation import explain
from emulator.analysis.figures import FIGURES, in_summary, put_in_summary
from emulator.analysis.reasons import Evidence, reason_of
from emulator.analysis.setbacks import setbacks
from emulator.analysis.why import why
from emulator.record.events import Entry, Step, entry_of, line_of
from emulator.record.timeline import Timeline
from emulator.record.writer import Coalescer
from tests.histories import (
    began_again,
    ended,
    fault,
    happened,
    job,
    phase,
    restart,
    restored,
    step,
    steps_of,
    timeline,
)

TASK = "worker-0"
BAR = "a bar without a title (200)"


def source(t: float, words: str = BAR, *, drawn: bool | None = True) -> Entry:
    return happened(t, "step-source", TASK, source=words, counts=True, drawn=drawn)


def made(t: float, first: int, last: int, by: int = 10, opened: int | None = None) -> list[Entry]:
    """Return steps that are drawn every 0.1 s."""
    numbers = [*range(first, last + 1, by)]
    at = {round(t + n / 10, 1): number for n, number in enumerate(numbers)}
    one, *others = steps_of(TASK, at)
    assert isinstance(one, Step)
    return [step(one.t, TASK, one.step, bar_opened=opened), *others]


def again(t: float, **end: bool) -> list[Entry]:
    return [ended(t, TASK, 137, **end), restart(t, TASK), *began_again(t + 1, TASK)]


def lost(events: Sequence[Entry], *, bar_ended: bool | None = None) -> tuple[int, int]:
    found = run_of(events, bar_ended=bar_ended)[1].tasks[TASK]
    return found.lost_at_least, found.lost_steps


def run_of(
    events: Sequence[Entry], expect: str = "{}", *, bar_ended: bool | None = None
) -> tuple[Timeline, Analysis]:
    told = [*began_again(0, TASK), *events, ended(28, TASK, 0, bar_ended=bar_ended), job(29)]
    replay = timeline(told, "{worker: 1}", f"expect: {expect}")
    return replay, analyse(replay)


def judged(events: Sequence[Entry], expect: str) -> dict[str, tuple[str, str]]:
    replay, found = run_of(events, f"{{{expect}}}")
    verdicts = judge(replay.plan.scenario.expect, found, replay)
    return {one.expectation: (one.status, one.actual) for one in verdicts}


# --- Bars -----------------------------------------------------------------------------------------

SKIPS = [source(2), *made(2, 10, 120, opened=0), *again(8)]


@pytest.mark.parametrize(
    ("events", "fewest", "most"),
    [
        # Where it went on is exact, where it was is known to one stride.
        ([*SKIPS, *made(12, 110, 200, opened=100)], 20, 30),
        ([*SKIPS, *made(12, 10, 200, opened=0)], 120, 130),
        # Where it went on is not seen.
        ([*SKIPS, *made(12, 110, 200)], 11, 30),
        # Hugging Face's Trainer opens its bar at 0 and moves it on with the first step.
        ([*SKIPS, *made(12, 101, 200, opened=0)], 20, 39),
        ([*SKIPS, *made(12, 15, 200, opened=0)], 106, 130),  # or it went on from 5 to 14
        ([*SKIPS, *made(12, 81, 200, opened=50)], 40, 80),  # within an epoch that opened at 50
        # Slower than before: what it draws at first is no more than a stride.
        ([*SKIPS, *made(12, 3, 30, by=3, opened=0)], 120, 130),
        # It was at the end of its bar.
        ([*SKIPS[:-4], *again(8, bar_ended=True), *made(12, 110, 200, opened=100)], 20, 20),
        # Of a bar that draws each step all are seen.
        ([source(2), *made(2, 1, 20, 1, opened=0), *again(8), *made(12, 11, 30, 1)], 10, 10),
        # It was restored, as was reported.
        ([*SKIPS, restored(11, TASK, 100), *made(12, 110, 200, opened=100)], 20, 30),
        ([*SKIPS, restored(11, TASK, 100)], 20, 30),
        ([*SKIPS[:-4], restored(8, TASK, 100), *made(12, 110, 200)], 20, 30),  # while it ran
        # It had drawn once, and goes on with ten steps a drawing.
        ([source(2), *made(2, 1, 1, opened=0), *again(8), *made(12, 10, 90, opened=0)], 1, 11),
        # Nothing is known of its stride.
        ([source(2), *made(2, 10, 10), *again(8), *made(12, 10, 10)], 1, 20),
        # Lines: each is seen.
        ([*made(2, 10, 120), *again(8), *made(12, 101, 200, 1)], 20, 20),
        ([source(2, "lines `step N`", drawn=None), *SKIPS[1:], *made(12, 101, 200, 1)], 20, 20),
    ],
)
def test_what_lies_between_two_drawings_is_an_interval(
    events: Sequence[Entry], fewest: int, most: int
) -> None:
    assert lost(events) == (fewest, most)


def test_the_end_of_a_bar_is_no_stride() -> None:
    # As Hugging Face's Trainer prints it: tqdm draws nothing between its leap and its end.
    end = step(20, TASK, 150), step(20.1, TASK, 150, loss=0.5)
    resumed = [step(14, TASK, 99, bar_opened=0), *end]
    events = [source(2), *made(2, 90, 99, 1, opened=89), *again(8), *resumed]
    assert lost(events, bar_ended=True) == (1, 1)
    assert lost(events) == (1, 99)  # it may as well draw each 51st


def test_a_limit_inside_the_interval_is_unknown() -> None:
    events = [*SKIPS, *made(12, 110, 200, opened=100)]
    found = [judged(events, f"max_lost_steps: {n}")["max_lost_steps"] for n in (30, 29, 20, 19)]
    assert found == [
        ("ok", "20 to 30"),
        ("unknown", "20 to 30"),
        ("unknown", "20 to 30"),
        ("failed", "20 to 30"),
    ]


def test_the_interval_is_shown_and_its_bounds_are_in_the_summary() -> None:
    replay, found = run_of([*SKIPS, *made(12, 110, 200, opened=100)], "{max_lost_steps: 5}")
    figure, summary = FIGURES["lost_steps"], dict[str, object]()
    value = figure.value_in(found)
    assert value == 30
    assert (figure.text(value), figure.in_words(value)) == ("20 to 30", "20 to 30 steps lost")
    put_in_summary(summary, "lost_steps", value)
    summary = json.loads(json.dumps(summary))
    assert summary == {"steps": {"lost": 30, "lost_at_least": 20}}
    assert figure.text(in_summary(summary, "lost_steps")) == "20 to 30"
    verdict = judge(replay.plan.scenario.expect, found, replay)[1]
    assert "20 to 30 steps were done twice" in reason_of(verdict, Evidence(found, replay))


def test_what_became_of_a_fault_says_the_interval() -> None:
    killed = [fault(8, TASK, stage, "kill", exit_code=137) for stage in ("triggered", "applied")]
    told = [*began_again(0, TASK), *SKIPS[:-4], *killed, *again(8), *made(12, 110, 200, opened=100)]
    extra = "faults: [{kill: worker-0, at: {step: 120}}]\nrestart: {policy: on-failure}"
    replay = timeline([*told, job(29)], "{worker: 1}", extra)
    (text,) = why(replay)
    assert "it went on near step 100 after" in text
    assert "20 to 30 steps were done twice" in text


def test_one_step_is_said_as_one() -> None:
    found = run_of([*made(2, 1, 10, 1), *again(8), *made(12, 10, 20, 1)])[1]
    figure = FIGURES["lost_steps"]
    assert figure.in_words(figure.value_in(found) or 0) == "1 step lost"


# --- A counter that begins anew -------------------------------------------------------------------

LINES = [*made(2, 1, 60, 1), *again(8.5)]


def restores(t: float, number: int | None) -> Entry:
    return happened(t, "phase", TASK, phase="restore", state="end", step=number)


WARNED = "began at 1 again after it restored"


@pytest.mark.parametrize(
    ("events", "fewest", "most", "warned"),
    [
        ([*LINES, restores(11, None), *made(12, 1, 40, 1)], 0, 60, WARNED),
        ([*LINES, restores(11, 50), *made(12, 1, 60, 1)], 10, 60, f"{WARNED} step 50,"),
        ([*SKIPS, restores(11, None), *made(12, 12, 40)], 0, 130, WARNED),
        ([*SKIPS, restores(11, 100), *made(12, 10, 90, opened=0)], 20, 130, f"{WARNED} step 100,"),
        # What it restored and where it went on are one.
        ([*LINES, restores(11, 50), *made(12, 51, 90, 1)], 10, 10, ""),
        ([*LINES, restores(11, 50), *made(12, 50, 90, 1)], 10, 10, ""),  # counted from 0
        ([*LINES, restores(11, None), *made(12, 51, 90, 1)], 10, 10, ""),
        ([*LINES, restores(11, None), *made(12, 2, 90, 1)], 59, 59, ""),
        ([*LINES, restores(11, 0), *made(12, 1, 60, 1)], 60, 60, ""),
        # It restored nothing: from scratch.
        ([*LINES, *made(12, 1, 60, 1)], 60, 60, ""),
        # The steps are read from something else, and nothing was restored.
        (
            [*SKIPS, source(11, "the bar `Training`"), *made(12, 10, 90, opened=0)],
            0,
            130,
            "read from a bar without a title (200), and since the restart from the bar `Training`",
        ),
        ([*SKIPS, source(11, "the bar `Training`"), *made(12, 130, 190)], 0, 10, ""),
        ([*SKIPS, source(11, "the bar `T`"), *made(12, 110, 190, opened=100)], 20, 30, ""),
        # A bar of what is left.
        ([*SKIPS, source(11, "a bar without a title (100)"), *made(12, 110, 190)], 11, 30, ""),
    ],
)
def test_a_counter_that_begins_anew_does_not_tell_what_is_lost(
    events: Sequence[Entry], fewest: int, most: int, warned: str
) -> None:
    assert lost(events) == (fewest, most)
    replay, found = run_of(events)
    (warnings,) = [explain(replay, found, lambda task: []).warnings or [""]]
    assert warned in warnings[0]
    assert bool(warned) == bool(warnings[0])


def test_a_counter_that_began_anew_twice_may_have_lost_more() -> None:
    events = [*LINES, restores(11, 50), *made(12, 1, 20, 1), *again(15)]
    events += [restores(17, 60), *made(18, 1, 20, 1)]
    assert [(one.fewest, one.steps) for one in setbacks(run_of(events)[0].tasks[TASK])] == [
        (10, 60),
        (0, 70),  # it was at step 20 to 70
    ]


def test_a_counter_that_began_anew_fails_nothing_that_it_can_not_show() -> None:
    saved = [*made(2, 1, 60, 1), *phase(8, 8, TASK, "checkpoint", step=50), *again(8.5)]
    expect = (
        "final_step: 90, min_goodput: 0.9, max_lost_steps: 20, never_from_scratch: true, "
        "monotone_checkpoints: true, steps_exactly_once: true"
    )
    after = [*made(12, 1, 40, 1), *phase(17, 17, TASK, "checkpoint", step=40)]
    for step_ in (None, 50):
        found = judged([*saved, restores(11, step_), *after], expect)
        statuses = {name: status for name, (status, _) in found.items()}
        own = "ok" if step_ is None else "failed"  # it says itself that 50 comes before 40
        assert statuses == {
            "outcome": "ok",
            "final_step": "unknown",
            "min_goodput": "unknown",
            "max_lost_steps": "unknown",
            "never_from_scratch": "unknown",
            "monotone_checkpoints": own,
            "steps_exactly_once": "unknown",
        }
    scratch = judged([*saved, *after[:-2]], expect)
    assert [scratch[name][0] for name in ("final_step", "never_from_scratch")] == ["failed"] * 2


# --- The record -----------------------------------------------------------------------------------


def test_the_record_of_a_bar_is_small_and_is_read_as_it_was_written() -> None:
    first = step(1, TASK, 60, bar_opened=50, loss=0.5)
    assert entry_of(json.loads(line_of(first))) == first
    assert "bar_opened" not in line_of(step(1, TASK, 60))
    assert "bar_ended" not in line_of(ended(1, TASK, 137))
    assert "drawn" not in line_of(source(1, drawn=None))


def test_merging_keeps_where_a_bar_opened() -> None:
    coalescer = Coalescer(written=10**6)
    events = [step(1, TASK, 10), step(1.1, TASK, 20), step(1.2, TASK, 30), step(1.3, TASK, 15)]
    events += [step(1.4, TASK, 60, bar_opened=0), step(1.5, TASK, 70), ended(2, TASK, 137)]
    found = [one for event in events for one in coalescer.add(event)]
    assert [one.bar_opened for one in found if isinstance(one, Step) and one.step == 60] == [0]


def test_a_task_that_never_came_back_made_no_step_twice_where_another_trained_on() -> None:
    two = [*began_again(0, "worker-0", "worker-1"), *made(2, 1, 10, 1)]
    lost = [
        fault(5, "worker-1", "triggered"),
        ended(5, "worker-1", 137, fault="0"),
        fault(5, "worker-1", "applied", exit_code=137),
    ]
    extra = "faults: [{preempt: worker-1, at: 5s}]\nexpect: {max_lost_steps: 0}"

    def verdict(told: list[Entry]) -> str:
        replay = timeline([*two, *lost, *told], extra=extra)
        (one,) = (
            one
            for one in judge(replay.plan.scenario.expect, analyse(replay), replay)
            if one.expectation == "max_lost_steps"
        )
        return one.status

    on = made(12, 11, 20, 1)
    assert verdict([*on, ended(29, TASK, 0), job(29)]) == "ok"
    assert verdict([ended(29, TASK, 0), job(29)]) == "unknown"
    failed = [*on[:1], ended(29, TASK, 1), job(29, "failed")]
    assert verdict(failed) == "unknown"
