"""Throughput regression: what the rate of a test's run is compared with, and what is stored."""

from __future__ import annotations

from emulator.analysis.expectations import AT_LEAST
from emulator.planning.baseline import ThroughputReference, conditions, machine_of, measured
from emulator.planning.requested import RequestedScenario
from emulator.results import Result
from emulator.scenario.matrix import to_overrides

UNGATED = ("expect.throughput=null",)
"""The reference itself is compared with nothing."""


def reference_variant(requested: RequestedScenario) -> RequestedScenario | None:
    """Return the variant that a scenario's rate is compared with, if there is one."""
    scenario = requested.scenario
    gate = scenario.expect.throughput
    if gate is None or gate.of is None or not scenario.reference:
        return None
    return requested.variant([*requested.chosen, *to_overrides(scenario.reference)], UNGATED)


def reference_rate(
    requested: RequestedScenario, reference: Result | None, engine: str, *, storing: bool
) -> ThroughputReference | None:
    """Return what a run is compared with; `reference` is the finished run of its reference.

    `storing`: the session stores baselines. Raises UsageError.
    """
    gate = requested.scenario.expect.throughput
    if gate is None or gate.of is None:
        return None
    of_baseline = gate.of == "baseline"
    if of_baseline and storing:
        requested.file()  # without a file, refuse before it runs
    expected = ThroughputReference(
        baseline=requested.baseline(engine) if of_baseline else None,
        machine=machine_of(requested.scenario),
        storing=storing and of_baseline,
    )
    return expected if reference is None else _with_reference(expected, reference)


def _with_reference(expected: ThroughputReference, reference: Result) -> ThroughputReference:
    """Add the rate of a reference, or the reason why it has none."""
    rate, reason = reference.steps_per_second, ""
    (outcome,) = (v for v in reference.verdicts if v.expectation == "outcome")
    if outcome.status != "ok":
        rate, reason = None, outcome.actual
    elif not rate:  # no rate is a share of 0
        rate, reason = None, "its output reports no step"
    return expected.model_copy(
        update={"reference": rate, "reference_run": reference.run_id, "reference_failure": reason}
    )


def store(result: Result, requested: RequestedScenario, expected: ThroughputReference) -> None:
    """Store the rate of a run as the baseline, if its verdict allows that."""
    stored = any(v.expectation == AT_LEAST and v.status == "ok" for v in result.verdicts)
    if stored and expected.storing and result.steps_per_second:
        engine = conditions(result.summary["engine"], warm=bool(result.summary["warm"]))
        requested.store(measured(result.steps_per_second, expected, engine))
