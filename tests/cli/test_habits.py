"""What people type who come from docker compose, kubectl and pytest."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import emulator
from emulator.cli import COMMANDS, app
from tests.conftest import Emulate, Finished

HELLO = """
name: hello
framework: none
image: none
program: {command: [sh, -c, "for n in 1 2 3; do echo $EMULATOR_TASK $n; done"]}
cluster: {worker: 3}
success: all-workers
"""


STAMPED = re.compile(
    r"(?P<task>worker-\d) \| (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (?P=task) \d"
)
SLEEPS = "program.command=[sh, -c, 'while :; do sleep 1; done']"


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


def test_logs_of_several_tasks_are_in_the_order_of_time_with_stamps(
    emulate: Emulate, runs: Path
) -> None:
    done = emulate("logs", "-t", "--out", runs)
    assert done.returncode == 0, done.stderr
    shown = [STAMPED.fullmatch(line) for line in done.stdout.splitlines()]
    assert sorted(line["task"] for line in shown if line) == [f"worker-{n // 3}" for n in range(9)]
    times = [line["time"] for line in shown if line]
    assert times == sorted(times)
    middle = times[4]
    after = emulate("logs", "--timestamps", "--since", middle, "--out", runs)
    begun = times.index(middle)
    assert after.stdout.splitlines() == done.stdout.splitlines()[begun:]


@pytest.mark.parametrize(
    ("since", "lines"), [("0", 0), ("2999-01-01", 0), ("1y", 9), ("2026-01-01T12:00:00Z", 9)]
)
def test_logs_begin_at_a_time(emulate: Emulate, runs: Path, since: str, lines: int) -> None:
    done = emulate("logs", "--since", since, "--out", runs)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == lines


def test_what_is_no_time_is_refused(emulate: Emulate, runs: Path) -> None:
    for command in ("logs", "runs"):
        done = emulate(command, "--since", "yesterday", "--out", runs)
        assert done.returncode == 2
        assert "--since: 'yesterday' is no time; write '10m'" in done.stderr


def test_a_record_without_times_says_so(emulate: Emulate, runs: Path, tmp_path: Path) -> None:
    old = shutil.copytree(runs, tmp_path / "old")
    for times in old.glob("*/logs/*.times"):
        times.unlink()
    assert len(emulate("logs", "--out", old).stdout.splitlines()) == 9
    for option in (("-t",), ("--since", "1h")):
        done = emulate("logs", *option, "--out", old)
        assert done.returncode == 2
        assert "does not say when its lines were printed. An older version wrote it" in done.stderr


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


def test_names_of_runs_are_for_other_commands(emulate: Emulate, runs: Path) -> None:
    assert emulate("runs", "-q", "--out", runs).stdout == "hello-1\n"
    assert emulate("ps", "-aq", "--out", runs).stdout == "hello-1\n"


def test_tables_in_a_pipe_have_no_blanks_at_the_end_and_names_are_whole(
    emulate: Emulate, runs: Path
) -> None:
    lines = emulate("runs", "--out", runs).stdout.splitlines()
    assert [line for line in lines if line.startswith(" hello-1 ")]
    assert lines == [line.rstrip() for line in lines]
    assert "scenario" not in lines[1]  # it is the beginning of the run's name


def test_tables_in_a_pipe_are_as_wide_as_columns_says(emulate: Emulate, runs: Path) -> None:
    narrow = emulate("runs", "--out", runs, env={"COLUMNS": "60"}).stdout.splitlines()
    assert max(map(len, narrow)) <= 60
    assert [line for line in narrow if line.startswith(" hello-1 ")]
    assert "took" not in narrow[1]
    assert "took" in emulate("runs", "--out", runs, env={"COLUMNS": ""}).stdout


def test_a_comparison_in_a_pipe_has_whole_heads_and_no_blanks_at_the_end(
    emulate: Emulate, runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs / "hello-1", tmp_path / "r1")  # a name that is shorter than `run`
    shutil.copytree(runs / "hello-1", tmp_path / "r2")
    lines = emulate("compare", tmp_path / "r1", tmp_path / "r2").stdout.splitlines()
    assert [line for line in lines if line.split()[:3] == ["run", "outcome", "verdict"]]
    assert lines == [line.rstrip() for line in lines]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("fault paus worker-0", "pause"),
        ("build cpuu", "cpu"),
        ("plan quickstart --engine dockr", "docker"),
        ("export quickstart --to tfjobs", "tfjob"),
        ("scenarios fault", "faults"),
    ],
)
def test_a_misspelt_name_is_corrected_and_the_others_are_listed(
    emulate: Emulate, words: str, meant: str
) -> None:
    done = emulate(*words.split())
    assert done.returncode == 2
    assert f"Did you mean '{meant}'?" in done.stderr
    assert f"{meant}, " in done.stderr


def test_a_plan_says_which_task_decides(emulate: Emulate, tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(HELLO)
    for sets, rule in (
        ((), "success: all-workers: when worker-0 .. worker-2 (3) finish\n"),
        (("--set", "success=auto"), "success: auto: when worker-0 finishes\n"),
    ):
        done = emulate("plan", "--engine", "process", *sets, cwd=tmp_path)
        assert rule in done.stdout


def test_quiet_is_the_result_alone(emulate: Emulate, tmp_path: Path) -> None:
    path = tmp_path / "hello.yaml"
    path.write_text(HELLO)
    done = emulate("up", path, "-q", "--engine", "process", "--out", emulate.out)
    assert (done.returncode, done.stderr) == (0, "")
    assert "hello: succeeded, verdict ok" in done.stdout
    both = emulate("up", path, "-q", "-v", "--engine", "process", "--out", emulate.out)
    assert both.returncode == 2
    assert "Both --quiet and --verbose were given." in both.stderr


# --- Help ---------------------------------------------------------------------------------------


def test_the_help_fits_one_screen(emulate: Emulate) -> None:
    lines = emulate("--help", env={"COLUMNS": "80"}).stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line.endswith("...") and "COMMAND" not in line]
    for name in COMMANDS:
        assert sum(name == word for line in lines for word in line.split()[:3]) >= 1, name


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_an_example_that_it_understands(name: str) -> None:
    """Parsed alone: what it names need not exist."""
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    words = shlex.split(COMMANDS[name].example.partition(" > ")[0].rpartition(" && ")[2])
    assert words[0] == "emulate"
    used = COMMANDS[words[1]] and words[1]
    group = typer.main.get_command(app)
    group.commands[used].make_context(used, words[2:])  # type: ignore[attr-defined]
    assert COMMANDS[name].example in command.epilog


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_plain_text(name: str) -> None:
    """No boxes, no names of Python types, no braces; each argument as one writes it."""
    done = CliRunner().invoke(app, [name, "--help"], prog_name="emulate", terminal_width=80)
    assert done.exit_code == 0
    assert not set("╭│{}<") & set(done.output.partition("Example:")[0])
    assert done.output.rstrip().endswith(f"Example: {COMMANDS[name].example}")
    assert max(map(len, done.output.splitlines())) <= 80


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("up", "[OPTIONS] [SCENARIO]"),
        ("preempt", "[OPTIONS] TASK"),
        ("fault", "[OPTIONS] KIND TASK..."),
        ("ps", "[OPTIONS] [RUN]"),
        ("logs", "[OPTIONS] [RUN] [TASK]..."),
        ("exec", "[OPTIONS] [RUN] TASK [-- COMMAND...]"),
        ("compare", "[OPTIONS] RUN RUN..."),
        ("init", "[OPTIONS] [FOLDER]"),
    ],
)
def test_a_usage_shows_what_may_be_left_out(name: str, usage: str) -> None:
    done = CliRunner().invoke(app, [name, "--help"], prog_name="emulate", terminal_width=80)
    assert done.output.splitlines()[0] == f"Usage: emulate {name} {usage}"


def test_the_options_of_a_preemption_say_what_they_mean() -> None:
    done = CliRunner().invoke(app, ["preempt", "--help"], terminal_width=80)
    assert "[default: the latest]" in " ".join(done.output.split())
    assert "--warm          Its replacement has imported its framework before" in done.output
    assert "(preempt)" not in done.output  # there is no other kind


# --- Completion ---------------------------------------------------------------------------------


def completed(emulate: Emulate, words: str, cwd: Path | None = None) -> list[str]:
    shell = {"_EMULATE_COMPLETE": "complete_bash", "COMP_WORDS": f"emulate {words}"}
    count = str(len(words.split(" ")))
    return emulate(env={**shell, "COMP_CWORD": count}, cwd=cwd).stdout.split()


def test_tasks_of_the_latest_run_are_completed_wherever_one_is_named(
    emulate: Emulate, runs: Path
) -> None:
    for command in ("preempt", "fault pause", "exec"):
        assert completed(emulate, f"{command} --out {runs} worker-") == [
            "worker-0",
            "worker-1",
            "worker-2",
        ]


def test_keys_of_a_scenario_are_completed(emulate: Emulate, tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(HELLO)
    assert completed(emulate, "up --set cluster.", tmp_path) == ["cluster.worker"]
    assert completed(emulate, "plan --set cluster.worker.me", tmp_path) == ["cluster.worker.memory"]
    assert "expect.final_step" in completed(emulate, "up --set expect.f", tmp_path)
    assert completed(emulate, "up --set framew", tmp_path) == ["framework"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("scenarios fau", ["faults"]),
        ("export --to tf", ["tfjob"]),
        ("runs --scenario quicks", ["quickstart"]),
        ("up --vary framew", ["framework"]),
        ("doctor quicks", ["quickstart"]),
    ],
)
def test_names_that_are_known_are_completed(
    emulate: Emulate, tmp_path: Path, words: str, found: list[str]
) -> None:
    assert completed(emulate, words, tmp_path) == found


def test_runs_of_another_folder_are_completed(emulate: Emulate, runs: Path) -> None:
    for command in ("ps", "report", "compare", "logs"):
        assert completed(emulate, f"{command} --out {runs} hel") == ["hello-1"]


def test_images_are_completed(emulate: Emulate, tmp_path: Path) -> None:
    assert completed(emulate, "build py", tmp_path) == ["pytorch"]


def test_faults_that_may_be_healed_are_completed(emulate: Emulate, tmp_path: Path) -> None:
    path = tmp_path / "hello.yaml"
    path.write_text(
        HELLO + "faults:\n- {name: spot, pause: worker-0, at: 1h, for: 1s}\n"
        "- {pause: worker-1, at: 1h, for: 1s}\n"
    )
    started = emulate.up(path, "--engine", "process", "-d", "--set", SLEEPS)
    assert started.returncode == 0, started.stderr
    assert completed(emulate, f"heal --out {emulate.out} ") == ["0", "1", "spot", "all"]
    assert emulate("down", "--out", emulate.out).returncode == 0
    assert completed(emulate, f"heal --out {emulate.out} ") == ["all"]


@pytest.mark.parametrize("command", ["check", "down", "wait", "report", "top"])
def test_a_run_is_an_argument_or_an_option(emulate: Emulate, runs: Path, command: str) -> None:
    assert emulate(command, "-r", "hello", "--out", runs).returncode == 0
    twice = emulate(command, "hello-1", "-r", "other", "--out", runs)
    assert twice.returncode == 2
    assert "Two runs were given: hello-1 and other." in twice.stderr
