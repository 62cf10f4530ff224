"""`throughput.at_least`: a run's rate as a share of a baseline's or a reference run's (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from emulator.planning.baseline import Baseline, ThroughputReference
from emulator.planning.plan import Plan
from emulator.validation.units import format_number

__all__ = ["EXPECTATION", "NOTHING", "Comparison", "Outcome", "comparison_of", "evaluate"]

EXPECTATION = "throughput.at_least"
"""The name of the verdict."""

STORES_ONE = "`pytest --emulator-update-baseline`"

Outcome = tuple[bool | None, str]
"""Whether the expectation holds (None: unknown), and the numbers or the reason."""


@dataclass(frozen=True)
class Comparison:
    """What a run's rate is compared with, and where the run was."""

    reference: ThroughputReference | None = None
    engine: str = ""
    by_reference: bool = False
    """The scenario has a reference run, so baselines are shares of its rate."""


NOTHING = Comparison()


def comparison_of(plan: Plan) -> Comparison:
    """Return what the run of a plan is compared with."""
    return Comparison(plan.reference, plan.engine, bool(plan.scenario.reference))


def evaluate(
    least: float, of: str, rate: float | None, comparison: Comparison, *, passed: bool
) -> Outcome:
    """Compare a rate in steps per second with `least` times the rate of a baseline or reference.

    `of`: `baseline` or `reference`. Only the rate of a run that `passed` all other expectations is
    stored as a baseline.
    """
    if rate is None:
        return None, "the tasks' output does not say"
    found = comparison.reference
    if of == "reference":
        if found is None or not found.reference:
            return None, _no_reference(found)
        return _share(least, rate / found.reference, f"of the reference, {_rates(rate, found)}")
    if found is not None and found.storing:
        return _stored(rate, found, comparison.by_reference, passed=passed)
    if found is None or found.baseline is None:
        return None, f"no baseline is stored; {STORES_ONE} stores one"
    if comparison.by_reference:
        return _by_reference(least, rate, found, found.baseline)
    return _by_rate(least, rate, found, found.baseline, comparison.engine)


def _stored(
    rate: float, found: ThroughputReference, by_reference: bool, *, passed: bool
) -> Outcome:
    text = f"{format_number(rate, 2)} steps/s"
    if not passed:
        return None, f"{text}, not stored: another expectation does not hold"
    if by_reference and not found.reference:
        return None, f"{text}, not stored: {_no_reference(found)}"
    if by_reference and found.reference:
        text = f"{format_number(rate / found.reference, 3)} of the reference, {_rates(rate, found)}"
    return True, f"{text}, stored as the baseline"


def _by_reference(
    least: float, rate: float, found: ThroughputReference, baseline: Baseline
) -> Outcome:
    if baseline.of_reference is None:
        return None, f"the baseline knows no reference; {STORES_ONE} stores it anew"
    if not found.reference:
        return None, _no_reference(found)
    share = rate / found.reference
    now = f"{format_number(share, 3)} of the reference, {_rates(rate, found)}"
    then = f"{baseline.of_reference:.3f} on {baseline.measured}"
    return _share(least, share / baseline.of_reference, f"of the baseline: {now}; {then}")


def _by_rate(
    least: float, rate: float, found: ThroughputReference, baseline: Baseline, engine: str
) -> Outcome:
    there, here = (baseline.machine, baseline.engine), (found.machine, engine)
    if there != here:
        return (
            None,
            f"the baseline is of another machine ({', '.join(there)}; this is {', '.join(here)}); "
            "a `reference:` would make them comparable",
        )
    was = f"{baseline.steps_per_second:.2f} steps/s on {baseline.measured}"
    what = f"of the baseline, {format_number(rate, 2)} of {was}"
    return _share(least, rate / baseline.steps_per_second, what)


def _no_reference(found: ThroughputReference | None) -> str:
    if found is None or not found.reference_run:
        return "the reference was not run; pytest runs it"
    return f"the reference ({found.reference_run}) gave no rate: {found.reference_came}"


def _share(least: float, share: float, what: str) -> Outcome:
    return share >= least, f"{format_number(share, 3)} {what}"


def _rates(rate: float, found: ThroughputReference) -> str:
    run = f" ({found.reference_run})" if found.reference_run else ""
    return f"{format_number(rate, 2)} of {found.reference or 0:.2f} steps/s{run}"
