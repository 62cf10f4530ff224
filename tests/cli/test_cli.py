"""The command line as users meet it: output, exit codes, messages. Tasks are shell scripts."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from emulator.cli import setup as setting_up
from emulator.engines.docker import DockerEngine
from emulator.planning.baseline import Baseline, BaselineFile, machine
from emulator.planning.task_limits import of_machine
from tests.conftest import Emulate, own
from tests.engines.docker.listeners import instead_of_docker

RUN = own("cli")
NO_DOCKER = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}
HELLO = """\
name: hello
framework: none
image: none
program:
  command: [sh, -c, 'echo "{\\"emulate\\": \\"step\\", \\"step\\": 7}"; echo $EMULATOR_TASK']
cluster: {worker: 2}
success: all-workers
expect: {final_step: 7}
"""


@pytest.fixture
def hello(tmp_path: Path) -> Path:
    path = tmp_path / "hello.yaml"
    path.write_text(HELLO)
    return path


def scenario(tmp_path: Path, command: str, extra: str = "") -> Path:
    path = tmp_path / "scenario.yaml"
    path.write_text(
        "name: test\nframework: none\nimage: none\n"
        f"program: {{command: [sh, -c, {json.dumps(command)}]}}\ncluster: {{worker: 1}}\n{extra}"
    )
    return path


def test_up_puts_the_summary_on_stdout_and_all_else_on_stderr(
    emulate: Emulate, hello: Path
) -> None:
    done = emulate.up(hello, "--engine", "process")
    assert done.returncode == 0, done.stderr
    assert done.json["verdict"] == "ok"
    assert done.json["steps"]["final"] == 7
    assert "worker-1 | worker-1" in done.stderr
    assert "\x1b[" not in done.stderr  # no colours where it is no terminal


def test_the_summary_holds_what_the_page_promises(emulate: Emulate, hello: Path) -> None:
    summary = emulate.up(hello, "--engine", "process").json
    assert summary.keys() >= {"run_id", "scenario", "engine", "outcome", "verdict", "duration"}
    assert summary["tasks"]["worker-0"] == {
        "state": "succeeded",
        "exit_code": 0,
        "restarts": 0,
        "oom_killed": False,
        "last_step": 7,
    }
    assert summary["startup"].keys() == {"network", "all_running", "first_step"}
    rates = {"steps_per_second", "examples_per_second", "step_time"}
    assert summary["throughput"].keys() == {*rates, "tasks"}
    assert all(task.keys() == rates for task in summary["throughput"]["tasks"].values())


def test_set_seed_and_run_id(emulate: Emulate, hello: Path) -> None:
    done = emulate.up(
        hello, "--engine", "process", "--set", "cluster.worker=3", "--seed", "5", "--run-id", RUN
    )
    assert done.json["tasks"].keys() == {"worker-0", "worker-1", "worker-2"}
    plan = json.loads((emulate.out / RUN / "plan.json").read_text())
    assert plan["tasks"][0]["env"]["EMULATOR_SEED"] == "5"


def test_a_run_id_is_used_once(emulate: Emulate, hello: Path) -> None:
    assert emulate.up(hello, "--engine", "process", "--run-id", RUN).returncode == 0
    again = emulate.up(hello, "--engine", "process", "--run-id", RUN)
    assert again.returncode == 2
    assert "There is a run in" in again.stderr


def test_a_failed_expectation_is_exit_code_1(emulate: Emulate, hello: Path) -> None:
    done = emulate.up(hello, "--engine", "process", "--set", "expect.final_step=8")
    assert (done.returncode, done.json["verdict"]) == (1, "failed")


def test_what_cannot_be_judged_is_exit_code_3(emulate: Emulate, hello: Path) -> None:
    done = emulate.up(hello, "--engine", "process", "--set", "expect.accuracy=0.9")
    assert (done.returncode, done.json["verdict"]) == (3, "unknown")


def test_a_program_that_dies_at_once_has_its_last_words(emulate: Emulate, tmp_path: Path) -> None:
    path = scenario(tmp_path, "echo I have no data >&2; exit 9")
    done = emulate("up", path, "--engine", "process", "--out", emulate.out)
    assert done.returncode == 1
    assert "worker-0 failed with exit code 9" in done.stdout
    assert "The last output of worker-0:\n  I have no data" in done.stdout


def test_five_mistakes_are_five_lines(emulate: Emulate, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        "name: Bad Name\n"
        "framework: tensorflo\n"
        "program: {sorce: x.py, command: [python]}\n"
        "cluster: {worker: two}\n"
        "timeout: 5\n"
    )
    done = emulate("up", path)
    assert done.returncode == 2
    lines = done.stderr.strip().splitlines()
    assert [line.removeprefix("emulate: ").split(": ")[0] for line in lines] == [
        f"{path}:{number}" for number in (1, 2, 3, 4, 5)
    ]


def test_a_missing_scenario_is_one_sentence(emulate: Emulate) -> None:
    done = emulate("up", "no-such.yaml")
    assert done.returncode == 2
    assert done.stderr.startswith("emulate: Can't read the scenario no-such.yaml: No such file")
    assert "Traceback" not in done.stderr


def test_a_missing_program_is_named_with_its_line(emulate: Emulate, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "name: s\nprogram:\n  source: gone.py\n  command: [python]\ncluster: {worker: 1}\n"
    )
    done = emulate("up", path)
    assert done.returncode == 2
    assert f"{path}:3: program.source: there is no {tmp_path / 'gone.py'}" in done.stderr


def test_no_engine_is_exit_code_4_and_says_what_to_do(emulate: Emulate, hello: Path) -> None:
    done = emulate.up(hello, "--engine", "docker", env=NO_DOCKER)
    assert done.returncode == 4
    assert "No Docker engine answers" in done.stderr
    assert "--engine process" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_auto_takes_processes_where_no_docker_is_configured(emulate: Emulate, hello: Path) -> None:
    emulate.prefix = instead_of_docker()
    done = emulate.up(hello)
    assert done.returncode == 0
    assert done.json["engine"] == "process"
    assert "no Docker engine answers; tasks run as processes" in done.stderr
    background = emulate("up", "-d", hello, "--out", emulate.out)
    assert "no Docker engine answers; tasks run as processes" in background.stderr


def test_auto_is_an_error_where_a_configured_docker_does_not_answer(
    emulate: Emulate, hello: Path
) -> None:
    done = emulate.up(hello, env=NO_DOCKER)
    assert done.returncode == 4
    assert "No Docker engine answers at" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("cluster.worker.memory=1g", "a memory limit for worker"),
        ("cluster.worker.cpus=1", "a CPU limit for worker"),
        ("cluster.worker.gpus=1", "GPUs for worker"),
        ("cluster.worker.processes=100", "a limit of processes for worker"),
        ("network.internet=false", "a network without internet"),
        ("network.metadata=closed", "a closed metadata address"),
        ("network.delay=5ms", "network delay"),
        ("framework=ray", "a host for each task, which framework: ray needs"),
        ("framework=mpi", "a host for each task, which framework: mpi needs"),
    ],
)
def test_processes_refuse_what_they_cannot_do(
    emulate: Emulate, hello: Path, override: str, what: str
) -> None:
    done = emulate.up(hello, "--engine", "process", "--set", override)
    assert done.returncode == 2
    assert f"the process engine can't do this: {what}" in done.stderr
    assert done.stderr.startswith(f"emulate: --set {override}: ")
    assert not emulate.out.exists()  # refused before anything was made


def test_a_command_that_is_not_installed_is_said(emulate: Emulate, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "name: s\nframework: none\nprogram: {command: [no-such-program]}\ncluster: {worker: 1}\n"
    )
    done = emulate.up(path, "--engine", "process")
    assert done.returncode == 4
    assert "worker-0 can't run 'no-such-program'" in done.stderr


def test_plan_shows_everything_and_starts_nothing(emulate: Emulate, tmp_path: Path) -> None:
    done = emulate("plan", "parameter-server", "--engine", "process", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    plan = done.json
    assert [task["name"] for task in plan["tasks"]] == ["chief-0", "worker-0", "worker-1", "ps-0"]
    config = json.loads(plan["tasks"][0]["env"]["TF_CONFIG"])
    assert config["task"] == {"type": "chief", "index": 0}
    assert len(plan["requests"]) == 4
    assert not (tmp_path / "runs").exists()


def test_plan_says_that_processes_have_no_limits(emulate: Emulate, hello: Path) -> None:
    shown = emulate("plan", hello, "--engine", "process").stdout
    assert "limits: the process engine limits neither memory nor processes" in shown
    (task, _) = emulate("plan", hello, "--engine", "process", "--json").json["tasks"]
    assert task["defaults"] == {"memory": None, "processes": None}


@pytest.mark.docker
def test_plan_shows_the_limits_that_a_task_has_by_default(
    emulate: Emulate, hello: Path, docker_engine: DockerEngine
) -> None:
    limits = of_machine(docker_engine.capacity().memory, docker_engine.pid_max, 2)
    shown = emulate("plan", hello, "--engine", "docker", "--set", "cluster.worker.memory=1g").stdout
    assert f"1.0 GiB, {limits.processes} processes*" in shown
    assert "* marks a default" in shown
    planned = emulate("plan", hello, "--engine", "docker", "--json").json
    assert planned["tasks"][0]["defaults"] == asdict(limits)
    created = [one for one in planned["requests"] if one["request"] == "create container"]
    for request in created:
        assert request["HostConfig"]["Memory"] == limits.memory
        assert request["HostConfig"]["PidsLimit"] == limits.processes
    assert 2 * (limits.processes or 0) <= docker_engine.pid_max / 2


def test_a_disk_that_is_nearly_full_is_said_before_the_start(
    emulate: Emulate, tmp_path: Path, hello: Path
) -> None:
    if os.geteuid():
        pytest.skip("a small disk takes root")
    small = tmp_path / "small"
    small.mkdir()
    mount = f'mount -t tmpfs -o size=16m none {small} && cd {small} && exec "$@"'
    tried = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, "sh", "true"], capture_output=True, check=False
    )
    if tried.returncode:
        pytest.skip("a small disk takes unshare and tmpfs")
    emulate.prefix = ["unshare", "--mount", "sh", "-c", mount, "sh"]
    for command in ("plan", "up"):
        done = emulate(command, hello, "--engine", "process")
        assert done.returncode == 0, done.stderr
        said = " ".join((done.stdout + done.stderr).split())
        assert "the disk of the run folder" in said
        assert "16 MiB left; 2.0 GiB or more should be free" in said


def test_a_run_in_the_background_that_finds_the_disk_full_leaves_no_folder(
    emulate: Emulate, hello: Path
) -> None:
    emulate.prefix = ["prlimit", "--fsize=0"]  # of any file
    done = emulate("up", "-d", hello, "--engine", "process", "--out", emulate.out)
    assert done.returncode == 4
    assert done.stderr.startswith(f"emulate: Can't write the run folder {emulate.out}/")
    assert len(done.stderr.splitlines()) == 1
    assert not list(emulate.out.glob("*"))


def test_plan_for_people_shows_tf_config_and_rules(emulate: Emulate) -> None:
    done = emulate("plan", "mwms", "--engine", "process")
    assert 'TF_CONFIG={"cluster": {"worker": ["127.0.0.1:' in done.stdout
    assert "restart: on-failure (job), at most 3" in done.stdout


def test_logs_and_check_read_a_run_again(emulate: Emulate, hello: Path) -> None:
    emulate.up(hello, "--engine", "process", "--run-id", RUN)
    logs = emulate("logs", "last", "worker-1", "--out", emulate.out)
    assert logs.stdout.splitlines()[-1] == "worker-1"
    both = emulate("logs", RUN, "--out", emulate.out)
    assert "worker-0 | worker-0" in both.stdout
    check = emulate("check", RUN, "--json", "--out", emulate.out)
    assert (check.returncode, check.json["verdict"]) == (0, "ok")
    assert emulate("logs", RUN, "ps-0", "--out", emulate.out).returncode == 2
    assert emulate("check", "other", "--out", emulate.out).returncode == 2


def test_check_judges_a_record_whose_program_is_gone(emulate: Emulate, tmp_path: Path) -> None:
    program = tmp_path / "program.sh"
    program.write_text("echo hi")
    path = tmp_path / "s.yaml"
    path.write_text(
        "name: s\nframework: none\nprogram: {source: program.sh, command: [sh, program.sh]}\n"
        "cluster: {worker: 1}\n"
    )
    assert emulate.up(path, "--engine", "process", "--run-id", RUN).returncode == 0
    program.unlink()
    assert emulate("check", RUN, "--out", emulate.out).returncode == 0


# Two steps, a tenth of a second or more between them.
STEPS = """for n in 1 2; do echo "{\\"emulate\\": \\"step\\", \\"step\\": $n}"; sleep 0.1; done"""
GATE = "expect: {throughput: {at_least: 0.9, of: baseline}}\n"


def store(tmp_path: Path, key: str, rate: float) -> Path:
    path = tmp_path / "baselines.json"
    stored = Baseline(
        steps_per_second=rate, engine="process", machine=machine(), measured="2026-11-20"
    )
    BaselineFile(path).put(key, stored)
    return path


@pytest.mark.parametrize(("rate", "code"), [(0.001, 0), (1e6, 1)])
def test_up_holds_a_run_against_the_baseline_beside_its_scenario(
    emulate: Emulate, tmp_path: Path, rate: float, code: int
) -> None:
    path = scenario(tmp_path, STEPS, GATE)
    baselines = store(tmp_path, "scenario process", rate)
    up = emulate.up(path, "--engine", "process")
    assert up.returncode == code, up.stderr
    (verdict,) = (v for v in up.json["verdicts"] if v["expectation"] == "throughput.at_least")
    assert f"of {rate:.2f} steps/s on 2026-11-20" in verdict["actual"]
    # The run folder says it all.
    baselines.unlink()
    again = emulate("check", "last", "--json", "--out", emulate.out)
    assert (again.returncode, again.json["verdicts"]) == (code, up.json["verdicts"])


def test_a_baseline_is_of_what_was_set(emulate: Emulate, tmp_path: Path) -> None:
    path = scenario(tmp_path, STEPS, GATE)
    store(tmp_path, "scenario[cluster.worker=2] process", 0.001)
    options = ("--engine", "process", "--set", "cluster.worker=2")
    assert emulate.up(path, *options).returncode == 0
    other = emulate.up(path, "--engine", "process")
    assert other.returncode == 3
    assert "no baseline is stored" in other.stderr


def test_each_variant_is_held_against_its_own_baseline(emulate: Emulate, tmp_path: Path) -> None:
    path = scenario(tmp_path, STEPS, GATE)
    store(tmp_path, "scenario[seed=1] process", 0.001)
    store(tmp_path, "scenario[seed=2] process", 1e6)
    done = emulate.up(path, "--engine", "process", "--vary", "seed=1,2,3")
    assert [run["verdict"] for run in done.json] == ["ok", "failed", "unknown"]
    assert done.returncode == 1


@pytest.mark.parametrize("command", ["up", "plan"])
def test_a_file_without_baselines_is_refused_before_anything_starts(
    emulate: Emulate, tmp_path: Path, command: str
) -> None:
    path = scenario(tmp_path, STEPS, GATE)
    (tmp_path / "baselines.json").write_text("{")
    done = emulate(command, path, "--engine", "process", cwd=tmp_path)
    assert done.returncode == 2
    assert "baselines.json is not a file of baselines: Invalid JSON" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_plan_shows_the_baseline_and_warns_of_variants(emulate: Emulate, tmp_path: Path) -> None:
    path = scenario(tmp_path, STEPS, GATE + "parametrize: {seed: [0, 1]}\n")
    store(tmp_path, "scenario process", 5.0)
    store(tmp_path, "scenario[seed=1] process", 6.0)
    planned = emulate("plan", path, "--engine", "process", "--json").json
    assert planned["reference"]["baseline"]["steps_per_second"] == 5.0
    assert planned["warnings"] == [
        "parametrize: pytest runs 2 variants; this is the scenario as written"
    ]
    planned = emulate("plan", path, "--engine", "process", "--json", "--seed", "1").json
    assert planned["reference"]["baseline"]["steps_per_second"] == 6.0
    assert planned["warnings"] == []


def test_schema_is_json(emulate: Emulate) -> None:
    schema = emulate("schema").json
    assert schema["additionalProperties"] is False
    assert "cluster" in schema["required"]


def test_init_writes_a_scenario_that_can_be_planned_and_overwrites_nothing(
    emulate: Emulate, tmp_path: Path
) -> None:
    assert emulate("init", tmp_path / "new").returncode == 0
    assert (
        emulate("plan", tmp_path / "new" / "scenario.yaml", "--engine", "process").returncode == 0
    )
    again = emulate("init", tmp_path / "new")
    assert again.returncode == 2
    assert "is there already" in again.stderr
    assert emulate("init", tmp_path / "new", "--force").returncode == 0


SUITE = {
    ".github/workflows/training.yml",
    "pytest.ini",
    "requirements-emulator.txt",
    "scenarios/preemption.yaml",
    "scenarios/training.yaml",
    "tests/test_training.py",
    "train.py",
}


def test_init_writes_a_suite_whole_or_not_at_all(emulate: Emulate, tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    done = emulate("init", "--tests", mine)
    assert done.returncode == 0
    assert f"now try: pytest {mine}" in done.stderr
    assert {str(p.relative_to(mine)) for p in mine.rglob("*") if p.is_file()} == SUITE
    for name in ("training", "preemption"):
        assert emulate("plan", mine / "scenarios" / f"{name}.yaml").returncode == 0
    (other / "tests").mkdir(parents=True)
    (other / "tests" / "test_training.py").write_text("mine\n")
    done = emulate("init", "--tests", other)
    assert done.returncode == 2
    assert f"{other}/tests/test_training.py is there already" in done.stderr
    assert [p.name for p in other.rglob("*")] == ["tests", "test_training.py"]
    assert emulate("init", "--tests", other, "--force").returncode == 0
    assert (other / "tests" / "test_training.py").read_text() != "mine\n"


@pytest.mark.parametrize(
    "line", [None, "training-emulator[test] @ git+https://host/o/emulator@2f0c1d"]
)
def test_ci_installs_this_emulator_or_says_what_it_lacks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str | None,
) -> None:
    monkeypatch.setattr(setting_up, "requirement_here", lambda: line)
    setting_up.init(tmp_path, tests=True)
    said = capsys.readouterr().err
    assert (f"write into {tmp_path}/requirements-emulator.txt where" in said) is (line is None)
    written = (tmp_path / "requirements-emulator.txt").read_text().splitlines()
    assert [text for text in written if not text.startswith("#")] == ([line] if line else [])

    workflow = yaml.safe_load((tmp_path / ".github" / "workflows" / "training.yml").read_text())
    (step,) = (s for s in workflow["jobs"]["test"]["steps"] if "pip install" in s.get("run", ""))
    (tmp_path / "pip").write_text('#!/bin/sh\necho "pip was asked to $*"\n')
    (tmp_path / "pip").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    ran = subprocess.run(  # as the runner of GitHub does it
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=tmp_path,
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if line:
        assert (ran.returncode, ran.stdout) == (
            0,
            "pip was asked to install -r requirements-emulator.txt\n",
        )
    else:
        assert ran.returncode == 1
        assert ran.stdout == (
            "::error::Write into requirements-emulator.txt where the emulator comes from.\n"
        )


def test_doctor_looks_at_everything(emulate: Emulate) -> None:
    findings = {f["what"]: f for f in emulate("doctor", "--json").json}
    for what in (
        "--engine auto",
        "Docker engine",
        "Python",
        "TensorFlow",
        "CA bundle",
        "kernel: netem",
        "kernel: tbf",
    ):
        assert what in findings
    missing = [f for f in findings.values() if f["status"] in ("optional", "missing", "fatal")]
    assert all(finding["advice"] for finding in missing)


def test_doctor_without_an_engine_says_what_to_do(emulate: Emulate) -> None:
    done = emulate("doctor", "--json", env=NO_DOCKER)
    findings = {f["what"]: f for f in done.json}
    assert done.returncode == 4  # DOCKER_HOST configures one: `up` takes no other
    assert findings["--engine auto"]["status"] == findings["Docker engine"]["status"] == "fatal"
    assert "Start Docker" in findings["Docker engine"]["advice"]


def test_the_shell_completes_commands_scenarios_and_engines(
    emulate: Emulate, tmp_path: Path
) -> None:
    def complete(words: str) -> list[str]:
        env = {
            "_EMULATE_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }
        return emulate("", env=env, cwd=tmp_path).stdout.split()

    assert "plan" in complete("emulate p")
    assert complete("emulate up quick") == ["quickstart"]
    assert complete("emulate up --engine pro") == ["process"]


def test_clean_says_where_it_could_not_look(emulate: Emulate) -> None:
    done = emulate("clean", "--dry-run", "--out", emulate.out, env=NO_DOCKER)
    assert done.returncode == 0
    (said,) = [line for line in done.stderr.splitlines() if "No Docker engine answers" in line]
    assert said.endswith("What runs have left on it is not looked at.")


def test_a_task_can_print_anything(emulate: Emulate, tmp_path: Path) -> None:
    path = scenario(
        tmp_path, r"printf 'caf\303\251 \377\376 [bold]x[/bold]\r\nno newline at the end'"
    )
    done = emulate.up(path, "--engine", "process", env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "no newline at the end" in done.stderr


def test_a_task_that_prints_without_end_does_not_hold_up_the_clock(
    emulate: Emulate, tmp_path: Path
) -> None:
    path = scenario(tmp_path, "exec yes", "timeout: 1s\nexpect: {outcome: timeout}\n")
    done = emulate("up", path, "--engine", "process", "--out", emulate.out, "--run-id", RUN)
    assert done.returncode == 0, done.stdout[-2000:]
    events = (emulate.out / RUN / "history.jsonl").read_text().splitlines()
    job = next(json.loads(line) for line in events if '"job"' in line)
    assert job["t"] < 20  # a second, and what a busy machine adds; without the timer it never ends


@pytest.mark.docker
def test_more_memory_than_the_machine_has_is_a_mistake_with_its_line(
    emulate: Emulate, tmp_path: Path, docker_engine: DockerEngine
) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(
        "name: large\nframework: none\nimage: none\nprogram: {command: ['true']}\n"
        "cluster:\n  worker:\n    replicas: 1\n    memory: 900t\n"
    )
    for command in ("plan", "up"):
        done = emulate(command, path, "--engine", "docker")
        assert done.returncode == 2
        assert f"{path}:8: cluster.worker.memory: 900.0 TiB is more than the" in done.stderr
    done = emulate("plan", path, "--engine", "docker", "--set", "cluster.worker.memory=901t")
    assert "--set cluster.worker.memory=901t: cluster.worker.memory: 901.0 TiB" in done.stderr


def test_a_run_folder_whose_path_is_no_text_is_refused(emulate: Emulate, tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text(
        "name: plain\nframework: none\nimage: none\nprogram: {command: ['true']}\n"
        "cluster: {worker: 1}\n"
    )
    out = os.fsdecode(os.fsencode(tmp_path / "runs") + b"\xff")
    done = emulate("up", path, "--engine", "process", "--out", out)
    assert done.returncode == 2
    assert "has bytes that are not text" in done.stderr
    assert not Path(out).exists()


def test_ps_wide_shows_the_conditions_of_a_training_operators_job(
    emulate: Emulate, tmp_path: Path
) -> None:
    path = scenario(tmp_path, "exit 0", "operator: {kind: TFJob, job: mnist}\n")
    path.write_text(path.read_text().replace("framework: none", "framework: tensorflow"))
    assert emulate.up(path, "--engine", "process").returncode == 0
    wide = emulate("ps", "last", "-o", "wide", "--out", emulate.out).stdout
    listed = emulate("ps", "--all", "-o", "wide", "--out", emulate.out).stdout
    for shown in (wide, listed):
        reasons = [word for word in shown.split() if word.startswith("TFJob")]
        assert reasons == ["TFJobCreated", "TFJobRunning", "TFJobSucceeded"]
    narrow = emulate("ps", "last", "--out", emulate.out).stdout
    assert "TFJob" not in narrow
    data = emulate("ps", "last", "--json", "--out", emulate.out).json
    assert [one["type"] for one in data["conditions"]] == ["Created", "Running", "Succeeded"]


@pytest.mark.parametrize("command", ["suspend", "resume"])
def test_suspend_needs_a_run_under_way(emulate: Emulate, hello: Path, command: str) -> None:
    emulate.up(hello, "--engine", "process")
    done = emulate(command, "last", "--out", emulate.out)
    assert done.returncode == 2
    assert "over" in done.stderr
