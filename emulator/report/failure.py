"""Why a run is not ok: what failed, what it said, what was tried (pure)."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from emulator.analysis.explanation import to_blame
from emulator.analysis.failed_output import exceptions
from emulator.record.events import Restart, TaskExit
from emulator.report.data import Facts
from emulator.report.tables import name_list
from emulator.validation.units import format_duration

LISTED = 5
"""Failed tasks of which the exits are listed; the others are named."""


@dataclass(frozen=True)
class Ended:
    """How a task ended, and what was done about it."""

    task: str
    how: str
    """Its exit code, and what that means."""
    when: str
    step: str
    """The last step that it reported."""
    tried: str
    """Restarts, or why there were none."""


@dataclass(frozen=True)
class Failure:
    """Why the verdict of a run is not `ok`."""

    headline: str
    ended: Sequence[Ended]
    """The task that settled the outcome, then the others that failed, the first one first."""
    others: str
    """Failed tasks that are not listed."""
    task: str
    words: Sequence[str]
    """The task whose output says most, and its last traceback or lines."""
    unmet: Sequence[str]
    """What was expected and did not come true."""


def failure_of(facts: Facts) -> Failure | None:
    """Return why a run is not ok; None for a run that is, or that is still running."""
    if facts.summary["verdict"] == "ok" or facts.state == "running":
        return None
    failed = []
    if facts.analysis.outcome != "succeeded":
        exits = {name: task.final_exit for name, task in facts.timeline.tasks.items()}
        names = to_blame(facts.timeline, facts.analysis)
        failed = [name for name in names if (end := exits.get(name)) and end.state == "failed"]
    words = facts.summary["last_words"]
    told = next((name for name in (*failed, *words) if words.get(name)), "")
    return Failure(
        headline=_headline(facts),
        ended=[_ended(facts, name) for name in failed[:LISTED]],
        others=name_list(failed[LISTED:]),
        task=told,
        words=last_traceback(facts.logs.get(told) or words.get(told, ())),
        unmet=[
            f"{v.expectation}: expected {v.expected}"
            + (f", got {v.actual}" if v.status == "failed" else f"; not known: {v.actual}")
            for v in facts.verdicts
            if v.status != "ok" and v.expectation != "outcome"
        ],
    )


def _headline(facts: Facts) -> str:
    if facts.state == "crashed":
        return "The emulator was killed before the job ended."
    if facts.analysis.outcome == "succeeded":
        return "The job succeeded, but did not meet all expectations."
    return f"{_OUTCOMES[facts.analysis.outcome]}: {facts.analysis.reason}."


_OUTCOMES = {
    "failed": "The job failed",
    "timeout": "The job ran out of time",
    "interrupted": "The job was interrupted",
    "error": "The emulator or its engine failed",
}


def last_traceback(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines from the last traceback on, with those that led to it; else all lines."""
    raised = exceptions(lines)
    if not raised:
        return lines
    begin = raised[-1].header
    for earlier in reversed(raised[:-1]):
        between = " ".join(lines[earlier.line + 1 : begin])
        if not any(phrase in between for phrase in _CHAINED):
            break
        begin = earlier.header
    return lines[begin:]


_CHAINED = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)
"""What Python prints between the exceptions of a chain."""


def _ended(facts: Facts, name: str) -> Ended:
    end = facts.timeline.tasks[name].final_exit
    assert end is not None
    step = facts.analysis.tasks[name].last_step if name in facts.analysis.tasks else None
    return Ended(
        name,
        how_it_ended(end),
        format_duration(end.t),
        "none" if step is None else str(step),
        "; ".join(_tried(facts, name)),
    )


def how_it_ended(end: TaskExit) -> str:
    """Return an exit code in words: `137: killed, out of memory`."""
    why = [end.reason] if end.reason else []
    if end.oom_killed and "OOMKilled" not in why:
        why.append("out of memory")
    if end.exit_code > 128:
        with contextlib.suppress(ValueError):
            why.insert(0, f"ended by {signal.Signals(end.exit_code - 128).name}")
    if not why and end.exit_code in _CODES:
        why.append(_CODES[end.exit_code])
    return f"{end.exit_code}: {', '.join(why)}" if why else str(end.exit_code)


_CODES = {
    1: "an error of the program",
    2: "wrong usage, or a file that is not there",
    126: "the command can't be executed",
    127: "the command was not found",
}
"""What shells and Python mean by an exit code."""


def _tried(facts: Facts, name: str) -> Iterator[str]:
    """Yield what was tried to save the job: restarts of the task, or of all."""
    policy = facts.plan.scenario.restart
    restarts = [entry for entry in facts.timeline.history if isinstance(entry, Restart)]
    own = [one for one in restarts if one.scope == "job" or one.task == name]
    if own:
        of_all = sum(one.scope == "job" for one in own)
        times = "once" if len(own) == 1 else f"{len(own)} times"
        what = "with all tasks" if of_all == len(own) else "alone" if not of_all else ""
        yield f"restarted {times} {what}".rstrip()
        if len(own) >= policy.limit:
            yield f"the limit is {policy.limit}"
    else:
        yield f"not restarted (policy {policy.policy})"
    replaced = sum(one.replacement for one in facts.timeline.tasks[name].incarnations)
    if replaced:
        yield f"brought back {'once' if replaced == 1 else f'{replaced} times'} by faults"
