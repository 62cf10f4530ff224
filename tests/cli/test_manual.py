"""A run that goes on, by hand: `up -d` and what is done to it from other terminals, for real."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

import emulator
from emulator.api.client import Cluster
from emulator.engines.docker import DockerEngine
from emulator.errors import EngineError
from emulator.record.events import (
    CheckpointSaved,
    Entry,
    RunStarted,
    Step,
    Witness,
    fields_of,
)
from emulator.record.reader import Record
from tests.cli.typed import refusal, typed
from tests.cli.typed import write as write_scenario
from tests.conftest import Emulate, going_on, left, own, wait_for_line

RUN = own("hand")
Start = Callable[..., Cluster]

# Steps on from where it left off, until somebody writes `over` into the shared folder.
JOB = r"""
trap 'exit 143' TERM
here=$EMULATOR_SHARED/$EMULATOR_TASK
n=$(cat "$here" 2> /dev/null || echo 0)
while [ ! -e "$EMULATOR_SHARED/over" ]; do
    n=$((n + 1)); echo $n > "$here.new"; mv "$here.new" "$here"
    echo "{\"emulate\": \"step\", \"step\": $n}"; sleep 0.1
done
"""


def write(tmp_path: Path, image: str = "none", job: str = JOB, **keys: Any) -> Path:
    cluster = {"cluster": {"worker": 2}, "success": "all-workers"}
    return write_scenario(tmp_path, job, name="hand", image=image, **cluster, **keys)


def up(emulate: Emulate, path: Path, engine: str = "process") -> Cluster:
    """Start a run in the background and connect to it."""
    done = emulate("up", "-d", path, "--engine", engine, "--json", "--out", emulate.out).ended()
    return emulator.connect(done.json["folder"])


@pytest.fixture
def in_docker(emulate: Emulate, tmp_path: Path, tiny_image: str) -> Start:
    """Start one in the background on Docker, with these keys of its scenario."""
    return lambda **keys: up(emulate, write(tmp_path, tiny_image, **keys), "docker")


# --- From other terminals -----------------------------------------------------------------------


def test_a_run_is_struck_healed_stopped_and_judged(emulate: Emulate, tmp_path: Path) -> None:
    path = write(tmp_path)
    with up(emulate, path) as cluster:
        run, out = cluster.run_id, ("--out", emulate.out)
        status = typed("ps", run, "--json", *out).json
        assert (status["run_id"], status["state"]) == (run, "running")
        assert [task["state"] for task in status["tasks"]] == ["running", "running"]
        again = refusal("up", "-d", path, "--engine", "process", *out, "--run-id", run)
        assert "There is a run in" in again
        struck = typed("preempt", "worker-1", "--grace", "0s", "--down", "forever", *out).ended()
        assert f"{run}: fault manual-1; `emulate heal manual-1` heals it" in struck.stderr
        cluster.wait_for(event="exit", task="worker-1")
        shown = typed("ps", run, *out).stdout
        assert "manual-1" in shown
        assert "down" in shown
        assert "healing manual-1" in typed("heal", *out).stderr
        cluster.wait_for(fault="manual-1", stage="healed")
        assert "there is nothing to heal" in typed("heal", *out).stderr
        typed("fault", "kill", "worker-0", *out).ended()
        wait = typed("wait", run, "--json", *out).ended(1)
        assert wait.json["outcome"] == "failed"  # no restart was allowed
        over = typed("ps", run, "--json", *out).json
        assert over["state"] == "failed"
        assert [fault["id"] for fault in over["faults"]] == ["manual-1", "manual-2"]
    assert refusal("preempt", "worker-1", *out) == f"{run} is over."
    assert left("process", run) == []


def test_a_run_whose_emulator_was_killed_is_not_said_to_go_on(
    emulate: Emulate, tmp_path: Path
) -> None:
    with up(emulate, write(tmp_path)) as cluster:
        run, out = cluster.run_id, ("--out", emulate.out)
        (pid,) = [one.pid for one in cluster.record.history if isinstance(one, RunStarted)]
        os.kill(pid, signal.SIGKILL)
        psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [])
        assert typed("ps", run, "--json", *out).json["state"] == "crashed"
        shown = typed("ps", run, *out)
        assert f"{run}: crashed" in shown.stdout
        assert f"`emulate attach {run}` takes it over" in shown.stderr
        typed("down", run, *out)
    assert left("process", run) == []


def test_nonsense_is_one_sentence_and_the_run_goes_on(emulate: Emulate, tmp_path: Path) -> None:
    with up(emulate, write(tmp_path)) as cluster:
        for arguments, sentence in {
            ("preempt", "nobody"): "no task is called 'nobody'",
            ("preempt", "worker-0", "--grace", "soon"): "grace",
            ("preempt", "worker-0", "--address", "new"): "a new address for worker-0",
            ("fault", "explode", "worker-0"): "There is no fault 'explode'.",
            ("fault", "abort", "worker-0"): "`abort` was removed: `kill` or `terminate` ends",
            ("fault", "kill", "worker-0", "worker-1"): "`kill` takes one task or glob.",
            ("fault", "partition", "worker-0", "worker-1"): "a partition of worker-0 | worker-1",
            ("fault", "oom", "worker-0"): "running worker-0 out of memory",
            ("heal", "nothing/there?"): "There is nothing to heal of a fault 'nothing/there?'.",
        }.items():
            assert sentence in refusal(*arguments, "--out", emulate.out)
        assert cluster.status()["faults"] == []
        down = typed("down", "last", "--out", emulate.out)
        assert f"{cluster.run_id} was stopped" in down.stderr
        typed("wait", "--out", emulate.out).ended(130)
    assert left("process", cluster.run_id) == []


def test_who_follows_sees_all_and_ends_with_the_run(emulate: Emulate, tmp_path: Path) -> None:
    with up(emulate, write(tmp_path)) as cluster:
        out = ("--out", emulate.out)
        logs = emulate.start("logs", "-f", "last", "worker-1", *out)
        stamped = emulate.start("logs", "-f", "-t", "--since", "1h", "last", "worker-1", *out)
        attach = emulate.start("attach", *out)
        wait = emulate.start("wait", *out)
        assert logs.stdout is not None
        assert logs.stdout.readline() == 'worker-1 | {"emulate": "step", "step": 1}\n'
        wait_for_line(attach, "worker-0 | ")
        (cluster.folder / "shared" / "over").touch()
        assert cluster.wait().verdict == "ok"
        # Not `communicate`: it reads past the lines that `readline` has already buffered.
        rest = logs.stdout.read()
        logs.wait(60)
        steps = [entry for entry in cluster.record.history if entry.event == "step"]
        of_worker_1 = [fields_of(e)["step"] for e in steps if e.task == "worker-1"]
        assert len(rest.splitlines()) == len(of_worker_1) - 1
        times = [line.split()[2] for line in stamped.communicate(timeout=300)[0].splitlines()]
        assert times == sorted(times)
        assert len(times) == len(of_worker_1)
        assert all(datetime.fromisoformat(time) for time in times)
        for process in (attach, wait):
            stdout, _ = process.communicate(timeout=300)
            assert "outcome" in stdout or "ok" in stdout
            assert process.returncode == 0
        assert logs.returncode == 0


@pytest.mark.parametrize(
    ("command", "printed"), [("logs -f last", "worker-0 | hello"), ("attach", "outcome")]
)
def test_who_follows_waits_while_a_run_does_not_answer(
    emulate: Emulate, tmp_path: Path, command: str, printed: str
) -> None:
    """It is not up yet, or is just ending: then its record has what it printed."""
    emulate.up(write(tmp_path, job="echo hello"), "--engine", "process").ended()
    (folder,) = emulate.out.iterdir()
    with going_on(folder):
        process = emulate.start(*command.split(), "--out", emulate.out)
        wait_for_line(process, f"waiting for {folder.name}")
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    assert printed in stdout


# --- What does not come up ----------------------------------------------------------------------


def test_a_program_that_fails_at_once_is_shown_and_judged(emulate: Emulate, tmp_path: Path) -> None:
    path = write(tmp_path, job="echo I have no data; exit 9")
    done = emulate("up", "-d", path, "--engine", "process", "--out", emulate.out)
    # It may have been up for a moment.
    assert done.returncode in (0, 1)
    wait = typed("wait", "--json", "--out", emulate.out).ended(1)
    assert wait.json["outcome"] == "failed"
    if done.returncode:
        assert "I have no data" in done.stderr
    assert left("process", wait.json["run_id"]) == []


@pytest.mark.docker
def test_an_image_that_is_nowhere_leaves_no_folder(
    emulate: Emulate, tmp_path: Path, docker_engine: DockerEngine
) -> None:
    path = write(tmp_path, "no-such-image:1")
    arguments = ("up", "-d", path, "--engine", "docker", "--out", emulate.out, "--run-id", RUN)
    done = emulate(*arguments).ended(4)
    assert "The engine has no image no-such-image:1 and can't pull it" in done.stderr
    assert not (emulate.out / RUN).exists()

    (emulate.out / RUN).mkdir()
    (emulate.out / RUN / "thesis.txt").write_text("all of it")
    emulate(*arguments).ended(2)
    assert [path.name for path in (emulate.out / RUN).iterdir()] == ["thesis.txt"]


# --- Docker alone -------------------------------------------------------------------------------


@pytest.mark.docker
def test_an_address_that_nobody_planned_is_refused_and_the_run_goes_on(
    emulate: Emulate, in_docker: Start
) -> None:
    with in_docker() as cluster:
        for address in ("same", "new"):
            line = refusal("preempt", "worker-0", "--address", address, "--out", emulate.out)
            assert "The address that worker-0 comes back to can't be chosen in this run." in line
        assert cluster.status()["faults"] == []
        cluster.stop()
        assert cluster.wait().outcome == "interrupted"


@pytest.mark.docker
def test_a_delay_that_the_kernel_can_not_make_hurts_nobody(in_docker: Start) -> None:
    with in_docker(restart={"policy": "always", "backoff": 0}) as cluster:
        (cut,) = cluster.partition(["worker-0"], ["worker-1"])
        cluster.wait_for(fault=cut)  # the image may have to be built for it first
        (slow,) = cluster.fault(shape="worker-0", delay="50ms", for_="forever")
        why_not = ""
        try:
            cluster.wait_for(fault=slow)
        except EngineError as error:
            why_not = error.message
        cluster.kill("worker-1")
        restart = cluster.wait_for(event="restart", task="worker-1")
        next(e for e in cluster.history(restart.n) if e.event == "step" and e.task == "worker-1")
        assert cluster.heal(cut) == [cut]
        cluster.wait_for(fault=cut, stage="healed")
        if why_not:
            assert "failed before it was applied: The network could not be changed" in why_not
        cluster.stop()
        assert cluster.wait().outcome == "interrupted"


# --- A killed supervisor --------------------------------------------------------------------------


def kill_9(cluster: Cluster) -> list[Entry]:
    """Kill the supervisor; return the history as it is then."""
    came = [e for e in Record(cluster.folder).history if e.event in ("run", "attached")]
    supervisor = psutil.Process(int(fields_of(came[-1])["pid"]))
    supervisor.kill()
    psutil.wait_procs([supervisor], timeout=300)
    cluster.close()
    return list(Record(cluster.folder).history)


def stages(history: list[Entry], fault: str) -> list[str]:
    return [str(fields_of(e)["stage"]) for e in history if fields_of(e).get("id") == fault]


@pytest.mark.docker
def test_attach_after_a_kill_while_a_task_is_down(emulate: Emulate, in_docker: Start) -> None:
    planned = {"preempt": "worker-1", "at": {"step": 3, "task": "worker-1"}, "down": "10s"}
    cluster = in_docker(faults=[{**planned, "address": "same"}])
    networks = "{{range .NetworkSettings.Networks}}{{.IPAMConfig}}{{end}}"
    name = ["docker", "inspect", "-f", networks, f"{cluster.run_id}-worker-1"]
    address = subprocess.run(name, check=True, capture_output=True).stdout
    cluster.wait_for(event="exit", task="worker-1")
    before = kill_9(cluster)
    assert stages(before, "0") == ["triggered", "applied"]
    attach = emulate.start("attach", "--out", emulate.out)
    wait_for_line(attach, "is back")
    assert subprocess.run(name, check=True, capture_output=True).stdout == address
    # And once more, where the run is the attached one's: `down` stops that.
    down = typed("down", "last", "--out", emulate.out)
    assert "was stopped" in down.stderr
    attach.communicate(timeout=300)
    assert attach.returncode == 130
    history = list(Record(cluster.folder).history)
    assert history[: len(before)] == before
    assert stages(history, "0") == ["triggered", "applied", "healed"]
    assert left("docker", cluster.run_id) == []


@pytest.mark.docker
def test_attach_after_a_kill_in_a_pause_and_a_partition(emulate: Emulate, in_docker: Start) -> None:
    cluster = in_docker()
    (cut,) = cluster.partition(["worker-0"], ["worker-1"])
    cluster.wait_for(fault=cut)
    (frozen,) = cluster.pause("worker-1", for_=1)
    cluster.wait_for(fault=frozen)
    before = kill_9(cluster)
    here = ["docker", "exec", f"{cluster.run_id}-worker-0"]
    subprocess.run([*here, "sh", "-c", "echo w > /shared/model.pt"], check=True)
    attach = emulate.start("attach", "--out", "runs", cwd=emulate.out.parent)
    wait_for_line(attach, "worker-1")
    subprocess.run([*here, "touch", "/shared/over"], check=True)
    stdout, stderr = attach.communicate(timeout=120)
    assert attach.returncode == 0, stdout + stderr
    history = list(Record(cluster.folder).history)
    assert history[: len(before)] == before  # nothing that was written is lost
    assert [entry.n for entry in history] == list(range(len(history)))
    (gap,) = (fields_of(entry)["gap"] for entry in history if entry.event == "attached")
    assert gap > 0
    after = history[len(before) :]
    assert [one.sees for one in after if isinstance(one, Witness)] == [True]
    assert [one.path for one in after if isinstance(one, CheckpointSaved)] == ["model.pt"]
    for task in ("worker-0", "worker-1"):
        steps = [one.step for one in history if isinstance(one, Step) and one.task == task]
        assert steps == list(range(1, len(steps) + 1)), task
    assert stages(history, frozen) == ["planned", "triggered", "applied", "healed"]
    assert stages(history, cut)[:3] == ["planned", "triggered", "applied"]
    assert stages(history, cut).count("applied") == 1
    assert Record(cluster.folder).result("summary.json")["verdict"] == "ok"  # type: ignore[index]
    assert left("docker", cluster.run_id) == []


@pytest.mark.docker
def test_a_partition_is_healed_by_hand_after_its_supervisor_was_killed(
    emulate: Emulate, in_docker: Start
) -> None:
    with in_docker() as cluster:
        (cut,) = cluster.partition(["worker-0"], ["worker-1"])
        cluster.wait_for(fault=cut)
    kill_9(cluster)
    wait_for_line(emulate.start("attach", "--out", emulate.out), "worker-1")
    with emulator.connect(cluster.folder) as again:
        reach = (
            "import socket, sys\n"
            "try: socket.create_connection(('worker-1', 9), timeout=float(sys.argv[1]))\n"
            "except ConnectionRefusedError: print('there is a way')\n"
            "except TimeoutError: print('cut off')"
        )
        look = ["docker", "exec", f"{cluster.run_id}-worker-0", "python3", "-c", reach]
        cut_off = subprocess.run([*look, "1"], check=True, capture_output=True)
        assert cut_off.stdout == b"cut off\n"
        assert again.heal(cut) == [cut]
        again.wait_for(fault=cut, stage="healed")
        way = subprocess.run([*look, "10"], check=True, capture_output=True)
        assert way.stdout == b"there is a way\n"
        assert typed("clean", "--dry-run", "--out", emulate.out).stderr.count(cluster.run_id) == 0
        again.stop()
        assert again.wait().outcome == "interrupted"


@pytest.mark.docker
def test_down_after_a_kill_cleans_that_run_alone(emulate: Emulate, in_docker: Start) -> None:
    lives = in_docker()
    dies = in_docker()
    (frozen,) = dies.pause("worker-0")
    dies.wait_for(fault=frozen)
    dies.preempt("worker-1", grace="1h")
    before = kill_9(dies)
    down = typed("down", dies.run_id, "--out", emulate.out)
    assert (down.returncode, left("docker", dies.run_id)) == (0, [])
    assert list(Record(dies.folder).history) == before
    assert lives.status()["state"] == "running"
    lives.stop()
    lives.wait()
    lives.close()


def test_processes_can_not_be_taken_over_but_removed(emulate: Emulate, tmp_path: Path) -> None:
    cluster = up(emulate, write(tmp_path))
    kill_9(cluster)
    line = refusal("attach", "--out", emulate.out)
    assert line.startswith("The process engine can't take over a run")
    assert f"`emulate down {cluster.run_id}` removes it." in line
    typed("down", "last", "--out", emulate.out).ended()
    assert left("process", cluster.run_id) == []
