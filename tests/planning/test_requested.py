"""What is to run, as it was asked for, and what its rate is compared with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emulator.engines.memory import Script
from emulator.errors import ScenarioError
from emulator.planning.plan import ThroughputReference
from emulator.planning.requested import RequestedScenario
from emulator.record.reader import Record
from emulator.results import judge
from emulator.scenario.given import Given
from tests.report.runs import ran, step_line

TEXT = "name: b\nframework: none\nprogram: {command: [a]}\ncluster: {worker: 1}\n"
REFERENCE = "expect: {throughput: {at_least: 0.9, of: reference}}\nreference: {seed: 1}\n"


@pytest.mark.parametrize(
    ("rate", "status", "exit_code"), [(11.0, "ok", 0), (12.0, "failed", 1), (None, "unknown", 3)]
)
def test_a_run_is_compared_with_its_reference_and_judged_again_from_its_folder_alone(
    tmp_path: Path, rate: float | None, status: str, exit_code: int
) -> None:
    """A job of 10 steps a second on a manual clock."""
    script = Script([(n / 10, step_line(n)) for n in range(1, 51)], exits_at=6)
    reference = rate and ThroughputReference(reference=rate, reference_run="r")
    result = ran(tmp_path / "runs", TEXT + REFERENCE, {"*": script}, reference=reference)
    (verdict,) = (v for v in result.verdicts if v.expectation == "throughput.at_least")
    assert (verdict.status, verdict.expected) == (status, "at least 0.9 of the reference")
    assert result.exit_code == exit_code
    record = Record(result.folder)
    assert record.plan.reference == reference
    assert judge(record).verdicts == result.verdicts


def test_an_override_that_is_wrong_is_named_by_where_it_was_given() -> None:
    text = Given(Path("s.yaml"), TEXT)
    for options, called in (
        ({"image": ("image={}",)}, "--emulator-image"),
        ({"sets": ("seed=x",)}, "--emulator-set seed=x"),
        ({"chosen": ("seed=x",)}, "--set seed=x"),
        ({"chosen": ("seed=x",), "by_call": True}, 'set["seed"]'),
    ):
        with pytest.raises(ScenarioError, match=f"^{re.escape(called)}: "):
            _ = RequestedScenario(text, None, **options).scenario
    assert RequestedScenario(text, None).command("docker") == ""
