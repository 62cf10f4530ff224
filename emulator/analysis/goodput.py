"""Where the time of a run went (pure): each microsecond has exactly one cause.

docs/numbers.md has the causes, which are those of Google's ml-goodput-measurement
(github.com/AI-Hypercomputer, `BadputType`) that a history can show. Two differences: there, wasted
is the original time of lost steps, here the time of their repetition; and a startup after a failure
is a startup there, recovery here.

Where causes overlap, the first of these counts:

1. A completed phase of the leading task: the one whose step ends the interval, or the last one
   that led. So a checkpoint that another worker or an evaluator saves meanwhile takes no time from
   training. Of nested phases the inner one counts.
2. A stall, or the tasks before training (`data`).
3. The state of the job:
   - A failure is an exit before the end of the job, except a voluntary one with code 0; a task that
     saves and exits with 0 as it is preempted or stopped does not end voluntarily. It begins with
     the signal of the fault or the watchdog, unless the job advanced after it.
   - A step ends the recovery if it is an advance, or if its task was started since or went back. A
     step that only catches up with other tasks does not, and one that is no step of the job
     (`steps_made`) changes no state.
   - Steps after a recovery are wasted until the furthest step is passed, and so are those after a
     restore of an earlier step while the job advances.

Times are whole microseconds, as in the history, so the causes add up to the duration exactly.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise, takewhile
from typing import TYPE_CHECKING, NamedTuple

from emulator.analysis.steps_made import JobSteps, beside
from emulator.faults.kinds import FAULTS
from emulator.record.events import (
    AllRunning,
    Entry,
    FaultEvent,
    JobEnded,
    Phase,
    Stall,
    Step,
    TaskExit,
    TaskStart,
    TrainingBegan,
)

if TYPE_CHECKING:
    from emulator.record.timeline import Timeline

_PHASES = ("data", "compile", "checkpoint", "restore", "eval")
"""Phases that are causes; `startup` is the time before the first step anyway."""
CAUSES = ("productive", "startup", *_PHASES, "wasted", "recovery", "stall", "other")
_MICRO = 1_000_000
STUCK_AFTER, STUCK_TIMES = 1 * _MICRO, 10
"""A gap between two advances of more than a second and ten usual (median) ones is a stall."""


class _Span(NamedTuple):
    begin: int
    end: int
    cause: str
    lead: str = ""
    """The task whose phases count."""
    advances: int = 1
    """How many advances of the job it is the time of."""


class Piece(NamedTuple):
    """A time with one cause, in microseconds since the run began."""

    begin: int
    end: int
    cause: str


Moment = tuple[int, Entry]
"""An entry and when it happened, in microseconds since the run began."""


def by_cause(spent: Iterable[Piece]) -> dict[str, float]:
    """Return the seconds of each of CAUSES; their sum is the duration."""
    times = dict.fromkeys(CAUSES, 0)
    for piece in spent:
        times[piece.cause] += piece.end - piece.begin
    return {cause: time / _MICRO for cause, time in times.items()}


def micros(seconds: float, duration: float) -> int:
    """Return a time in whole microseconds, between 0 and the duration."""
    return min(max(round(seconds * _MICRO), 0), round(duration * _MICRO))


def pieces(timeline: Timeline, duration: float) -> Iterator[Piece]:
    """Yield what the time from 0 to the duration went into, without a gap."""
    end = round(duration * _MICRO)
    entries = takewhile(lambda entry: not isinstance(entry, JobEnded), _of_the_job(timeline))
    moments = [(micros(entry.t, duration), entry) for entry in entries]
    before = {task.name for task in timeline.plan.before_training}
    states = [span for span in _states(moments, end, before) if span.begin < span.end]
    phases = {
        task.name: _flattened(
            _Span(micros(one.begin, duration), micros(one.end, duration), one.name)
            for one in task.phases(math.inf)
            if one.name in _PHASES and "cut off" not in one.values and one.end <= duration
        )
        for task in timeline.tasks.values()
    }
    stalls = [
        _Span(max(0, when - round(entry.seconds * _MICRO)), when, "stall")
        for when, entry in moments
        if isinstance(entry, Stall)
    ]
    stalls += [
        *_long_gaps(states, _longest_merged(moments)),
        *_before_training(moments, before, end),
    ]
    stalls.sort()
    layers = chain(states, stalls, *phases.values())
    for begin, until in pairwise(sorted({edge for span in layers for edge in span[:2]})):
        state = states[_index(states, begin)]
        phase = _cause(phases.get(state.lead, ()), begin)
        yield Piece(begin, until, phase or _cause(stalls, begin) or state.cause)


def _of_the_job(timeline: Timeline) -> Iterator[Entry]:
    """Yield the events without the steps that do not show that the job goes on."""
    of_job = JobSteps(beside(timeline.plan, (step.task for _, step in timeline.steps)))
    for entry in timeline.history:
        if of_job.add(entry) or not isinstance(entry, Step):
            yield entry


def _before_training(
    moments: Sequence[Moment], tasks: Collection[str], end: int
) -> Iterator[_Span]:
    """Yield the time in which tasks before training prepare its data, with their failures."""
    begins = (when for when, e in moments if isinstance(e, TaskStart) and e.task in tasks)
    ends = (when for when, entry in moments if isinstance(entry, TrainingBegan))
    if (begin := next(begins, None)) is not None:
        yield _Span(begin, next(ends, end), "data")


def _states(
    moments: Sequence[Moment], end: int, before_training: Collection[str] = ()
) -> Iterator[_Span]:
    """Yield the states of the job, without a gap; exits of tasks before training change none."""
    lead = next((entry.task for _, entry in moments if isinstance(entry, Step)), "")
    state, since, furthest = "startup", 0, -1
    if not lead:
        since = next((when for when, entry in moments if isinstance(entry, AllRunning)), end)
        yield from (_Span(0, since, "startup"), _Span(since, end, "other"))
        return
    latest: dict[str, tuple[int, int]] = {}  # each incarnation's last step, and its time
    signalled: dict[str, int] = {}  # when a task that is about to end was signalled
    for when, entry in moments:
        match entry:
            case TaskStart():
                latest.pop(entry.task, None)
            case FaultEvent(stage="triggered") if FAULTS[entry.kind].ends_target:
                signalled[entry.task] = when
            case FaultEvent(stage="skipped" | "failed"):
                signalled.pop(entry.task, None)
            case Stall():
                signalled[entry.task] = when
            case TaskExit() if entry.task in before_training:
                pass
            case TaskExit() if entry.exit_code or entry.told_to_stop or entry.fault:
                failed = max(since, signalled.pop(entry.task, when))
                cut_off = "wasted" if state == "productive" else state
                yield _Span(since, failed, cut_off, lead)
                state, since = "recovery", failed
            case Phase(phase="restore", step=int(step)):
                if state == "productive" and step < furthest:
                    yield _Span(since, when, state, lead)
                    state, since = "wasted", when
            case Step(step=step):
                before, at = latest.get(entry.task, (step, when))
                latest[entry.task] = step, when
                if step > furthest or (state == "recovery" and before >= step):
                    lead, more = entry.task, _advances(entry, furthest) - 1
                    first = max(since, when - more * (when - at) // entry.count)
                    yield _Span(since, first, state, lead)
                    if more:  # merged steps, each an advance
                        yield _Span(first, when, "productive", lead, more)
                    state, since = "productive" if step > furthest else "wasted", when
                    furthest = max(furthest, step)
    cause = "other" if state == "productive" else state
    yield _Span(since, end, cause, lead)


def _advances(entry: Step, furthest: int) -> int:
    """Return how many of the steps in an event were further than `furthest`; at least one."""
    gap = (entry.step - entry.first) / (entry.count - 1) if entry.count > 1 else 0.0
    return max(1, min(entry.count, round((entry.step - furthest) / gap))) if gap > 0 else 1


def _longest_merged(moments: Sequence[Moment]) -> int:
    """Return the longest time of which one event has the merged steps."""
    latest: dict[str, int] = {}
    longest = 0
    for when, entry in moments:
        if isinstance(entry, Step):
            if entry.count > 1:
                longest = max(longest, when - latest.get(entry.task, when))
            latest[entry.task] = when
        elif isinstance(entry, TaskStart):
            latest.pop(entry.task, None)
    return longest


def _long_gaps(states: Sequence[_Span], merged: int) -> Iterator[_Span]:
    """Yield what exceeds the usual gap in gaps between two advances that were far longer.

    Merged steps have no such gap: `Coalescer` in `record/writer.py` does not merge across pauses.
    But while the `merged` steps of who leads are not reported yet, those of others seem to be all.
    """
    gaps = [span for span in states if span.cause == "productive"]
    usual = _median(
        sorted(((span.end - span.begin) / span.advances, span.advances) for span in gaps)
    )
    longest = max(STUCK_AFTER, STUCK_TIMES * usual, merged)
    for span in gaps:
        if span.advances == 1 and span.end - span.begin > longest:
            yield _Span(span.begin + usual, span.end, "stall")


def _median(times: Sequence[tuple[float, int]]) -> int:
    """Return the median of ascending (value, count) pairs."""
    ranks = list(accumulate(count for _, count in times))
    if not ranks:
        return 0
    low, high = (bisect_right(ranks, rank) for rank in ((ranks[-1] - 1) // 2, ranks[-1] // 2))
    return round((times[low][0] + times[high][0]) / 2)


def _flattened(phases: Iterable[_Span]) -> list[_Span]:
    """Return phases, given in the order of their ends, without overlap: inner ones count."""
    flat: list[_Span] = []
    for outer in phases:
        inner = []
        while flat and flat[-1].end > outer.begin:
            inner.append(flat.pop())
        since = outer.begin
        for span in reversed(inner):
            if since < span.begin:
                flat.append(outer._replace(begin=since, end=span.begin))
            flat.append(span)
            since = span.end
        if since < outer.end:
            flat.append(outer._replace(begin=since))
    return flat


def _index(spans: Sequence[_Span], when: int) -> int:
    """Return the index of the last span that began until `when`; -1 if none did."""
    return bisect_right(spans, when, key=lambda span: span.begin) - 1


def _cause(spans: Sequence[_Span], when: int) -> str:
    number = _index(spans, when)
    return spans[number].cause if number >= 0 and when < spans[number].end else ""
