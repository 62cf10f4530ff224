from __future__ import annotations

import math
from typing import Any

import pytest

from emulator.analysis.analyse import analyse
from emulator.analysis.expectations import judge
from emulator.analysis.values import histories
from emulator.scenario.schema import Expectations
from tests.histories import happened, step, timeline

RAN = [
    happened(0, "run"),
    step(1, "worker-0", 1, staleness=0, loss=2.5, note="warm-up"),
    step(1, "worker-1", 1, staleness=5),
    step(2, "worker-0", 2, staleness=1.5, loss=math.nan),
    step(3, "worker-1", 2, staleness=2, ready=True),
    happened(4, "job"),
]


def judged(**bounds: Any) -> dict[str, tuple[str, str, str]]:
    replayed = timeline(RAN)
    expect = Expectations.model_validate({"values": bounds})
    return {
        verdict.expectation: (verdict.status, verdict.expected, verdict.actual)
        for verdict in judge(expect, analyse(replayed), replayed)
        if verdict.expectation.startswith("values.")
    }


@pytest.mark.parametrize(
    ("bounds", "status", "actual"),
    [
        ({"min": 1.5}, "ok", "1.5"),
        ({"min": 1.6}, "failed", "1.5"),
        ({"max": 2}, "ok", "2"),
        ({"max": 1.9}, "failed", "2"),
    ],
)
def test_the_least_and_the_greatest_are_compared(
    bounds: dict[str, float], status: str, actual: str
) -> None:
    ((side, bound),) = bounds.items()
    expected = f"at {'least' if side == 'min' else 'most'} {bound}"
    assert judged(staleness=bounds) == {f"values.staleness.{side}": (status, expected, actual)}


def test_a_value_that_is_no_number_at_the_end_or_that_nobody_reported_is_unknown() -> None:
    status, _, actual = judged(loss={"max": 3})["values.loss.max"]
    assert (status, actual) == ("unknown", "the last value of worker-0 is no number")
    assert judged(speed={"min": 1})["values.speed.min"][0] == "unknown"


@pytest.mark.parametrize("bounds", [{}, {"min": 2, "max": 1}, {"min": math.inf}, {"least": 1}])
def test_limits_that_limit_nothing_are_refused(bounds: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"values\.staleness"):
        Expectations.model_validate({"values": {"staleness": bounds}})


def test_how_many_examples_a_step_had_is_no_value_of_the_model() -> None:
    ran = timeline([*RAN[:1], step(1, "worker-0", 1, examples=32, loss=2.5)])
    assert list(histories(ran)) == ["loss"]
