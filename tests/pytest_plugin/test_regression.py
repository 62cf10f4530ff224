"""Throughput as a share of that of a reference, which runs in the same session."""

from __future__ import annotations

import re
from typing import Any

from tests.pytest_plugin.conftest import Suite

PACED = """\
for n in 1 2 3 4 5 6; do echo '{"emulate": "step", "step": '$((n * STRIDE))'}'; sleep 0.1; done
"""


def paced(suite: Suite, **keys: object) -> None:
    program = {"command": ["sh", "-c", PACED], "env": {"STRIDE": "1"}}
    whole: dict[str, Any] = {"program": program, **keys}
    suite.scenario("paced", **whole)


def test_a_reference_runs_in_the_same_session(suite: Suite) -> None:
    """A thousand times more steps in the same time, and a thousand times fewer."""
    paced(
        suite,
        reference={"program.env.STRIDE": "1000"},
        parametrize={"program.env.STRIDE": ["1000000", "1"]},
        expect={"throughput": {"at_least": 1.0, "of": "reference"}},
    )
    done = suite.run("scenarios", passed=1, failed=1)
    done.stdout.fnmatch_lines(["*throughput.at_least failed: expected *of the reference*"])
    done.stdout.fnmatch_lines(["FAILED scenarios/paced.yaml::paced?program.env.STRIDE='1'?*"])
    assert len(re.findall("(?m)^ok .*paced", done.stdout.str())) == 3  # with both references
    assert len(list(suite.runs.glob("*/plan.json"))) == 4


def test_the_gate_itself_can_be_set(suite: Suite) -> None:
    """Which is none of its reference's business."""
    paced(
        suite,
        reference={"program.env.STRIDE": "2"},
        parametrize={"expect.throughput.at_least": [0.001, 100]},
        expect={"throughput": {"at_least": 0.5, "of": "reference"}},
    )
    suite.run("scenarios", passed=1, failed=1)


def test_of_a_reference_that_fails_it_is_reported(suite: Suite) -> None:
    paced(
        suite,
        reference={"program.command": ["sh", "-c", "exit 7"]},
        expect={"throughput": {"at_least": 0.5, "of": "reference"}},
    )
    suite.run("scenarios", failed=1).stdout.fnmatch_lines(
        ["*throughput.at_least unknown*got the reference (paced-*) gave no rate: failed: *code 7*"]
    )
