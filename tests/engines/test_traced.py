"""What traced faults do to a real program, on the engines that a laptop has."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.base import Inbox
from emulator.engines.capabilities import capable
from emulator.errors import EngineError, NotRunning
from emulator.faults.checkpoint import FileAccess
from emulator.faults.disk import Disk
from emulator.faults.spec import Effect, FaultContext, FaultSpec
from emulator.faults.traced import Hang, Visibility
from emulator.runtime.clock import RealClock
from emulator.supervisor.engine_calls import Called
from emulator.supervisor.tracing import Tracing
from tests.engines.stage import Stage, shells, staged
from tests.engines.test_calls import ENGINES, MAY_TRACE

# The thread answers SIGUSR1, the main thread SIGUSR2; both are kept while it hangs.
ANSWERS = """
import json, os, signal, subprocess, threading, time
shared = os.environ["EMULATOR_SHARED"]
own = {signal.SIGUSR1, signal.SIGUSR2}
signal.pthread_sigmask(signal.SIG_BLOCK, own)
subprocess.Popen(["sleep", "1000"])
def beat():
    for number in range(1, 100):
        signal.sigwait({signal.SIGUSR1})
        print("beat", number, flush=True)
threading.Thread(target=beat, daemon=True).start()
print("ready", flush=True)
def wait_for(name):
    while not os.path.exists(f"{shared}/{name}"):
        time.sleep(0.01)
    return time.time() - os.stat(f"{shared}/{name}").st_ctime
for number in range(1, 100):
    signal.sigwait({signal.SIGUSR2})
    open(f"{shared}/mine-{number}", "w").close()
    os.rename(f"{shared}/mine-{number}", f"{shared}/own-{number}")
    seen = sorted(os.listdir(shared))
    asked = ["old", "new", "step-5", "step-5/model", f"own-{number}"]
    there = [name for name in asked if os.path.exists(f"{shared}/{name}")]
    try:
        opened = open(f"{shared}/step-5/model").read()
    except FileNotFoundError:
        opened = "none"
    print("step", number, json.dumps([seen, there, opened]), flush=True)
    if os.path.exists(f"{shared}/wait"):
        print("late", wait_for("soon") >= 1.5, flush=True)
"""
MAKES = """
import json, os, sys
folder = json.loads(sys.argv[1])
for name in folder["names"]:
    path = os.path.join(folder["folder"], name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write("whole")
"""
SAVES = """
import json, os, signal, time
shared = os.environ["EMULATOR_SHARED"]
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
print("ready", flush=True)
for number in range(1, 100):
    signal.sigwait({signal.SIGUSR2})
    names, begun = sorted(os.listdir(shared)), time.monotonic()
    open(f"{shared}/old").read()
    is_slow = time.monotonic() - begun >= 0.3
    with open(f"{shared}/model", "wb", buffering=0) as file:
        for _ in range(3):
            file.write(b"x")
    print("step", number, json.dumps([names, is_slow]), flush=True)
"""


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == "process" and not MAY_TRACE:
        pytest.skip("this machine does not let a user trace what others have started")
    if request.param == "docker":
        request.getfixturevalue("docker_engine")  # or skip
    return str(request.param)


@contextlib.contextmanager
def starting(
    name: str, program: str, tmp_path: Path, env: Mapping[str, str] | None = None, **keys: Any
) -> Iterator[Stage]:
    image, engine = ("cpu" if name == "docker" else "none"), ENGINES[name]()
    roles = {"worker": {"command": ["python3", "-c", program], "env": env or {}}}
    scenario = shells({}, image, cluster=roles, **keys)
    if image != "none":
        engine.ensure_images(scenario, lambda line: None)
    with staged(engine, scenario, tmp_path, RealClock()) as stage:
        yield stage


@contextlib.contextmanager
def running(name: str, program: str, tmp_path: Path, **env: str) -> Iterator[Stage]:
    with starting(name, program, tmp_path, env) as stage:
        stage.start(until="ready")
        yield stage


@pytest.fixture
def answering(engine: str, tmp_path: Path) -> Iterator[Stage]:
    """Yield a stage with a task that answers signals on two threads, and has a child."""
    with running(engine, ANSWERS, tmp_path) as stage:
        yield stage


def tracing(stage: Stage, inbox: Inbox | None = None) -> Tracing:
    """Return the tracers of a run; `inbox` gets what happens to faults that wait for a call."""
    plan, workers = stage.plan, RealClock().workers()
    return Tracing(
        plan, stage.engine, inbox or Inbox(), workers, time.time, Called, lambda *_: None
    )


def at(stage: Stage, active: Sequence[FaultSpec], traced: Tracing | None = None) -> FaultContext:
    follow = partial(traced.follow, "worker-0") if traced else None
    return FaultContext(stage.engine, "worker-0", None, lambda: None, active, follow)


def words(effect: Effect | None) -> str:
    assert effect is not None
    return effect.words


def make(stage: Stage, *names: str) -> None:
    """Make files on the shared volume, as another task does."""
    capable(stage.engine, FileAccess).run_at_files("shared", MAKES, {"names": names})


def answer(stage: Stage, number: int) -> Any:
    """Have the main thread answer, and return what it sees."""
    stage.engine.signal("worker-0", signal.SIGUSR2)
    begin = f"step {number} "
    stage.until_line_that_begins("worker-0", begin)
    line = next(one for one in stage.lines["worker-0"] if one.startswith(begin))
    return json.loads(line.removeprefix(begin))


def test_a_task_that_hangs_lives_and_sees_what_is_new_late_until_it_is_healed(
    answering: Stage,
) -> None:
    stage, hang, traced = answering, Hang(hang="worker-0", for_=60), tracing(answering)
    late = Visibility(visibility="late", seen_by="worker-0", by=3600, for_=60)
    make(stage, "old")
    late.apply(at(stage, [late], traced))
    make(stage, "new", "step-5/model")
    assert words(hang.apply(at(stage, [late, hang], traced))).startswith("2 processes, w")
    stage.engine.signal("worker-0", signal.SIGUSR2)
    stage.engine.signal("worker-0", signal.SIGUSR1)
    stage.until_line("worker-0", "beat 1")
    assert not any("step" in line for line in stage.lines["worker-0"])
    hang.heal(at(stage, [late], traced))
    stage.until_line_that_begins("worker-0", "step 1 ")
    seen = ["old", "own-1", "own-2"]  # what was new before it hung is late all the time
    assert answer(stage, 2) == [seen, ["old", "own-2"], "none"]
    late.heal(at(stage, [], traced))
    seen = ["new", *seen, "own-3", "step-5"]
    assert answer(stage, 3) == [seen, ["old", "new", "step-5", "step-5/model", "own-3"], "whole"]

    soon = late.model_copy(update={"by": 1.5, "of": "soo*"})
    make(stage, "wait")
    soon.apply(at(stage, [soon], traced))
    make(stage, "soon", "at-once")
    assert "at-once" in answer(stage, 4)[0]
    stage.until_line("worker-0", "late True")


LAUNCHES = """
import os, signal, subprocess, sys, threading, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
rank = {**os.environ, "LOCAL_RANK": "0"}
train = "print('ready', flush=True); input()"
started = subprocess.Popen([sys.executable, "-c", train], env=rank, stdin=subprocess.PIPE)
def end():
    signal.sigwait({signal.SIGUSR1})
    started.kill()
threading.Thread(target=end, daemon=True).start()
while started.poll() is None:
    time.sleep(0.01)
print("it ended with", started.returncode, flush=True)
time.sleep(1000)
"""
"""Looks after another process in its main thread, as torchrun does."""


def test_what_looks_after_a_process_that_hangs_sees_its_end(engine: str, tmp_path: Path) -> None:
    with running(engine, LAUNCHES, tmp_path) as stage:
        hang, traced = Hang(hang="worker-0", for_=60), tracing(stage)
        assert "; 1 that look after them go on" in words(hang.apply(at(stage, [hang], traced)))
        stage.engine.signal("worker-0", signal.SIGUSR1)
        stage.until_line("worker-0", "it ended with -9")


def test_a_task_that_another_program_traces_or_that_has_ended_does_not_hang(
    answering: Stage,
) -> None:
    hang = Hang(hang="worker-0", for_=60)
    first, another = tracing(answering), tracing(answering)  # as a debugger does
    hang.apply(at(answering, [hang], first))
    with pytest.raises(EngineError, match=r"worker-0: another program, such as a debugger, trac"):
        hang.apply(at(answering, [hang], another))
    hang.heal(at(answering, [], first))
    answering.engine.signal("worker-0", signal.SIGKILL)
    answering.until_exit()
    with pytest.raises(NotRunning):
        hang.apply(at(answering, [hang], tracing(answering)))


def test_a_disk_late_visibility_a_hang_and_a_write_that_counts_share_a_tracer(
    engine: str, tmp_path: Path
) -> None:
    fault = {"kill": "worker-0", "at": {"write": 2, "of": "model"}}
    with starting(engine, SAVES, tmp_path, faults=[fault]) as stage:
        inbox, ran = Inbox(), threading.Event()
        traced, (written,) = tracing(stage, inbox), stage.plan.faults
        stage.start()
        threading.Thread(target=traced.begin, args=("worker-0", ran.set), daemon=True).start()
        assert ran.wait(60)
        traced.watch(written)
        traced.go()
        stage.until_line("worker-0", "ready")
        slow = Disk.model_validate({"disk": "slow", "by": "300ms", "of": "old", "for": "60s"})
        late = Visibility(visibility="late", seen_by="worker-0", by=3600, for_=60)
        hang = Hang(hang="worker-0", for_=60)
        make(stage, "old")
        slow.apply(at(stage, [slow], traced))
        late.apply(at(stage, [slow, late], traced))
        make(stage, "new")
        stage.engine.signal("worker-0", signal.SIGUSR2)
        met, called = inbox.get(timeout=60), inbox.get(timeout=60)
        assert met.path.endswith("/old")  # by the slow disk
        assert "worker-0 was about to make write 2 of 1 bytes: " in called.effect.words
        # It is in force though all are held; it is held by this when that goes on.
        assert words(hang.apply(at(stage, [slow, late, hang], traced))).startswith("1 process, ")
        traced.let_go(written)
        stage.until_quiet()
        assert stage.lines["worker-0"] == ["ready"]
        hang.heal(at(stage, [slow, late], traced))
        stage.until_line_that_begins("worker-0", "step 1 ")
        assert answer(stage, 2) == [["model", "old"], True]
        late.heal(at(stage, [slow], traced))
        assert answer(stage, 3) == [["model", "new", "old"], True]
        slow.heal(at(stage, [], traced))
        assert answer(stage, 4)[0] == ["model", "new", "old"]
