"""Settings of a session: folders, engines and values, and the errors in them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from emulator.engines import names
from emulator.errors import UsageError
from emulator.pytest_plugin.plugin import pytest_addoption
from emulator.pytest_plugin.settings import Settings
from tests.pytest_plugin.conftest import Suite


def settings(*options: str) -> Settings:
    """Read the settings of a session with these options and an empty ini file."""
    parser = pytest.Parser(_ispytest=True)
    pytest_addoption(parser)
    given = vars(parser.parse(list(options)))
    return Settings.from_config(
        cast("pytest.Config", SimpleNamespace(getoption=given.get, getini=lambda key: ""))
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--emulator-cpus=nan"], "--emulator-cpus nan: that is nothing to share."),
        (["--emulator-cpus=0"], "--emulator-cpus 0: that is nothing to share."),
        (["--emulator-cpus=inf"], "--emulator-cpus inf: that is nothing to share."),
        (["--emulator-memory=0b"], "--emulator-memory 0b: that is nothing to share."),
        (["--emulator-memory=x"], "--emulator-memory: "),
        (["--vary", "seed"], "--vary seed is not KEY=VALUE,VALUE"),
        (["--vary", "seed=1,1"], "--vary seed=1,1 has 1 twice"),
        (["--vary", "a=1", "--emulator-set", "a=2"], "a is also given a value"),
        (["--emulator-set", "seed"], "--emulator-set seed is not KEY=VALUE"),
        (["--emulator-engine", "dokker"], "--emulator-engine dokker: there is no such engine."),
        (
            ["--emulator-require", "gpu,dokker"],
            "--emulator-require dokker: there is no such thing. "
            f"It takes {', '.join(names())}, gpu, network.",
        ),
    ],
)
def test_values_that_can_not_be_are_refused(options: list[str], says: str) -> None:
    with pytest.raises(UsageError) as refused:
        settings(*options)
    assert says in str(refused.value)


def test_an_engine_of_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMULATOR_ENGINE", "dokker")
    with pytest.raises(UsageError, match=r"EMULATOR_ENGINE dokker: .*\n?.*process"):
        settings()


@pytest.mark.parametrize("folders", ["../scenarios", "../tests/../scenarios"])
def test_a_folder_of_scenarios_may_lie_beside_that_of_the_ini_file(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, folders: str
) -> None:
    suite.scenario("quick")
    tests = suite.pytester.mkdir("tests")
    monkeypatch.chdir(tests)
    (tests / "pytest.ini").write_text(
        f"[pytest]\ntestpaths = ../scenarios\nemulator_scenarios = {folders}\n"
    )
    for arguments in (["../scenarios"], []):
        suite.run("-c", "pytest.ini", *arguments, passed=1)


@pytest.mark.parametrize(
    ("options", "ini", "why"),
    [
        (["--vary", "seed"], "scenarios = scenarios", "--vary seed is not KEY=VALUE,VALUE*"),
        ([], "engine = dokker", "emulator_engine dokker: *process*"),
        ([], "scenarios = scenarois", "emulator_scenarios: there is no folder *scenarois*"),
    ],
)
@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "xdist"])
def test_what_the_whole_session_is_reported_wrongly_is_reported_once(
    suite: Suite, options: list[str], ini: str, why: str, workers: list[str]
) -> None:
    """Also where no scenario is collected."""
    suite.pytester.makeini(f"[pytest]\nemulator_{ini}\n")
    suite.scenario("one")
    suite.scenario("two")
    tests = suite.pytester.makepyfile("def test_it():\n    pass\n")
    for chosen in ("scenarios", tests):
        done = suite.run(chosen, *options, *workers)
        assert done.ret == pytest.ExitCode.USAGE_ERROR
        errors = [line for line in done.stderr.lines if line.strip()]
        assert len(errors) == 1, errors
        done.stderr.fnmatch_lines([f"ERROR: {why}"])
