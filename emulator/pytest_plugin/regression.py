"""Throughput regression: what the rate of a test's run is compared with, and what is stored."""

from __future__ import annotations

from emulator.analysis.regression import EXPECTATION
from emulator.planning.baseline import ThroughputReference, machine_of, measured
from emulator.pytest_plugin.scenario_source import Wanted
from emulator.results import Result
from emulator.scenario.matrix import assignments

__all__ = ["reference_rate", "reference_variant", "store"]

UNGATED = ("expect.throughput=null",)
"""A reference itself is compared with nothing."""


def reference_variant(wanted: Wanted) -> Wanted | None:
    """Return the variant that a scenario's rate is compared with, if there is one.

    Raises UsageError.
    """
    gate = wanted.scenario.expect.throughput
    if gate is None or gate.of is None or not wanted.scenario.reference:
        return None
    changed = [*wanted.chosen, *assignments(wanted.scenario.reference)]
    return wanted.again(changed, UNGATED)


def reference_rate(
    wanted: Wanted, reference: Result | None, engine: str, *, storing: bool
) -> ThroughputReference | None:
    """Return what a run is compared with; its reference is over by now.

    `storing`: the session stores baselines. Raises UsageError.
    """
    gate = wanted.scenario.expect.throughput
    if gate is None or gate.of is None:
        return None
    of_baseline = gate.of == "baseline"
    if of_baseline and storing:
        wanted.file()  # where there is none, that is said before it runs
    held = ThroughputReference(
        baseline=wanted.baseline(engine) if of_baseline else None,
        machine=machine_of(wanted.scenario),
        storing=storing and of_baseline,
    )
    return held if reference is None else _with_reference(held, reference)


def _with_reference(held: ThroughputReference, reference: Result) -> ThroughputReference:
    """Add the rate of a reference, unless it says nothing: then why."""
    rate, came = reference.steps_per_second, ""
    (outcome,) = (v for v in reference.verdicts if v.expectation == "outcome")
    if outcome.status != "ok":
        rate, came = None, outcome.actual
    elif not rate:  # of no step nothing is a share
        rate, came = None, "its output tells of no step"
    return held.model_copy(
        update={"reference": rate, "reference_run": reference.run_id, "reference_failure": came}
    )


def store(result: Result, wanted: Wanted, held: ThroughputReference) -> None:
    """Store what a run came to as the baseline, where its verdict says that it is."""
    stored = any(v.expectation == EXPECTATION and v.status == "ok" for v in result.verdicts)
    if stored and held.storing and result.steps_per_second:
        wanted.store(measured(result.steps_per_second, held, result.summary["engine"]))
