"""Disks that are full, read-only, slow or failing, as the programs of tasks see them."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.base import Engine, ResumePoint
from emulator.engines.capabilities import capable
from emulator.engines.docker import DockerEngine
from emulator.engines.process import ProcessEngine
from emulator.faults.disk import Disk, Filling
from emulator.faults.spec import Holding
from emulator.faults.tracer import program
from emulator.runtime.clock import RealClock
from tests.engines.inbox import EachLine
from tests.engines.stage import Stage, shells, staged

ENGINES: Mapping[str, Callable[[], Engine]] = {"docker": DockerEngine, "process": ProcessEngine}
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
MAY_TRACE = sys.platform == "linux" and (
    os.geteuid() == 0 or not YAMA.exists() or YAMA.read_text().strip() == "0"
)
PRELUDE = """
import errno, json, mmap, os, signal, subprocess, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
shared = os.environ["EMULATOR_SHARED"]

def tried(what):
    begun = time.monotonic()
    try:
        what()
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]
    finally:
        took[0] = time.monotonic() - begun

def write(path, data=b"x"):
    with open(path, "wb", buffering=0) as file:
        file.write(data)

def append():
    kept.write(b"x")

took = [0.0]
"""
TRIES = """
write(f"{shared}/old.pt")
write("own.pt")
kept = open(f"{shared}/kept.pt", "wb", buffering=0)
there_and_back = [("old.pt", "aside.pt"), ("aside.pt", "old.pt")]
attempts = {
    "read": lambda: open(f"{shared}/old.pt", "rb").read(),
    "append": append,
    "over": lambda: write(f"{shared}/old.pt"),
    "new": lambda: write(f"{shared}/new.pt"),
    "mkdir": lambda: (os.mkdir(f"{shared}/folder"), os.rmdir(f"{shared}/folder")),
    "rename": lambda: [os.rename(f"{shared}/{a}", f"{shared}/{b}") for a, b in there_and_back],
    "unlink": lambda: os.unlink(f"{shared}/new.pt"),
    "absent": lambda: open(f"{shared}/absent.pt", "r+b"),
    "own": lambda: write("own.pt"),
    "elsewhere": lambda: write(f"/tmp/disk-{os.getpid()}"),
}
print("ready", flush=True)
for number in range(100):
    signal.sigwait({signal.SIGUSR1})
    found = {name: tried(what) for name, what in attempts.items()}
    print(json.dumps(found), flush=True)
    tried(attempts["read"])
    print(json.dumps(took[0] >= 0.3), flush=True)
    print("tried", number, flush=True)
"""
WHOLE = dict.fromkeys(
    ("read", "append", "over", "new", "mkdir", "rename", "unlink", "own", "elsewhere"), "ok"
) | {"absent": "ENOENT"}


class Traced:
    """A task that is traced on another thread."""

    def __init__(self, stage: Stage, **rules: Disk) -> None:
        self.stage, self.told = stage, queue.Queue[dict[str, Any]]()
        self.holding, self.tries = capable(stage.engine, Holding), 0
        asked = {"rules": [{**(disk.rule or {}), "id": id_} for id_, disk in rules.items()]}
        self.met: list[str] = []

        def told(line: str) -> None:
            said = json.loads(line)
            if "met" in said:
                self.met.append(said["met"])
            else:
                self.told.put(said)

        def hold() -> None:
            self.holding.hold("worker-0", program(), asked, told)

        self.thread = threading.Thread(target=hold, daemon=True)
        self.thread.start()
        assert self.told.get(timeout=60)["attached"] >= 1

    def replace(self, gone: str, **rules: Disk) -> None:
        """Have other rules in place of one."""
        new = [{**(disk.rule or {}), "id": id_} for id_, disk in rules.items()]
        self.holding.tell("worker-0", json.dumps({"add": new, "drop": [gone]}))
        if new:
            assert self.told.get(timeout=60) == {"added": [*rules]}
        else:
            self.thread.join(60)  # that was the last one
            assert not self.thread.is_alive()

    def seen(self) -> tuple[dict[str, str], bool]:
        """Return what the task sees now, and whether a read takes 0.3 s or more."""
        self.stage.engine.signal("worker-0", signal.SIGUSR1)
        self.stage.until_line("worker-0", f"tried {self.tries}")
        self.tries += 1
        found, waited, _ = self.stage.lines["worker-0"][-3:]
        return json.loads(found), json.loads(waited)


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def trying(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Yield a stage with a task that tries its disk at each SIGUSR1."""
    image = "none"
    if request.param == "process" and not MAY_TRACE:
        pytest.skip("this machine does not let a user trace what others have started")
    if request.param == "docker":
        request.getfixturevalue("docker_engine")  # or skip
        image = "cpu"
    engine = ENGINES[request.param]()
    cluster = {"worker": {"command": ["python3", "-c", PRELUDE + TRIES]}}
    scenario = shells({}, image, cluster=cluster)
    if image != "none":
        engine.ensure_images(scenario, lambda line: None)
    with staged(engine, scenario, tmp_path, RealClock()) as stage:
        stage.start(until="ready")
        yield stage


def disk(state: str, **options: Any) -> Disk:
    return Disk.model_validate({"disk": state, "for": "1s", **options})


def test_a_task_sees_its_disk_as_its_faults_say(trying: Stage) -> None:
    traced = Traced(trying, readonly=disk("readonly"))
    refused = dict.fromkeys(("append", "over", "new", "mkdir", "rename", "unlink"), "EROFS")
    assert traced.seen()[0] == {**WHOLE, **refused}

    failing = disk("error", errno="EIO", of="old*", calls=["read", "rename"])
    traced.replace("readonly", error=failing)
    assert traced.seen()[0] == {**WHOLE, "read": "EIO", "rename": "EIO"}

    slow = disk("slow", by="300ms", of="old*")
    traced.replace("error", slow=slow, full=disk("full", on="worker-0", of="own*"))
    assert traced.seen() == ({**WHOLE, "own": "ENOSPC"}, True)

    traced.replace("slow", other=disk("error", errno="EDQUOT", on="worker-0", of="/tmp/*"))
    assert traced.seen()[0] == {**WHOLE, "own": "ENOSPC", "elsewhere": "EDQUOT"}
    traced.replace("full", fine=disk("error", errno="EIO", of="none"))
    assert traced.seen()[0] == {**WHOLE, "elsewhere": "EDQUOT"}
    assert traced.met == ["readonly", "error", "slow", "full", "other"]

    traced.holding.let_go("worker-0")
    traced.thread.join(60)
    assert not traced.thread.is_alive()
    assert traced.seen()[0] == WHOLE


FILLS = """
def map_and_write(path):
    with open(path, "wb") as file:
        file.truncate(mmap.PAGESIZE)
    with open(path, "r+b") as file:
        mmap.mmap(file.fileno(), mmap.PAGESIZE)[0] = 1

print(os.statvfs(shared).f_blocks * os.statvfs(shared).f_frsize, flush=True)
print("ready", *sorted(os.listdir(shared)), flush=True)
for number in range(100):
    signal.sigwait({signal.SIGUSR1})
    child = os.fork()
    if not child:
        map_and_write(f"{shared}/mapped-{number}")
        os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(tried(lambda: write(f"{shared}/{number}")), ended, flush=True)
    print(*sorted(os.listdir(shared)), flush=True)
    print("tried", number, flush=True)
"""


@pytest.fixture
def filling(docker_engine: None, tmp_path: Path) -> Iterator[Stage]:
    """Yield a stage with a task that writes to a shared volume of 4 MiB at each SIGUSR1."""
    cluster = {"worker": {"command": ["python3", "-c", PRELUDE + FILLS]}}
    scenario, engine = shells({}, "cpu", cluster=cluster, shared_size="4m"), DockerEngine()
    engine.ensure_images(scenario, lambda line: None)
    with staged(engine, scenario, tmp_path, RealClock()) as stage:
        stage.start(until="ready")
        yield stage


@pytest.mark.docker
def test_a_volume_is_full_for_all_until_it_has_room_again(filling: Stage) -> None:
    engine, volume = filling.engine, capable(filling.engine, Filling)

    def seen(number: int) -> list[str]:
        engine.signal("worker-0", signal.SIGUSR1)
        filling.until_line("worker-0", f"tried {number}")
        return filling.lines["worker-0"][-3:-1]

    assert filling.lines["worker-0"][0] == str(4 * 2**20)
    assert seen(0) == ["ok 0", "0 mapped-0"]
    assert volume.fill("shared") > 0
    # A new file has a name, but no byte of it. Whoever maps one gets SIGBUS.
    assert seen(1) == [f"ENOSPC {-signal.SIGBUS}", "0 1 mapped-0 mapped-1"]
    again = DockerEngine()  # of an emulator that has taken the run over
    with contextlib.closing(again):
        again.reattach(filling.plan, filling.folder, EachLine(), {"worker-0": ResumePoint([], 0.0)})
        assert again.fill("shared") > 0
        assert seen(2)[0] == f"ENOSPC {-signal.SIGBUS}"
        again.give_room("shared")
        again.give_room("shared")
    assert seen(3)[0] == "ok 0"
    engine.remove("worker-0")  # no task has the volume now, and nothing of it is lost
    names = " ".join(f"{one} mapped-{one}" for one in range(4)).split()
    filling.start(until=f"ready {' '.join(sorted(names))}")
