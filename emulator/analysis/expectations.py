"""Expectations against numbers -> verdicts (pure).

A verdict is `ok`, `failed`, or `unknown` where the record does not say. A check that crashes is
`unknown`, never ok.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

from emulator.analysis import regression
from emulator.analysis.analyse import Analysis
from emulator.analysis.figures import FIGURES, put_in_summary, rounded
from emulator.analysis.invariants import INVARIANTS, Observed
from emulator.analysis.throughput import Rate
from emulator.metrics.samples import Sample
from emulator.metrics.totals import gpu_totals, totals
from emulator.record.timeline import Timeline
from emulator.record.version import header
from emulator.scenario.schema import Expectations, Share
from emulator.validation.units import format_duration, format_number

__all__ = ["EXIT_CODES", "Verdict", "judge", "overall", "summary"]

Status = Literal["ok", "failed", "unknown"]
EXIT_CODES: Mapping[Status, int] = {"ok": 0, "failed": 1, "unknown": 3}


ABOUT_FAULTS = (
    "max_lost_steps",
    "max_restarts",
    "recovers_within",
    "saved_within_grace",
    "throughput.during",
    "throughput.after",
)
"""Expectations that say how faults are survived, by the beginning of their names."""

CUT_OFF = ("running", "error", "interrupted")
"""Outcomes that say nothing of the job: it was not let come to its end."""
REACHED = (
    "final_step",
    "accuracy",
    "min_goodput",
    "throughput.min",
    regression.EXPECTATION,
    "recovers_within",
)
"""Expectations that a job meets in the course of time, by the beginning of their names."""


@dataclass(frozen=True)
class Verdict:
    """One expectation, judged."""

    expectation: str
    status: Status
    expected: str
    actual: str


def judge(
    expect: Expectations,
    analysis: Analysis,
    timeline: Timeline,
    comparison: regression.Comparison = regression.NOTHING,
) -> list[Verdict]:
    """Judge every expectation that was written down, and the outcome always.

    `comparison` is what the rate is compared with, where a share of another rate is expected.
    """
    promises = {name: partial(_promise, name, timeline) for name in INVARIANTS}
    verdicts = _judged({**_CHECKS, **promises}, expect, analysis)
    passed = overall(verdicts) == "ok"
    check = partial(_regression, comparison, passed)
    return verdicts + _judged({regression.EXPECTATION: check}, expect, analysis)


def _judged(checks: Mapping[str, Check], expect: Expectations, analysis: Analysis) -> list[Verdict]:
    """Make some checks, and take back what can't be said of a run that was cut short."""
    verdicts: list[Verdict] = []
    for name, check in checks.items():
        try:
            verdicts += check(expect, analysis)
        except Exception as error:  # a check of ours that crashes must not pass for ok
            verdicts.append(Verdict(name, "unknown", "", f"the check crashed: {error!r}"))
    if analysis.outcome in CUT_OFF:
        verdicts = [_cut_off(verdict) for verdict in verdicts]
    if any(fault.status != "applied" for fault in analysis.faults):
        return [_without_faults(verdict) for verdict in verdicts]
    return verdicts


def _cut_off(verdict: Verdict) -> Verdict:
    """Take back a failure to reach what the job might have reached, had it been let."""
    might_have = verdict.expectation.startswith(REACHED)
    if not might_have or verdict.status != "failed":
        return verdict
    return replace(verdict, status="unknown", actual=f"{verdict.actual}, when the run was cut off")


def _without_faults(verdict: Verdict) -> Verdict:
    """Take back an ok about faults that did not all happen: they were not survived."""
    about_faults = verdict.expectation.startswith(ABOUT_FAULTS)
    if not about_faults or verdict.status != "ok":
        return verdict
    return replace(
        verdict, status="unknown", actual=f"{verdict.actual}, but not all faults happened"
    )


def overall(verdicts: Sequence[Verdict]) -> Status:
    """Return failed if any failed, else unknown if any could not be judged, else ok."""
    statuses = {verdict.status for verdict in verdicts}
    return "failed" if "failed" in statuses else "unknown" if "unknown" in statuses else "ok"


def summary(
    *,
    run_id: str,
    scenario: str,
    engine: str,
    analysis: Analysis,
    verdicts: Sequence[Verdict],
    variant: str = "",
    samples: Sequence[Sample] = (),
) -> dict[str, Any]:
    """Return what `summary.json` holds; docs/results.md explains every key."""
    tasks = {}
    for name, task in analysis.tasks.items():
        shown = asdict(task)
        del shown["first_step"], shown["lost_steps"]
        tasks[name] = shown
    found = {
        **header(),
        "run_id": run_id,
        "scenario": scenario,
        "variant": variant,
        "engine": engine,
        "outcome": analysis.outcome,
        "reason": analysis.reason,
        "verdict": overall(verdicts),
        "verdicts": [asdict(verdict) for verdict in verdicts],
        "tasks": tasks,
        "throughput": {
            "step_time": _step_time(analysis.throughput.job),
            "tasks": {name: _rate(rate) for name, rate in analysis.throughput.tasks.items()},
        },
        "usage": {
            name: asdict(used) for name in tasks if (used := totals(samples, name)) is not None
        },
        "gpus": {uuid: asdict(gpu) for uuid, gpu in gpu_totals(samples).items()},
        "faults": [asdict(fault) for fault in analysis.faults],
        "recoveries": [rounded(seconds) for seconds in analysis.recoveries],
        "unrecovered": analysis.unrecovered,
        "time": dict(analysis.time),
    }
    for key, figure in FIGURES.items():
        put_in_summary(found, key, figure.of(analysis))
    return found


def _rate(rate: Rate) -> dict[str, Any]:
    return {
        "steps_per_second": rounded(rate.steps_per_second),
        "examples_per_second": rounded(rate.examples_per_second),
        "step_time": _step_time(rate),
    }


def _step_time(rate: Rate) -> dict[str, float] | None:
    """Return the step times; to the microsecond, as fast steps are."""
    if rate.step_times is None:
        return None
    return {name: round(value, 6) for name, value in asdict(rate.step_times).items()}


# --- The checks ---------------------------------------------------------------------------------

Check = Callable[[Expectations, Analysis], Iterator[Verdict]]
Form = Callable[[float], str]


def _form(digits: int, unit: str = "") -> Form:
    """Return what writes a number with so many decimals and its unit."""
    return lambda number: format_number(number, digits) + unit


COUNT, SHARE, RATE = _form(0), _form(3), _form(2, " steps/s")
OF_BEFORE = _form(2, " of before")


def _outcome(expect: Expectations, found: Analysis) -> Iterator[Verdict]:
    got = f"{found.outcome}: {found.reason}"
    status: Status = "ok" if found.outcome == expect.outcome else "failed"
    if found.outcome in CUT_OFF:
        status = "unknown"
    yield Verdict("outcome", status, expect.outcome, got)


def _faults(expect: Expectations, found: Analysis) -> Iterator[Verdict]:
    """A scenario's faults are part of the question: unless all happened, nothing was shown."""
    if found.faults:
        missed = [fault for fault in found.faults if fault.status != "applied"]
        got = f"{len(found.faults) - len(missed)} applied"
        got += "".join(f"; {f.kind} {f.target} {f.status}: {f.reason}" for f in missed[:3])
        yield Verdict("faults", "unknown" if missed else "ok", f"{len(found.faults)} applied", got)


def _final_step(expect: Expectations, found: Analysis) -> Iterator[Verdict]:
    if expect.final_step is not None:
        yield _at_least("final_step", expect.final_step, found.final_step, COUNT)


def _accuracy(expect: Expectations, found: Analysis) -> Iterator[Verdict]:
    if expect.accuracy is not None:
        yield _at_least("accuracy", expect.accuracy, found.accuracy, SHARE)


def _throughput(expect: Expectations, found: Analysis) -> Iterator[Verdict]:
    if expect.throughput and expect.throughput.min is not None:
        least, rate = expect.throughput.min, found.steps_per_second
        yield _at_least("throughput.min", least, rate, RATE)
    if expect.throughput and expect.throughput.max is not None:
        most, rate = expect.throughput.max, found.steps_per_second
        yield _at_most("throughput.max", most, rate, RATE)
    if expect.throughput:
        yield from _shares("during", expect.throughput.during, found)
        yield from _shares("after", expect.throughput.after, found)


def _regression(
    comparison: regression.Comparison, passed: bool, expect: Expectations, found: Analysis
) -> Iterator[Verdict]:
    """Judge the rate as a share of another; `passed`: all other expectations hold."""
    wanted = expect.throughput
    if wanted is None or wanted.at_least is None or wanted.of is None:
        return
    rate = found.steps_per_second
    holds, got = regression.evaluate(wanted.at_least, wanted.of, rate, comparison, passed=passed)
    status: Status = "unknown" if holds is None else "ok" if holds else "failed"
    least = f"at least {wanted.at_least:g} of the {wanted.of}"
    yield Verdict(regression.EXPECTATION, status, least, got)


def _shares(when: str, share: Share, found: Analysis) -> Iterator[Verdict]:
    """Judge the worst fault: the job's rate around it, as a share of the rate before."""
    shares = [
        None if rate is None or not fault.rate_before else rate / fault.rate_before
        for fault in found.faults
        if fault.status == "applied"
        for rate in [getattr(fault, f"rate_{when}")]
    ]
    known = [one for one in shares if one is not None]
    whole = bool(shares) and len(known) == len(shares)
    if share.min is not None:
        worst = min(known) if whole else None
        yield _at_least(f"throughput.{when}.min", share.min, worst, OF_BEFORE)
    if share.max is not None:
        worst = max(known) if whole else None
        yield _at_most(f"throughput.{when}.max", share.max, worst, OF_BEFORE)


def _restarts(expect: Expectations, found: Analysis) -> Iterator[Verdict]:
    if expect.max_restarts is not None:
        yield _at_most("max_restarts", expect.max_restarts, found.restarts, COUNT)


def _lost_steps(expect: Expectations, found: Analysis) -> Iterator[Verdict]:
    if expect.max_lost_steps is not None:
        yield _at_most("max_lost_steps", expect.max_lost_steps, found.lost_steps, COUNT)


def _recovers_within(expect: Expectations, found: Analysis) -> Iterator[Verdict]:
    if expect.recovers_within is None:
        return
    wanted = f"at most {format_duration(expect.recovers_within)}"
    if found.unrecovered:
        yield Verdict("recovers_within", "failed", wanted, "no step came after the last failure")
    elif not found.recoveries:
        yield Verdict("recovers_within", "unknown", wanted, "there was nothing to recover from")
    else:
        worst = max(found.recoveries)
        status: Status = "ok" if worst <= expect.recovers_within else "failed"
        yield Verdict("recovers_within", status, wanted, format_duration(worst))


def _goodput(expect: Expectations, found: Analysis) -> Iterator[Verdict]:
    if expect.min_goodput is not None:
        yield _at_least("min_goodput", expect.min_goodput, found.goodput, SHARE)


def _saved_within_grace(expect: Expectations, found: Analysis) -> Iterator[Verdict]:
    faults = [fault for fault in found.faults if fault.kind == "preempt"]
    struck = [fault for fault in faults if fault.status == "applied"]
    unsaved = [
        f"{f.target} had saved nothing when it was gone" for f in struck if f.saved_after is None
    ]
    seen = Observed("a checkpoint before each end", len(struck), "preemptions", unsaved)
    if expect.saved_within_grace:
        yield _observed("saved_within_grace", seen)


def _promise(
    name: str, timeline: Timeline, expect: Expectations, found: Analysis
) -> Iterator[Verdict]:
    if getattr(expect, name):
        yield _observed(name, INVARIANTS[name](timeline))


_CHECKS: Mapping[str, Check] = {
    "outcome": _outcome,
    "faults": _faults,
    "final_step": _final_step,
    "accuracy": _accuracy,
    "throughput": _throughput,
    "max_restarts": _restarts,
    "max_lost_steps": _lost_steps,
    "recovers_within": _recovers_within,
    "min_goodput": _goodput,
    "saved_within_grace": _saved_within_grace,
}


def _observed(name: str, seen: Observed) -> Verdict:
    if not seen.seen:
        return Verdict(name, "unknown", seen.wanted, f"the record has no {seen.of}")
    if not seen.broken:
        return Verdict(name, "ok", seen.wanted, f"{seen.seen} of {seen.seen} {seen.of}")
    more = len(seen.broken) - 3
    got = "; ".join(seen.broken[:3]) + (f"; and {more} more" if more > 0 else "")
    return Verdict(name, "failed", seen.wanted, got)


def _at_least(name: str, wanted: float, got: float | None, form: Form) -> Verdict:
    return _bound(name, f"at least {form(wanted)}", got, form, lambda x: x >= wanted)


def _at_most(name: str, wanted: float, got: float | None, form: Form) -> Verdict:
    return _bound(name, f"at most {form(wanted)}", got, form, lambda x: x <= wanted)


def _bound(
    name: str, wanted: str, got: float | None, form: Form, holds: Callable[[float], bool]
) -> Verdict:
    if got is None:
        return Verdict(name, "unknown", wanted, "the tasks' output does not say")
    return Verdict(name, "ok" if holds(got) else "failed", wanted, form(got))
