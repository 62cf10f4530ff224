"""Scenario files as tests: which are taken, what they are called, what they say when they fail."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tests.pytest_plugin.conftest import Write


def test_files_of_the_named_folder_and_files_that_are_named_are_tests(
    pytester: pytest.Pytester, scenario: Write
) -> None:
    scenario("one")
    other = pytester.path / "elsewhere" / "two.yaml"
    other.parent.mkdir()
    scenario("two").rename(other)
    (other.parent / "compose.yaml").write_text("services: {}\n")
    done = pytester.runpytest_inprocess("--collect-only", "-q")
    done.stdout.fnmatch_lines(["scenarios/one.yaml::one", "1 test collected*"])
    done = pytester.runpytest_inprocess("--collect-only", "-q", "elsewhere/two.yaml")
    done.stdout.fnmatch_lines(["elsewhere/two.yaml::two", "1 test collected*"])


def test_each_variant_is_a_test(pytester: pytest.Pytester, scenario: Write) -> None:
    scenario("one", parametrize={"seed": [1, 2], "restart.policy": ["never", "always"]})
    done = pytester.runpytest_inprocess("--collect-only", "-q", "--vary", "seed=3")
    done.stdout.fnmatch_lines(
        [
            "scenarios/one.yaml::one?restart.policy=never seed=3?",
            "scenarios/one.yaml::one?restart.policy=always seed=3?",
            "2 tests collected*",
        ]
    )
    assert pytester.runpytest_inprocess("--collect-only", "-q").stdout.lines[-1].startswith("4 ")


def test_marks_of_a_scenario_choose_and_excuse_it(
    pytester: pytest.Pytester, scenario: Write
) -> None:
    pytester.makeini("[pytest]\nemulator_scenarios = scenarios\nmarkers = slow\n")
    scenario("slow", marks=["slow"])
    scenario("fails", expect={"final_step": 6}, marks=[{"xfail": "five steps are all"}])
    scenario("skipped", marks=[{"skip": "not now"}])
    done = pytester.runpytest_subprocess("-rsx", "-m", "not slow", "scenarios")
    done.assert_outcomes(xfailed=1, skipped=1, deselected=1)
    done.stdout.fnmatch_lines(["*not now", "XFAIL*five steps are all"])


def test_every_mistake_of_a_file_is_reported_at_collection(
    pytester: pytest.Pytester, scenario: Write
) -> None:
    scenario("bad", cluster={"worker": 0}, expect={"final": 3}, parametrize={"sed": [1]})
    done = pytester.runpytest_subprocess("scenarios")
    done.assert_outcomes(errors=1)
    text = done.stdout.str()
    assert "expect.final: unknown key (did you mean 'final_step'?)" in text
    assert "cluster.worker" in text
    assert "Traceback" not in text


def test_a_mark_that_is_unknown_is_an_error(pytester: pytest.Pytester, scenario: Write) -> None:
    scenario("one", marks=["slwo"])
    done = pytester.runpytest_subprocess("--strict-markers", "scenarios")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*'slwo' not found in `markers`*"])


DIES = """\
echo '{"emulate": "step", "step": 1}'
echo 'RuntimeError: the disk is on fire' >&2
exit 7
"""


def test_a_failure_is_verdicts_history_and_last_words_and_no_traceback(
    pytester: pytest.Pytester, scenario: Write
) -> None:
    scenario("dies", shell=DIES, expect={"final_step": 5})
    done = pytester.runpytest_subprocess("scenarios", "--emulator-out", "kept")
    done.assert_outcomes(failed=1)
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
            "again *emulate up *scenarios/dies.yaml --engine=process",
            "*emulated runs*",
            "failed *scenarios/dies.yaml::dies*",
            "*file://*/kept/dies-*/report.html",
            "FAILED scenarios/dies.yaml::dies - *outcome failed*",
        ]
    )
    for not_ours in ("Traceback", "All traceback", "During handling", "plugin.py", "harness.py"):
        assert not_ours not in done.stdout.str()
    assert len(list(pytester.path.glob("kept/dies-*/report.html"))) == 1


def test_what_could_not_be_run_is_an_error_in_a_sentence(
    pytester: pytest.Pytester, scenario: Write
) -> None:
    scenario("missing", program={"command": ["no-such-program"]})
    done = pytester.runpytest_subprocess("scenarios")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*worker-0 can't run 'no-such-program'*"])
    for not_ours in ("Traceback", "All traceback", "During handling", "plugin.py", "harness.py"):
        assert not_ours not in done.stdout.str()


def test_junit_has_the_numbers_and_the_reports(pytester: pytest.Pytester, scenario: Write) -> None:
    scenario("quick", shell=STEPS_WITH_PAUSES)
    done = pytester.runpytest_subprocess("scenarios", "--junitxml", "out.xml", "-q")
    done.assert_outcomes(passed=1)
    case = ET.parse(pytester.path / "out.xml").getroot().find(".//testcase")
    assert case is not None
    found = {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
    assert float(found["steps_per_second"]) > 0
    assert 0 < float(found["goodput"]) <= 1
    assert (found["verdict"], found["lost_steps"]) == ("ok", "0")
    assert found["report"].startswith("file://")
    assert found["run"].startswith("quick-")


STEPS_WITH_PAUSES = """\
for n in 1 2 3 4 5; do echo '{"emulate": "step", "step": '$n'}'; sleep 0.02; done
"""


def test_overrides_hold_for_every_scenario(pytester: pytest.Pytester, scenario: Write) -> None:
    scenario("one")
    done = pytester.runpytest_subprocess("scenarios", "--emulator-set", "expect.final_step=6")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*final_step failed: expected at least 6, got 5*"])
