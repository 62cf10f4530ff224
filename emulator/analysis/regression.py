"""`throughput.at_least`: a run's rate as a share of a baseline's or a reference run's (pure)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from emulator.planning.baseline import ThroughputReference, conditions
from emulator.planning.plan import Plan
from emulator.validation.units import format_number

EXPECTATION = "throughput.at_least"
"""The name of the verdict."""

UPDATE = "`pytest --emulator-update-baseline`"

Outcome = tuple[bool | None, str]
"""Whether the expectation is met (None: unknown), and the numbers or the reason."""


@dataclass(frozen=True)
class Comparison:
    """What a run's rate is compared with, and the engine of the run."""

    reference: ThroughputReference | None = None
    engine: str = ""
    """From `conditions`."""
    by_reference: bool = False
    """The scenario has a reference run, so baselines are shares of its rate."""


NOTHING = Comparison()


def comparison_of(plan: Plan) -> Comparison:
    """Return what the run of a plan is compared with."""
    engine = conditions(plan.engine, warm=plan.warm is not None)
    return Comparison(plan.reference, engine, bool(plan.scenario.reference))


def evaluate(
    least: float, of: str, rate: float | None, comparison: Comparison, *, passed: bool
) -> Outcome:
    """Compare a rate in steps per second with `least` times the rate of a baseline or reference.

    `of`: `baseline` or `reference`. The rate is stored as a baseline only if the run `passed` all
    other expectations.
    """
    if rate is None:
        return None, "the tasks did not report it"
    source = comparison.reference or ThroughputReference(machine="")
    if of == "baseline":
        return _against_baseline(least, rate, source, comparison, passed=passed)
    if not source.reference:
        return None, _why_no_reference(source)
    return rate / source.reference >= least, _share_of_reference(rate, source)


def _against_baseline(
    least: float, rate: float, source: ThroughputReference, comparison: Comparison, *, passed: bool
) -> Outcome:
    baseline, by_reference = source.baseline, comparison.by_reference
    if source.storing:
        text = f"{format_number(rate, 2)} steps/s"
        if not passed:
            return None, f"{text}, not stored: another expectation is not met"
        if by_reference and not source.reference:
            return None, f"{text}, not stored: {_why_no_reference(source)}"
        text = _share_of_reference(rate, source) if by_reference else text
        return True, f"{text}, stored as the baseline"
    if baseline is None:
        return None, f"no baseline is stored; {UPDATE} stores one"
    if by_reference:
        if baseline.of_reference is None:
            return None, f"the baseline has no reference; {UPDATE} stores it anew"
        if not source.reference:
            return None, _why_no_reference(source)
        share = rate / source.reference / baseline.of_reference
        text = f": {_share_of_reference(rate, source)}; {baseline.of_reference:.3f}"
    else:
        there, here = (baseline.machine, baseline.engine), (source.machine, comparison.engine)
        if there != here:
            return (
                None,
                f"the baseline is of another machine ({', '.join(there)}; this is "
                f"{', '.join(here)}); a `reference:` would make them comparable",
            )
        share = rate / baseline.steps_per_second
        text = f", {format_number(rate, 2)} of {baseline.steps_per_second:.2f} steps/s"
    return (
        share >= least,
        f"{format_number(share, 3)} of the baseline{text} on {baseline.measured}",
    )


def _share_of_reference(rate: float, source: ThroughputReference) -> str:
    reference = source.reference or math.nan
    run = f" ({source.reference_run})" if source.reference_run else ""
    rates = f"{format_number(rate, 2)} of {reference:.2f} steps/s{run}"
    return f"{format_number(rate / reference, 3)} of the reference, {rates}"


def _why_no_reference(source: ThroughputReference) -> str:
    if not source.reference_run:
        return "the reference was not run; pytest runs it"
    return f"the reference ({source.reference_run}) gave no rate: {source.reference_failure}"
