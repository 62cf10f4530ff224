"""What goes wrong, for real: killed emulators, lost engines, full disks, taken names."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator.engines.docker import DockerEngine
from emulator.record.task_log import parts_of
from tests.conftest import Emulate, end, left, own, wait_for_line

RUNNING = "all tasks are running"
RUN, LIVES = own("luck"), own("luck-lives")


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def engine(request: pytest.FixtureRequest) -> str:
    """Both engines that users have."""
    if request.param == "docker":
        request.getfixturevalue("docker_engine")
    return str(request.param)


@pytest.fixture
def image(engine: str, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("tiny_image")) if engine == "docker" else "none"


def write(
    tmp_path: Path, image: str, command: str = "sleep 1000 & echo up; wait", workers: int = 2
) -> Path:
    path = tmp_path / "scenario.yaml"
    path.write_text(
        f"name: luck\nframework: none\nimage: {image}\n"
        f"program: {{command: [sh, -c, '{command}']}}\ncluster: {{worker: {workers}}}\n"
    )
    return path


def start(emulate: Emulate, path: Path, engine: str, run_id: str) -> subprocess.Popen[str]:
    process = emulate.start(
        "up", path, "--engine", engine, "--out", emulate.out, "--run-id", run_id, "--json"
    )
    wait_for_line(process, RUNNING, "worker-0 | up", "worker-1 | up")
    return process


def test_kill_9_leaves_what_clean_finds_and_nothing_of_others_is_touched(
    emulate: Emulate, tmp_path: Path, engine: str, image: str
) -> None:
    path = write(tmp_path, image)
    lives, dies = (
        start(emulate, path, engine, LIVES),
        start(emulate, path, engine, RUN),
    )
    end(dies, signal.SIGKILL)
    # two containers, a network and a volume; or two shells with a sleep each; the witness may begin
    assert len([one for one in left(engine, RUN) if "witness" not in one]) == 4
    shown = emulate("ps", "--json", "--out", emulate.out).json
    assert {run["run_id"]: run["live"] for run in shown} == {LIVES: True, RUN: False}
    check = emulate("check", RUN, "--json", "--out", emulate.out)
    assert (check.returncode, check.json["outcome"]) == (3, "running")
    assert {task["state"] for task in check.json["tasks"].values()} == {"running"}

    look = emulate("clean", "--engine", engine, "--dry-run", "--out", emulate.out)
    assert all(thing in look.stderr for thing in left(engine, RUN))
    assert len([one for one in left(engine, RUN) if "witness" not in one]) == 4
    assert emulate("clean", "--engine", engine, "--out", emulate.out).returncode == 0

    assert left(engine, RUN) == []
    assert left(engine, LIVES)
    assert not (emulate.out / RUN / "work").exists()
    assert end(lives, signal.SIGTERM).returncode == 130
    assert left(engine, LIVES) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, "down"])
def test_a_run_that_is_ended_stops_its_tasks_and_removes_all(
    emulate: Emulate, tmp_path: Path, engine: str, image: str, how: signal.Signals | str
) -> None:
    process = start(emulate, write(tmp_path, image), engine, RUN)
    if isinstance(how, signal.Signals):
        process.send_signal(how)
    else:
        assert f"{RUN} was stopped" in emulate(how, RUN, "--out", emulate.out).stderr
    stdout, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert '"outcome": "interrupted"' in stdout
    assert left(engine, RUN) == []


def test_keep_leaves_the_cluster_until_down(
    emulate: Emulate, tmp_path: Path, engine: str, image: str
) -> None:
    path = write(tmp_path, image, "echo $EMULATOR_TASK > $EMULATOR_SHARED/$EMULATOR_TASK")
    done = emulate.up(path, "--engine", engine, "--keep", "--run-id", RUN)
    assert done.returncode == 0, done.stderr
    if engine == "docker":
        assert len(left(engine, RUN)) == 4
    else:
        assert (emulate.out / RUN / "shared" / "worker-1").read_text() == "worker-1\n"
    emulate("down", RUN, "--out", emulate.out)
    assert left(engine, RUN) == []
    assert not (emulate.out / RUN / "shared").exists()


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    small = folder / "small"
    small.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(small)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk to fill")
    try:
        yield small
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


BEFORE_FULL = "the run ends before the disk is full, while there is room for its results"


def test_a_full_disk_stops_the_run_with_a_sentence(
    emulate: Emulate, tmp_path: Path, engine: str, image: str
) -> None:
    with small_disk(tmp_path, "256k") as small:
        path = write(tmp_path, image, "while :; do echo $(seq 200); done", workers=1)
        done = emulate("up", path, "--engine", engine, "--out", small, "--run-id", RUN, "--json")
        assert done.returncode == 4, done.stderr[-2000:]
        message = next(x for x in done.stderr.splitlines() if x.startswith("emulate: "))
        full = f"Can't write the run folder {small}/{RUN}: No space left on device."
        assert full in message or BEFORE_FULL in message
        assert "Traceback" not in done.stderr
        assert left(engine, RUN) == []


def test_a_run_ends_before_the_disk_is_full_and_has_its_results(
    emulate: Emulate, tmp_path: Path
) -> None:
    """A task leaves less of a small disk than a run does, but not nothing."""
    with small_disk(tmp_path, "64m") as small:
        fill = "head -c 64000000 /dev/zero > $EMULATOR_SHARED/checkpoint; sleep 1000"
        path = write(tmp_path, "none", fill, workers=1)
        done = emulate("up", path, "--engine", "process", "--out", small, "--run-id", RUN)
        assert done.returncode == 4, done.stderr[-2000:]
        assert BEFORE_FULL in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr
        assert left("process", RUN) == []
        summary = json.loads((small / RUN / "summary.json").read_text())
        assert summary["outcome"] == "error"
        assert (small / RUN / "report.html").is_file()


def test_a_task_that_prints_without_end_delays_no_timeout_and_fills_no_disk(
    emulate: Emulate, tmp_path: Path, engine: str, image: str
) -> None:
    """With --plain, a timeout of 12 s had not ended the run after 90 s."""
    path = write(tmp_path, image, "exec yes a line of an output that has no end", workers=1)
    limits = ["--set", "timeout=3s", "--set", "log_limit=1m"]
    done = emulate.up(path, "--engine", engine, "--run-id", RUN, "--plain", *limits)
    assert done.returncode == 1, done.stderr[-2000:]
    lines = (emulate.out / RUN / "history.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    (job,) = (event for event in events if event["event"] == "job")
    assert job["outcome"] == "timeout"
    (exited,) = (event for event in events if event["event"] == "exit")
    assert exited["exit_code"] == 143  # by SIGTERM: nothing waited for SIGKILL
    kept = parts_of(emulate.out / RUN / "logs" / "worker-0.log")
    size = sum(part.end - part.begin for part in kept)
    assert len(kept) <= 5
    assert size < 5 * 2**20  # a batch is never divided
    # A busy machine may have read less than the limit until the timeout: then all is kept.
    cut = [event for event in events if event["event"] == "log-cut"]
    assert bool(cut) == (kept[-1].end > size)
    assert [(one["task"], one["limit"]) for one in cut] == [("worker-0", 2**20)] * len(cut)
    warned = " ".join((done.stdout + done.stderr).split())
    assert ("The log of worker-0 has reached its limit of 1 MiB" in warned) == bool(cut)
    assert left(engine, RUN) == []


# --- Docker alone -------------------------------------------------------------------------------


@pytest.mark.docker
def test_a_taken_name_is_said_and_the_stranger_is_left_alone(
    emulate: Emulate, tmp_path: Path, docker_engine: DockerEngine, tiny_image: str
) -> None:
    stranger = docker_engine.api.create_container(tiny_image, ["true"], name=f"{RUN}-worker-1")
    try:
        done = emulate.up(write(tmp_path, tiny_image), "--engine", "docker", "--run-id", RUN)
        assert done.returncode == 4
        assert "would not start worker-1" in done.stderr
        assert "choose another --run-id" in done.stderr
        assert left("docker", RUN) == []
        assert docker_engine.api.inspect_container(stranger)["State"]["Status"] == "created"
    finally:
        docker_engine.api.remove_container(stranger)


@pytest.mark.docker
def test_an_image_that_does_not_build_shows_step_and_last_lines(
    emulate: Emulate, tmp_path: Path, docker_engine: DockerEngine, tiny_image: str
) -> None:
    (tmp_path / "Dockerfile").write_text(
        f"FROM {tiny_image}\nRUN echo almost there && cat /no/such/file\n"
    )
    path = write(tmp_path, "{dockerfile: Dockerfile}")
    done = emulate.up(path, "--engine", "docker")
    assert done.returncode == 4
    assert "does not build; it failed at 'Step 2/" in done.stderr
    assert "almost there" in done.stderr
    assert "cat: /no/such/file: No such file or directory" in done.stderr
    assert not emulate.out.exists()


@pytest.mark.docker
def test_an_image_of_ones_own_is_built_once(
    emulate: Emulate, tmp_path: Path, docker_engine: DockerEngine, tiny_image: str
) -> None:
    (tmp_path / "greeting").write_text(f"hello from the image {uuid.uuid4()}")
    (tmp_path / "Dockerfile").write_text(
        f"FROM {tiny_image}\nARG TO\nCOPY greeting /greeting-$TO\n"
    )
    path = write(tmp_path, "{dockerfile: Dockerfile, args: {TO: you}}", "cat /greeting-you", 1)
    first = emulate.up(path, "--engine", "docker")
    second = emulate.up(path, "--engine", "docker")
    assert "hello from the image" in first.stderr
    assert "building emulator-custom:" in first.stderr
    assert "building" not in second.stderr
    docker_engine.api.remove_image(
        next(
            line.split()[-1]
            for line in first.stderr.splitlines()
            if "built emulator-custom" in line
        )
    )


class Gate:
    """A door in front of the engine's socket that can be shut: the engine is gone then."""

    def __init__(self, path: Path, target: str) -> None:
        self._target = target
        self._open: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._path = path
        self._threads: list[threading.Thread] = []
        self._accepts = self._start(self._accept)

    def _start(self, target: Callable[..., None], *arguments: socket.socket) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def shut(self) -> None:
        self._path.unlink()
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._accepts.join(60)  # from now on nobody is let in
        self._listener.close()
        for side in self._open:
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        for side in self._open:
            side.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                engine = socket.socket(socket.AF_UNIX)
                engine.connect(self._target)
                self._open += [client, engine]
                for source, sink in ((client, engine), (engine, client)):
                    self._start(self._copy, source, sink)

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def gate(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    if not Path("/var/run/docker.sock").exists():
        pytest.skip("the engine has no local socket to stand in front of")
    folder = tmp_path_factory.mktemp("g")
    yield Gate(folder / "docker.sock", "/var/run/docker.sock")
    shutil.rmtree(folder)


@pytest.mark.docker
def test_an_engine_that_goes_away_ends_the_run_and_clean_removes_the_rest(
    emulate: Emulate, tmp_path: Path, gate: Gate, tiny_image: str
) -> None:
    host = {"DOCKER_HOST": f"unix://{gate._path}"}
    process = emulate.start(
        *("up", write(tmp_path, tiny_image), "--engine", "docker", "--json"),
        *("--out", emulate.out, "--run-id", RUN),
        env=host,
    )
    wait_for_line(process, RUNNING)
    gate.shut()
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 4, stderr
    assert "emulate: The Docker engine went away" in stderr
    assert "`emulate clean` removes what this run left" in stderr
    assert "Traceback" not in stderr

    assert left("docker", RUN)
    emulate("clean", "--engine", "docker", "--out", emulate.out)
    assert left("docker", RUN) == []


BOMB = "bomb() { bomb | bomb & wait; }; bomb; exit 3"


@pytest.mark.docker
def test_a_fork_bomb_ends_as_a_failed_task_and_nobody_else_notices(
    emulate: Emulate, tmp_path: Path, docker_engine: DockerEngine, tiny_image: str
) -> None:
    path = tmp_path / "s.yaml"
    other = "until [ -e /shared/over ]; do sleep 0.1; done"
    path.write_text(
        f"name: s\nframework: none\nimage: {tiny_image}\n"
        f"program: {{command: [sh, -c, {json.dumps(BOMB)}]}}\n"
        "cluster:\n  worker: {processes: 64, memory: 256m}\n"
        f"  other: {{command: [sh, -c, {json.dumps(other)}]}}\n"
        "timeout: 5m\nexpect: {outcome: failed}\n"
    )
    done = emulate.up(path, "--engine", "docker")
    assert done.returncode == 0, done.stderr
    tasks = done.json["tasks"]
    assert tasks["worker-0"]["state"] == "failed"
    assert tasks["worker-0"]["oom_killed"] is False
    assert "annot fork" in done.stderr  # its last words say why
    assert tasks["other-0"]["exit_code"] == 143  # it ran until the job was over
    docker_engine.api.ping()


@pytest.mark.docker
def test_a_run_whose_emulator_was_killed_while_it_removed_it_is_seen_through(
    emulate: Emulate, tmp_path: Path, docker_engine: DockerEngine, tiny_image: str
) -> None:
    """Its job is over and its network is gone; what is missing is the verdict."""
    path = write(tmp_path, tiny_image, command="true")
    done = emulate("up", path, "--engine", "docker", "--out", emulate.out, "--run-id", RUN)
    assert done.returncode == 0, done.stderr
    folder = emulate.out / RUN
    for name in ("summary.json", "verdicts.json"):
        (folder / name).unlink()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "api.sock"))
    attached = emulate("attach", RUN, "--out", emulate.out)
    assert attached.returncode == 0, attached.stderr
    assert (folder / "verdicts.json").exists()
    assert not (folder / "api.sock").exists()
    assert left("docker", RUN) == []
