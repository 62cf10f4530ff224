"""What people type who come from docker compose, kubectl and pytest."""

from __future__ import annotations

import re
import shlex
import shutil
import time
from pathlib import Path

import pytest
import typer

import emulator
from emulator.cli import COMMANDS, app
from emulator.cli.words import OURS, REMOVED, command_for
from emulator.engines.memory import MemoryEngine, Script
from emulator.planning.requested import RunOptions
from emulator.runtime import plugins
from emulator.runtime.clock import ManualClock
from emulator.session.run import up
from tests.asked import asked
from tests.cli.typed import NO_DOCKER, completed, refusal, typed, write
from tests.conftest import Emulate, going_on

HELLO = """
name: hello
framework: none
image: none
program: {command: [sh, -c, "for n in 1 2 3; do echo $EMULATOR_TASK $n; done"]}
cluster: {worker: 3}
success: all-workers
"""
VARY = "up quickstart --engine process --vary"
NAMED = r"(worker-\d) \| \1 \d"
STAMPED = re.compile(
    r"(?P<task>worker-\d) \| (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (?P=task) \d"
)


def test_the_version_is_one_line_and_data_for_a_report_of_a_problem() -> None:
    for option in ("--version", "-V"):
        done = typed(option)
        assert (done.returncode, done.stdout) == (0, f"emulate {emulator.__version__}\n")
    said = typed("version", "--json").json
    assert said["emulate"] == emulator.__version__
    assert said["engines"]["process"]


def test_the_command_alone_shows_its_help_and_is_no_error() -> None:
    assert typed().ended().stdout == typed("--help").stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("up quickstart --seed abc", "'--seed': 'abc' is not a whole number."),
        ("runs --limit 0", "'--limit' / '-n': '0' should be greater than or equal to 1."),
        ("runs --verdict good", "'--verdict': 'good' is not one of 'ok', 'failed', 'unknown'."),
    ],
)
def test_an_option_that_is_wrong_is_refused_in_plain_words(words: str, sentence: str) -> None:
    assert typed(*words.split()).ended(2).stderr.endswith(f"Error: Invalid value for {sentence}\n")


def test_words_of_docker_and_kubectl_lead_to_commands_that_there_are() -> None:
    expected = {"ls": "runs", "list": "runs", "status": "ps", "restart": "fault restart"}
    expected |= {"stop": "down", "kill": "fault kill", "pause": "fault pause", "nothing": ""}
    assert {word: command_for(word, COMMANDS) for word in expected} == expected
    assert {ours.split()[0] for ours in OURS.values()} <= {*COMMANDS}
    assert {command_for(word, COMMANDS) for word in COMMANDS} == {""}


MANIFESTS = "a scenario, or a manifest, runs on Kubernetes as it is (`emulate up FILE --engine "


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("export quickstart --to kubernetes", f"--to of `emulate export` was removed: {MANIFESTS}"),
        ("export quickstart -o x.yaml --to=x", f"-o of `emulate export` was removed: {MANIFESTS}"),
        ("plan job.yaml --with x", "--with of `emulate plan` was removed: put all documents of a"),
        ("init mine --from torchrun", "--from of `emulate init` was removed: `emulate init FOLDER"),
        ("ui", "`emulate ui` was removed: a run under way is shown by `emulate top`, one that is"),
    ],
)
def test_what_was_removed_is_refused_with_what_to_do_instead(words: str, sentence: str) -> None:
    assert refusal(*words.split()).startswith(sentence)


def test_no_option_that_there_is_counts_as_removed() -> None:
    for name, option in REMOVED:
        command = typer.main.get_command(app).get_command(None, name)  # type: ignore[attr-defined]
        assert option or command is None
        assert command is None or option not in [opt for one in command.params for opt in one.opts]


def test_help_is_a_command_too() -> None:
    assert typed("help").ended().stdout == typed("--help").stdout
    assert typed("help", "up").ended().stdout == typed("up", "--help").stdout
    assert "No such command 'uup'. Did you mean 'up'?" in typed("help", "uup").stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("up no-such.yaml", "Can't read no-such.yaml: No such file"),
        (f"{VARY} restart.policy=never,sometimes", "=sometimes: --vary restart.policy=sometimes: "),
        (f"{VARY} cluster.worker.memory=null,1g", "cluster.worker.memory=1g: The process engine"),
        ("plan quickstrat", "Did you mean 'quickstart'? `emulate scenarios` lists them."),
        ("plan", "No scenario was given, and there is no scenario.yaml here. "),
        ("plan quickstart -f other.yaml", "Two scenarios were given. "),
        ("plan quickstart --engine dockr", "Did you mean 'docker'? Engines: auto, docker, "),
        ("up quickstart -q -v", "Both --quiet and --verbose were given."),
        ("fault paus worker-0", "Did you mean 'pause'? Faults: preempt, kill, terminate, "),
        ("build cpuu", "Did you mean 'cpu'? Images: cpu, gpu, pytorch, "),
        *(
            (f"{command} https://a.b/x.yaml", "https://a.b/x.yaml is an address; a scenario is a ")
            for command in ("plan", "up -f", "doctor")
        ),
        (
            "plan train.py",
            "train.py is a program, not a scenario. `emulate init` writes a scenario",
        ),
        ("exec worker-0 --out X", "--out is behind the task: it would be the command."),
        ("stop", "There is no command stop. Use `emulate down`."),
        ("run quickstart", "There is no command run. Use `emulate up`."),
        ("kill worker-0", "There is no command kill. Use `emulate fault kill`."),
        ("suspend", "There is no command suspend. Use `emulate fault pause '*'`."),
        ("resume", "There is no command resume. Use `emulate heal`."),
        ("scenarios fault", "There is no theme fault. Did you mean 'faults'? Themes: "),
        ("logs --since yesterday --out {runs}", "--since: 'yesterday' is no time; write '10m'"),
        ("runs --since 2", "--since: '2' is no time; write '10m' for "),
        ("logs nobody --out {runs}", "has no task nobody. It has worker-0, worker-1, worker-2."),
        ("logs last nobody --out {runs}", "has no task nobody. It has worker-0, worker-1, "),
        ("logs worker-0 nobody --out {runs}", "has no task nobody. It has worker-0, worker-1, "),
        ("logs hello-1 ps-0 --out {runs}", "has no task ps-0. It has worker-0, worker-1, "),
        ("logs -f last nobody --out {runs}", "has no task nobody. It has worker-0, worker-1, "),
        *(
            (f"{command} other --out {{runs}}", "other is no run in ")
            for command in ("check", "ps", "wait", "attach", "compare hello-1")
        ),
        ("compare hello-1 --out {runs}", "A comparison takes two runs or more."),
        ("exec --out {runs} worker-0 -- true", "worker-0 of hello-1 is not running. `emulate ps"),
        ("exec -r a b worker-0 -- ls", "Two runs were given: a and b."),
        ("exec worker-0 -- ls", "There is no run in runs."),
        *(
            (f"{command} --out none", "There is no run in none.")
            for command in ("preempt worker-0", "heal", "wait", "attach", "logs -f last", "top")
        ),
    ],
)
def test_what_can_not_be_is_one_sentence_with_what_to_write(
    runs: Path, tmp_path: Path, words: str, sentence: str
) -> None:
    assert sentence in refusal(*words.format(runs=runs).split(), cwd=tmp_path)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("name", "words"), [("scenario.yaml", ()), ("other.yaml", ("-f", "other.yaml"))]
)
def test_a_scenario_in_this_folder_is_found_or_named_and_its_plan_says_which_task_decides(
    tmp_path: Path, name: str, words: tuple[str, ...]
) -> None:
    (tmp_path / name).write_text(HELLO)
    for sets, rule in (
        ((), "success: all-workers: when worker-0 .. worker-2 (3) finish\n"),
        (("--set", "success=auto"), "success: auto: when worker-0 finishes\n"),
    ):
        done = typed("plan", "--engine", "process", *words, *sets, cwd=tmp_path)
        assert rule in done.stdout


def a_run(out: Path, text: str = HELLO) -> Path:
    """Return the folder of a run, of processes as it says, that ended a minute ago."""
    clock = ManualClock(wall=time.time() - 120)
    scripts = {
        f"worker-{task}": Script(
            [(n + task / 10, f"worker-{task} {n}") for n in (1, 2, 3)], exits_at=4
        )
        for task in range(3)
    }
    engine = MemoryEngine(clock, scripts)
    engine.name = "process"
    return up(asked(text), engine, RunOptions(out=out, run_id="hello-1"), clock=clock).folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished run."""
    return a_run(tmp_path_factory.mktemp("habits") / "runs").parent


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("", 9),
        ("last", 9),
        ("hello-1", 9),
        ("worker-1", 3),
        ("worker-[01]", 6),
        ("hello-1 worker-[01] worker-2", 9),
        ("-n 1", 3),
        ("--tail 2 worker-0", 2),
        ("--tail 0", 0),
        ("--since 0", 0),
        ("--since 2999-01-01", 0),
        ("--since 1y", 9),
        ("--since 2026-01-01T12:00:00Z", 9),
    ],
)
def test_logs_are_of_the_latest_run_and_of_any_tasks_and_begin_at_a_time(
    runs: Path, words: str, lines: int
) -> None:
    shown = typed("logs", *words.split(), "--out", runs).ended().stdout.splitlines()
    assert len(shown) == lines
    of_one = words in ("worker-1", "--tail 2 worker-0")  # else each line has its task's name
    assert all(re.fullmatch(r"worker-\d \d" if of_one else NAMED, line) for line in shown)


def test_logs_of_several_tasks_are_in_the_order_of_time_with_stamps(runs: Path) -> None:
    done = typed("logs", "-t", "--out", runs).ended()
    shown = [STAMPED.fullmatch(line) for line in done.stdout.splitlines()]
    assert [line["task"] for line in shown if line] == [f"worker-{n % 3}" for n in range(9)]
    times = [line["time"] for line in shown if line]
    assert times == sorted(times)
    after = typed("logs", "--timestamps", "--since", times[4], "--out", runs)
    assert after.stdout.splitlines() == done.stdout.splitlines()[4:]


def test_check_and_down_take_the_latest_run_and_runs_are_listed_by_name(runs: Path) -> None:
    typed("check", "--out", runs).ended()
    assert typed("down", "--out", runs).ended().stderr == "emulate: nothing was left\n"
    # Names of runs alone are for other commands.
    assert typed("runs", "-q", "--out", runs).stdout == "hello-1\n"
    assert typed("ps", "-aq", "--out", runs, env=NO_DOCKER).stdout == "hello-1\n"


def test_tables_in_a_pipe_end_without_blanks_and_are_as_wide_as_columns_says(runs: Path) -> None:
    lines = typed("runs", "--out", runs).stdout.splitlines()
    assert [line for line in lines if line.startswith(" hello-1 ")]
    assert lines == [line.rstrip() for line in lines]
    assert "scenario" not in lines[1]  # it is the beginning of the run's name
    narrow = typed("runs", "--out", runs, env={"COLUMNS": "60"}).stdout.splitlines()
    assert max(map(len, narrow)) <= 60
    assert [line for line in narrow if line.startswith(" hello-1 ")]
    assert "took" in narrow[1]
    assert "took" in typed("runs", "--out", runs, env={"COLUMNS": ""}).stdout


def test_comparisons_in_a_pipe_have_whole_heads_and_no_blanks(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "hello-1", tmp_path / "r1")  # a name that is shorter than `run`
    shutil.copytree(runs / "hello-1", tmp_path / "r2")
    lines = typed("compare", tmp_path / "r1", tmp_path / "r2").stdout.splitlines()
    assert [line for line in lines if line.split()[:3] == ["run", "outcome", "verdict"]]
    assert lines == [line.rstrip() for line in lines]


def test_quiet_is_the_result_alone(emulate: Emulate, tmp_path: Path) -> None:
    path = write(tmp_path, "echo hello", name="hello")
    done = emulate("up", path, "-q", "--engine", "process", "--out", emulate.out)
    assert (done.returncode, done.stderr) == (0, "")
    assert "hello: succeeded, verdict ok" in done.stdout


@pytest.mark.parametrize("command", ["check", "down", "wait", "report", "top"])
def test_a_run_is_an_argument_or_an_option(runs: Path, command: str) -> None:
    typed(command, "-r", "hello", "--out", runs).ended()
    twice = refusal(command, "hello-1", "-r", "other", "--out", runs)
    assert "Two runs were given: hello-1 and other." in twice


# --- Help ---------------------------------------------------------------------------------------


def test_the_help_fits_one_screen() -> None:
    lines = typed("--help", env={"COLUMNS": "80"}).stdout.splitlines()
    assert len(lines) <= 42
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line.endswith("...") and "COMMAND" not in line]
    for name in COMMANDS:
        assert sum(name == word for line in lines for word in line.split()[:3]) >= 1, name


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_an_example_that_it_understands(name: str) -> None:
    """Parsed alone: what it names need not exist."""
    if name == "export" and not dict(plugins.formats()):
        pytest.skip("no plug-in adds a format")
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
    done = typed(name, "--help", env={"COLUMNS": "80"}).ended()
    assert not set("╭│{}<") & set(done.stdout.partition("Example:")[0])
    assert done.stdout.rstrip().endswith(f"Example: {COMMANDS[name].example}")
    assert max(map(len, done.stdout.splitlines())) <= 80


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
    assert typed(name, "--help").stdout.splitlines()[0] == f"Usage: emulate {name} {usage}"


def test_the_options_of_a_preemption_say_what_they_mean() -> None:
    shown = typed("preempt", "--help", env={"COLUMNS": "80"}).stdout
    assert "[default: the latest]" in " ".join(shown.split())
    assert re.search(r"--warm +Start the replacement warm", shown)
    assert "(preempt)" not in shown  # there is no other kind


# --- Completion ---------------------------------------------------------------------------------

TASKS = "worker-0 worker-1 worker-2"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("p", "plan ps preempt"),
        ("up quick", "quickstart"),
        ("up --engine pro", "process"),
        ("up --set cluster.", "cluster.worker"),
        ("plan --set cluster.worker.me", "cluster.worker.memory"),
        ("up --set expect.f", "expect.final_step"),
        ("up --set framew", "framework"),
        ("up --vary framew", "framework"),
        ("scenarios fau", "faults"),
        ("runs --scenario quicks", "quickstart"),
        ("doctor quicks", "quickstart"),
        ("build pyto", "pytorch"),
        ("logs --out {runs} wor", TASKS),
        ("preempt --out {runs} worker-", TASKS),
        ("fault pause --out {runs} worker-", TASKS),
        ("exec --out {runs} worker-", TASKS),
        ("ps --out {runs} hel", "hello-1"),
        ("report --out {runs} hel", "hello-1"),
        ("compare --out {runs} hel", "hello-1"),
        ("logs --out {runs} hel", "hello-1"),
    ],
)
def test_what_is_known_is_completed(runs: Path, tmp_path: Path, words: str, found: str) -> None:
    (tmp_path / "scenario.yaml").write_text(HELLO)
    assert completed(words.format(runs=runs), tmp_path) == found.split()


def test_faults_that_may_be_healed_are_completed(tmp_path: Path) -> None:
    one = "{name: spot, pause: worker-0, at: 1h, for: 1s}"
    other = "{pause: worker-1, at: 1h, for: 1s}"
    folder = a_run(tmp_path / "runs", f"{HELLO}faults: [{one}, {other}]\n")
    assert completed("heal --out runs ", tmp_path) == ["all"]
    history = folder / "history.jsonl"
    until, _, _ = history.read_text().partition('"all-running"')
    history.write_text(until[: until.rindex("\n") + 1])
    with going_on(folder):
        assert completed("heal --out runs ", tmp_path) == ["0", "1", "spot", "all"]
