"""A job of Slurm in a run: its variables, and how it requeues itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from emulator.engines.memory import Script
from emulator.faults.platforms import slurm
from emulator.planning.context import PlanContext
from emulator.planning.planner import make_plan
from emulator.record.events import Restart, TaskExit
from emulator.record.reader import Record
from emulator.report.event_text import describe
from emulator.scenario.loader import parse
from tests.conftest import Emulate
from tests.scenario.mistakes import only_problem
from tests.supervisor.in_memory import SERVES, history, run, starts, step

REQUEUE = '{"emulate": "requeue"}'
JOB = "slurm: true\ncluster: {worker: 2}\n"


@pytest.mark.parametrize(
    ("nodes", "listed"),
    [
        (["worker-0"], "worker-0"),
        (["worker-0", "worker-1", "worker-2"], "worker-[0-2]"),
        (["chief-0", "worker-0", "worker-1", "worker-3"], "chief-0,worker-[0-1],worker-3"),
        (["worker-9", "worker-10"], "worker-[9-10]"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.1,10.0.0.2"),
        (["a.b-0", "a.b-1"], "a.b-0,a.b-1"),
        (["node"], "node"),
    ],
)
def test_nodes_are_listed_as_slurm_does(nodes: list[str], listed: str) -> None:
    assert slurm.node_list(nodes) == listed


def test_each_host_is_a_node_and_tasks_are_counted_on_it() -> None:
    hosts = {"worker-0": "a", "worker-1": "a", "worker-2": "b"}
    made = slurm.environments("run", "job", hosts)
    keys = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURMD_NODENAME")
    assert [tuple(env[key] for key in keys) for env in made.values()] == [
        ("0", "0", "0", "a"),
        ("1", "1", "0", "a"),
        ("2", "0", "1", "b"),
    ]
    first = made["worker-0"]
    assert (first["SLURM_NTASKS"], first["SLURM_JOB_NUM_NODES"]) == ("3", "2")
    assert first["SLURM_TASKS_PER_NODE"] == "2,1"
    assert "SLURM_NTASKS_PER_NODE" not in first
    even = slurm.environments("run", "job", {"worker-0": "a", "worker-1": "b"})["worker-1"]
    assert (even["SLURM_TASKS_PER_NODE"], even["SLURM_NTASKS_PER_NODE"]) == ("1(x2)", "1")


def test_a_run_has_one_job_id_and_another_run_another() -> None:
    assert slurm.job_id("a") == slurm.job_id("a") != slurm.job_id("b")
    assert 10**6 <= slurm.job_id("a") < 10**7


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        (REQUEUE, True),
        ('{"emulate": "requeue", "more": 1}', True),
        ('{"emulate": "step", "step": 1, "note": "requeue"}', False),
        ("scontrol requeue 5", False),
        ('["requeue"]', False),
        ("[" * 100_000 + "requeue", False),
    ],
)
def test_only_the_line_of_scontrol_requeues(line: str, asks: bool) -> None:
    assert slurm.asks_requeue(line) == asks


# --- In a run -------------------------------------------------------------------------------------


def script(start: int) -> Script:
    """Requeue at the first start, after 3 s, and end after 4 s at the next."""
    if start > 1:
        return Script([(1.0, step(2))], exits_at=4.0)
    return Script([(1.0, step(1)), (3.0, REQUEUE), (3.5, REQUEUE)], exits_at=None)


def test_a_requeued_job_is_stopped_and_started_again_as_a_whole(tmp_path: Path) -> None:

    def other(start: int) -> Script:
        return SERVES if start == 1 else Script(exits_at=4.0)

    scripts = {"worker-0": script, "worker-1": other}
    result, _ = run(tmp_path, JOB + "restart: {backoff: 5s, limit: 0}\n", scripts)
    assert (result.exit_code, result.end.outcome) == (0, "succeeded")
    assert [task for task, _ in starts(result)] == ["worker-0", "worker-1"] * 2
    assert [at for _, at in starts(result)] == [0.0, 0.0, 8.0, 8.0]
    (restart,) = (one for one in history(result) if isinstance(one, Restart))
    assert (restart.task, restart.scope, restart.number, restart.requeued) == (
        "worker-0",
        "job",
        1,
        True,
    )
    said = "worker-0 has requeued the job: restarting every task in 5.00s (number 1)"
    assert describe(restart) == said


def test_the_line_means_nothing_in_another_job(tmp_path: Path) -> None:
    scripts = {"*": Script([(1.0, REQUEUE)], exits_at=4.0)}
    result, _ = run(tmp_path, "cluster: {worker: 2}\n", scripts)
    assert [task for task, _ in starts(result)] == ["worker-0", "worker-1"]


def test_a_job_needs_the_commands_of_its_tasks() -> None:
    said = only_problem("name: x\nslurm: true\nprogram: {command: []}\ncluster: {worker: 1}\n")
    assert "program.command: worker of a Slurm job needs a command" in said


@pytest.mark.parametrize(("image", "warns"), [("cpu", False), ("auto", False), ("me:1", True)])
def test_a_plan_says_that_an_image_needs_a_shell(image: str, *, warns: bool) -> None:
    given = parse(f"name: x\nimage: {image}\nframework: none\n{JOB}program: {{command: [a]}}\n")
    context = PlanContext("memory", lambda task: (task, 1), lambda image: "", lambda: (), "/shared")
    assert (
        any("without a shell" in one for one in make_plan(given, "r-1", context).warnings) is warns
    )


SHELL = """\
name: shell
framework: none
image: {image}
slurm: true
restart: {{backoff: 0s}}
program:
  command:
    - sh
    - -c
    - |
      env | grep ^SLURM
      scontrol show job | grep Restarts
      : >"$EMULATOR_SHARED/$EMULATOR_TASK"
      until [ -e "$EMULATOR_SHARED/worker-0" ] && [ -e "$EMULATOR_SHARED/worker-1" ]; do
        sleep 0.1
      done
      [ -n "$SLURM_RESTART_COUNT" ] || exec scontrol requeue "$SLURM_JOB_ID"
cluster: {{worker: 2}}
"""


def test_a_task_has_its_variables_and_a_scontrol(
    emulate: Emulate, either_engine: tuple[str, str], tmp_path: Path
) -> None:
    engine, image = either_engine
    file = tmp_path / "shell.yaml"
    file.write_text(SHELL.format(image=image))
    emulate.up(file, "--engine", engine).ended()
    (folder,) = emulate.out.glob("shell-*")
    log = (folder / "logs" / "worker-1.log").read_text()
    assert "SLURM_PROCID=1\n" in log
    assert "SLURM_RESTART_COUNT=1\n" in log
    assert "Requeue=1 Restarts=1" in log
    hosts = "worker-[0-1]" if engine == "docker" else "127.0.0.1"
    assert f"SLURM_JOB_NODELIST={hosts}\n" in log
    restarts = [one for one in Record(folder).history if isinstance(one, Restart)]
    assert {one.requeued for one in restarts} == {True}


def test_submitit_requeues_its_job_unmodified_and_goes_on(emulate: Emulate, tmp_path: Path) -> None:
    file = tmp_path / "submitted.yaml"
    file.write_text(f"""\
name: submitted
framework: none
image: none
slurm: true
restart: {{backoff: 0s}}
program:
  source: {Path(__file__).with_name("submitted.py")}
  command: [{sys.executable}, submitted.py]
cluster: {{worker: 1}}
faults:
  - preempt: worker-0
    like: slurm-timelimit
    signal: SIGUSR2
    grace: 10m
    down: 0s
    keep_away: 0s
    at: {{step: 3}}
""")
    emulate.up(file, "--engine", "process").ended()
    (folder,) = emulate.out.glob("submitted-*")
    lines = (folder / "logs" / "worker-0.log").read_text().splitlines()
    requeued = lines.index('{"emulate": "requeue"}')
    steps = [json.loads(line)["step"] for line in lines[requeued + 1 :] if "step" in line]
    assert len(steps) == 3
    assert steps[0] > 3
    assert any("Requeued job" in line for line in lines)
    ends = [one for one in Record(folder).history if isinstance(one, TaskExit)]
    # Submitit leaves with -1, and passes over SIGTERM, but not while Python ends.
    assert [one.exit_code for one in ends] in ([255, 0], [143, 0])
