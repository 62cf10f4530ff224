"""The command line as users meet it: output, exit codes, messages. Tasks are shell scripts."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from emulator.engines.docker import DockerEngine
from emulator.planning.context import machine_limits
from tests.cli.typed import NO_DOCKER, refusal, typed, write
from tests.conftest import Emulate, own
from tests.engines.docker.listeners import instead_of_docker

RUN = own("cli")
SAYS = 'echo "{\\"emulate\\": \\"step\\", \\"step\\": 7}"; echo $EMULATOR_TASK'


@pytest.fixture
def hello(tmp_path: Path) -> Path:
    expected = {"success": "all-workers", "expect": {"final_step": 7}}
    return write(tmp_path, SAYS, name="hello", cluster={"worker": 2}, **expected)


def test_up_has_the_summary_on_stdout_all_else_on_stderr_and_a_record_to_judge_again(
    emulate: Emulate, tmp_path: Path
) -> None:
    (tmp_path / "hello.sh").write_text(SAYS)
    program = {"source": "hello.sh", "command": ["sh", "hello.sh"]}
    expected = {"success": "all-workers", "expect": {"final_step": 7}}
    path = write(tmp_path, program=program, cluster={"worker": 2}, **expected)
    options = ("--engine", "process", "--run-id", RUN)
    done = emulate.up(path, *options, "--set", "cluster.worker=3", "--seed", "5").ended()
    assert "worker-1 | worker-1" in done.stderr
    assert "\x1b[" not in done.stderr  # no colours where it is no terminal
    summary = done.json
    assert summary.keys() >= {"run_id", "scenario", "engine", "outcome", "duration"}
    assert (summary["verdict"], summary["steps"]["final"]) == ("ok", 7)
    assert summary["tasks"].keys() == {"worker-0", "worker-1", "worker-2"}
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
    plan = json.loads((emulate.out / RUN / "plan.json").read_text())
    assert plan["tasks"][0]["env"]["EMULATOR_SEED"] == "5"
    assert typed("logs", "last", "worker-1", "--out", emulate.out).stdout.endswith("\nworker-1\n")
    assert "There is a run in" in emulate.up(path, *options).ended(2).stderr
    (tmp_path / "hello.sh").unlink()
    assert typed("check", RUN, "--json", "--out", emulate.out).ended().json["verdict"] == "ok"


@pytest.mark.parametrize(
    ("expected", "code", "verdict"), [("final_step=8", 1, "failed"), ("accuracy=0.9", 3, "unknown")]
)
def test_the_exit_code_is_that_of_the_verdict(
    emulate: Emulate, hello: Path, expected: str, code: int, verdict: str
) -> None:
    done = emulate.up(hello, "--engine", "process", "--set", f"expect.{expected}").ended(code)
    assert done.json["verdict"] == verdict


def test_a_program_that_dies_at_once_has_its_last_words(emulate: Emulate, tmp_path: Path) -> None:
    path = write(tmp_path, "echo I have no data >&2; exit 9")
    done = emulate("up", path, "--engine", "process", "--out", emulate.out).ended(1)
    assert "worker-0 failed with exit code 9" in done.stdout
    assert "The last output of worker-0:\n  I have no data" in done.stdout


def test_five_mistakes_are_five_lines(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        "name: Bad Name\n"
        "framework: tensorflo\n"
        "program: {sorce: x.py, command: [python]}\n"
        "cluster: {worker: two}\n"
        "timeout: 5\n"
    )
    for options in ((), ("-d",)):
        lines = typed("up", path, *options, cwd=tmp_path).ended(2).stderr.strip().splitlines()
        assert [line.removeprefix("emulate: ").split(": ")[0] for line in lines] == [
            f"{path}:{number}" for number in (1, 2, 3, 4, 5)
        ]
        assert not (tmp_path / "runs").exists()


def test_a_missing_program_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "name: s\nprogram:\n  source: gone.py\n  command: [python]\ncluster: {worker: 1}\n"
    )
    problem = f"{path}:3: program.source: there is no {tmp_path / 'gone.py'}"
    assert refusal("up", path).startswith(problem)


@pytest.mark.parametrize(
    ("options", "what"),
    [(("--engine", "docker"), "--engine process"), ((), "No Docker engine answers at")],
)
def test_a_docker_that_does_not_answer_is_exit_code_4_and_what_to_do(
    hello: Path, options: tuple[str, ...], what: str
) -> None:
    """Also of `auto`, where it is configured."""
    done = typed("up", hello, *options, env=NO_DOCKER, cwd=hello.parent).ended(4)
    (line,) = done.stderr.splitlines()
    assert "No Docker engine answers" in line
    assert what in line


def test_auto_takes_processes_where_no_docker_is_configured(emulate: Emulate, hello: Path) -> None:
    emulate.prefix = instead_of_docker()
    done = emulate.up(hello).ended()
    assert done.json["engine"] == "process"
    for one in (done, emulate("up", "-d", hello, "--out", emulate.out)):
        assert "no Docker engine answers; tasks run as processes" in one.stderr


def test_processes_refuse_what_they_cannot_do(hello: Path) -> None:
    refused = {
        "cluster.worker.memory=1g": "a memory limit for worker",
        "cluster.worker.cpus=1": "a CPU limit for worker",
        "cluster.worker.gpus=1": "GPUs for worker",
        "cluster.worker.processes=100": "a limit of processes for worker",
        "network.internet=false": "a network without internet",
        "network.metadata=closed": "a closed metadata address",
        "network.delay=5ms": "network delay",
        "framework=mpi": "a host for each task, which framework: mpi needs",
    }
    sets = [word for override in refused for word in ("--set", override)]
    done = typed("up", hello, "--engine", "process", *sets, cwd=hello.parent).ended(2)
    lines = [line.removeprefix("emulate: ") for line in done.stderr.splitlines()]
    expected = {
        f"--set {override}: {override.partition('=')[0]}: the process engine can't do this: {what}"
        for override, what in refused.items()
    }
    assert {line.partition(" (")[0] for line in lines} == expected
    assert not (hello.parent / "runs").exists()  # refused before anything was made


def test_a_command_that_is_not_installed_is_said(emulate: Emulate, tmp_path: Path) -> None:
    path = write(tmp_path, program={"command": ["no-such-program"]})
    done = emulate.up(path, "--engine", "process").ended(4)
    assert "worker-0 can't run 'no-such-program'" in done.stderr


def test_plan_shows_everything_and_starts_nothing(tmp_path: Path) -> None:
    plan = typed("plan", "parameter-server", "--engine=process", "--json", cwd=tmp_path).json
    assert [task["name"] for task in plan["tasks"]] == ["chief-0", "worker-0", "worker-1", "ps-0"]
    config = json.loads(plan["tasks"][0]["env"]["TF_CONFIG"])
    assert config["task"] == {"type": "chief", "index": 0}
    assert len(plan["requests"]) == 4
    assert not (tmp_path / "runs").exists()
    done = typed("plan", "mwms", "--engine", "process", cwd=tmp_path)
    assert 'TF_CONFIG={"cluster": {"worker": ["127.0.0.1:' in done.stdout
    assert "restart: on-failure (job), at most 3" in done.stdout


def test_plan_says_that_processes_have_no_limits(hello: Path) -> None:
    shown = typed("plan", hello, "--engine", "process").stdout
    assert "limits: the process engine limits neither memory nor processes" in shown
    (task, _) = typed("plan", hello, "--engine", "process", "--json").json["tasks"]
    assert task["defaults"] == {"memory": None, "processes": None}


@pytest.mark.docker
def test_plan_shows_the_limits_by_default(hello: Path, docker_engine: DockerEngine) -> None:
    limits = machine_limits(docker_engine.capacity().memory, docker_engine.pid_max, 2)
    shown = typed("plan", hello, "--engine", "docker", "--set", "cluster.worker.memory=1g").stdout
    assert f"1.0 GiB, {limits.processes} processes*" in shown
    assert "* marks a default" in shown
    planned = typed("plan", hello, "--engine", "docker", "--json").json
    assert planned["tasks"][0]["defaults"] == asdict(limits)
    created = [one for one in planned["requests"] if one["request"] == "create container"]
    for request in created:
        assert request["HostConfig"]["Memory"] == limits.memory
        assert request["HostConfig"]["PidsLimit"] == limits.processes
    assert 2 * (limits.processes or 0) <= docker_engine.pid_max / 2


def test_a_disk_that_is_nearly_full_is_said(emulate: Emulate, tmp_path: Path, hello: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = f'mount -t tmpfs -o size=16m none {small} && cd {small} && exec "$@"'
    emulate.prefix = ["unshare", "--mount", "sh", "-c", mount, "sh"]
    if os.geteuid() or emulate("--version").returncode:
        pytest.skip("a small disk takes root, unshare and tmpfs")
    for command in ("plan", "up"):
        done = emulate(command, hello, "--engine", "process").ended()
        said = " ".join((done.stdout + done.stderr).split())
        assert "the disk of the run folder" in said
        assert "16 MiB left; 2.0 GiB or more should be free" in said


def test_a_background_run_on_a_full_disk_leaves_no_folder(emulate: Emulate, hello: Path) -> None:
    emulate.prefix = ["prlimit", "--fsize=0"]  # of any file
    done = emulate("up", "-d", hello, "--engine", "process", "--out", emulate.out).ended(4)
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"emulate: Can't write the run folder {emulate.out}/")
    assert not list(emulate.out.glob("*"))


# --- Other commands -------------------------------------------------------------------------------


def test_schema_is_json() -> None:
    schema = typed("schema").json
    assert schema["additionalProperties"] is False
    assert "cluster" in schema["required"]


def test_doctor_looks_at_everything_and_says_what_to_do() -> None:
    # A PATH of nothing, so that it tries no module of the kernel.
    # DOCKER_HOST configures an engine: `up` takes no other.
    done = typed("doctor", "--json", env={**NO_DOCKER, "PATH": ""}).ended(4)
    findings = {f["what"]: f for f in done.json}
    kernel = {"kernel: netem", "kernel: tbf"}
    others = {"--engine auto", "Docker engine", "Python", "TensorFlow", "CA bundle"}
    assert findings.keys() >= kernel | others
    missing = [f for f in findings.values() if f["status"] in ("optional", "missing", "fatal")]
    assert all(finding["advice"] for finding in missing)
    assert findings["--engine auto"]["status"] == findings["Docker engine"]["status"] == "fatal"
    assert "Start Docker" in findings["Docker engine"]["advice"]


def test_clean_says_where_it_could_not_look(tmp_path: Path) -> None:
    done = typed("clean", "--dry-run", "--out", tmp_path, env=NO_DOCKER).ended()
    (said,) = [line for line in done.stderr.splitlines() if "No Docker engine answers" in line]
    assert said.endswith("What runs have left on it is not looked at.")


def test_a_task_can_print_anything(emulate: Emulate, tmp_path: Path) -> None:
    path = write(tmp_path, r"printf 'caf\303\251 \377\376 [bold]x[/bold]\r\nno newline at the end'")
    ascii_only = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    done = emulate.up(path, "--engine", "process", env=ascii_only).ended()
    assert "no newline at the end" in done.stderr


ASKING = """name: asking
framework: none
image: gpu
program: {command: ['true']}
cluster:
  worker: {replicas: 2, gpus: 1}
  reader: {replicas: 1, image: gpu}
"""


def test_a_plan_says_what_the_engine_can_not_do_below_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "asking.yaml"
    path.write_text(ASKING)
    options = ("--engine", "process", "--set", "cluster.reader.memory=1g")
    done = typed("plan", path, *options).ended(2)
    assert done.stdout.startswith("asking on the process engine\n")
    lacks = "the process engine can't do this:"
    assert [line.partition(" (")[0] for line in done.stderr.splitlines()] == [
        f"emulate: --set cluster.reader.memory=1g: cluster.reader.memory: {lacks} a memory limit "
        "for reader",
        f"emulate: {path}:6: cluster.worker.gpus: {lacks} GPUs for worker",
    ]
    planned = typed("plan", path, *options, "--json").ended(2).json
    assert [task["name"] for task in planned["tasks"]] == ["worker-0", "worker-1", "reader-0"]
    assert typed("up", path, *options).ended(2).stdout == ""


def test_gpus_that_are_not_there_are_a_warning_with_the_option_that_does_without(
    tmp_path: Path,
) -> None:
    path = tmp_path / "asking.yaml"
    path.write_text(ASKING)
    (line,) = typed("plan", path, "--engine", "process").ended(0).stderr.splitlines()
    assert line.startswith(f"emulate: {path}:6: cluster.worker.gpus: ")
    assert "(`--without-gpus` runs it on the CPU; " in line
    assert refusal("up", path, "--engine", "process") == line.removeprefix("emulate: ")
    done = typed("plan", path, "--engine", "process", "--without-gpus", "--json").ended(0)
    assert done.stderr == ""
    assert [task["gpus"] for task in done.json["tasks"]] == [[], [], []]
    scenario = done.json["scenario"]
    images = [scenario["image"], scenario["cluster"]["reader"]["image"]]
    assert images == ["cpu", "cpu"]


@pytest.mark.docker
def test_more_memory_than_the_machine_has_is_a_mistake_with_its_line(
    tmp_path: Path, docker_engine: DockerEngine
) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(
        "name: large\nframework: none\nimage: none\nprogram: {command: ['true']}\n"
        "cluster:\n  worker:\n    replicas: 1\n    memory: 900t\n"
    )
    line = refusal("up", path, "--engine", "docker")
    assert line.startswith(f"{path}:8: cluster.worker.memory: 900.0 TiB is more than the")
    done = typed("plan", path, "--engine", "docker").ended(2)
    assert done.stderr == f"emulate: {line}\n"
    assert done.stdout.startswith("large on the docker engine\n")
    line = refusal("up", path, "--engine", "docker", "--set", "cluster.worker.memory=901t")
    assert line.startswith("--set cluster.worker.memory=901t: cluster.worker.memory: 901.0 TiB")


def test_a_run_folder_whose_path_is_no_text_is_refused(tmp_path: Path) -> None:
    out = os.fsdecode(os.fsencode(tmp_path / "runs") + b"\xff")
    line = refusal("up", write(tmp_path), "--engine", "process", "--out", out)
    assert "has bytes that are not text" in line
    assert not Path(out).exists()
