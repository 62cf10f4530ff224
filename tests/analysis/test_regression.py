"""A rate as a share of another: met, failed, and unknown for every reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.analysis.expectations import Comparison, evaluate
from emulator.planning.baseline import Baseline, ThroughputReference

STORED = Baseline(steps_per_second=20, engine="docker", machine="8 x A", measured="2026-11-20")
SHARED = STORED.model_copy(update={"of_reference": 0.5})
ON_A = ThroughputReference(baseline=STORED, machine="8 x A")
BY_RATE = Comparison(ON_A, "docker")
RUN_WITH = {"reference": 40.0, "reference_run": "ref-1"}
TO_REFERENCE = Comparison(
    ThroughputReference(machine="8 x A", **RUN_WITH), "docker", by_reference=True
)
BY_SHARE = Comparison(
    ThroughputReference(baseline=SHARED, machine="2 x B", **RUN_WITH), "docker", True
)


def changed(comparison: Comparison, **changes: Any) -> Comparison:
    assert comparison.reference is not None
    return replace(comparison, reference=comparison.reference.model_copy(update=changes))


NOT_RUN = changed(BY_SHARE, reference=None, reference_run="")
STORING = changed(BY_SHARE, storing=True, baseline=None)
NO_RATE = "the reference (ref-1) gave no rate"
GAVE_NONE = changed(BY_SHARE, reference=None, reference_failure="failed: worker-0 ended with 3")


OTHER = "the baseline is of another machine (8 x A, docker; this is"
ELSEWHERE = f"{OTHER} 2 x B, docker); a `reference:` would make them comparable"
SHARE = "0.450 of the reference, 18.00 of 40.00 steps/s (ref-1)"

AGAINST_A_BASELINE: Sequence[tuple[float | None, Comparison, bool | None, str]] = [
    (18.0, BY_RATE, True, "0.900 of the baseline, 18.00 of 20.00 steps/s on"),
    (17.9, BY_RATE, False, "0.895 of the baseline, 17.90 of 20.00 steps/s on"),
    (0.0, BY_RATE, False, "0.000 of the baseline"),
    (None, BY_RATE, None, "the tasks did not report it"),
    (18.0, Comparison(), None, "no baseline is stored; `pytest --emulator-update-"),
    (18.0, changed(BY_RATE, baseline=None), None, "no baseline is stored"),
    (18.0, changed(BY_RATE, machine="2 x B"), None, ELSEWHERE),
    (18.0, replace(BY_RATE, engine="process"), None, f"{OTHER} 8 x A, pr"),
    # Half of a reference then; now 18 of 40 are 0.45, nine tenths of that.
    (18.0, BY_SHARE, True, f"0.900 of the baseline: {SHARE}; 0.500 on 2026-11-20"),
    (17.0, BY_SHARE, False, "0.850 of the baseline: 0.425 of the reference"),
    (18.0, NOT_RUN, None, "the reference was not run; pytest runs it"),
    (18.0, GAVE_NONE, None, f"{NO_RATE}: failed: worker-0"),
    (18.0, changed(BY_SHARE, baseline=None), None, "no baseline is stored"),
    (18.0, changed(BY_SHARE, baseline=STORED), None, "the baseline has no refer"),
    (18.0, changed(BY_RATE, storing=True), True, "18.00 steps/s, stored as the baseline"),
    (18.0, STORING, True, f"{SHARE}, stored as the baseline"),
    (18.0, changed(GAVE_NONE, storing=True), None, f"18.00 steps/s, not stored: {NO_RATE}: failed"),
    (None, changed(BY_RATE, storing=True), None, "the tasks did not report it"),
]
AGAINST_A_REFERENCE: Sequence[tuple[float | None, Comparison, bool | None, str]] = [
    (36.0, TO_REFERENCE, True, "0.900 of the reference, 36.00 of 40.00 steps/s (ref-1)"),
    (35.0, TO_REFERENCE, False, "0.875 of the reference, 35.00 of 40.00 steps/s (re"),
    (None, TO_REFERENCE, None, "the tasks did not report it"),
    (36.0, Comparison(), None, "the reference was not run; pytest runs it"),
    (36.0, NOT_RUN, None, "the reference was not run; pytest runs it"),
    (36.0, GAVE_NONE, None, f"{NO_RATE}: failed: worker-0"),
    # Nothing is stored of what is judged by its reference alone.
    (35.0, changed(TO_REFERENCE, storing=True), False, "0.875 of the reference"),
]


@pytest.mark.parametrize(
    ("of", "rate", "comparison", "holds", "begin"),
    [
        *(("baseline", *row) for row in AGAINST_A_BASELINE),
        *(("reference", *row) for row in AGAINST_A_REFERENCE),
    ],
)
def test_a_rate_is_compared_with_another(
    of: Literal["baseline", "reference"],
    rate: float | None,
    comparison: Comparison,
    holds: bool | None,
    begin: str,
) -> None:
    result = evaluate(0.9, of, rate, comparison, passed=True)
    assert result[0] is holds
    assert result[1].startswith(begin)


def test_of_a_run_that_fails_otherwise_the_rate_is_judged_but_not_stored() -> None:
    assert evaluate(0.9, "baseline", 18.0, BY_RATE, passed=False)[0] is True
    result = evaluate(0.9, "baseline", 18.0, changed(BY_RATE, storing=True), passed=False)
    assert result == (None, "18.00 steps/s, not stored: another expectation is not met")


_RATES = st.floats(0.01, 1e5)


@given(_RATES, _RATES, _RATES, st.floats(0.1, 10.0))
def test_a_faster_machine_changes_no_share_of_a_reference(
    rate: float, reference: float, least: float, faster: float
) -> None:
    slow = evaluate(least, "baseline", rate, changed(BY_SHARE, reference=reference), passed=True)
    comparison = changed(BY_SHARE, reference=reference * faster, machine="another")
    fast = evaluate(least, "baseline", rate * faster, comparison, passed=True)
    # Unless the share is the bound itself, to the last digit.
    near = abs(rate / reference / 0.5 - least) < 1e-9 * least
    assert near or slow[0] is fast[0] is not None
