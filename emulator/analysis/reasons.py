"""Why an expectation was not met, in a sentence or two, from the record alone (pure).

`REASONS` has a function for each expectation, by the first part of its name. Where the record does
not show a cause, the sentence says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from emulator.analysis.analyse import Analysis, FaultResult, Recovery
from emulator.analysis.detected import noticed_within
from emulator.analysis.ends import LISTED, end_in_words, sentence, several
from emulator.analysis.expectations import CUT_OFF, Verdict
from emulator.analysis.invariants import ALWAYS, INVARIANTS
from emulator.analysis.notices import NOTICED, NoticeResult
from emulator.analysis.observed import Observed
from emulator.analysis.progress import ProgressIndex
from emulator.analysis.promises import PROMISES
from emulator.analysis.same_as_uninterrupted import NAME
from emulator.analysis.values import step_sources
from emulator.analysis.why import why_lost
from emulator.record.events import Step
from emulator.record.timeline import Timeline
from emulator.scenario.frameworks.spec import role_of
from emulator.validation.units import format_count, format_duration, format_rate, format_size

UNKNOWN = "The record does not show why"


@dataclass(frozen=True)
class Evidence:
    """What a reason is found in."""

    analysis: Analysis
    timeline: Timeline


def reason_of(verdict: Verdict, found: Evidence) -> str:
    """Return why a verdict is not `ok`, in words; empty if it is."""
    if verdict.status == "ok":
        return ""
    if verdict.status == "unknown" and found.analysis.outcome in CUT_OFF:
        return _cut_off(found)
    reason = REASONS.get(verdict.expectation.partition(".")[0])
    return reason(verdict, found) if reason else f"{UNKNOWN}."


def _cut_off(found: Evidence) -> str:
    end, analysis = format_duration(found.timeline.end), found.analysis
    if analysis.outcome == "running":
        return f"The record ends after {end}, before the job does."
    return f"The job was cut off after {end}: {analysis.reason}."


# --- The outcome, and how far it came -------------------------------------------------------------


def _outcome(_: Verdict, found: Evidence) -> str:
    analysis, timeline = found.analysis, found.timeline
    scenario = timeline.plan.scenario
    last = next(reversed(ProgressIndex(timeline).steps), None)
    far = (
        "no step was read"
        if last is None
        else f"the last step was {last.step:,}, at {format_duration(last.t)}"
    )
    match analysis.outcome:
        case "timeout":
            limit = scenario.timeout
            after = "" if limit is None else f" of {format_duration(limit)}"
            return f"The job ran into its time limit{after}; {far}."
        case "succeeded":
            return f"The job succeeded, which was not expected: {analysis.reason}; {far}."
        case "failed" if timeline.ended_by in timeline.tasks:
            task = timeline.tasks[timeline.ended_by]
            if task.last is None:
                return sentence(analysis.reason)
            words = end_in_words(timeline, task.name, task.last)
            policy = scenario.policy_of(role_of(task.name))
            tried = (
                f"it had been restarted {format_count(task.restarts, 'time')} before"
                if task.restarts
                else f"it was not restarted (policy {policy})"
            )
            return sentence(f"{words}; {tried}")
        case _:
            return sentence(f"{analysis.reason}; {far}")


def _final_step(verdict: Verdict, found: Evidence) -> str:
    if found.analysis.final_step is None:
        return "No step was read from the output of any task."
    if found.analysis.outcome != "succeeded":
        return _outcome(verdict, found)
    if (last := found.analysis.ended_at) is not None:
        return (
            f"The job had come to step {found.analysis.final_step:,}, and had to begin again: in "
            f"the last life of its tasks it came to step {last:,}, and {found.analysis.reason}."
        )
    lead = ProgressIndex(found.timeline).advances[-1]
    return (
        f"The program ended by itself: {found.analysis.reason}. The furthest step, {lead.step:,}, "
        f"was of {lead.task}, {format_duration(max(0.0, found.analysis.duration - lead.t))} "
        "before the end."
    )


def _steps(_: Verdict, found: Evidence) -> str:
    used = step_sources(found.timeline).used
    read = [f"{source} of {', '.join(tasks[:LISTED])}" for source, tasks in used.items()]
    return sentence(f"steps were read from {several(read)}") if read else f"{UNKNOWN}."


def _values(verdict: Verdict, found: Evidence) -> str:
    name = verdict.expectation
    key = name if name == "accuracy" else name.removeprefix("values.").rpartition(".")[0]
    reported = [
        (task, step)
        for task, of in found.timeline.tasks.items()
        for step in of.steps
        if key in step.values
    ]
    if not reported:
        keys = list(dict.fromkeys(one for _, step in found.timeline.steps for one in step.values))
        others = f" Reported were {', '.join(keys[:8])}." if keys else " They reported no value."
        return f"No task reported {key}.{others}"
    last = dict(reported)
    shown = [f"{task} {_number(step.values[key])} at {_at(step)}" for task, step in last.items()]
    back = why_lost(found.timeline)
    again = f" Steps were lost: {back}" if back else ""
    return f"The last values of {key} were: {several(shown)}. {UNKNOWN} they are no better.{again}"


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else "no number"


def _at(step: Step) -> str:
    return f"step {step.step:,}"


# --- Rates and traffic ----------------------------------------------------------------------------


def _bytes(verdict: Verdict, found: Evidence) -> str:
    role = verdict.expectation.split(".")[1]
    traffic = found.analysis.bytes_per_step.get(role)
    if traffic is None:
        return (
            f"The bytes of {role} were not counted, or not often enough between steps; "
            "a shorter `metrics: {interval: ..}` counts more often."
        )
    both = ", ".join(
        f"{other} {format_size(getattr(traffic, other), 2)}" for other in ("sent", "received")
    )
    return f"A task of {role} {both} in a step; the record does not show what these bytes are."


def _throughput(verdict: Verdict, found: Evidence) -> str:
    part = verdict.expectation.partition(".")[2]
    if part.startswith(("during", "after")):
        when, _, bound = part.partition(".")
        return _share(when, found, max if bound == "max" else min)
    if verdict.status == "unknown":
        return sentence(verdict.actual)
    return _slow(found)


def _share(when: str, found: Evidence, worst: Callable[..., Any]) -> str:
    """Return the fault with the `worst` share of the job's rate before it, and the rates."""
    applied = [fault for fault in found.analysis.faults if fault.status == "applied"]
    known = [
        (rate / fault.rate_before, fault, rate)
        for fault in applied
        if (rate := getattr(fault, f"rate_{when}")) is not None and fault.rate_before
    ]
    if not applied:
        return "No fault was applied."
    if not known:
        return f"The rate before or {when} a fault is not known: too few steps were made then."
    _, fault, rate = worst(known, key=lambda one: one[0])
    words = f"{_title(fault)}: {format_rate(fault.rate_before or 0.0)} steps/s before"
    words += f", {format_rate(rate)} {when} it"
    target = getattr(fault, f"target_rate_{when}")
    if target is not None and fault.target_rate_before:
        words += f"; its target alone made {format_rate(target)}"
    if when == "after" and fault.first_step_after is not None:
        words += f"; the first step came {format_duration(fault.first_step_after)} after it"
    return f"{words}."


def _title(fault: FaultResult) -> str:
    return f"fault {fault.id} ({fault.kind} {fault.target})".capitalize()


def _slow(found: Evidence) -> str:
    """Return what took the time between the steps, and which task was the slowest."""
    analysis = found.analysis
    causes = _costly(analysis, but=("startup",))
    words = [f"besides training, the time went into {several(causes)}"] if causes else []
    rate = analysis.throughput.job
    if rate.step_times is not None:
        times = rate.step_times
        words.append(f"a step took {_ms(times.p50)} in the median, the longest {_ms(times.max)}")
    slowest = {
        name: one.step_times.p50
        for name, one in analysis.throughput.tasks.items()
        if one.step_times is not None
    }
    if len(slowest) > 1:
        name = max(slowest, key=lambda one: slowest[one])
        words.append(f"the slowest task was {name}, with {_ms(slowest[name])}")
    return sentence("; ".join(words)) if words else f"{UNKNOWN}: no step times are known."


def _ms(seconds: float) -> str:
    return f"{format_rate(1000 * seconds)} ms"


def _costly(analysis: Analysis, but: Sequence[str] = ()) -> list[str]:
    """Return the causes of time besides training in words, the largest first; none below 1 %."""
    spent = {
        cause: seconds / analysis.duration
        for cause, seconds in analysis.time.items()
        if seconds >= analysis.duration / 100 and cause not in ("productive", *but)
    }
    return [
        f"{DONE.get(cause, cause)} {format_duration(analysis.time[cause])} ({spent[cause]:.0%})"
        for cause in sorted(spent, key=lambda one: -spent[one])
    ]


DONE = {"wasted": "steps that were done again"}
"""Causes of time that are not said by their name."""


def _goodput(_: Verdict, found: Evidence) -> str:
    analysis = found.analysis
    if analysis.goodput is None:
        return "No task reported steps, so the time can't be divided into causes."
    back = why_lost(found.timeline)
    words = f"Besides training, the time went into: {several(_costly(analysis))}."
    return f"{words} {back}".rstrip() if analysis.time.get("wasted") else words


# --- Failures and recoveries ----------------------------------------------------------------------


def _restarts(_: Verdict, found: Evidence) -> str:
    words = []
    for task in found.timeline.tasks.values():
        for life in task.incarnations:
            restart = life.restart
            if restart is not None and restart.task == task.name:
                end = end_in_words(found.timeline, task.name, life)
                when = "" if life.exit is None else f" ({format_duration(life.exit.t)})"
                words.append(f"{end}{when}")
    return sentence(several(words)) or f"{UNKNOWN}."


def _lost_steps(_: Verdict, found: Evidence) -> str:
    if words := why_lost(found.timeline):
        return words
    if found.analysis.lost_steps is not None and found.analysis.unrecovered:
        return "After the last failure no task reported a step, so lost steps can't be counted."
    return "No task reported a step, so lost steps can't be counted."


def _recovers(_: Verdict, found: Evidence) -> str:
    every = found.analysis.recovered
    if not every:
        return "No task failed, and no fault restarted one, so there was nothing to recover from."
    worst = max(every, key=lambda one: math.inf if one.seconds is None else one.seconds)
    return sentence(recovery_in_words(worst, found))


def recovery_in_words(one: Recovery, found: Evidence) -> str:
    """Return a recovery in words: what failed, and how long it was down and prepared."""
    if one.fault:
        fault = found.timeline.faults[one.fault]
        what = f"fault {one.fault} ({fault.kind} {one.task})"
    else:
        what = f"{one.task} failed (exit code {one.exit_code})"
    what += f" at {format_duration(one.at)}"
    ran = one.running_after
    if one.seconds is None:
        again = "" if ran is None else f"it ran again after {format_duration(ran)}, and "
        return f"{what}: {again}no step followed"
    if ran is None:
        return f"{what}: {format_duration(one.seconds)}"
    rest = format_duration(one.seconds - ran)
    parts = f"{format_duration(ran)} until it ran again, and {rest} until the job's next step"
    return f"{what}: {format_duration(one.seconds)}, of which {parts}"


def _noticed_late(verdict: Verdict, found: Evidence) -> str:
    limit = found.timeline.plan.scenario.expect.noticed_within or 0.0
    observed = noticed_within(limit, found.analysis.faults, found.analysis.duration)
    means = "A job that does not notice a fault waits, or trains on without a task, at full price."
    return _seen(lambda _: observed, means, verdict, found)


def _faults(_: Verdict, found: Evidence) -> str:
    words = []
    for fault in found.analysis.faults:
        if fault.status == "applied" and not fault.unmet:
            continue
        planned = found.timeline.faults[fault.id].planned
        why = (
            fault.unmet
            or fault.reason
            or (
                f"its trigger ({planned.trigger.in_words()}) did not come before the end, at "
                f"{format_duration(found.timeline.end)}"
                if fault.status == "pending"
                else "the record does not say why"
            )
        )
        words.append(f"{_title(fault)}, {fault.status}: {why.removesuffix('.')}")
    return sentence(several(words))


# --- What is observed -----------------------------------------------------------------------------


def _seen(observe: Callable[[Evidence], Observed], means: str, _: Verdict, found: Evidence) -> str:
    """Return what violated an invariant, and what that means."""
    observed = observe(found)
    if not observed.count:
        return f"The record has no {observed.of}, so nothing shows it."
    said = observed.violations or observed.undecided
    if not said:
        return f"{UNKNOWN}."
    return f"{sentence(several(said))} {means if observed.violations else ''}".rstrip()


def _noticed(name: str) -> Callable[[Evidence], Observed]:
    check: Callable[[Timeline, Sequence[NoticeResult]], Observed] = NOTICED[name]
    return lambda found: check(found.timeline, found.analysis.notices)


def _invariant(check: Callable[[Timeline], Observed]) -> Callable[[Evidence], Observed]:
    return lambda found: check(found.timeline)


MEANS: Mapping[str, str] = {
    "saved_within_grace": "All that was made since its last checkpoint is lost with it.",
    "nothing_outlives": "What outlives the main process has not passed the signal on, or has not "
    "ended at it.",
    "monotone_checkpoints": "Two tasks may save to one place, or one has gone back.",
    "restores_only_complete": "What such a file holds is not what was trained.",
    "never_from_scratch": "The task did not find the checkpoint, or does not look for one.",
    "ranks_agree": "Tasks that train together then have different weights.",
    "loads_what_was_saved": "The weights were changed between the save and the restore.",
    "single_chief": "Two chiefs may save to one place at the same time.",
    "steps_exactly_once": "Steps are repeated after a restore, and left out where a task skips "
    "what it has read.",
    "no_step_while_paused": "The fault did not hold the task as it should: the run proves nothing "
    "about it.",
}
"""What it means if one was violated, by key in `expect:`."""


def _same(verdict: Verdict, _: Evidence) -> str:
    if verdict.status == "unknown":
        return f"It could not be compared: {verdict.actual}."
    return (
        f"After the fault it was not the same training: {verdict.actual}. What a save often lacks "
        "is the state of the optimizer, of random numbers, and the place in the data."
    )


Reason = Callable[[Verdict, Evidence], str]


def _observed() -> Iterator[tuple[str, Reason]]:
    observe = {name: _noticed(name) for name in NOTICED}
    observe |= {
        name: _invariant(check) for name, check in {**PROMISES, **INVARIANTS, **ALWAYS}.items()
    }
    for name, one in observe.items():
        yield name, partial(_seen, one, MEANS[name])


REASONS: Mapping[str, Reason] = {
    "outcome": _outcome,
    "faults": _faults,
    "steps": _steps,
    "final_step": _final_step,
    "accuracy": _values,
    "values": _values,
    "bytes_per_step": _bytes,
    "throughput": _throughput,
    "max_restarts": _restarts,
    "max_lost_steps": _lost_steps,
    "recovers_within": _recovers,
    "noticed_within": _noticed_late,
    "min_goodput": _goodput,
    NAME: _same,
    **dict(_observed()),
}
"""By the first part of an expectation's name."""
