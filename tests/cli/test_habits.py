"""What people type who come from docker compose, kubectl and pytest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import emulator
from tests.conftest import Emulate, Finished

HELLO = """
name: hello
framework: none
image: none
program: {command: [sh, -c, "for n in 1 2 3; do echo $EMULATOR_TASK $n; done"]}
cluster: {worker: 3}
success: all-workers
"""


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_one_line(emulate: Emulate, option: str) -> None:
    done = emulate(option)
    assert (done.returncode, done.stdout) == (0, f"emulate {emulator.__version__}\n")


def test_versions_are_data_for_a_report_of_a_problem(emulate: Emulate) -> None:
    said = json.loads(emulate("version", "--json").stdout)
    assert said["emulate"] == emulator.__version__
    assert said["engines"]["process"]


def test_the_command_alone_shows_its_help_and_is_no_error(emulate: Emulate) -> None:
    done = emulate()
    assert done.returncode == 0
    assert done.stdout == emulate("--help").stdout


def test_the_name_of_a_bundled_scenario_is_corrected(emulate: Emulate, tmp_path: Path) -> None:
    done = emulate("plan", "quickstrat", cwd=tmp_path)
    assert done.returncode == 2
    assert "Did you mean 'quickstart'?" in done.stderr


class TestScenarioInThisFolder:
    def plan(self, emulate: Emulate, folder: Path, *arguments: str) -> Finished:
        return emulate("plan", "--engine", "process", *arguments, cwd=folder)

    def test_is_found_without_being_named(self, emulate: Emulate, tmp_path: Path) -> None:
        (tmp_path / "scenario.yaml").write_text(HELLO)
        assert "worker-1" in self.plan(emulate, tmp_path).stdout

    def test_of_another_name_is_given_by_f(self, emulate: Emulate, tmp_path: Path) -> None:
        (tmp_path / "other.yaml").write_text(HELLO)
        assert "worker-1" in self.plan(emulate, tmp_path, "-f", "other.yaml").stdout

    def test_is_asked_for_where_there_is_none(self, emulate: Emulate, tmp_path: Path) -> None:
        done = self.plan(emulate, tmp_path)
        assert done.returncode == 2
        assert "there is no scenario.yaml here" in done.stderr

    def test_is_not_given_twice(self, emulate: Emulate, tmp_path: Path) -> None:
        done = self.plan(emulate, tmp_path, "quickstart", "-f", "other.yaml")
        assert done.returncode == 2
        assert "Two scenarios were given" in done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished run."""
    folder = tmp_path_factory.mktemp("habits")
    path = folder / "hello.yaml"
    path.write_text(HELLO.replace("$EMULATOR_TASK", "${role}-${index}"))
    emulate = Emulate(folder / "runs")
    done = emulate.up(path, "--engine", "process", "--run-id", "hello-1")
    emulate.reap()
    assert done.returncode == 0, done.stderr
    return folder / "runs"


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ((), 9),
        (("last",), 9),
        (("hello-1",), 9),
        (("worker-1",), 3),
        (("worker-[01]",), 6),
        (("hello-1", "worker-[01]", "worker-2"), 9),
        (("-n", "1"), 3),
        (("--tail", "2", "worker-0"), 2),
        (("--tail", "0"), 0),
    ],
)
def test_logs_are_of_the_latest_run_and_of_any_tasks(
    emulate: Emulate, runs: Path, words: tuple[str, ...], lines: int
) -> None:
    done = emulate("logs", *words, "--out", runs)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == lines


@pytest.mark.parametrize("words", [("nobody",), ("last", "nobody"), ("worker-0", "nobody")])
def test_a_task_that_does_not_exist_is_named(
    emulate: Emulate, runs: Path, words: tuple[str, ...]
) -> None:
    done = emulate("logs", *words, "--out", runs)
    assert done.returncode == 2
    assert "has no task nobody. It has worker-0, worker-1, worker-2." in done.stderr


def test_tasks_are_completed(emulate: Emulate, runs: Path) -> None:
    completing = {
        "_EMULATE_COMPLETE": "complete_bash",
        "COMP_WORDS": f"emulate logs --out {runs} wor",
        "COMP_CWORD": "4",
    }
    assert emulate(env=completing).stdout.split() == ["worker-0", "worker-1", "worker-2"]


def test_check_and_down_take_the_latest_run(emulate: Emulate, runs: Path) -> None:
    assert emulate("check", "--out", runs).returncode == 0
    done = emulate("down", "--out", runs)
    assert (done.returncode, done.stderr) == (0, "emulate: nothing was left\n")
