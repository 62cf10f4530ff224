"""Scenario files as tests: which are taken, what they are called, what they say when they fail."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from tests.pytest_plugin.conftest import Suite
from tests.session.conftest import STEPS


def test_files_of_the_named_folder_and_files_that_are_named_are_tests(suite: Suite) -> None:
    suite.scenario("one")
    other = suite.path / "elsewhere" / "two.yaml"
    other.parent.mkdir()
    suite.scenario("two").rename(other)
    (other.parent / "compose.yaml").write_text("services: {}\n")
    done = suite.run("--collect-only", "-q")
    done.stdout.fnmatch_lines(["scenarios/one.yaml::one", "1 test collected*"])
    done = suite.run("--collect-only", "-q", "elsewhere/two.yaml")
    done.stdout.fnmatch_lines(["elsewhere/two.yaml::two", "1 test collected*"])


def test_each_variant_is_a_test(suite: Suite) -> None:
    suite.scenario("one", parametrize={"seed": [1, 2], "restart.policy": ["never", "always"]})
    suite.run("--collect-only", "-q", "--vary", "seed=3").stdout.fnmatch_lines(
        [
            "scenarios/one.yaml::one?restart.policy=never seed=3?",
            "scenarios/one.yaml::one?restart.policy=always seed=3?",
            "2 tests collected*",
        ]
    )
    assert suite.run("--collect-only", "-q").stdout.lines[-1].startswith("4 ")


def test_marks_of_a_scenario_choose_and_excuse_it(suite: Suite) -> None:
    suite.pytester.makeini("[pytest]\nemulator_scenarios = scenarios\nmarkers = slow\n")
    suite.scenario("slow", marks=["slow"])
    suite.scenario("fails", expect={"final_step": 6}, marks=[{"xfail": "five steps are all"}])
    suite.scenario("skipped", marks=[{"skip": "not now"}])
    done = suite.run("-rsx", "-m", "not slow", "scenarios", xfailed=1, skipped=1, deselected=1)
    done.stdout.fnmatch_lines(["*not now", "XFAIL*five steps are all"])


def test_every_mistake_of_a_file_is_reported_at_collection(suite: Suite) -> None:
    suite.scenario("bad", cluster={"worker": 0}, expect={"final": 3}, parametrize={"sed": [1]})
    suite.scenario("one", marks=["slwo"])
    text = suite.run("--strict-markers", "scenarios", errors=2).stdout.str()
    assert "expect.final: unknown key (did you mean 'final_step'?)" in text
    assert "cluster.worker" in text
    assert "'slwo' not found in `markers`" in text
    assert "Traceback" not in text


NOT_OURS = ("Traceback", "All traceback", "During handling", "plugin.py", "harness.py")
DIES = """\
echo '{"emulate": "step", "step": 1}'
echo 'RuntimeError: the disk is on fire' >&2
exit 7
"""


def test_a_failure_is_verdicts_history_and_last_words_and_no_traceback(suite: Suite) -> None:
    suite.scenario("dies", script=DIES)
    of_all = ("--emulator-set", "expect.final_step=5")
    done = suite.run("scenarios", "--emulator-out", "kept", *of_all, failed=1)
    done.stdout.fnmatch_lines(
        [
            "*outcome failed: expected succeeded, got failed: worker-0*",
            " expectation *verdict *expected *actual*",
            "* outcome *failed *succeeded *failed: worker-0*",
            "* final_step *failed *at least 5 *1*",
            "what happened:",
            "*worker-0 ended with exit code 7",
            "*job failed: worker-0*",
            "the last output of worker-0:",
            "*RuntimeError: the disk is on fire",
            "run *kept/dies-*",
            "report *file://*/kept/dies-*/report.html",
            "again *emulate up *scenarios/dies.yaml --engine=process --set=expect.final_step=5",
            "*emulated runs*",
            "failed *scenarios/dies.yaml::dies*",
            "*file://*/kept/dies-*/report.html",
            "FAILED scenarios/dies.yaml::dies - *outcome failed*",
        ]
    )
    assert not any(word in done.stdout.str() for word in NOT_OURS)
    assert len(list(suite.path.glob("kept/dies-*/report.html"))) == 1


def test_junit_has_the_numbers_and_the_reports(suite: Suite) -> None:
    suite.scenario("quick", script=STEPS.replace("; done", "; sleep 0.02; done"))
    suite.run("scenarios", "--junitxml", "out.xml", "-q", passed=1)
    case = ET.parse(suite.path / "out.xml").getroot().find(".//testcase")
    assert case is not None
    found = {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
    assert float(found["steps_per_second"]) > 0
    assert 0 < float(found["goodput"]) <= 1
    assert (found["verdict"], found["lost_steps"]) == ("ok", "0")
    assert found["report"].startswith("file://")
    assert found["run"].startswith("quick-")
