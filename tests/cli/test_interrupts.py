"""Ctrl-C and SIGTERM at well-defined moments of the commands: one line, 130, nothing left."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.docker import DockerEngine
from emulator.record.reader import Record
from tests.cli.typed import typed, write
from tests.conftest import Emulate, Finished, end, left, own, wait_for_line
from tests.session.conftest import FOREVER, STEPS

SIGNALS = (signal.SIGINT, signal.SIGTERM)
BOTH = pytest.mark.parametrize("number", SIGNALS)
SETTLED = "job succeeded"
UP = "all tasks are running"
STUBBORN = "trap '' TERM; " + FOREVER


def scenario(tmp_path: Path, script: str = STEPS, **keys: Any) -> Path:
    return write(tmp_path, script, **{"cluster": {"worker": 2}, **keys})


def up(emulate: Emulate, path: Path, run_id: str, *more: str) -> subprocess.Popen[str]:
    options = ["--engine", "process", "--out", str(emulate.out), "--run-id", run_id]
    return emulate.start("up", path, *options, *more)


def ended(process: subprocess.Popen[str], number: signal.Signals, code: int) -> Finished:
    """Signal a command; see that it ends with that code, and with no traceback."""
    done = end(process, number).ended(code)
    assert "Traceback" not in done.stderr
    return done


def said_once(done: Finished, number: signal.Signals) -> None:
    """One line, the last."""
    assert f"emulate: interrupted by {number.name}" in done.ended(130).stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert done.stderr.count("interrupted by") == 1


@BOTH
@pytest.mark.parametrize(
    "module", ["typer", "pydantic", "emulator.engines", "emulator.session.run"]
)
def test_during_imports(
    emulate: Emulate, tmp_path: Path, module: str, number: signal.Signals
) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "emulator"]
    arguments = ["up", str(scenario(tmp_path)), "--engine", "process", "--out", str(emulate.out)]
    process = subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_line(process, f" {module}\n")
    done = ended(process, number, 130)
    assert f"emulate: interrupted by {number.name}\n" in done.stderr
    assert done.stdout == ""
    assert not emulate.out.exists()


@BOTH
def test_just_before_the_record(emulate: Emulate, tmp_path: Path, number: signal.Signals) -> None:
    """From here on there is a record, and it is whole."""
    process = up(emulate, scenario(tmp_path, FOREVER), own("cut"))
    wait_for_line(process, "on the process engine; record in")
    ended(process, number, 130)
    assert whole(emulate.out / own("cut"))["outcome"] == "interrupted"
    assert left("process", own("cut")) == []


@pytest.mark.parametrize(
    ("number", "expected", "code", "verdict"),
    [(signal.SIGINT, 5, 0, "ok"), (signal.SIGTERM, 5, 0, "ok"), (signal.SIGINT, 6, 1, "failed")],
)
def test_once_the_outcome_is_settled_it_stays(
    emulate: Emulate,
    tmp_path: Path,
    number: signal.Signals,
    expected: int,
    code: int,
    verdict: str,
) -> None:
    path = scenario(tmp_path, expect={"final_step": expected})
    process = up(emulate, path, own("cut"))
    wait_for_line(process, SETTLED)
    ended(process, number, code)
    assert whole(emulate.out / own("cut"))["verdict"] == verdict


@BOTH
def test_at_the_very_end(emulate: Emulate, tmp_path: Path, number: signal.Signals) -> None:
    """What it came to is being printed; the last that is left is Python's own end."""
    process = up(emulate, scenario(tmp_path), own("cut"))
    assert process.stdout is not None
    while not process.stdout.readline().startswith("Record:"):
        pass
    ended(process, number, 0)


def test_no_number_of_signals_interrupts_the_removal(emulate: Emulate, tmp_path: Path) -> None:
    process = up(emulate, scenario(tmp_path, STUBBORN), own("cut"))
    wait_for_line(process, UP)
    ended = threading.Event()

    def press() -> None:
        while not ended.wait(0.003):
            process.send_signal(SIGNALS[int(time.monotonic() * 1000) % 2])

    pressing = threading.Thread(target=press)
    pressing.start()
    try:
        _, stderr = process.communicate(timeout=120)
    finally:
        ended.set()
        pressing.join()
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert "still removes its tasks and writes its report" in stderr
    assert whole(emulate.out / own("cut"))["outcome"] == "interrupted"
    assert left("process", own("cut")) == []


def whole(folder: Path) -> Mapping[str, Any]:
    """Return the summary of a run whose folder has all that a run leaves, and no more."""
    assert (folder / "report.html").is_file()
    assert (folder / "verdicts.json").is_file()
    assert {"work", "shared", "api.sock"}.isdisjoint(path.name for path in folder.iterdir())
    assert not Record(folder).live
    summary = Record(folder).result("summary.json")
    assert summary is not None
    return summary


@pytest.mark.parametrize(
    ("script", "line", "outcome"), [(FOREVER, UP, "interrupted"), (STEPS, SETTLED, "succeeded")]
)
def test_a_sweep_ends_with_the_variant_that_is_under_way(
    emulate: Emulate, tmp_path: Path, script: str, line: str, outcome: str
) -> None:
    process = up(emulate, scenario(tmp_path, script), own("cut"), "--json", "--vary", "seed=1,2,3")
    wait_for_line(process, line)  # of the first
    done = ended(process, signal.SIGINT, 130)
    first = own("cut") + "-1"
    assert [(run["run_id"], run["outcome"]) for run in done.json] == [(first, outcome)]
    assert [plan.parent.name for plan in emulate.out.glob("*/plan.json")] == [first]


# --- A run that somebody else is at work on -------------------------------------------------------


@pytest.fixture
def running(emulate: Emulate, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A run whose tasks run until they are stopped; `request` may give another command for them."""
    run_id = own("cut")
    command = "echo up; " + getattr(request, "param", FOREVER)
    process = up(emulate, scenario(tmp_path, command), run_id, "--api-port=0")
    wait_for_line(process, UP, "worker-0 | up", "worker-1 | up", "127.0.0.1")
    yield run_id
    process.send_signal(signal.SIGINT)
    end(process, signal.SIGINT).ended(130)
    assert left("process", run_id) == []


@BOTH
@pytest.mark.parametrize("command", ["wait", "logs -f", "attach --plain"])
def test_who_only_looks_leaves_at_once_and_the_run_stays(
    emulate: Emulate, running: str, command: str, number: signal.Signals
) -> None:
    name, *options = command.split()
    process = emulate.start(name, running, *options, "--out", emulate.out)
    if name == "wait":
        waits_in_flock(process)
    else:
        output = process.stdout if name == "logs" else process.stderr
        assert output is not None
        assert "| up" in output.readline()
    said_once(end(process, number), number)
    assert Record(emulate.out / running).live


def waits_in_flock(process: subprocess.Popen[str]) -> None:
    """Return once a process waits for the lock of a file, as the kernel says."""
    while not any(
        "->" in line and f" {process.pid} " in line
        for line in Path("/proc/locks").read_text().splitlines()
    ):
        assert process.poll() is None
        time.sleep(0.01)


@pytest.mark.parametrize("running", [STUBBORN], indirect=True)
def test_down_stops_waiting_at_once(emulate: Emulate, running: str) -> None:
    process = emulate.start("down", running, "--out", emulate.out)
    waits_in_flock(process)
    said_once(end(process, signal.SIGINT), signal.SIGINT)


# --- In the background ----------------------------------------------------------------------------


@BOTH
def test_up_d_is_called_off(emulate: Emulate, tmp_path: Path, number: signal.Signals) -> None:
    """Many tasks, so that it is most likely not up yet; if it is, it stays, and that is said."""
    path = scenario(tmp_path, FOREVER)
    process = up(emulate, path, own("cut"), "-d", "--set", "cluster.worker=40")
    log = emulate.out / own("cut") / "emulate.log"
    while not (log.is_file() and "record in" in log.read_text()):
        assert process.poll() is None
        time.sleep(0.001)
    done = end(process, number)
    if done.returncode == 0:  # it was up before that
        assert f"{own('cut')} is up" in done.stderr
        typed("down", own("cut"), "--out", emulate.out).ended()
    else:
        said_once(done, number)
        assert "the run in the background was stopped" in done.stderr
    assert left("process", own("cut")) == []
    assert whole(emulate.out / own("cut"))["outcome"] == "interrupted"


@BOTH
def test_a_start_in_the_background_that_came_to_nothing_leaves_nothing(
    emulate: Emulate, tmp_path: Path, number: signal.Signals
) -> None:
    process = up(emulate, scenario(tmp_path, FOREVER), own("cut"), "-d")
    while not (emulate.out / own("cut") / "emulate.log").exists():
        assert process.poll() is None
    said_once(end(process, number), number)
    assert not (emulate.out / own("cut")).exists()
    assert left("process", own("cut")) == []


# --- Nobody reads ---------------------------------------------------------------------------------

PRINTS = "while :; do echo tick; sleep 0.05; done"


def test_who_follows_ends_once_nobody_reads(emulate: Emulate, tmp_path: Path) -> None:
    run_id = own("cut")
    run = up(emulate, scenario(tmp_path, PRINTS), run_id)
    wait_for_line(run, UP, "worker-0 | tick")
    process = emulate.start("logs", "-f", run_id, "--out", emulate.out)
    assert process.stdout is not None
    assert process.stderr is not None
    while "tick" not in process.stdout.readline():
        pass
    process.stdout.close()  # as `head` does
    assert process.stderr.read() == ""
    assert process.wait(timeout=300) == 0
    assert end(run, signal.SIGINT).returncode == 130


def test_a_run_that_nobody_reads_of_comes_to_its_end(emulate: Emulate, tmp_path: Path) -> None:
    process = up(emulate, scenario(tmp_path), own("cut"), "--json")
    for stream in (process.stderr, process.stdout):
        assert stream is not None
        stream.close()
    assert process.wait(timeout=300) == 0
    assert whole(emulate.out / own("cut"))["verdict"] == "ok"


def test_what_is_left_unread_at_the_end_is_no_complaint(emulate: Emulate) -> None:
    process = emulate.start("runs", "--json", "--out", emulate.out)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=300) == 0
    assert process.stderr is not None
    assert "Exception ignored" not in process.stderr.read()


# --- While an image is built ----------------------------------------------------------------------


@pytest.mark.docker
@BOTH
@pytest.mark.parametrize("command", ["up", "up -d"])
def test_a_build_leaves_no_container_and_no_stage(
    emulate: Emulate,
    tmp_path: Path,
    docker_engine: DockerEngine,
    tiny_image: str,
    command: str,
    number: signal.Signals,
) -> None:
    mark = uuid.uuid4().hex
    (tmp_path / "Dockerfile").write_text(
        f"FROM {tiny_image} AS builder\nLABEL emulator.stage=builder mark={mark}\n"
        f"RUN echo one\nRUN echo {mark} && sleep 600\n"
        f"FROM {tiny_image}\nCOPY --from=builder /etc/hostname /here\n"
    )
    path = scenario(tmp_path, image={"dockerfile": "Dockerfile"})
    api = docker_engine.api
    with_mark = {"label": f"mark={mark}"}
    begun = int(time.time())
    events = api.events(decode=True, filters={"event": "start", **with_mark})
    process = emulate.start(
        *command.split(), path, "--engine", "docker", "--out", emulate.out, "--run-id", own("cut")
    )
    for event in events:
        if "sleep 600" in str(api.inspect_container(event["id"])["Config"]["Cmd"]):
            break
    events.close()
    said_once(end(process, number), number)
    assert api.containers(all=True, filters=with_mark) == []
    # Of builds at once the last one removes the stages, and another test may build just now.
    removed = api.events(
        decode=True,
        since=begun,
        until=int(time.time()) + 300,
        filters={"type": "image", "event": "delete"},
    )
    for _ in itertools.chain([{}], removed):
        if not (left := api.images(all=True, filters=with_mark)):
            break
    removed.close()
    assert left == []
    assert not (emulate.out / own("cut")).exists()
