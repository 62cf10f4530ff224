"""What notices were worth, from histories; every expected number was worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from emulator.analysis.analyse import analyse
from emulator.analysis.expectations import Verdict, judge
from emulator.analysis.figures import FAULT_STAGES, fault_stages
from emulator.analysis.notices import NoticeResult, notices
from emulator.record.events import Entry
from emulator.report.data import notice_table
from emulator.report.event_text import describe
from emulator.results import summary
from emulator.scenario.schema import Expectations
from tests.histories import (
    began_again,
    ended,
    fault,
    happened,
    phase,
    preempted,
    step,
    timeline,
)

EXTRA = "faults: [{preempt: worker-1, at: 10s, grace: 5s}]"
BEFORE = [
    *began_again(0, "worker-0", "worker-1"),
    *phase(2, 5, "worker-1", "checkpoint", step=1),
    step(6, "worker-1", 2),
]


def told(t: float, line: str = "saving") -> Entry:
    return happened(t, "reaction", "worker-1", fault="0", line=line)


def seen(t: float, moment: str, *processes: dict[str, Any]) -> Entry:
    listed = [{"pid": n, "name": f"p{n}", **one} for n, one in enumerate(processes, 7)]
    fields = {"fault": "0", "moment": moment, "processes": listed}
    return happened(t, "processes", "worker-1", **fields)


def end(t: float, code: int = 0, *, killed: bool = False, task: str = "worker-1") -> list[Entry]:
    evidence: dict[str, Any] = {"exit_code": code, "seconds": 1.0, "killed": killed}
    return [fault(t, task, "applied", **evidence), ended(t, task, code, fault="0")]


def worth(*events: Entry, extra: str = EXTRA) -> NoticeResult:
    (found,) = notices(timeline([*BEFORE, *events], extra=extra))
    return found


TRIGGERED = fault(10, "worker-1", "triggered")
SAVED = phase(10.5, 12, "worker-1", "checkpoint", step=2)


def test_the_best_a_program_can_do() -> None:
    main, other = {"main": True, "reached": True}, {"main": False, "reached": False}
    found = worth(
        TRIGGERED,
        seen(10.1, "signal", main, other, other),
        told(10.25),
        *SAVED,
        seen(12.5, "end"),
        *end(12.5),
    )
    assert found == NoticeResult(
        id="0",
        kind="preempt",
        target="worker-1",
        noticed=10,
        signal_after=0,
        reacted_after=0.25,
        reaction="saving",
        saved_after=2,
        saved_by="worker-1",
        ended_after=2.5,
        exit_code=0,
        deadline_after=5,
        left=3,
        reached=["p7"],
        not_reached=["p8", "p9"],
        at_the_kill=[],
        outlived=[],
    )


@pytest.mark.parametrize(
    ("events", "reacted", "sign"),
    [
        ([told(10.25, "a"), *SAVED], 0.25, "a"),
        ([*SAVED, told(11, "a")], 0.5, "checkpoint began"),
        (SAVED[1:], 2, "checkpoint ended"),
        # What began before the notice, or another did, is no reaction to it.
        ([step(11, "worker-1", 3), *phase(11, 12, "worker-0", "checkpoint")], None, ""),
        ([*phase(9, 11, "worker-1", "eval")[1:]], None, ""),
    ],
)
def test_a_reaction_is_the_first_line_or_phase_after_the_notice(
    events: Sequence[Entry], reacted: float | None, sign: str
) -> None:
    found = worth(TRIGGERED, *sorted(events, key=lambda one: one.t), *end(13))
    assert (found.reacted_after, found.reaction) == (reacted, sign)


def test_a_save_is_the_targets_or_else_that_of_another_task() -> None:
    of_another = phase(10, 11, "worker-0", "checkpoint")
    found = worth(TRIGGERED, *of_another, *end(12))
    assert (found.saved_after, found.saved_by, found.left) == (1, "worker-0", 4)
    found = worth(TRIGGERED, *of_another, *SAVED, *end(12))
    assert (found.saved_after, found.saved_by) == (2, "worker-1")


def test_of_a_save_that_was_cut_off_the_last_one_says_how_much_was_missing() -> None:
    begun = SAVED[:1]
    found = worth(TRIGGERED, *begun, *end(15, 137, killed=True))
    # It had 4.5 s, and took 3 before: then it was not the time that was missing.
    assert (found.saved_after, found.saving, found.left) == (None, 4.5, 0)
    late = phase(14, 99, "worker-1", "checkpoint")[:1]
    found = worth(TRIGGERED, *late, *end(15, 137, killed=True))
    assert (found.saving, found.left) == (1, -2)
    # It ended itself: the time that it had was not too short.
    assert worth(TRIGGERED, *late, *end(15)).left is None
    (first,) = notices(timeline([TRIGGERED, *late, *end(15, 137, killed=True)], extra=EXTRA))
    assert (first.saving, first.left) == (1, None)  # nobody knows how long it takes


def test_a_notice_may_come_before_the_signal() -> None:
    found = worth(
        fault(8, "worker-1", "announced"), told(8.5), *phase(8.5, 9, "worker-1", "checkpoint"),
        TRIGGERED, *end(11),
    )  # fmt: skip
    assert (found.announced, found.noticed, found.signal_after) == (True, 8, 2)
    assert (found.reacted_after, found.saved_after, found.ended_after) == (0.5, 1, 3)
    assert (found.deadline_after, found.left) == (7, 6)


def test_what_gave_no_notice_or_did_not_happen_has_none() -> None:
    silent = "faults: [{preempt: worker-1, at: 10s, loss: silent}]"
    assert notices(timeline([*BEFORE, *preempted(10, "worker-1", back=13)], extra=silent)) == ()
    skipped = fault(10, "worker-1", "skipped", reason="it was gone")
    assert notices(timeline([*BEFORE, TRIGGERED, skipped], extra=EXTRA)) == ()
    killed = fault(10, "worker-1", "triggered", "kill")
    kill = "faults: [{kill: worker-1, at: 10s}]"
    assert notices(timeline([*BEFORE, killed, *end(10, 137)], extra=kill)) == ()


def test_an_engine_whose_clock_is_behind_has_a_target_that_ended_before_its_signal() -> None:
    """Records of before had this; what its end caused came after that, not after the signal."""
    other = ended(9.8, "worker-0", 1)
    events = [*BEFORE, *end(9.6, 137), TRIGGERED, other, *began_again(12, "worker-1")]
    found = analyse(timeline(sorted(events, key=lambda one: one.t), extra=EXTRA))
    assert found.faults[0].detected_after == -0.2
    assert (found.notices[0].saved_after, found.notices[0].ended_after) == (None, -0.4)


# --- Expectations ---------------------------------------------------------------------------------

NONE = "the record has no preemptions with notice"
CANT_SEE = (
    "worker-1: what outlives a main process is seen by the process engine, with `signals: all` "
    "alone"
)
ENDED = {"seconds": 0.1, "how": "ended"}
LEFT = {"seconds": 5.0, "how": "left"}
KILLED = {"seconds": 2.0, "how": "killed"}


def verdict(key: str, *events: Entry, before: Sequence[Entry] = BEFORE) -> tuple[str, str]:
    record = timeline([*before, *events], extra=EXTRA)
    expect = Expectations.model_validate({key: True})
    *_, found = judge(expect, analyse(record), record)
    assert isinstance(found, Verdict)
    assert found.expectation == key
    return found.status, found.actual


@pytest.mark.parametrize(
    ("events", "status", "actual"),
    [
        ([seen(12, "end"), *end(12)], "ok", "1 of 1 preemptions with notice"),
        ([seen(12, "end", ENDED), *end(12)], "ok", "1 of 1 preemptions with notice"),
        ([seen(12, "end", ENDED, LEFT), *end(12)], "failed",
         "p8 (pid 8) of worker-1 ran on for 5.00s, until it was killed"),
        ([seen(12, "end", KILLED), *end(12)], "failed",
         "p7 (pid 7) of worker-1 ran on for 2.00s, until it was killed"),
        # All were killed at once, and one is as fast as the other.
        ([seen(15, "end", KILLED), *end(15, 137, killed=True)], "ok",
         "1 of 1 preemptions with notice"),
        ([seen(15, "end", LEFT), *end(15, 137, killed=True)], "failed",
         "p7 (pid 7) of worker-1 ran on for 5.00s, until it was killed"),
        (end(12), "unknown", CANT_SEE),
    ],
)  # fmt: skip
def test_nothing_may_outlive_a_main_process(
    events: Sequence[Entry], status: str, actual: str
) -> None:
    assert verdict("nothing_outlives", TRIGGERED, *events) == (status, actual)


UNSAVED = "worker-1 saved no checkpoint before its end"


@pytest.mark.parametrize(
    ("events", "status", "actual"),
    [
        ([*SAVED, *end(13)], "ok", "1 of 1 preemptions with notice"),
        (end(13), "failed", UNSAVED),
        # A save after the end is too late.
        ([*end(11, 137, killed=True), *phase(12, 13, "worker-0", "checkpoint")], "failed", UNSAVED),
        ([*phase(14, 99, "worker-1", "checkpoint")[:1], *end(15, 137, killed=True)], "failed",
         f"{UNSAVED}: it had been saving for 1.00s, about 2.00s too late"),
    ],
)  # fmt: skip
def test_a_grace_period_is_there_to_save(events: Sequence[Entry], status: str, actual: str) -> None:
    assert verdict("saved_within_grace", TRIGGERED, *events) == (status, actual)


def test_a_save_can_t_be_missed_where_none_is_ever_reported() -> None:
    begun = began_again(0, "worker-0", "worker-1")
    unknown = "unknown", f"{UNSAVED}: no task reports when it saves, and no save was seen"
    assert verdict("saved_within_grace", TRIGGERED, *end(12), before=begun) == unknown


@pytest.mark.parametrize("key", ["saved_within_grace", "nothing_outlives"])
def test_without_a_notice_there_is_nothing_to_judge(key: str) -> None:
    assert verdict(key) == ("unknown", NONE)


# --- In reports -----------------------------------------------------------------------------------


def cells(*events: Entry) -> dict[str, Any]:
    record = timeline([*BEFORE, *events], extra=EXTRA)
    table = notice_table(summary(record.plan, analyse(record), []))
    assert table is not None
    return dict(zip(table.heads, table.rows[0], strict=True))


def test_a_table_says_what_each_was_worth() -> None:
    main, other = {"main": True, "reached": True}, {"main": False, "reached": False}
    assert cells(
        fault(8, "worker-1", "announced"), TRIGGERED, seen(10, "signal", main, other), told(11),
        *SAVED, seen(13, "end", ENDED, KILLED), *end(13),
    ) == {
        "notice of": "0: preempt worker-1",
        "came at": "8.00s",
        "signal": "2.00s",
        "reacted": "3.00s",
        "first sign": "saving",
        "first save": "4.00s",
        "left of the grace": "3.00s left",
        "ended": "5.00s, exit 0",
        "signal was for": "1 of 2 processes",
        "ran on": "p7 for 0.10s; p8 for 2.00s, killed",
    }  # fmt: skip


def test_a_table_says_what_is_not_known_and_has_no_column_that_nobody_fills() -> None:
    killed = [seen(15, "kill", {}, {}), *end(15, 137, killed=True)]
    assert cells(TRIGGERED, *killed) == {
        "notice of": "0: preempt worker-1",
        "came at": "10.0s",
        "reacted": "none seen",
        "first save": "none reported",
        "ended": "5.00s, killed",
        "signal was for": "unknown",
        "ran on": "2 until SIGKILL",
    }
    assert cells(TRIGGERED, *end(15))["ran on"] == "unknown"
    late = phase(14, 99, "worker-1", "checkpoint")[:1]
    missing = cells(TRIGGERED, *late, *end(15, 137, killed=True))["left of the grace"]
    assert missing == "2.00s missing"


def test_one_that_leaves_before_the_signal_has_no_time_and_no_limit() -> None:
    left = [fault(8, "worker-1", "announced"), told(9), *SAVED, *end(13)]
    table = cells(*left)
    assert table["left of the grace"] == "left before the signal"
    assert "signal" not in table
    times = dict.fromkeys(FAULT_STAGES) | {"applied_after": -0.11, "restored_after": 4.0}
    found = fault_stages(times)
    assert (found["applied_after"], found["restored_after"]) == ("left before the signal", "4.00s")
    assert fault_stages(times | {"applied_after": 0.0})["applied_after"] == "0.00s"


def test_processes_that_run_on_are_said_while_a_run_goes_on() -> None:
    four: list[dict[str, Any]] = [{}] * 4
    assert describe(seen(15, "kill", *four)) == (
        "at the end of the grace period of worker-1 still ran p7 (7), p8 (8), p9 (9) and 1 more"
    )
    assert describe(seen(15, "end", {})) == "when worker-1 had ended, still ran p7 (7)"
    assert (describe(seen(15, "end")), describe(seen(15, "signal", {}))) == ("", "")
    assert describe(told(11, "x")) == "worker-1 printed, for the first time after the notice: x"


def test_without_a_notice_there_is_no_table() -> None:
    record = timeline(BEFORE, extra=EXTRA)
    assert notice_table(summary(record.plan, analyse(record), [])) is None
    assert notice_table({}) is None  # of a version before
