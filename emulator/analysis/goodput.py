"""Where a run's time went, by cause (pure): every microsecond of it has exactly one.

The causes are those of Google's ml-goodput-measurement (github.com/AI-Hypercomputer, its
`BadputType`), from what a history can tell:

| cause | is the time | its name there |
|---|---|---|
| productive | between two advances of the job's furthest step without a failure | goodput |
| startup | until the first step | TPU_INITIALIZATION, TRAINING_PREP, PROGRAM_STARTUP |
| data, compile | told as such | DATA_LOADING_SYNC, PROGRAM_STARTUP |
| checkpoint | told as such | UNPRODUCTIVE_CHECKPOINT_SAVE_TIME |
| restore | told as such | UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME |
| eval | told as such | CUSTOM_BADPUT_EVENTS |
| wasted | of steps cut off by a failure or done again | WASTED_PROGRESS_FROM_DISRUPTION |
| recovery | from a failure to a step after it | INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION |
| stall | of a gap between two advances far longer than usual; until the watchdog killed | OTHER |
| other | after the last advance; without any steps, after all tasks ran | OTHER |

Two differences: the library takes for wasted what the lost steps took the first time, this what
they took again; and it counts a startup after a failure as startup, this as recovery.

Causes overlap, so there is an order. First comes a phase that has ended, told by the task that
leads: the one whose step ends the stretch, or that led before where no step does. So a save beside
training (another worker's, an evaluator's) takes nothing from it. Of phases one inside another the
inner counts, and one that never ended counts for nothing. Then comes a stall; then the course of
the job, in which one state follows another:

- a failure is an exit before the end of the job, unless with code 0 and unasked. It begins with
  the fault's signal or the watchdog's, where the job advanced no more after that;
- a step ends the recovery if it is an advance, or comes from a task that was started since or went
  back. One that only catches up with what others had told does not;
- steps that are no advance after a recovery are wasted time, until the furthest step is passed.

Times are whole microseconds, as in the history, so that the causes add up to the duration exactly.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise, takewhile
from typing import NamedTuple

from emulator.faults.table import FAULTS
from emulator.record.events import (
    AllRunning,
    Entry,
    FaultEvent,
    JobEnded,
    Stall,
    Step,
    TaskExit,
    TaskStart,
)
from emulator.record.timeline import Timeline

__all__ = ["CAUSES", "split"]

CAUSES = (
    "productive",
    "startup",
    "data",
    "compile",
    "checkpoint",
    "restore",
    "eval",
    "wasted",
    "recovery",
    "stall",
    "other",
)
_TOLD = frozenset({"data", "compile", "checkpoint", "restore", "eval"})
"""Phases that are causes of their own; a startup is what comes before a step anyway."""
_MICRO = 1_000_000
STUCK_AFTER, STUCK_TIMES = 1 * _MICRO, 10
"""A gap between two advances of more than a second and ten usual (median) ones is a stall."""


class _Span(NamedTuple):
    begin: int
    end: int
    cause: str
    lead: str = ""
    """The task whose phases count."""
    told: int = 1
    """How many steps of the job it is the time of."""


Moment = tuple[int, Entry]
"""An entry and when it happened, in microseconds since the run began."""


def split(timeline: Timeline, duration: float) -> dict[str, float]:
    """Return the seconds that went into each of CAUSES; together they are the duration."""
    end = round(duration * _MICRO)

    def micros(seconds: float) -> int:
        return min(max(round(seconds * _MICRO), 0), end)

    entries = takewhile(lambda entry: not isinstance(entry, JobEnded), timeline.history)
    moments = [(micros(entry.t), entry) for entry in entries]
    course = list(_course(moments, end))
    phases = {
        task.name: _nested(
            _Span(micros(one.begin), micros(one.end), one.name)
            for one in task.phases(math.inf)
            if one.name in _TOLD and "cut off" not in one.values and one.end <= duration
        )
        for task in timeline.tasks.values()
    }
    stalls = [
        _Span(max(0, when - round(entry.seconds * _MICRO)), when, "stall")
        for when, entry in moments
        if isinstance(entry, Stall)
    ]
    stalls = sorted([*stalls, *_stuck(course)])
    spent = dict.fromkeys(CAUSES, 0)
    for begin, until in pairwise(_edges(course, stalls, *phases.values())):
        now = course[_last(course, begin)]
        told = _cause(phases.get(now.lead, ()), begin)
        spent[told or _cause(stalls, begin) or now.cause] += until - begin
    return {cause: time / _MICRO for cause, time in spent.items()}


def _course(moments: Sequence[Moment], end: int) -> Iterator[_Span]:
    """Yield the states of the job, without a gap; the phases and stalls in them come on top."""
    lead = next((entry.task for _, entry in moments if isinstance(entry, Step)), None)
    if lead is None:
        return _untold(moments, end)
    return (span for span in _states(moments, end, lead) if span.begin < span.end)


def _untold(moments: Sequence[Moment], end: int) -> Iterator[_Span]:
    """Yield what is known where nobody told of a step."""
    ran = next((when for when, entry in moments if isinstance(entry, AllRunning)), end)
    yield from (_Span(0, ran, "startup"), _Span(ran, end, "other"))


def _states(moments: Sequence[Moment], end: int, lead: str) -> Iterator[_Span]:
    state, since, furthest = "startup", 0, -1
    latest: dict[str, tuple[int, int]] = {}  # each task's step since it was started, and when
    struck: dict[str, int] = {}  # when who is about to end was signalled
    for when, entry in moments:
        match entry:
            case TaskStart():
                latest.pop(entry.task, None)
            case FaultEvent(stage="triggered") if FAULTS[entry.kind].ends_target:
                struck[entry.task] = when
            case FaultEvent(stage="skipped" | "failed"):
                struck.pop(entry.task, None)
            case Stall():
                struck[entry.task] = when
            case TaskExit() if entry.exit_code or entry.told_to_stop:
                failed = max(since, struck.pop(entry.task, when))
                yield _Span(since, failed, "wasted" if state == "productive" else state, lead)
                state, since = "recovery", failed
            case Step(step=step):
                before, at = latest.get(entry.task, (step, when))
                latest[entry.task] = step, when
                if step > furthest or (state == "recovery" and before >= step):
                    lead, more = entry.task, _told(entry, furthest) - 1
                    first = max(since, when - more * (when - at) // entry.count)
                    yield _Span(since, first, state, lead)
                    if more:  # told of together, but each an advance
                        yield _Span(first, when, "productive", lead, more)
                    state, since = "productive" if step > furthest else "wasted", when
                    furthest = max(furthest, step)
    yield _Span(since, end, "other" if state == "productive" else state, lead)


def _told(entry: Step, furthest: int) -> int:
    """Return how many of the steps that an event tells of brought the job further."""
    further = entry.step - furthest
    even = (entry.step - entry.first) / (entry.count - 1) if entry.count > 1 else 0.0
    return max(1, min(entry.count, round(further / even))) if even > 0 else 1


def _stuck(course: Sequence[_Span]) -> Iterator[_Span]:
    """Yield what was too much of the gaps between two advances that were far longer than usual.

    Steps that were told of together had no such gap: `record/coalesce.py` tells pauses apart.
    """
    gaps = [span for span in course if span.cause == "productive"]
    usual = _median(sorted(((span.end - span.begin) / span.told, span.told) for span in gaps))
    for span in gaps:
        if span.told == 1 and span.end - span.begin > max(STUCK_AFTER, STUCK_TIMES * usual):
            yield _Span(span.begin + usual, span.end, "stall")


def _median(times: Sequence[tuple[float, int]]) -> int:
    """Return the middle of values in order, each of which counts so many times."""
    ranks = list(accumulate(count for _, count in times))
    if not ranks:
        return 0
    low, high = (bisect_right(ranks, rank) for rank in ((ranks[-1] - 1) // 2, ranks[-1] // 2))
    return round((times[low][0] + times[high][0]) / 2)


def _nested(phases: Iterable[_Span]) -> list[_Span]:
    """Return phases, given in the order in which they ended, in order and without overlap."""
    found: list[_Span] = []
    for phase in phases:
        _enclose(found, phase)
    return found


def _enclose(spans: list[_Span], outer: _Span) -> None:
    """Append to a task's phases one that ended later, without the time of those inside it."""
    inner = []
    while spans and spans[-1].end > outer.begin:
        inner.append(spans.pop())
    since = outer.begin
    for span in reversed(inner):
        if since < span.begin:
            spans.append(outer._replace(begin=since, end=span.begin))
        spans.append(span)
        since = span.end
    if since < outer.end:
        spans.append(outer._replace(begin=since))


def _edges(*layers: Sequence[_Span]) -> list[int]:
    return sorted({edge for span in chain(*layers) for edge in (span.begin, span.end)})


def _last(spans: Sequence[_Span], when: int) -> int:
    """Return which is the last that had begun, -1 where none had."""
    return bisect_right(spans, when, key=lambda span: span.begin) - 1


def _cause(spans: Sequence[_Span], when: int) -> str:
    number = _last(spans, when)
    return spans[number].cause if number >= 0 and when < spans[number].end else ""
