"""Throughput as a share of a stored baseline, and of a reference that runs in the same session."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from emulator.planning.baseline import machine
from tests.pytest_plugin.conftest import Suite

PACED = """\
for n in 1 2 3 4 5 6; do echo '{"emulate": "step", "step": '$((n * STRIDE))'}'; sleep 0.1; done
"""
GATE = {"throughput": {"at_least": 0.5, "of": "baseline"}}


def paced(suite: Suite, **keys: object) -> None:
    program = {"command": ["sh", "-c", PACED], "env": {"STRIDE": "1"}}
    whole: dict[str, Any] = {"program": program, "expect": GATE, **keys}
    suite.scenario("paced", **whole)


def rewrite(path: Path, **changed: object) -> dict[str, Any]:
    """Change what is stored of the one scenario there is."""
    stored: dict[str, Any] = json.loads(path.read_text())
    stored["paced process"].update(changed)
    path.write_text(json.dumps(stored))
    return stored


def test_a_baseline_is_stored_and_later_runs_are_compared_with_it(suite: Suite) -> None:
    path = suite.path / "scenarios" / "baselines.json"
    update = ("scenarios", "--emulator-update-baseline", "--emulator-out", "measured")
    paced(suite, expect={**GATE, "final_step": 7})
    done = suite.run(*update[:2], failed=1)
    done.stdout.fnmatch_lines(["*not stored: another expectation is not met*"])
    assert not path.exists()
    paced(suite)
    done = suite.run("scenarios", failed=1)
    done.stdout.fnmatch_lines(["*throughput.at_least unknown*no baseline is stored*"])
    suite.run(*update, passed=1)
    stored = json.loads(path.read_text())
    assert stored["paced process"]["machine"] == machine()
    (summary,) = suite.path.glob("measured/*/summary.json")
    rate = json.loads(summary.read_text())["throughput"]["steps_per_second"]
    assert rate > 0
    assert stored["paced process"]["steps_per_second"] == pytest.approx(rate, rel=1e-3)

    # Held against other numbers, not against other times: whatever the machine is busy with.
    rewrite(path, steps_per_second=stored["paced process"]["steps_per_second"] / 1000)
    suite.run("scenarios", passed=1)
    stored_before = rewrite(path, steps_per_second=1e6)
    slower = suite.run("scenarios", failed=1)
    slower.stdout.fnmatch_lines(
        ["*throughput.at_least failed: expected *, got 0.*of the baseline*"]
    )
    assert json.loads(path.read_text()) == stored_before


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


def test_with_a_reference_the_share_is_what_is_stored(suite: Suite) -> None:
    """A machine that is slower today is slower for the reference as well."""
    paced(suite, reference={"program.env.STRIDE": "2"})
    suite.run("scenarios", "--emulator-update-baseline", passed=1)
    path = suite.path / "scenarios" / "baselines.json"
    stored = json.loads(path.read_text())
    share = stored["paced process"]["of_reference"]
    assert share > 0
    rewrite(path, of_reference=share / 1000, steps_per_second=1e9, machine="another")
    suite.run("scenarios", passed=1)
    rewrite(path, of_reference=1e3)
    suite.run("scenarios", failed=1)


def test_baselines_are_of_files_and_of_what_was_set(suite: Suite) -> None:
    """Two files with scenarios of one name, and one of them with something set for all tests."""
    paced(suite)
    first = suite.path / "scenarios" / "paced.yaml"
    first.with_name("other.yaml").write_bytes(first.read_bytes())
    update = "--emulator-update-baseline"
    suite.run("scenarios", update, passed=2)
    suite.run(
        *(first, update, "--emulator-image", "mine:1"),
        *("--emulator-set", "seed=3", "--emulator-set", "timeout=1m"),
        passed=1,
    )
    stored = json.loads(first.with_name("baselines.json").read_text())
    assert list(stored) == [
        "other process",
        "paced process",
        "paced[seed=3 timeout=1m] process",
    ]


def test_a_scenario_in_a_test_has_no_baseline(suite: Suite) -> None:
    paced(suite)
    text = """
        import json
        from pathlib import Path

        def test_it(emulator):
            emulator.run(json.loads(Path("scenarios/paced.yaml").read_text())).check()
        """
    suite.test(text, failed=1).stdout.fnmatch_lines(["*no baseline is stored*"])
    done = suite.test(text, "--emulator-update-baseline", failed=1)
    done.stdout.fnmatch_lines(["E *written in a test has no file to store its baseline beside*"])
