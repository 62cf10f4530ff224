"""Usage of real processes, each in a session of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from emulator.metrics.catalog import Usage
from emulator.metrics.processes import ProcessSampler, session_members

Start = Callable[[str], subprocess.Popen[str]]

BURN = "import time\nuntil = time.process_time() + {}\nwhile time.process_time() < until: pass\n"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Run Python in a session of its own; a line on stdin lets it continue."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=tmp_path,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def continue_(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("on\n")
    process.stdin.flush()


def used(sampler: ProcessSampler, process: subprocess.Popen[str]) -> Usage:
    return sampler.usage({"t": process.pid})["t"]


def test_what_a_task_burns_and_holds_and_writes_is_counted(start: Start) -> None:
    process = start(
        "import os\nhold = b'x' * 50_000_000\n"
        + BURN.format(0.3)
        + "with open('file', 'wb') as f:\n    f.write(hold[:8_000_000]); os.fsync(f.fileno())\n"
        + "print('ready', flush=True); input()"
    )
    assert read_line(process) == "ready"
    usage = used(ProcessSampler(), process)
    assert usage.cpu >= 0.25  # the kernel counts in hundredths, user and system each
    assert usage.memory is not None
    assert usage.memory >= 50_000_000
    assert usage.processes == 1
    if usage.written:  # a file system in memory writes to no disk
        assert usage.written >= 8_000_000
    assert (usage.received, usage.throttled, usage.cpus) == (None, None, None)


def test_children_count_while_they_run_and_after_their_end(start: Start) -> None:
    burn = "exec(" + repr(BURN.format(0.2) + "print('child', flush=True); input()") + ")"
    process = start(
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {burn!r}])\n"
        "print('alone', flush=True); input()"
    )
    sampler = ProcessSampler()
    assert read_line(process) == "child"
    both = used(sampler, process)
    assert both.processes == 2
    assert both.cpu >= 0.15
    continue_(process)
    assert read_line(process) == "alone"
    alone = used(sampler, process)
    assert alone.processes == 1
    assert alone.cpu >= both.cpu


def test_what_a_child_wrote_counts_after_its_end_though_no_sample_saw_it(start: Start) -> None:
    write = "import os; f = open('f', 'wb'); f.write(b'x' * 4_000_000); f.flush(); os.fsync(f)"
    process = start(
        "import subprocess, sys\n"
        f"for _ in range(3): subprocess.run([sys.executable, '-c', {write!r}])\n"
        "print('written', flush=True); input()"
    )
    assert read_line(process) == "written"
    usage = used(ProcessSampler(), process)
    assert usage.processes == 1
    if usage.written:  # a file system in memory writes to no disk
        assert usage.written >= 12_000_000


def test_a_counter_never_goes_back_even_where_no_parent_waits_for_a_child(start: Start) -> None:
    """An orphan's parent is the init of the system: its usage is counted there."""
    process = start(
        "import os, sys, time\n"
        "r, w = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    if os.fork() == 0:\n"
        f"        exec({BURN.format(0.2)!r})\n"
        "        os.write(w, b'x'); sys.stdin.readline(); os._exit(0)\n"
        "    os._exit(0)\n"
        "os.wait(); os.read(r, 1); print(os.getpid(), flush=True)\n"
        "time.sleep(600)"
    )
    assert read_line(process)
    sampler = ProcessSampler()
    before = used(sampler, process)
    assert before.processes == 2
    assert before.cpu >= 0.15
    (orphan,) = set(session_members([process.pid])[process.pid]) - {process.pid}
    watched = psutil.Process(orphan)
    continue_(process)
    psutil.wait_procs([watched], timeout=300)
    after = used(sampler, process)
    assert after.processes == 1
    assert after.cpu >= before.cpu


def test_sessions_are_kept_apart_and_those_that_ended_are_left_out(start: Start) -> None:
    one, two = start("print(1, flush=True); input()"), start("print(2, flush=True); input()")
    assert (read_line(one), read_line(two)) == ("1", "2")
    sampler = ProcessSampler()
    leaders = {"a": one.pid, "b": two.pid}
    assert sampler.usage(leaders).keys() == {"a", "b"}
    assert session_members(leaders.values()) == {one.pid: [one.pid], two.pid: [two.pid]}
    one.kill()
    one.wait()
    assert sampler.usage(leaders).keys() == {"b"}
    assert os.getsid(0) not in session_members(leaders.values())


def test_what_this_session_uses_never_becomes_less() -> None:
    leaders = {"here": os.getsid(0), "nowhere": -1}
    pids = ProcessSampler.pids(leaders)
    assert (os.getpid() in pids["here"], pids["nowhere"]) == (True, [])
    sampler, own = ProcessSampler(), psutil.Process()
    used = sampler.usage(leaders)
    assert used.keys() == {"here"}
    now = sampler.usage(leaders)["here"]
    assert 0 < used["here"].cpu <= now.cpu
    assert (now.memory or 0) > own.memory_info().rss / 2
    assert (now.processes or 0) >= 1
    assert (now.read is not None) == hasattr(psutil.Process, "io_counters")
    before = Usage(cpu=1e9, read=10**15, written=10**15)
    sampler._counted = {leaders["here"]: before}
    now = sampler.usage(leaders)["here"]
    assert (now.cpu, now.read, now.written) == (before.cpu, before.read, before.written)


def test_a_session_is_measured_with_what_it_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = {"a": os.getsid(0)}
    one = SimpleNamespace(
        oneshot=nullcontext,
        cpu_times=lambda: (1.0, 2.0, 3.0, 4.0, 99.0),  # the last one is time of waiting
        memory_info=lambda: SimpleNamespace(rss=7),
        io_counters=lambda: SimpleNamespace(read_bytes=3, write_bytes=5),
    )
    monkeypatch.setattr(psutil, "Process", lambda _: one)
    count = (found := ProcessSampler().usage(leader)["a"]).processes or 0
    assert found == Usage(
        10.0 * count, 7 * count, read=3 * count, written=5 * count, processes=count
    )
    del one.io_counters  # as on macOS
    found = ProcessSampler().usage(leader)["a"]
    assert (found.cpu > 0, found.read, found.written) == (True, None, None)
