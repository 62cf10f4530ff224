"""`throughput.at_least`: a rate as a share of a baseline's or a reference's (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from emulator.plan import Plan
from emulator.units import format_number
from emulator.yardstick import Stored, Yardstick

__all__ = ["GATE", "NOTHING", "Against", "Compared", "against", "compared"]

GATE = "throughput.at_least"
"""What the verdict is called."""

STORES_ONE = "`pytest --emulator-update-baseline`"


@dataclass(frozen=True)
class Against:
    """What a run is held against."""

    yardstick: Yardstick | None = None
    engine: str = ""
    by_reference: bool = False
    """The scenario has a reference, so baselines are shares of its rate."""


NOTHING = Against()


@dataclass(frozen=True)
class Compared:
    """What came of a comparison: whether it holds (None: nobody can tell), and why."""

    holds: bool | None
    said: str


def against(plan: Plan) -> Against:
    """Return what the run of a plan is held against."""
    return Against(plan.yardstick, plan.engine, bool(plan.scenario.reference))


def compared(least: float, of: str, rate: float | None, held: Against, *, passed: bool) -> Compared:
    """Compare a rate in steps per second; only one of a run that `passed` otherwise is stored."""
    if rate is None:
        return Compared(None, "the tasks' output does not say")
    given = held.yardstick
    if of == "reference":
        if given is None or not given.reference:
            return Compared(None, _no_reference(given))
        return _share(least, rate / given.reference, f"of the reference, {_rates(rate, given)}")
    if given is not None and given.storing:
        return _stored(rate, given, held.by_reference, passed=passed)
    if given is None or given.baseline is None:
        return Compared(None, f"no baseline is stored; {STORES_ONE} stores one")
    if held.by_reference:
        return _by_reference(least, rate, given, given.baseline)
    return _by_rate(least, rate, given, given.baseline, held.engine)


def _stored(rate: float, given: Yardstick, by_reference: bool, *, passed: bool) -> Compared:
    came = f"{format_number(rate, 2)} steps/s"
    if not passed:
        return Compared(None, f"{came}, not stored: another expectation does not hold")
    if by_reference and not given.reference:
        return Compared(None, f"{came}, not stored: {_no_reference(given)}")
    if by_reference and given.reference:
        came = f"{format_number(rate / given.reference, 3)} of the reference, {_rates(rate, given)}"
    return Compared(True, f"{came}, stored as the baseline")


def _by_reference(least: float, rate: float, given: Yardstick, stored: Stored) -> Compared:
    if stored.of_reference is None:
        return Compared(None, f"the baseline knows no reference; {STORES_ONE} stores it anew")
    if not given.reference:
        return Compared(None, _no_reference(given))
    share = rate / given.reference
    now = f"{format_number(share, 3)} of the reference, {_rates(rate, given)}"
    then = f"{stored.of_reference:.3f} on {stored.measured}"
    return _share(least, share / stored.of_reference, f"of the baseline: {now}; {then}")


def _by_rate(least: float, rate: float, given: Yardstick, stored: Stored, engine: str) -> Compared:
    there, here = (stored.machine, stored.engine), (given.machine, engine)
    if there != here:
        return Compared(
            None,
            f"the baseline is of another machine ({', '.join(there)}; this is {', '.join(here)}); "
            "a `reference:` would make them comparable",
        )
    was = f"{format_number(rate, 2)} of {stored.steps_per_second:.2f} steps/s on {stored.measured}"
    return _share(least, rate / stored.steps_per_second, f"of the baseline, {was}")


def _no_reference(given: Yardstick | None) -> str:
    if given is None or not given.reference_run:
        return "the reference was not run; pytest runs it"
    return f"the reference ({given.reference_run}) gave no rate: {given.reference_came}"


def _share(least: float, share: float, what: str) -> Compared:
    return Compared(share >= least, f"{format_number(share, 3)} {what}")


def _rates(rate: float, given: Yardstick) -> str:
    run = f" ({given.reference_run})" if given.reference_run else ""
    return f"{format_number(rate, 2)} of {given.reference or 0:.2f} steps/s{run}"
