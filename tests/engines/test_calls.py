"""Tasks that are held before one of their calls to the kernel: the capability `calls`."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.base import Engine
from emulator.engines.capabilities import capable
from emulator.engines.docker import DockerEngine
from emulator.engines.process import ProcessEngine
from emulator.errors import EngineError, NotRunning
from emulator.faults import held_call, saved_files
from emulator.faults.checkpoint import FileAccess
from emulator.faults.held import Pausing
from emulator.faults.spec import Holding
from emulator.planning.requested import RunOptions
from emulator.runtime.clock import RealClock
from emulator.session.run import up
from emulator.supervisor.tracing import path_pattern
from tests.asked import asked
from tests.engines.stage import Stage, shells, staged

ENGINES: Mapping[str, Callable[[], Engine]] = {"docker": DockerEngine, "process": ProcessEngine}
SAVES = """
import os, signal, threading
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
shared = os.environ["EMULATOR_SHARED"]
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
for number in range(1, 100):
    signal.sigwait({signal.SIGUSR1})
    with open(f"{shared}/new", "wb", buffering=0) as file:
        for _ in range(3):
            file.write(b"x" * 10)
        os.fsync(file)
    os.rename(f"{shared}/new", f"{shared}/model-{number}.pt")
    os.unlink(f"{shared}/model-{number}.pt")
    print("saved", number, flush=True)
"""


EAGER = """
import os
with open(f"{os.environ['EMULATOR_SHARED']}/first", "wb", buffering=0) as file:
    for _ in range(5):
        file.write(b"x")
print("wrote", flush=True)
"""
"""It makes the calls that count as soon as it runs."""


COMMITS = """
import ctypes, os, socket

def fails(call, *given, **more):
    try:
        call(*given, **more)
    except OSError:
        return
    raise AssertionError(given)

os.chdir(os.environ["EMULATOR_SHARED"])
here = os.open(".", os.O_RDONLY)
file = os.open("a", os.O_CREAT | os.O_WRONLY)
fails(os.write, os.open("a", os.O_RDONLY), b"x")
os.write(file, b"x")
source, sink = os.pipe()
os.write(sink, b"xy")
os.splice(source, file, 2)
for name in ("folder", "full", "full/inner"):
    os.mkdir(name)
os.symlink("a", "latest")
socket.socket(socket.AF_UNIX).bind("socket")

fails(os.rename, "none", "b")
fails(os.rename, "a", "none/b")
fails(os.rename, "a", "folder")
fails(os.rename, "folder", "full")
fails(os.rename, "a", "/proc/self/b")
os.link("a", "b")
fails(os.link, "a", "b")
assert ctypes.CDLL(None).renameat2(-100, b"a", -100, b"b", 1) == -1
os.rename("folder", "saved")
unnamed = os.open(".", os.O_TMPFILE | os.O_WRONLY)
os.link(f"/proc/self/fd/{unnamed}", "c", src_dir_fd=here)  # linkat, which follows it
os.rename("latest", "other")

fails(os.unlink, "none")
fails(os.unlink, "saved")
os.rmdir("saved", dir_fd=here)
os.unlink("socket")
os.unlink("a")
os.unlink("b", dir_fd=here)
os.unlink("other")
print("done", flush=True)
"""
"""Calls that are made, and those that fail or are about something else than files."""
MADE = {
    "write": ["a", "a"],
    "rename": ["a", "folder", "c", "latest"],
    "unlink": ["a", "b", "other"],
}


DAEMON = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
told, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("ready", flush=True)
        while os.read(told, 1):
            with open(f"{os.environ['EMULATOR_SHARED']}/new", "wb", buffering=0) as file:
                for _ in range(3):
                    file.write(b"x" * 10)
            print("saved", flush=True)
    os._exit(0)
os.wait()
while signal.sigwait({signal.SIGUSR1}):
    os.write(tell, b"x")
"""
"""It has a process that has left its session save at each SIGUSR1."""


def first_write(number: int) -> dict[str, Any]:
    """Return the rule of a write of EAGER."""
    return {"do": "hold", "id": "0", "call": "write", "count": number, "of": path_pattern("first")}


class Watch:
    """A task that is watched on another thread."""

    def __init__(self, stage: Stage, *rules: dict[str, Any], **request: Any) -> None:
        self.holding, self.told = capable(stage.engine, Holding), queue.Queue[dict[str, Any]]()
        program = Path(held_call.__file__).read_text()
        if not rules:
            rules = ({"do": "hold", "id": "0", **request, "of": path_pattern(request["of"])},)
        asked = {"rules": [*rules], "filtered": stage.plan.task("worker-0").filtered}

        self.error: EngineError | None = None

        def hold() -> None:
            try:
                self.holding.hold(
                    "worker-0", program, asked, lambda line: self.told.put(json.loads(line))
                )
            except EngineError as error:  # also where the stage is removed at the end of a test
                self.error = error

        self.thread = threading.Thread(target=hold, daemon=True)
        self.thread.start()
        self.attached = self.next()
        assert self.attached["attached"] >= 1

    def next(self) -> dict[str, Any]:
        return self.told.get(timeout=60)

    def until_over(self) -> None:
        self.thread.join(60)
        assert not self.thread.is_alive()
        if self.error is not None:
            raise self.error

    def tell(self, **what: Any) -> None:
        self.holding.tell("worker-0", json.dumps(what))

    def let_go(self) -> None:
        self.holding.let_go("worker-0")
        self.until_over()


YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
MAY_TRACE = sys.platform == "linux" and (
    os.geteuid() == 0 or not YAMA.exists() or YAMA.read_text().strip() == "0"
)


EITHER = ["process", pytest.param("docker", marks=pytest.mark.docker)]


FILTERED = [
    *("process", "process filtered"),
    *(pytest.param(one, marks=pytest.mark.docker) for one in ("docker", "docker filtered")),
]


@contextlib.contextmanager
def staged_on(
    request: pytest.FixtureRequest, tmp_path: Path, program: str, **keys: Any
) -> Iterator[Stage]:
    """Yield a stage of the engine that is the parameter, whose worker-0 is a program."""
    image = "none"
    name, _, filtered = request.param.partition(" ")
    if name == "process" and not MAY_TRACE:
        pytest.skip("this machine does not let a user trace what others have started")
    if name == "docker":
        request.getfixturevalue("docker_engine")  # or skip
        image = "cpu"
    engine = ENGINES[name]()
    cluster = {"worker": {"command": ["python3", "-c", program]}}
    scenario = shells({}, image, cluster=cluster, **keys)
    if image != "none":
        engine.ensure_images(scenario, lambda line: None)
    with staged(engine, scenario, tmp_path, RealClock(), disposable=bool(filtered)) as stage:
        yield stage


@pytest.fixture(params=EITHER)
def saving(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Yield a stage with a task that saves at each SIGUSR1."""
    with staged_on(request, tmp_path, SAVES) as stage:
        stage.start(until="ready")
        yield stage


@pytest.fixture(params=EITHER)
def eager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Yield a stage with a task that is behind its gate."""
    faults = [{"kill": "worker-0", "at": {"write": 1}}]
    with staged_on(request, tmp_path, EAGER, faults=faults) as stage:
        assert stage.plan.task("worker-0").held
        stage.start()
        yield stage


@pytest.fixture(params=[one for one in FILTERED if "filtered" in str(one)])
def filtered(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Yield a stage with a task that is behind its gate, which asks for a filter of its calls."""
    faults = [{"kill": "worker-0", "at": {"write": 1}}]
    with staged_on(request, tmp_path, EAGER, faults=faults) as stage:
        stage.start()
        yield stage


@pytest.fixture(params=FILTERED)
def committing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Yield a stage with a task that is behind its gate, and then makes COMMITS."""
    faults = [{"kill": "worker-0", "at": {"write": 1}}]
    with staged_on(request, tmp_path, COMMITS, faults=faults) as stage:
        stage.start()
        yield stage


@pytest.mark.parametrize(
    ("request_", "held"),
    [
        ({"call": "write", "count": 2, "of": "new"}, ("write", "new", 2)),
        ({"call": "fsync", "count": 1, "of": "*"}, ("fsync", "new", 1)),
        ({"call": "rename", "count": 1, "of": "model-*"}, ("rename", "model-1.pt", 1)),
        ({"call": "unlink", "count": 1, "of": "*.pt"}, ("unlink", "model-1.pt", 1)),
    ],
    ids=lambda one: one["call"] if isinstance(one, dict) else "",
)
def test_a_task_is_held_before_a_call_and_goes_on_when_it_is_let_go(
    saving: Stage, request_: dict[str, Any], held: tuple[str, str, int]
) -> None:
    watch = Watch(saving, **request_)
    saving.engine.signal("worker-0", signal.SIGUSR1)
    told = watch.next()
    assert (told["held"], Path(told["path"]).name, told["number"]) == held
    assert told.get("bytes") == (10 if held[0] == "write" else None)
    assert "saved 1" not in saving.lines["worker-0"]
    watch.let_go()
    saving.until_line("worker-0", "saved 1")
    saving.engine.signal("worker-0", signal.SIGUSR1)
    saving.until_line("worker-0", "saved 2")  # nobody traces it any more


def test_a_tracer_has_several_rules_which_come_and_go(saving: Stage) -> None:
    watch = Watch(saving, call="write", count=3, of="new")
    listing = {"do": "list", "id": "list", "of": path_pattern("*"), "lines": "saved"}
    second = {"do": "hold", "id": "1", "call": "rename", "count": 1, "of": path_pattern("model-*")}
    watch.tell(add=[listing, second])
    assert watch.next() == {"added": ["list", "1"]}
    saving.engine.signal("worker-0", signal.SIGUSR1)
    told = [watch.next() for _ in range(3)]
    assert [one.get("call") for one in told] == ["write", "write", None]
    assert (told[0]["bytes"], Path(told[0]["path"]).name) == (10, "new")
    assert (told[2]["held"], told[2]["id"]) == ("write", "0")
    watch.tell(drop=["0"])
    told = [watch.next() for _ in range(3)]
    assert [one.get("call") for one in told] == ["write", "fsync", None]
    assert (told[2]["held"], told[2]["id"]) == ("rename", "1")
    watch.tell(drop=["1"])
    told = [watch.next() for _ in range(3)]
    assert [(one.get("call"), one.get("line")) for one in told] == [
        ("rename", None),
        ("unlink", None),
        (None, "saved 1"),
    ]
    assert Path(told[0]["to"]).name == "model-1.pt"
    watch.tell(drop=["list"])  # the last one: it ends by itself
    watch.until_over()


def test_a_task_that_is_held_can_be_killed_and_the_call_is_never_made(saving: Stage) -> None:
    watch = Watch(saving, call="write", count=3, of="new")
    saving.engine.signal("worker-0", signal.SIGUSR1)
    assert watch.next()["number"] == 3
    saving.engine.signal("worker-0", signal.SIGKILL)
    assert saving.until_exit().exit_code == 137
    watch.until_over()
    cut = {"how": "missing", "of": "new", "even_open": True}
    program = Path(saved_files.__file__).read_text()
    files = capable(saving.engine, FileAccess)
    assert json.loads(files.run_at_files("shared", program, cut))["before"] == 20


@pytest.fixture(params=EITHER)
def daemon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Yield a stage with a task whose daemon saves at each SIGUSR1."""
    with staged_on(request, tmp_path, DAEMON) as stage:
        stage.start(until="ready")
        yield stage


def test_what_has_left_its_session_is_held_and_killed_with_its_task(daemon: Stage) -> None:
    watch = Watch(daemon, call="write", count=3, of="new")
    daemon.engine.signal("worker-0", signal.SIGUSR1)
    assert watch.next()["number"] == 3
    daemon.engine.signal("worker-0", signal.SIGKILL)
    watch.let_go()
    assert daemon.until_exit().exit_code == 137
    assert daemon.lines == {"worker-0": ["ready"]}
    cut = {"how": "missing", "of": "new", "even_open": True}
    program = Path(saved_files.__file__).read_text()
    files = capable(daemon.engine, FileAccess)
    assert json.loads(files.run_at_files("shared", program, cut))["before"] == 20


def test_what_has_left_its_session_is_frozen_with_its_task(daemon: Stage) -> None:
    watch = Watch(daemon, call="write", count=1, of="new")
    daemon.engine.signal("worker-0", signal.SIGUSR1)
    assert watch.next()["number"] == 1
    pausing = capable(daemon.engine, Pausing)
    pausing.pause("worker-0")
    watch.let_go()
    daemon.until_quiet()
    assert daemon.lines == {"worker-0": ["ready"]}
    pausing.resume("worker-0")
    daemon.until_line("worker-0", "saved")


def test_a_task_that_is_held_can_be_frozen_and_does_nothing_when_it_is_let_go(
    saving: Stage,
) -> None:
    watch = Watch(saving, call="write", count=1, of="new")
    saving.engine.signal("worker-0", signal.SIGUSR1)
    assert watch.next()["number"] == 1
    pausing = capable(saving.engine, Pausing)
    pausing.pause("worker-0")
    watch.let_go()
    saving.until_quiet()
    assert "saved 1" not in saving.lines["worker-0"]
    pausing.resume("worker-0")
    saving.until_line("worker-0", "saved 1")


def test_a_signal_of_a_task_that_is_watched_is_its_own(saving: Stage) -> None:
    watch = Watch(saving, call="write", count=99, of="nothing")
    assert watch.attached["late"]
    for number in (1, 2):
        saving.engine.signal("worker-0", signal.SIGUSR1)
        saving.until_line("worker-0", f"saved {number}")
    saving.engine.signal("worker-0", signal.SIGTERM)
    assert saving.until_exit().exit_code == 143
    watch.until_over()


def test_what_does_not_run_is_not_watched(saving: Stage) -> None:
    holding = capable(saving.engine, Holding)
    with pytest.raises(NotRunning):
        holding.hold("worker-9", "", {}, lambda line: None)
    holding.let_go("worker-9")


def test_a_task_behind_its_gate_makes_no_call_before_it_may_begin(eager: Stage) -> None:
    watch = Watch(eager, {"do": "begin"}, first_write(1))
    assert "late" not in watch.attached
    assert watch.next()["begun"] == 1
    eager.until_quiet()
    assert eager.lines == {}
    watch.tell(go=True)
    assert watch.next()["number"] == 1  # though it was its first instruction but one
    watch.tell(drop=["0"])
    eager.until_line("worker-0", "wrote")
    watch.until_over()
    assert eager.until_exit().exit_code == 0


def test_what_is_only_held_at_its_beginning_is_not_traced_after_that(eager: Stage) -> None:
    watch = Watch(eager, {"do": "begin"})
    assert watch.next()["begun"] == 1
    watch.tell(go=True)
    watch.until_over()
    assert eager.until_exit().exit_code == 0


def test_a_task_is_held_no_longer_than_its_tracer_lives(eager: Stage) -> None:
    watch = Watch(eager, {"do": "begin"}, first_write(3))
    assert watch.next()["begun"] == 1
    watch.let_go()
    eager.until_line("worker-0", "wrote")


def test_a_task_with_a_filter_of_its_calls_is_traced_to_its_end(filtered: Stage) -> None:
    watch = Watch(filtered, {"do": "begin"}, first_write(3))
    assert watch.next() == {"begun": 1, "filtered": True}
    watch.tell(go=True)
    assert watch.next()["number"] == 3
    watch.tell(drop=["0"])
    filtered.until_line("worker-0", "wrote")  # it could write without a rule, too
    watch.until_over()
    assert filtered.until_exit().exit_code == 0


def test_a_task_with_a_filter_of_its_calls_ends_with_its_tracer(filtered: Stage) -> None:
    watch = Watch(filtered, {"do": "begin"}, first_write(3))
    assert watch.next()["begun"] == 1
    watch.let_go()
    assert filtered.until_exit().exit_code == 128 + signal.SIGKILL
    assert filtered.lines == {}


def test_a_task_whose_tracer_never_comes_begins_when_it_is_told(eager: Stage) -> None:
    gate = "begun before it was told"
    assert "worker-0" not in eager.lines, gate
    told = threading.Event()

    def tell() -> None:  # it may not listen yet: a signal that comes too early is lost
        while not told.wait(0.2):
            eager.engine.signal("worker-0", signal.SIGCONT)

    telling = threading.Thread(target=tell)
    telling.start()
    try:
        eager.until_line("worker-0", "wrote")
    finally:
        told.set()
        telling.join()


# --- Which calls count ----------------------------------------------------------------------------


def test_calls_that_fail_and_those_about_something_else_than_files_do_not_count(
    committing: Stage,
) -> None:
    listing = {"do": "list", "id": "list", "of": path_pattern("*"), "lines": "done"}
    last = [
        {"do": "hold", "id": kind, "call": kind, "count": len(names), "of": path_pattern("*")}
        for kind, names in MADE.items()
    ]
    watch = Watch(committing, {"do": "begin"}, listing, *last)
    assert watch.next()["begun"] == 1
    watch.tell(go=True)
    made: dict[str, list[str]] = {}
    while "line" not in (told := watch.next()):
        if "held" in told:
            kind = told["id"]
            assert told["number"] == len(made[kind]) + 1 == len(MADE[kind])
            watch.tell(drop=[kind])
        else:
            made.setdefault(told["call"], []).append(Path(told["path"]).name)
    numbered = made["rename"][2]
    assert numbered.isdecimal()  # a file without a name is seen by its number
    assert {**made, "rename": [*made["rename"][:2], "c", made["rename"][3]]} == MADE
    committing.until_line("worker-0", "done")


# --- A whole run ----------------------------------------------------------------------------------

JOB = """
name: calls
framework: none
image: IMAGE
program: {command: [python3, -c, PROGRAM]}
cluster: {worker: 1}
restart: {policy: on-failure, backoff: 0s}
timeout: 2m
faults: [FAULTS]
"""
LIVES = """
import os
os.chdir(os.environ["EMULATOR_SHARED"])
print("finds", os.stat("a").st_size if os.path.exists("a") else "nothing", flush=True)
file = os.open("a", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
for _ in range(9):
    os.write(file, b"x")
"""
OPEN = """
import os
os.chdir(os.environ["EMULATOR_SHARED"])
with open("a.pt", "wb", buffering=0) as file:
    for _ in range(4):
        file.write(b"x" * 10)
print("finds", open("a.pt", "rb").read().count(b"x"), flush=True)
"""


@pytest.mark.parametrize(
    ("program", "faults", "finds", "effects"),
    [
        (
            LIVES,
            "{kill: worker-0, at: {write: 5, of: a}}, {kill: worker-0, at: {write: 3, of: a}}",
            ["nothing", "4", "2"],
            ["make write 5 of 1 bytes", "make write 3 of 1 bytes"],
        ),
        (
            OPEN,
            "{checkpoint: torn, at: {write: 3, of: '*.pt', task: worker-0}}",
            ["30"],
            ["a.pt is cut from 20 to 10 bytes"],
        ),
    ],
    ids=["lives", "open"],
)
@pytest.mark.parametrize("engine", EITHER)
def test_a_fault_happens_at_the_call_that_it_names_in_every_life_of_its_task(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    engine: str,
    program: str,
    faults: str,
    finds: list[str],
    effects: list[str],
) -> None:
    if engine == "process" and not MAY_TRACE:
        pytest.skip("this machine does not let a user trace what others have started")
    if engine == "docker":
        request.getfixturevalue("docker_engine")  # or skip
    text = JOB.replace("PROGRAM", json.dumps(program)).replace("FAULTS", faults)
    text = text.replace("IMAGE", "cpu" if engine == "docker" else "none")
    result = up(asked(text), ENGINES[engine](), RunOptions(out=tmp_path))
    log = (result.folder / "logs" / "worker-0.log").read_text()
    assert re.findall("finds (.*)", log) == finds
    done = [one.effect for one in result.analysis.faults]
    assert all(effect in one for effect, one in zip(effects, done, strict=True)), done
    assert {one.expectation: one.status for one in result.verdicts}["faults"] == "ok"
