"""Expectations against numbers -> verdicts (pure).

A verdict is `ok`, `failed`, or `unknown` if the record does not show it or the check crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from emulator.analysis.analyse import Analysis, FaultResult
from emulator.analysis.detected import noticed_within
from emulator.analysis.invariants import ALWAYS, INVARIANTS
from emulator.analysis.notices import NOTICED
from emulator.analysis.observed import Observed
from emulator.analysis.promises import PROMISES
from emulator.analysis.same_as_uninterrupted import NAME, NOTHING_LEFT, Ends, answers
from emulator.planning.plan import ThroughputReference
from emulator.record.timeline import Timeline
from emulator.scenario.schema import Expectations, RelativeBounds, TrafficBounds
from emulator.validation.units import format_duration, format_number, format_size

Status = Literal["ok", "failed", "unknown"]
EXIT_CODES: Mapping[Status, int] = {"ok": 0, "failed": 1, "unknown": 3}


ABOUT_FAULTS = (
    "max_lost_steps",
    "max_restarts",
    "recovers_within",
    "noticed_within",
    NAME,
    *NOTICED,
    "throughput.during",
    "throughput.after",
)
"""Expectations about the effect of faults, by the beginning of their names."""

AT_LEAST = "throughput.at_least"
"""The expectation of a run's rate as a share of a reference run's."""

CUT_OFF = ("running", "error", "interrupted")
"""Outcomes of runs in which the job could not finish."""
REACHED = (
    "final_step",
    "accuracy",
    "values.",
    "min_goodput",
    "throughput.min",
    AT_LEAST,
    "recovers_within",
)
"""Expectations that a job may still meet later, by the beginning of their names."""


@dataclass(frozen=True)
class Verdict:
    """The result of one expectation."""

    expectation: str
    status: Status
    expected: str
    actual: str


def judge(
    expect: Expectations,
    analysis: Analysis,
    timeline: Timeline,
    reference: ThroughputReference | None = None,
    ends: Ends = NOTHING_LEFT,
) -> list[Verdict]:
    """Judge every expectation that is set, and the outcome always.

    `reference` is what the rate is compared with if a share of another rate is expected, and `ends`
    have what the run has left if it is expected to end as without a fault.
    """
    invariants = {name: partial(_invariant, name, timeline) for name in OBSERVED}
    noticed: dict[str, Check] = {name: partial(_noticed, name, timeline) for name in NOTICED}
    always = {name: partial(_always, name, timeline) for name in ALWAYS}
    share: dict[str, Check] = {AT_LEAST: partial(_share_of_reference, reference)}
    same: dict[str, Check] = {NAME: partial(_same_as_uninterrupted, timeline, ends)}
    checks: dict[str, Check] = {**_CHECKS, **noticed, **invariants, **always, **share, **same}
    verdicts: list[Verdict] = []
    for name, check in checks.items():
        try:
            verdicts += check(expect, analysis)
        except Exception as error:  # a check that crashes must not pass
            verdicts.append(Verdict(name, "unknown", "", f"the check crashed: {error!r}"))
    if analysis.outcome in CUT_OFF:
        # The job might have met them if it had not been cut off.
        when = "so far" if analysis.outcome == "running" else "when the run was cut off"
        verdicts = _unknown(verdicts, "failed", REACHED, when)
    if any(one.status != "applied" or one.wrong_source or one.unmet for one in analysis.faults):
        # Faults that did not happen were not survived.
        verdicts = _unknown(verdicts, "ok", ABOUT_FAULTS, "but not all faults happened")
    return verdicts


def _unknown(
    verdicts: Sequence[Verdict], status: Status, names: tuple[str, ...], reason: str
) -> list[Verdict]:
    """Return verdicts; those with this status and one of these names become unknown."""
    return [
        replace(verdict, status="unknown", actual=f"{verdict.actual}, {reason}")
        if verdict.status == status and verdict.expectation.startswith(names)
        else verdict
        for verdict in verdicts
    ]


def overall(verdicts: Sequence[Verdict]) -> Status:
    """Return failed if any failed, else unknown if any could not be judged, else ok."""
    statuses = {verdict.status for verdict in verdicts}
    return "failed" if "failed" in statuses else "unknown" if "unknown" in statuses else "ok"


# --- The checks ---------------------------------------------------------------------------------

Check = Callable[[Expectations, Analysis], Iterator[Verdict]]
Format = Callable[[float], str]


def _number(digits: int, unit: str = "") -> Format:
    """Return a formatter for numbers with this many decimals and a unit."""
    return lambda number: format_number(number, digits) + unit


COUNT, SHARE, RATE = _number(0), _number(3), _number(2, " steps/s")
OF_BEFORE = _number(2, " of before")
VALUE = "{:.6g}".format
SIZE = partial(format_size, digits=2)


def _status(holds: bool | None) -> Status:
    return "unknown" if holds is None else "ok" if holds else "failed"


def _same_as_uninterrupted(
    timeline: Timeline, ends: Ends, expect: Expectations, analysis: Analysis
) -> Iterator[Verdict]:
    if expect.same_as_uninterrupted is None:
        return
    is_anew = any(task.counted_anew for task in analysis.tasks.values())
    for one in answers(expect.same_as_uninterrupted, timeline, ends, is_anew=is_anew):
        cut = one.status != "unknown" and analysis.outcome in CUT_OFF
        yield Verdict(one.name, "unknown" if cut else one.status, one.expected, one.actual)


def _outcome(expect: Expectations, analysis: Analysis) -> Iterator[Verdict]:
    actual = f"{analysis.outcome}: {analysis.reason}"
    holds = None if analysis.outcome in CUT_OFF else analysis.outcome == expect.outcome
    yield Verdict("outcome", _status(holds), expect.outcome, actual)


def _faults(expect: Expectations, analysis: Analysis) -> Iterator[Verdict]:
    """Check that all faults happened; otherwise the run proves nothing about them."""
    if faults := analysis.faults:
        missed = [one for one in faults if one.status != "applied" or one.wrong_source or one.unmet]
        actual = f"{len(faults) - len(missed)} applied"
        actual += "".join(f"; {_missed(one)}" for one in missed[:3])
        yield Verdict("faults", "unknown" if missed else "ok", f"{len(faults)} applied", actual)


def _missed(fault: FaultResult) -> str:
    """Return why a fault did not happen; a sentence of an engine becomes a part of one."""
    if fault.wrong_source:
        return (
            f"fault {fault.id}: {fault.kind} {fault.target} struck at a step of"
            f" {fault.wrong_source}, which has none of the training's"
        )
    why = f": {reason}" if (reason := fault.unmet or fault.reason.removesuffix(".")) else ""
    return f"fault {fault.id}: {fault.kind} {fault.target} {fault.status}{why}"


def _steps(expect: Expectations, analysis: Analysis) -> Iterator[Verdict]:
    """Check that no step was read, where none is expected."""
    if expect.steps is not None:
        read = [name for name, task in analysis.tasks.items() if task.last_step is not None]
        actual = f"steps of {', '.join(read[:3])}" if read else "none"
        actual += f" and {len(read) - 3} more" if len(read) > 3 else ""
        yield Verdict("steps", _status(not read), expect.steps, actual)


def _share_of_reference(
    reference: ThroughputReference | None, expect: Expectations, analysis: Analysis
) -> Iterator[Verdict]:
    """Judge the rate as a share of that of the reference run."""
    throughput = expect.throughput
    if throughput is None or throughput.at_least is None:
        return
    holds, actual = evaluate(throughput.at_least, analysis.steps_per_second, reference)
    expected = f"at least {throughput.at_least:g} of the reference"
    yield Verdict(AT_LEAST, _status(holds), expected, actual)


def _bound(
    name: str, figure: str, form: Format, expect: Expectations, analysis: Analysis
) -> Iterator[Verdict]:
    """Compare a figure of the run with the bound that the dotted key `name` sets."""
    section, _, key = name.rpartition(".")
    settings = getattr(expect, section) if section else expect
    bound: float | None = getattr(settings, key) if settings else None
    if bound is not None:
        yield _compare(name, bound, getattr(analysis, figure), form)


def _final_step(expect: Expectations, analysis: Analysis) -> Iterator[Verdict]:
    """Compare the step that the job ended with; a life before the last may have been further."""
    if analysis.ended_at is None or analysis.final_step is None:
        yield from _counted("final_step", "final_step", COUNT, expect, analysis)
        return
    for verdict in _bound("final_step", "ended_at", COUNT, expect, analysis):
        actual = f"{verdict.actual} where it ended, {COUNT(analysis.final_step)} before"
        yield replace(verdict, actual=actual)


def _accuracy(expect: Expectations, analysis: Analysis) -> Iterator[Verdict]:
    """Compare the accuracy; percent, or a sum over replicas, would pass every bound."""
    for verdict in _bound("accuracy", "accuracy", SHARE, expect, analysis):
        if analysis.accuracy is not None and not 0 <= analysis.accuracy <= 1:
            shown = format_number(analysis.accuracy, 3)
            actual = f"the tasks reported {shown}, which is not between 0 and 1"
            yield replace(verdict, status="unknown", actual=actual)
        else:
            yield verdict


def _values(expect: Expectations, analysis: Analysis) -> Iterator[Verdict]:
    """Compare the least and the greatest of the last values that the tasks reported."""
    for key, bounds in expect.values.items():
        of = analysis.values.get(key, {})
        known = [value for value in of.values() if value is not None]
        lacking = [task for task, value in of.items() if value is None]
        for side, bound, worst in (("min", bounds.min, min), ("max", bounds.max, max)):
            if bound is None:
                continue
            value = worst(known) if known and not lacking else None
            verdict = _compare(f"values.{key}.{side}", bound, value, VALUE)
            if lacking:
                verdict = replace(verdict, actual=f"the last value of {lacking[0]} is no number")
            yield verdict


def _bytes_per_step(expect: Expectations, analysis: Analysis) -> Iterator[Verdict]:
    for role, traffic in expect.bytes_per_step.items():
        for way in ("sent", "received"):
            bounds: TrafficBounds | None = getattr(traffic, way)
            if bounds is not None:
                verdicts = _sizes(bounds, role, way, analysis)
                verdicts += _shares_of_reported(bounds, role, way, analysis)
                name = f"bytes_per_step.{role}.{way}"
                yield from (replace(v, expectation=f"{name}.{v.expectation}") for v in verdicts)


NO_STEP_FOLLOWED = "no step followed the last failure"
UNCOUNTED = "its bytes were not counted, or not often enough between the steps"


def _sizes(bounds: TrafficBounds, role: str, way: str, analysis: Analysis) -> list[Verdict]:
    """Compare the bytes that a role has `sent` or `received` in a step with sizes."""
    traffic = analysis.bytes_per_step.get(role)
    verdicts = [
        _compare(key, bound, getattr(traffic, way, None), SIZE)
        for key, bound in (("min", bounds.min), ("max", bounds.max))
        if bound is not None
    ]
    return [v if traffic else replace(v, actual=UNCOUNTED) for v in verdicts]


def _shares_of_reported(
    bounds: TrafficBounds, role: str, way: str, analysis: Analysis
) -> list[Verdict]:
    """Compare them with the values that tasks reported; the worst share counts."""
    stretches = analysis.traffic.stretches(bounds.of) if bounds.of else []
    pairs = [
        (getattr(traffic, way), one.value)
        for one in stretches
        if (traffic := analysis.traffic.bytes_per_step(role, one.steps))
    ]
    complete = pairs if len(pairs) == len(stretches) else []
    verdicts = []
    for key, bound, worst in (("at_least", bounds.at_least, min), ("at_most", bounds.at_most, max)):
        if bound is None:
            continue
        pair = worst(complete, key=lambda pair: pair[0] / pair[1], default=None)
        verdict = _compare(key, bound, pair and pair[0] / pair[1], "{:.3g}".format)
        expected, actual = f"{verdict.expected} of {bounds.of}", verdict.actual
        if pair:
            actual += f", {SIZE(pair[0])} of {SIZE(pair[1])}"
        elif stretches:
            actual = UNCOUNTED
        verdicts.append(replace(verdict, expected=expected, actual=actual))
    return verdicts


def _shares(name: str, expect: Expectations, analysis: Analysis) -> Iterator[Verdict]:
    """Judge the worst fault: the job's rate `during` or `after` it, as a share of that before."""
    share: RelativeBounds | None = getattr(expect.throughput, name) if expect.throughput else None
    if share is None:
        return
    shares = [
        rate / fault.rate_before if rate is not None and fault.rate_before else None
        for fault in analysis.faults
        if fault.status == "applied"
        for rate in [getattr(fault, f"rate_{name}")]
    ]
    known = [one for one in shares if one is not None]
    complete = bool(shares) and len(known) == len(shares)
    for key, bound, worst in (("min", share.min, min), ("max", share.max, max)):
        if bound is not None:
            value = worst(known) if complete else None
            yield _compare(f"throughput.{name}.{key}", bound, value, OF_BEFORE)


def _recovers_within(expect: Expectations, analysis: Analysis) -> Iterator[Verdict]:
    if expect.recovers_within is None:
        return
    bound, worst = expect.recovers_within, max(analysis.recoveries, default=None)
    waited = [analysis.duration - one.at for one in analysis.recovered if one.seconds is None]
    if worst is None and not waited:
        actual = "there was nothing to recover from"
    else:
        actual = NO_STEP_FOLLOWED if waited or worst is None else format_duration(worst)
    # Where no task reported a step, nothing says when the training went on.
    seen = () if analysis.unrecovered is None else waited
    late = [seconds for seconds in (*analysis.recoveries, *seen) if seconds > bound]
    holds = False if late else None if waited or worst is None else True
    expected = f"at most {format_duration(bound)}"
    yield Verdict("recovers_within", _status(holds), expected, actual)


def _noticed_within(expect: Expectations, analysis: Analysis) -> Iterator[Verdict]:
    if (limit := expect.noticed_within) is not None:
        found = noticed_within(limit, analysis.faults, analysis.duration)
        yield _observed("noticed_within", found)


def _lost_steps(expect: Expectations, analysis: Analysis) -> Iterator[Verdict]:
    """Compare the steps that were done again; those of a restart that no step followed are not."""
    for verdict in _bound("max_lost_steps", "lost_steps", COUNT, expect, analysis):
        least, most = analysis.lost_at_least, analysis.lost_steps
        if least is not None and least != most:
            assert expect.max_lost_steps is not None
            is_known = verdict.status == "ok" or least > expect.max_lost_steps
            actual = f"{COUNT(least)} to {verdict.actual}"
            verdict = replace(
                verdict, status=verdict.status if is_known else "unknown", actual=actual
            )
        unseen = any(one.seconds is None and not one.went_on for one in analysis.recovered)
        if verdict.status == "ok" and unseen:
            yield replace(verdict, status="unknown", actual=f"{verdict.actual}; {NO_STEP_FOLLOWED}")
        else:
            yield verdict


def _counted(
    name: str, figure: str, form: Format, expect: Expectations, analysis: Analysis
) -> Iterator[Verdict]:
    """Judge as `_bound` does what follows from step numbers; they are too low if counted anew."""
    anew = next((task.counted_anew for task in analysis.tasks.values() if task.counted_anew), "")
    for verdict in _bound(name, figure, form, expect, analysis):
        if anew and verdict.status == "failed":
            yield replace(verdict, status="unknown", actual=f"{verdict.actual}; {anew}")
        else:
            yield verdict


def _noticed(
    name: str, timeline: Timeline, expect: Expectations, analysis: Analysis
) -> Iterator[Verdict]:
    if getattr(expect, name):
        yield _observed(name, NOTICED[name](timeline, analysis.notices))


def _invariant(
    name: str, timeline: Timeline, expect: Expectations, analysis: Analysis
) -> Iterator[Verdict]:
    if getattr(expect, name):
        yield _observed(name, OBSERVED[name](timeline))


def _always(
    name: str, timeline: Timeline, expect: Expectations, analysis: Analysis
) -> Iterator[Verdict]:
    observed = ALWAYS[name](timeline)
    if observed.count:
        yield _observed(name, observed)


OBSERVED = {**PROMISES, **INVARIANTS}

_CHECKS: Mapping[str, Check] = {
    "outcome": _outcome,
    "faults": _faults,
    "steps": _steps,
    "final_step": _final_step,
    "accuracy": _accuracy,
    "values": _values,
    "bytes_per_step": _bytes_per_step,
    "throughput.min": partial(_bound, "throughput.min", "steps_per_second", RATE),
    "throughput.max": partial(_bound, "throughput.max", "steps_per_second", RATE),
    "throughput.during": partial(_shares, "during"),
    "throughput.after": partial(_shares, "after"),
    "max_restarts": partial(_bound, "max_restarts", "restarts", COUNT),
    "max_lost_steps": _lost_steps,
    "recovers_within": _recovers_within,
    "noticed_within": _noticed_within,
    "min_goodput": partial(_counted, "min_goodput", "goodput", SHARE),
}


def _observed(name: str, observed: Observed) -> Verdict:
    count, violations = observed.count, observed.violations
    if not count:
        actual = f"the record has no {observed.of}"
    elif said := violations or observed.undecided:
        more = len(said) - 3
        actual = "; ".join(said[:3]) + (f"; and {more} more" if more > 0 else "")
    else:
        actual = observed.held or f"{count} of {count} {observed.of}"
    holds = None if not count or (observed.undecided and not violations) else not violations
    return Verdict(name, _status(holds), observed.expected, actual)


def _compare(name: str, bound: float, value: float | None, form: Format) -> Verdict:
    """Compare a value with its bound: an upper one if its name has `max`, else a lower one."""
    upper = name.startswith("max") or name.endswith((".max", "at_most"))
    expected = f"at {'most' if upper else 'least'} {form(bound)}"
    if value is None:
        return Verdict(name, "unknown", expected, "the tasks did not report it")
    return Verdict(
        name, _status(value <= bound if upper else value >= bound), expected, form(value)
    )


# --- The rate as a share of another ---------------------------------------------------------------


def evaluate(
    least: float, rate: float | None, reference: ThroughputReference | None
) -> tuple[bool | None, str]:
    """Compare a rate in steps per second with `least` times the rate of a reference.

    Returns whether it is met (None: unknown), and the numbers or the reason.
    """
    if rate is None:
        return None, "the tasks did not report it"
    if reference is None:
        return None, "the reference was not run; pytest runs it"
    run = reference.reference_run
    if not reference.reference:
        return None, f"the reference ({run}) gave no rate: {reference.reference_failure}"
    share = rate / reference.reference
    rates = f"{format_number(rate, 2)} of {reference.reference:.2f} steps/s ({run})"
    return share >= least, f"{format_number(share, 3)} of the reference, {rates}"
