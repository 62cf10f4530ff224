"""What tasks were doing, as spans; every expected number was worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from emulator.analysis.spans import Span, lanes, phases, states, steps
from emulator.record.events import Entry
from tests.exports.runs import a_history
from tests.histories import Told, ended, happened, history, in_time, phase, restart, step

END = 11.0


def of(task: str, told: Sequence[Told] | None = None) -> list[Entry]:
    entries = a_history() if told is None else history(told)
    return [entry for entry in entries if entry.task == task]


def brief(spans: Sequence[Span]) -> list[tuple[str, float, float]]:
    return [(span.name, span.begin, span.end) for span in spans]


def test_a_preempted_task_is_down_until_it_starts_again() -> None:
    assert brief(states(of("worker-1"), END)) == [
        ("starting", 0.5, 1),
        ("running", 1, 4),
        ("down", 4, 6),
        ("starting", 6, 6.5),
        ("running", 6.5, 10.5),
    ]


def test_a_failed_task_is_in_backoff_until_it_starts_again() -> None:
    found = states(of("worker-0"), END)
    assert brief(found)[2:] == [
        ("backoff", 4.5, 5.5),
        ("starting", 5.5, 5.6),
        ("running", 5.6, 9.8),
    ]
    assert (found[1].told["id"], found[1].told["exit_code"]) == ("x", 1)


def test_what_goes_on_ends_with_the_record() -> None:
    told = [happened(1, "start", "a"), happened(2, "running", "a")]
    assert brief(states(of("a", told), 9))[-1] == ("running", 2, 9)
    waiting = [*told, ended(3, "a", 1), restart(3, "a")]
    assert brief(states(of("a", waiting), 9))[-1] == ("backoff", 3, 9)


def test_exits_and_steps_are_timed_by_the_engine() -> None:
    told = [happened(1, "running", "a"), step(3, "a", 1, late=-0.5), ended(5, "a", 0, late=-1)]
    assert [entry.t for entry in of("a", told)] == [1, 2.5, 4]
    # A clock that is off puts nothing before what came earlier.
    told = [happened(1, "running", "a"), ended(5, "a", 0, late=-9)]
    assert [entry.t for entry in of("a", told)] == [1, 1]


def test_a_phase_that_an_end_cut_off_says_so() -> None:
    assert [(s.name, s.begin, s.end, s.told) for s in phases(of("worker-1"), END)] == [
        ("checkpoint", 3.5, 4, {"cut off": True})
    ]
    assert [(s.name, s.begin, s.end, s.told) for s in phases(of("worker-0"), END)] == [
        ("checkpoint", 2.2, 2.8, {"step": 10})
    ]
    begun = [happened(1, "phase", "a", phase="eval", state="begin")]
    assert brief(phases(of("a", begun), 9)) == [("eval", 1, 9)]


def test_steps_lie_between_step_events_of_one_life() -> None:
    assert brief(list(steps(of("worker-0")))) == [("steps to 20", 2, 3), ("steps to 30", 8, 9)]


def test_phases_inside_each_other_share_a_row_and_others_do_not() -> None:
    told = [
        *phase(1, 9, "a", "eval"),
        *phase(2, 3, "a", "restore"),
        *phase(8, 10, "a", "checkpoint"),
    ]
    found = phases(of("a", in_time(told)), 11)
    assert [brief(lane) for lane in lanes(found)] == [
        [("eval", 1, 9), ("restore", 2, 3)],
        [("checkpoint", 8, 10)],
    ]


SPANS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 10)).map(
        lambda at: Span("x", float(at[0]), float(sum(at)))
    )
)


@given(SPANS)
def test_no_two_of_a_row_overlap_in_part(spans: list[Span]) -> None:
    rows = lanes(spans)
    for row in rows:
        for one in row:
            for two in row:
                assert not one.begin < two.begin < one.end < two.end
    assert sorted(brief([span for row in rows for span in row])) == sorted(brief(spans))
    assert all(rows)
