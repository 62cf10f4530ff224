"""What a task starts ends with it, wherever it hides: a daemon, no environment, a false one."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from emulator.engines.base import Exited, Line
from emulator.engines.process import ProcessEngine, keeper
from emulator.errors import EngineError
from emulator.planning.plan import Plan, make_plan
from emulator.scenario.schema import Program, Role, Scenario
from tests.conftest import going_on, own
from tests.engines.inbox import EachLine

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")

SAYS_ITS_PID = "echo $$; exec sleep 1000"
DAEMON = f"env -i setsid sh -c '{SAYS_ITS_PID}' &"
"""In a session of its own, without our label."""
GRANDCHILD = f"(env -i setsid sh -c '{SAYS_ITS_PID}' &) & wait;"
"""The same, and its parent is gone."""
LIAR = f"EMULATOR_RUN=other EMULATOR_FOLDER=/nowhere/other setsid sh -c '{SAYS_ITS_PID}' &"


class Stage:
    """A process engine with a task that runs a script, and its events."""

    def __init__(self, folder: Path, script: str) -> None:
        scenario = Scenario(
            name="daemons",
            framework="none",
            image="none",
            program=Program(command=["true"]),
            cluster={"worker": Role(command=["sh", "-c", script])},
        )
        self.engine, self.inbox = ProcessEngine(), EachLine()
        self.plan: Plan = make_plan(
            scenario, folder.name, self.engine.plan_context(folder.name, folder)
        )
        (folder / "plan.json").write_text(self.plan.model_dump_json())
        self.engine.prepare(self.plan, folder, self.inbox)
        self.pid = int(self.engine.start(self.plan.task("worker-0")))

    def daemon(self) -> psutil.Process:
        """Return the process that prints its pid."""
        return psutil.Process(self.number())

    def number(self) -> int:
        line = self.inbox.get(timeout=60)
        assert isinstance(line, Line), line
        return int(line.text)

    def until_exit(self) -> Exited:
        while not isinstance(event := self.inbox.get(timeout=60), Exited):
            pass
        return event


@pytest.fixture
def run_id() -> str:
    return own("daemons")


@pytest.fixture
def stage(tmp_path: Path, run_id: str) -> Iterator[Callable[[str], Stage]]:
    folder = tmp_path / run_id
    folder.mkdir()
    made: list[Stage] = []

    def make(script: str) -> Stage:
        made.append(Stage(folder, script))
        return made[-1]

    with going_on(folder):
        yield make
        for one in made:
            one.engine.tear_down(run_id)
            one.engine.close()


def is_over(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


@linux
@pytest.mark.parametrize("script", [DAEMON, GRANDCHILD, LIAR])
def test_a_daemon_has_ended_before_the_exit_of_its_task_is_reported(
    stage: Callable[[str], Stage], script: str
) -> None:
    s = stage(f"trap 'exit 7' TERM; {script} while :; do sleep 0.01; done")
    daemon = s.daemon()
    s.engine.signal("worker-0", signal.SIGTERM)
    assert s.until_exit().exit_code == 7
    assert is_over(daemon)


@linux
@pytest.mark.parametrize("script", [DAEMON, GRANDCHILD, LIAR])
def test_a_daemon_is_found_under_the_run_and_the_task_that_started_it(
    stage: Callable[[str], Stage], run_id: str, script: str
) -> None:
    s = stage(f"{script} sleep 1000")
    daemon = s.daemon()
    found = {thing.name: thing for thing in ProcessEngine().find(run_id)}
    assert f"worker-0 (pid {s.pid})" in found
    there = found[f"worker-0 (pid {daemon.pid})"]
    assert (there.run_id, Path(there.folder).name) == (run_id, run_id)
    assert not any(thing.run_id == "other" for thing in ProcessEngine().find())


@linux
@pytest.mark.parametrize("script", [DAEMON, GRANDCHILD, LIAR])
def test_an_engine_that_did_not_start_it_kills_a_daemon(
    stage: Callable[[str], Stage], run_id: str, script: str
) -> None:
    s = stage(f"{script} sleep 1000")
    daemon = s.daemon()
    assert ProcessEngine().tear_down(run_id) >= 1
    assert is_over(daemon)
    assert ProcessEngine().find(run_id) == []
    assert s.until_exit().exit_code == 128 + signal.SIGKILL


@linux
def test_removing_a_task_kills_its_daemons(stage: Callable[[str], Stage]) -> None:
    s = stage(f"{DAEMON} sleep 1000")
    daemon = s.daemon()
    s.engine.remove("worker-0")
    assert is_over(daemon)


@linux
def test_a_daemon_that_left_while_its_task_runs_is_reaped(
    stage: Callable[[str], Stage],
) -> None:
    s = stage("(setsid sh -c 'echo $$' &) & sleep 1000")
    pid = s.number()
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(60)  # it does not stay a zombie for as long as the task runs


@linux
def test_a_task_does_not_outlive_its_keeper(stage: Callable[[str], Stage]) -> None:
    s = stage("sleep 1000 & echo $PPID; wait")
    keeper_of_it, task = s.daemon(), psutil.Process(s.pid)
    assert task.ppid() == keeper_of_it.pid
    group = [task, *task.children()]
    assert len(group) == 2
    keeper_of_it.kill()
    assert s.until_exit().exit_code == 128 + signal.SIGKILL
    assert psutil.wait_procs(group, timeout=60)[1] == []


def test_signals_do_not_end_the_keeper_before_the_task(stage: Callable[[str], Stage]) -> None:
    s = stage('trap "echo 5; exit 9" TERM; echo $PPID; while :; do sleep 0.01; done')
    keeper_of_it = s.daemon()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        keeper_of_it.send_signal(number)
    s.engine.signal("worker-0", signal.SIGTERM)
    assert s.until_exit().exit_code == 9


def test_a_task_has_its_variables_and_none_of_the_keepers(
    stage: Callable[[str], Stage], tmp_path: Path, run_id: str
) -> None:
    s = stage("env > $EMULATOR_SHARED/env; ps -o sid= -o pgid= -p $$; kill -PIPE $$")
    assert s.until_exit().exit_code == 128 + signal.SIGPIPE  # Python ignores it, a task does not
    folder = tmp_path / run_id
    lines = (folder / "shared" / "env").read_text().splitlines()
    assert {line for line in lines if line.startswith("EMULATOR_")} >= {
        f"EMULATOR_RUN={run_id}",
        "EMULATOR_TASK=worker-0",
        f"EMULATOR_FOLDER={folder}",
        f"EMULATOR_SHARED={folder / 'shared'}",
    }
    assert not any(line.startswith("EMULATOR_KEEPER") for line in lines)


def test_the_error_of_a_command_that_can_not_run_is_the_systems(
    stage: Callable[[str], Stage], tmp_path: Path
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


def test_an_order_is_read_as_it_was_written() -> None:
    text = keeper.order(["sh", "-c", "a\nb", ""], {"A": "1=2", "EMPTY": "", "ODD": "\udc80"})
    assert keeper.read_order(text) == (
        [b"sh", b"-c", b"a\nb", b""],
        {b"A": b"1=2", b"EMPTY": b"", b"ODD": b"\x80"},
    )


def test_an_order_that_was_cut_off_starts_nothing() -> None:
    text = keeper.order(["sh", "-c", "true"], {"A": "1", "B": "2"})
    assert keeper.read_order(text) is not None
    assert [keeper.read_order(text[:length]) for length in range(len(text))] == [None] * len(text)


def test_a_report_has_the_pid_of_the_task_or_an_error_number() -> None:
    assert keeper.pid_or_error(b"12\n") == (12, None)
    assert keeper.pid_or_error(b"12\n2\n") == (12, 2)
    assert keeper.pid_or_error(b"") == (None, None)


@linux
def test_this_system_lets_a_keeper_have_daemons() -> None:
    assert keeper.adopts()


def test_elsewhere_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keeper.adopts()
