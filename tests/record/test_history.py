"""When things happened; every expected time was worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.record.events import Entry, Step, StepSource, TaskExit
from emulator.record.history import CLOCK_MOVED, as_it_happened
from tests.histories import (
    began_again,
    ended,
    fault,
    happened,
    history,
    in_time,
    restart,
    step,
    written,
)


def times(events: Sequence[Entry]) -> list[tuple[str, float]]:
    return [(entry.event, entry.t) for entry in history(events)]


STARTED, ENDED = happened(0, "start", "a"), ended(5, "a", 0)
WHEN: dict[str, tuple[Sequence[Entry], Sequence[tuple[str, float]]]] = {
    "what the engine stamps happened at its stamp": (
        [STARTED, step(9, "a", 1, late=-7), ended(9, "a", 0, late=-4), happened(9, "job")],
        [("start", 0), ("step", 2), ("exit", 5), ("job", 9)],
    ),
    "nothing happens after it was read": (
        [happened(0, "run"), step(3, "a", 1, late=2)],
        [("run", 0), ("step", 3)],
    ),
    "nor before its task is started": (
        [happened(4, "start", "a"), step(9, "a", 1, late=-6), step(9, "b", 1, late=-6)],
        [("step", 3), ("start", 4), ("step", 4)],
    ),
    "nor before the last event of its task": (
        [STARTED, step(9, "a", 1, late=-2), step(9, "a", 2, late=-5)],
        [("start", 0), ("step", 7), ("step", 7)],
    ),
    # Its end was stamped before the engine had answered that it was started.
    "a task runs before it ends": (
        [STARTED, happened(2, "running", "a"), ended(2, "a", 0, late=-1)],
        [("start", 0), ("running", 2), ("exit", 2)],
    ),
    "and after it was triggered": (
        [
            *(STARTED, fault(4, "a", "planned", plan={}), fault(4, "a", "triggered")),
            fault(5, "a", "applied", late=-2, exit_code=0, seconds=0),
            ended(5, "a", 0, late=-2, fault="0"),
        ],
        [("start", 0), ("fault", 4), ("fault", 4), ("fault", 4), ("exit", 4)],
    ),
    # Its line may be read, and stamped, after its end was seen.
    "a fault takes effect after what its target reported last": (
        [
            STARTED,
            step(4, "a", 1),
            fault(5, "a", "applied", late=-2, exit_code=0, seconds=1),
            ended(5, "a", 0, late=-2),
        ],
        [("start", 0), ("step", 4), ("fault", 4), ("exit", 4)],
    ),
    "a restart begins anew": (
        [STARTED, ENDED, restart(5, "a"), happened(6, "start", "a"), step(9, "a", 1, late=-5)],
        [("start", 0), ("exit", 5), ("restart", 5), ("start", 6), ("step", 6)],
    ),
    "a step that is read after the exit was before it by its stamp": (
        [STARTED, ENDED, step(6, "a", 1, late=-2)],
        [("start", 0), ("step", 4), ("exit", 5)],
    ),
    "or after it": (
        [STARTED, ENDED, step(7, "a", 1, late=-1)],
        [("start", 0), ("exit", 5), ("step", 6)],
    ),
    "a clock that was moved by half a second is taken as it was": (
        [happened(0, "run"), happened(3, "start", "a", late=0.5), step(9, "a", 1, late=-2)],
        [("run", 0), ("start", 3), ("step", 7)],
    ),
    "times are exact to a microsecond": (
        [happened(0, "run"), fault(9, "a", "healed", late=-1.0000041), step(9, "a", 1, late=-1e-6)],
        [("run", 0), ("fault", 7.999996), ("step", 8.999999)],
    ),
    "one that was moved by more is taken as it is": (
        [happened(0, "run"), happened(3, "start", "a", late=0.75), step(9, "a", 1, late=-2)],
        [("run", 0), ("start", 3), ("step", 6.25)],
    ),
    "a save is told when it is over, and moves no clock": (
        [
            *(happened(0, "run"), happened(5, "checkpoint-read", "a", path="x", late=-2)),
            step(9, "a", 1, late=-2),
        ],
        [("run", 0), ("checkpoint-read", 3), ("step", 7)],
    ),
    # Of a fault, what we stamped: when its target was held again, and when it was let go.
    "a fault is over when the engine was asked": (
        [
            *(happened(0, "run"), fault(3, "a", "triggered", "pause", late=-0.4)),
            *(fault(t, "a", stage, late=-1) for t, stage in ((7, "reapplied"), (9, "healed"))),
        ],
        [("run", 0), ("fault", 3), ("fault", 6), ("fault", 8)],
    ),
    "a fault takes effect with the exit of its target": (
        [
            *(STARTED, happened(2, "running", "a"), ended(3, "a", 143, late=-2)),
            fault(9, "a", "applied", exit_code=143, late=-8),
        ],
        [("start", 0), ("running", 2), ("exit", 2), ("fault", 2)],
    ),
}


@pytest.mark.parametrize(("events", "expected"), WHEN.values(), ids=WHEN)
def test_when_what_happened(events: Sequence[Entry], expected: Sequence[tuple[str, float]]) -> None:
    assert times(events) == expected


def test_steps_that_were_retracted_did_not_happen() -> None:
    retracts = StepSource(task="a", source="the bar `Training` (60)", counts=True, retracts=True)
    events = [step(1, "a", 600), step(1, "b", 600), replace(retracts, t=2.0), step(3, "a", 1)]
    found = [(entry.task, entry.step) for entry in history(events) if isinstance(entry, Step)]
    assert found == [("b", 600), ("a", 1)]


@pytest.mark.parametrize(("jump", "moved"), [(-3600, 0), (3600, 0), (CLOCK_MOVED, CLOCK_MOVED)])
def test_a_clock_that_is_set_while_a_run_is_under_way_moves_nothing(
    jump: float, moved: float
) -> None:
    """Both clocks are of one machine: an event of ours shows by how much it was set."""
    events = [happened(0, "run"), happened(1, "start", "a"), step(5, "a", 1, late=-1)]
    after = [happened(10, "stop", "b"), step(12, "a", 2, late=-1), step(13, "a", 3, late=-1)]
    after = [replace(entry, wall=entry.wall + jump) for entry in after]
    assert [t for event, t in times([*events, *after]) if event == "step"] == [
        4, 11 + moved, 12 + moved]  # fmt: skip


TIMES = st.integers(0, 50_000).map(lambda millis: millis / 1000)
LATE = st.integers(-60_000, 60_000).map(lambda millis: millis / 1000)
EVENTS = st.one_of(
    st.builds(step, TIMES, st.sampled_from("ab"), st.just(1), late=LATE),
    st.builds(ended, TIMES, st.sampled_from("ab"), st.just(0), late=LATE),
    st.builds(
        *(happened, TIMES, st.sampled_from(["start", "running", "stop", "fault"])),
        st.sampled_from("ab"),
    ),
)


@given(st.lists(EVENTS, max_size=20))
def test_times_are_in_order_and_never_later_than_what_was_written(events: list[Entry]) -> None:
    entries = written(in_time(events))
    found = as_it_happened(entries)
    assert [entry.t for entry in found] == sorted(entry.t for entry in found)
    read = {entry.n: entry.t for entry in entries}
    assert all(0 <= entry.t <= read[entry.n] for entry in found)
    for task in "ab":
        # Each task's own story keeps its order; only a step may be read after the exit it precedes.
        for others in (("step", "start"), ("exit", "start")):
            own = [e.n for e in found if e.task == task and e.event in others]
            assert own == sorted(own)


@pytest.mark.parametrize(
    ("code", "stamp", "told"),
    [
        (0, 9.5, False),  # before the signal, by the engine's stamp
        (1, 9.5, False),
        (1, 10.5, True),
        (128, 9.999, False),
        (129, 9.999, True),
        (143, 9.999, True),  # a signal ended it: the clocks differ a little
        (1, 9.0, True),  # an engine that stamps whole seconds: it may have been later
    ],
)
def test_a_task_that_ended_before_the_signal_was_not_told_to_stop(
    code: int, stamp: float, told: bool
) -> None:
    """The chief has finished, and the others are stopped; the exit of one is read after that."""
    events = [
        happened(0, "run"),
        *began_again(1, "worker-0"),
        happened(10, "job"),
        happened(10, "stop", "worker-0"),
        ended(11, "worker-0", code, told=True, late=stamp - 11),
    ]
    alone = [ended(0.5, "worker-0", code, told=True)]  # nothing says when it was told
    for entries, expected in ((events, told), (alone, True)):
        (exit_,) = [one for one in history(entries) if isinstance(one, TaskExit)]
        assert exit_.told_to_stop == expected
