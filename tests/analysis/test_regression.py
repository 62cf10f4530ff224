"""A rate as a share of a reference's: met, failed, and unknown for every reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.analysis.expectations import evaluate
from emulator.planning.plan import ThroughputReference

RAN = ThroughputReference(reference=40.0, reference_run="ref-1")
GAVE_NONE = ThroughputReference(
    reference_run="ref-1", reference_failure="failed: worker-0 ended with 3"
)


@pytest.mark.parametrize(
    ("rate", "reference", "holds", "begin"),
    [
        (36.0, RAN, True, "0.900 of the reference, 36.00 of 40.00 steps/s (ref-1)"),
        (35.0, RAN, False, "0.875 of the reference, 35.00 of 40.00 steps/s (re"),
        (0.0, RAN, False, "0.000 of the reference"),
        (None, RAN, None, "the tasks did not report it"),
        (36.0, None, None, "the reference was not run; pytest runs it"),
        (36.0, GAVE_NONE, None, "the reference (ref-1) gave no rate: failed: worker-0"),
    ],
)
def test_a_rate_is_compared_with_another(
    rate: float | None, reference: ThroughputReference | None, holds: bool | None, begin: str
) -> None:
    result = evaluate(0.9, rate, reference)
    assert result[0] is holds
    assert result[1].startswith(begin)


_RATES = st.floats(0.01, 1e5)


@given(_RATES, _RATES, _RATES, st.floats(0.1, 10.0))
def test_a_faster_machine_changes_no_share_of_a_reference(
    rate: float, reference: float, least: float, faster: float
) -> None:
    slow = evaluate(least, rate, RAN.model_copy(update={"reference": reference}))
    fast = evaluate(least, rate * faster, RAN.model_copy(update={"reference": reference * faster}))
    # Unless the share is the bound itself, to the last digit.
    near = abs(rate / reference - least) < 1e-9 * least
    assert near or slow[0] is fast[0] is not None
