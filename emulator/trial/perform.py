"""Tries a program: once without a fault, then once for each worker that is preempted."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from emulator.planning.plan import new_run_id
from emulator.planning.requested import RequestedScenario, RunOptions
from emulator.record.events import Entry, JobEnded, Refused, Step, Unread
from emulator.record.reader import Record
from emulator.record.task_log import printed
from emulator.record.timeline import Timeline
from emulator.results import Result, RunCallbacks
from emulator.session.launch import make_available, perform
from emulator.trial.answer import Answer, answer_of, is_answered, saved_outside
from emulator.trial.moments import Seen, is_seen, moment, seen_in
from emulator.trial.question import NAME, Question
from emulator.validation.files import reason
from emulator.validation.patterns import Pattern

PLAIN = 60
"""Seconds after which a program is stopped that runs without a fault."""

LOOKS = 0.25
"""Seconds between two looks at what a run has shown."""
AT_LEAST = 1.0
"""Seconds that a program has to run, to be preempted meanwhile."""

Shown = Callable[[], contextlib.AbstractContextManager[RunCallbacks]]
"""Opens what shows a run while it is under way."""


@dataclass(frozen=True)
class Trial:
    """What a program was tried with, and what that showed."""

    plain: Result
    """The run without a fault."""
    seen: Seen | None
    """What it showed; None: it failed."""
    runs: Sequence[tuple[Answer, Result]] = ()
    """For each target, worker-0 last."""
    scenario: Path | None = None
    """Where the scenario is."""
    unwritten: str = ""
    """Why it is not there."""
    outside: Sequence[str] = ()
    """Files that it wrote outside its folder and the shared volume."""
    blind: str = ""
    """Why this was not seen; empty: it was."""
    likely: Unread | None = None
    """Of which line, and by which pattern, steps were read, where nobody said it."""
    interrupted: bool = False


class _Watch:
    """Ends a job that goes on when it has shown all that is asked."""

    def __init__(self, has_shown: Callable[[Sequence[Entry], float], bool]) -> None:
        self.stopped = False
        self._has_shown = has_shown
        self._history: list[Entry] = []
        self._is_over = False
        self._looked = 0.0
        self._stop: Callable[[], None] | None = None

    def callbacks(self, shown: RunCallbacks) -> RunCallbacks:
        """Return callbacks that look at each event as well."""

        def entry(told: Entry) -> None:
            self._history.append(told)
            self._is_over |= isinstance(told, JobEnded)
            self._look(told.t)
            shown.entry(told)

        def stoppable(stop: Callable[[], None]) -> None:
            self._stop = stop
            shown.stoppable(stop)

        return replace(shown, entry=entry, stoppable=stoppable)

    def _look(self, now: float) -> None:
        if self.stopped or self._is_over or self._stop is None or now - self._looked < LOOKS:
            return
        self._looked = now
        if self._has_shown(self._history, now):
            self.stopped = True
            self._stop()


def perform_trial(
    question: Question,
    folder: Path,
    engine: str,
    options: RunOptions,
    shown: Shown,
    tick: Callable[[str], None],
) -> Trial:
    """Try a program of a folder; `tick` gets a sentence for each run.

    Raises EmulatorError; UsageError if the program can't be copied.
    """
    run_id = options.run_id or new_run_id(question.name)
    plain = question.asked(folder, (), f"timeout={PLAIN}s", "restart.policy=never")
    # Mistakes, and what the engine can't do, come first.
    later = [question.asked(folder, [question.fault_at(one, "1s")]) for one in question.targets]
    name, _ = make_available([plain, *later], engine, options.out, tick)
    watch = _Watch(is_seen)
    result = _run(plain, name, options, f"{run_id}-plain", shown, watch, traced=True)
    record = Record(result.folder)
    if result.outcome == "interrupted" and not watch.stopped:
        return Trial(result, None, interrupted=True)
    if result.outcome == "failed":
        return Trial(result, None)
    timeline, likely = record.timeline, None
    if not timeline.steps and not question.steps:
        likely = likely_step(record.history)
    if likely is not None and likely.pattern is not None:
        question = replace(question, steps=likely.pattern)
        timeline = _with_steps(record, likely.pattern)
    seen = seen_in(timeline, _first_output(record))
    outside, blind = _outside(record)
    tick(f"without a fault: {seen.words}")
    if likely is not None:
        tick(f"steps are read from lines such as {likely.line!r} from here on")
    if seen.ended and seen.lasted < AT_LEAST:
        return Trial(result, seen)
    if seen.ended:  # it may else end before it is taken away
        trained = seen.lasted - (seen.first_output or 0.0)
        question = replace(question, lead=min(question.lead, max(0.1, trained / 4)))
    if question.different:
        tick(f"like {question.like}: {question.different}")
    moments = {target: moment(seen, target) for target in question.targets}
    runs: list[tuple[Answer, Result]] = []
    for target, when in moments.items():
        asked = question.asked(folder, [question.fault_at(target, when.at)])
        # A moment by time is that of a run as slow as the one without a fault.
        looks = not seen.ended and not outside and not blind
        traced = looks or not seen.reads_steps
        stem = target or "fault"
        watch = _Watch(is_answered if not seen.ended else lambda history, now: False)
        one = _run(asked, name, options, f"{run_id}-{stem}", shown, watch, traced=traced)
        if one.outcome == "interrupted" and not watch.stopped:
            return Trial(result, seen, runs, interrupted=True)
        if looks:
            outside, blind = _outside(Record(one.folder))
        answer = answer_of(
            Record(one.folder).timeline,
            stopped=watch.stopped,
            reads_steps=seen.reads_steps,
            saves=seen.save if seen.sees_own else "",
            outside=outside,
        )
        tick(f"{answer.target} {answer.what}")
        runs.append((answer, one))
    target, when = list(moments.items())[-1]
    text = question.text([question.fault_at(target, when.at)], when.why)
    return Trial(result, seen, runs, *write(folder, text), outside, blind, likely)


def likely_step(history: Sequence[Entry]) -> Unread | None:
    """Return a line that looks like a step, with the pattern that reads it; None: there is none."""
    return next((one for one in history if isinstance(one, Unread) and one.pattern), None)


def write(folder: Path, text: str) -> tuple[Path | None, str]:
    """Write the scenario, never over another one; return where it is, or why it is not there."""
    path = folder / NAME
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        with contextlib.suppress(OSError):
            if path.read_text("utf-8", "replace") == text:
                return path, ""
        return None, f"there is another {NAME} here"
    except OSError as error:
        return None, reason(error)
    return path, ""


def _run(
    asked: RequestedScenario,
    engine: str,
    options: RunOptions,
    run_id: str,
    shown: Shown,
    watch: _Watch,
    *,
    traced: bool,
) -> Result:
    """Run a scenario to its end, or until it has shown all."""
    if traced and engine == "process":  # a container has nothing else to write to
        run = re.sub(r"[*?[\]]", "?", str(options.out.resolve() / run_id))
        options = replace(options, calls_of=f"!{run}/**")
    with shown() as callbacks:
        named = replace(options, run_id=run_id)
        return perform(asked, engine, named, watch.callbacks(callbacks))


def _with_steps(record: Record, pattern: str) -> Timeline:
    """Return a run over time with the steps that a pattern reads of what it has printed."""
    reads, began = Pattern(pattern), record.history[0].wall - record.history[0].t
    steps = [
        Step(t=line.wall - began, wall=line.wall, task=task.name, step=int(found["step"]))
        for task in record.plan.in_training
        for line in printed(record.path / "logs" / f"{task.name}.log")
        if (found := reads.search(line.text))
    ]
    entries = sorted([*record.in_time_order, *steps], key=lambda one: one.t)
    return Timeline(record.plan, [one.having(n=n) for n, one in enumerate(entries)])


def _first_output(record: Record) -> float | None:
    """Return when a task printed its first line, in seconds since the run began."""
    began = record.history[0].wall if record.history else 0.0
    logs = [record.path / "logs" / f"{task.name}.log" for task in record.plan.tasks]
    first = [next(printed(log), None) for log in logs]
    return min((one.wall - began for one in first if one is not None), default=None)


def _outside(record: Record) -> tuple[Sequence[str], str]:
    """Return what tasks wrote elsewhere, and why that was not seen."""
    refused = [
        one.reason
        for one in record.history
        if isinstance(one, Refused) and one.operation == "tracing"
    ]
    return saved_outside(record.timeline, str(record.path.resolve())), refused[0] if refused else ""
