"""What a task starts ends with it, wherever it hides: a daemon, no environment, a false one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from emulator.engines.base import Line, Witnessing
from emulator.engines.capabilities import capable
from emulator.engines.process import ProcessEngine, engine, keeper
from emulator.errors import EngineError
from emulator.faults.held import Pausing
from tests.engines.stage import Stage, shells, staged

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")

SAYS_ITS_PID = "echo $$; exec sleep 1000"
DAEMON = f"env -i setsid sh -c '{SAYS_ITS_PID}' &"
"""In a session of its own, without our label."""
GRANDCHILD = f"(env -i setsid sh -c '{SAYS_ITS_PID}' &) & wait;"
"""The same, and its parent is gone."""
LIAR = f"EMULATOR_RUN=other EMULATOR_FOLDER=/nowhere/other setsid sh -c '{SAYS_ITS_PID}' &"


Make = Callable[[str], Stage]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Make]:
    """Return a maker of stages with a task that runs a script."""
    with contextlib.ExitStack() as live:
        yield lambda script: live.enter_context(
            staged(ProcessEngine(), shells({"worker": script}), tmp_path)
        )


def started(stage: Stage) -> tuple[psutil.Process, psutil.Process]:
    """Start the task; return its process and the one whose pid it prints."""
    task = psutil.Process(int(stage.start()))
    return task, psutil.Process(printed(stage))


def printed(stage: Stage) -> int:
    line = stage.inbox.get(timeout=300)
    assert isinstance(line, Line), line
    return int(line.text)


def is_over(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


@linux
@pytest.mark.parametrize("script", [DAEMON, GRANDCHILD, LIAR])
def test_a_daemon_has_ended_before_the_exit_of_its_task_is_reported(
    stage: Make, script: str
) -> None:
    s = stage(f"trap 'exit 7' TERM; {script} while :; do sleep 0.01; done")
    _, daemon = started(s)
    s.engine.signal("worker-0", signal.SIGTERM)
    assert s.until_exit().exit_code == 7
    assert is_over(daemon)


@linux
@pytest.mark.parametrize("script", [DAEMON, GRANDCHILD, LIAR])
def test_an_engine_that_did_not_start_a_daemon_finds_it_under_its_task_and_kills_it(
    stage: Make, script: str
) -> None:
    s = stage(f"{script} sleep 1000")
    (task, daemon), run_id = started(s), s.plan.run_id
    found = {thing.name: thing for thing in ProcessEngine().find(run_id)}
    assert f"worker-0 (pid {task.pid})" in found
    there = found[f"worker-0 (pid {daemon.pid})"]
    assert (there.run_id, Path(there.folder).name) == (run_id, run_id)
    assert not any(thing.run_id == "other" for thing in ProcessEngine().find())
    assert ProcessEngine().tear_down(run_id) >= 1
    assert is_over(daemon)
    assert ProcessEngine().find(run_id) == []
    assert s.until_exit().exit_code == 128 + signal.SIGKILL


@linux
@pytest.mark.parametrize("script", [DAEMON, GRANDCHILD, LIAR])
def test_a_daemon_is_frozen_with_its_task_and_runs_again_with_it(stage: Make, script: str) -> None:
    s = stage(f"{script} while :; do sleep 0.01; done")
    both = started(s)
    pausing = capable(s.engine, Pausing)
    pausing.pause("worker-0")
    assert {one.status() for one in both} <= {psutil.STATUS_STOPPED, psutil.STATUS_DISK_SLEEP}
    pausing.resume("worker-0")
    assert psutil.STATUS_STOPPED not in {one.status() for one in both}


@linux
def test_a_task_of_which_a_process_runs_on_is_not_paused(
    stage: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = stage(f"{DAEMON} sleep 1000")
    _, daemon = started(s)
    stops = engine._wait_until_stopped
    monkeypatch.setattr(engine, "_wait_until_stopped", lambda one: one != daemon and stops(one))
    said = rf"Can't pause worker-0: process {daemon.pid} of it \(sleep\) does not obey\."
    with pytest.raises(EngineError, match=said):
        capable(s.engine, Pausing).pause("worker-0")
    assert daemon.status() != psutil.STATUS_STOPPED  # nothing of it is half paused


@linux
def test_removing_a_task_kills_its_daemons(stage: Make) -> None:
    s = stage(f"{DAEMON} sleep 1000")
    _, daemon = started(s)
    s.engine.remove("worker-0")
    assert is_over(daemon)


@linux
def test_a_daemon_that_left_while_its_task_runs_is_reaped(stage: Make) -> None:
    s = stage("(setsid sh -c 'echo $$' &) & sleep 1000")
    s.start()
    pid = printed(s)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(60)  # it does not stay a zombie for as long as the task runs


@linux
def test_a_task_does_not_outlive_its_keeper(stage: Make) -> None:
    s = stage("sleep 1000 & echo $PPID; wait")
    task, keeper_of_it = started(s)
    assert task.ppid() == keeper_of_it.pid
    group = [task, *task.children()]
    assert len(group) == 2
    keeper_of_it.kill()
    assert s.until_exit().exit_code == 128 + signal.SIGKILL
    assert psutil.wait_procs(group, timeout=300)[1] == []


@linux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_does_not_end_the_keeper_before_its_task(number: signal.Signals) -> None:
    task_has_ended = "lambda: os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)"
    script = f"""import os, runpy
os.register_at_fork(after_in_parent={task_has_ended})
runpy.run_path({keeper.__file__!r}, run_name="__main__")"""
    task = keeper.order(["/bin/sh", "-c", f"kill -{number} $PPID; exit 9"], {})
    kept = subprocess.run([sys.executable, "-c", script, "1", "2"], input=task, capture_output=True)
    assert kept.returncode == 9


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_keepers_signals_end_a_task(
    stage: Make, number: signal.Signals, request: pytest.FixtureRequest
) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:  # as under nohup; a task inherits that
        request.addfinalizer(partial(signal.signal, number, signal.SIG_IGN))
        signal.signal(number, signal.SIG_DFL)
    s = stage(f"kill -{number} $$; exit 9")
    s.start()
    assert s.until_exit().exit_code == 128 + number


def test_a_task_has_its_variables_and_none_of_the_keepers(stage: Make) -> None:
    s = stage("env > $EMULATOR_SHARED/env; kill -PIPE $$")
    s.start()
    assert s.until_exit().exit_code == 128 + signal.SIGPIPE  # Python ignores it, a task does not
    run_id, folder = s.plan.run_id, s.folder
    lines = (folder / "shared" / "env").read_text().splitlines()
    assert {line for line in lines if line.startswith("EMULATOR_")} >= {
        f"EMULATOR_RUN={run_id}",
        "EMULATOR_TASK=worker-0",
        f"EMULATOR_FOLDER={folder}",
        f"EMULATOR_SHARED={folder / 'shared'}",
    }
    assert not any(line.startswith("EMULATOR_KEEPER") for line in lines)


def test_the_error_of_a_command_that_can_not_run_is_the_systems(
    stage: Make, tmp_path: Path
) -> None:
    s = stage("sleep 1000")
    for name, why in (("gone", "No such file or directory"), ("data", "Exec format error")):
        (tmp_path / "data").write_bytes(b"\x00\x01")
        (tmp_path / "data").chmod(0o755)
        task = s.plan.task("worker-0").model_copy(
            update={"name": f"{name}-0", "command": (str(tmp_path / name),)}
        )
        with pytest.raises(EngineError, match=rf"{name}-0 can't run .*/{name}': {why}\."):
            s.engine.start(task)


# --- The order ----------------------------------------------------------------------------------


def test_an_order_is_read_whole_as_it_was_written() -> None:
    text = keeper.order(["sh", "-c", "a\nb", ""], {"A": "1=2", "EMPTY": "", "ODD": "\udc80"})
    assert keeper.read_order(text) == (
        [b"sh", b"-c", b"a\nb", b""],
        {b"A": b"1=2", b"EMPTY": b"", b"ODD": b"\x80"},
    )
    # One that was cut off starts nothing.
    assert [keeper.read_order(text[:length]) for length in range(len(text))] == [None] * len(text)


def test_a_report_has_the_pid_of_the_task_or_an_error_number() -> None:
    assert keeper.pid_or_error(b"12\n") == (12, None)
    assert keeper.pid_or_error(b"12\n2\n") == (12, 2)
    assert keeper.pid_or_error(b"") == (None, None)


READER = "mkfifo p; sh -c 'trap \"\" TERM; echo $$; cat < p' & exec 3> p;"
"""Ends when it reads the end of a pipe that the task has open."""


def told_to_end(s: Stage) -> psutil.Process:
    """Watch the end of the task, ask it to end, and return its process when it has."""
    capable(s.engine, Witnessing).watch_end("worker-0")
    s.engine.signal("worker-0", signal.SIGTERM)
    task = psutil.Process(s.engine._started["worker-0"].pid)  # type: ignore[attr-defined]
    deadline = s.clock.now() + 300
    while not is_over(task):
        assert s.clock.now() < deadline
    return task


@linux
def test_a_watched_end_says_what_outlives_the_task_and_for_how_long(stage: Make) -> None:
    s = stage(f"trap 'exit 7' TERM; {DAEMON} while :; do sleep 0.01; done")
    _, daemon = started(s)
    told_to_end(s)
    end = s.until_exit()
    assert (end.exit_code, is_over(daemon)) == (7, True)
    (left,) = [one for one in end.outlived or () if one["pid"] == daemon.pid]
    assert (left["name"], left["how"]) == ("sleep", "left")
    assert left["seconds"] >= keeper.LINGER
    assert end.wall < s.clock.wall() - keeper.LINGER  # when the task itself ended


@linux
@pytest.mark.parametrize(("number", "how"), [(signal.SIGKILL, "killed"), (signal.SIGTERM, "ended")])
def test_what_outlives_a_task_may_be_killed_meanwhile(number: signal.Signals, how: str) -> None:
    """As at the end of a grace period, when the whole group is."""
    process = subprocess.Popen(["sleep", "1000"])
    process.send_signal(number)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert keeper._how(process.pid) == how
    assert keeper._how(process.pid) == "ended"  # somebody else has waited for it
    process.wait()


@linux
def test_what_ends_by_itself_after_its_task_is_not_left(stage: Make) -> None:
    s = stage(f"trap 'exit 7' TERM; {READER} while :; do sleep 0.01; done")
    started(s)
    told_to_end(s)
    end = s.until_exit()
    assert end.outlived is not None
    assert {one["how"] for one in end.outlived} <= {"ended"}  # it may have ended at once


@linux
def test_what_a_first_signal_ends_takes_all_with_it_at_once_as_in_a_container(stage: Make) -> None:
    s = stage(f"{DAEMON} while :; do sleep 0.01; done")
    _, daemon = started(s)
    told_to_end(s)
    end = s.until_exit()
    assert (end.exit_code, end.outlived, is_over(daemon)) == (143, None, True)


def test_what_outlives_a_task_is_unknown_where_its_end_is_not_watched(stage: Make) -> None:
    s = stage("exit 7")
    s.start()
    assert s.until_exit().outlived is None


def test_a_keepers_report_on_what_is_left_is_read() -> None:
    left = [{"pid": 7, "name": "a", "seconds": 1.5, "how": "ended"}]
    report = json.dumps({"ended": 12.5, "outlived": left}).encode()
    assert keeper.left_of(report) == (12.5, left)
    assert keeper.left_of(b"") is None


def test_only_linux_lets_a_keeper_have_daemons(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keeper.adopts() is (sys.platform == "linux")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keeper.adopts()
