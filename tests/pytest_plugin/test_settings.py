"""Settings of a session: folders, engines and values, and the errors in them."""

from __future__ import annotations

import pytest

from tests.pytest_plugin.conftest import Write


@pytest.mark.parametrize(
    "options", [["--emulator-cpus=nan"], ["--emulator-cpus=0"], ["--emulator-memory=0b"]]
)
def test_nothing_to_share_is_refused(
    pytester: pytest.Pytester, scenario: Write, options: list[str]
) -> None:
    scenario("quick", reserve={"cpus": 1})
    done = pytester.runpytest_subprocess("scenarios", *options)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*that is nothing to share*"])


def test_a_folder_of_scenarios_that_is_not_there_is_a_mistake(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nemulator_scenarios = scenarois\n")
    done = pytester.runpytest_subprocess()
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*emulator_scenarios: there is no folder *scenarois*"])


@pytest.mark.parametrize("folders", ["../scenarios", "../tests/../scenarios"])
def test_a_folder_of_scenarios_may_lie_beside_that_of_the_ini_file(
    pytester: pytest.Pytester, scenario: Write, monkeypatch: pytest.MonkeyPatch, folders: str
) -> None:
    scenario("quick")
    tests = pytester.mkdir("tests")
    monkeypatch.chdir(tests)
    (tests / "pytest.ini").write_text(
        f"[pytest]\ntestpaths = ../scenarios\nemulator_scenarios = {folders}\n"
    )
    for arguments in (["../scenarios"], []):
        pytester.runpytest_subprocess("-c", "pytest.ini", *arguments).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("options", "ini", "environment", "why"),
    [
        (["--vary", "seed"], "", {}, "--vary seed is not KEY=VALUE,VALUE*"),
        (["--vary", "seed=1,1"], "", {}, "--vary seed=1,1 has 1 twice*"),
        (["--vary", "a=1", "--emulator-set", "a=2"], "", {}, "*a is also given a value*"),
        (["--emulator-set", "seed"], "", {}, "--emulator-set seed is not KEY=VALUE*"),
        (["--emulator-engine", "dokker"], "", {}, "--emulator-engine dokker: *process*"),
        ([], "emulator_engine = dokker", {}, "emulator_engine dokker: *process*"),
        ([], "", {"EMULATOR_ENGINE": "dokker"}, "EMULATOR_ENGINE dokker: *process*"),
    ],
)
@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "xdist"])
def test_what_the_whole_session_is_reported_wrongly_is_reported_once(
    pytester: pytest.Pytester,
    scenario: Write,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    ini: str,
    environment: dict[str, str],
    why: str,
    workers: list[str],
) -> None:
    """Also where no scenario is collected."""
    pytester.makeini(f"[pytest]\nemulator_scenarios = scenarios\n{ini}\n")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    scenario("one")
    scenario("two")
    tests = pytester.makepyfile("def test_it():\n    pass\n")
    for chosen in ("scenarios", tests):
        done = pytester.runpytest_subprocess(chosen, *options, *workers)
        assert done.ret == pytest.ExitCode.USAGE_ERROR
        errors = [line for line in done.stderr.lines if line.strip()]
        assert len(errors) == 1, errors
        done.stderr.fnmatch_lines([f"ERROR: {why}"])
