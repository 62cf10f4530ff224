"""How the process engine kills the processes of a run, also those that fork meanwhile."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from emulator.engines.process import ProcessEngine, engine
from emulator.engines.process.process_table import Owned, owned
from emulator.errors import EngineError
from emulator.planning.requested import RunOptions
from emulator.session.run import up
from tests.asked import asked
from tests.conftest import going_on, own

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def run_id() -> str:
    return own("forks")


@pytest.fixture
def start(tmp_path: Path, run_id: str) -> Iterator[Start]:
    """Start shells as a run's supervisor did that is gone; they end with the test."""
    folder = tmp_path / run_id
    folder.mkdir()
    labels = {"EMULATOR_RUN": run_id, "EMULATOR_FOLDER": str(folder)}
    started: list[subprocess.Popen[str]] = []

    def one(script: str, *, labelled: bool = True) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                ["sh", "-c", script],
                env={**os.environ, "FOLDER": str(folder), "RUN": run_id}
                | (labels if labelled else {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    with going_on(folder):  # a concurrent `clean` leaves it alone
        yield one
        for shell in started:
            shell.kill()
            shell.communicate()
        for left in ProcessEngine().find(run_id):
            with contextlib.suppress(psutil.Error):
                psutil.Process(int(left.name.partition("pid ")[2].rstrip(")"))).kill()


def line_of(shell: subprocess.Popen[str]) -> str:
    """Wait for the next line that it prints."""
    assert shell.stdout is not None
    return shell.stdout.readline()


def test_what_is_forked_between_a_look_and_its_kill_is_killed_as_well(
    start: Start, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = start("while read line; do sleep 1000 > /dev/null & echo $!; done")
    orders = shell.stdin
    assert orders is not None
    forked = list[int]()

    def look_and_fork() -> list[Owned]:
        found = owned()
        if not forked:
            orders.write("now\n")
            orders.flush()
            forked.append(int(line_of(shell)))
        return found

    monkeypatch.setattr(engine, "owned", look_and_fork)
    assert ProcessEngine().tear_down(run_id) == 2
    assert forked
    assert ProcessEngine().find(run_id) == []


def test_a_shell_that_keeps_forking_is_removed_with_all_that_it_forks(
    start: Start, run_id: str
) -> None:
    shell = start("while :; do sleep 1000 > /dev/null & echo $!; sleep 0.001; done")
    line_of(shell)
    assert ProcessEngine().tear_down(run_id) >= 2
    assert ProcessEngine().find(run_id) == []
    assert shell.wait() == -9  # its exit code is left to its parent


def test_a_zombie_does_not_count_as_alive(
    start: Start, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "REMOVAL_TIMEOUT", 1.0)
    # The shell becomes a sleep, which never waits for the child that the shell has started.
    parent = start(
        "EMULATOR_RUN=$RUN EMULATOR_FOLDER=$FOLDER sleep 1000 > /dev/null & echo $!; "
        "exec sleep 1000",
        labelled=False,
    )
    child = psutil.Process(int(line_of(parent)))
    while run_id not in [found.run_id for found in ProcessEngine().find(run_id)]:
        assert parent.poll() is None  # it has no variables of its own before it is a sleep
    while psutil.Process(parent.pid).name() != "sleep":
        assert parent.poll() is None  # a shell waits for it
    assert ProcessEngine().tear_down(run_id) == 1
    assert child.status() == psutil.STATUS_ZOMBIE


def test_processes_that_do_not_die_are_an_error(
    start: Start, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "REMOVAL_TIMEOUT", 0.0)
    monkeypatch.setattr(psutil.Process, "kill", lambda self: None)
    shell = start("echo up; read line")
    line_of(shell)
    with pytest.raises(EngineError, match=rf"1 processes of {run_id} don't die: {shell.pid}\."):
        ProcessEngine().tear_down(run_id)


def test_the_end_of_a_run_leaves_alone_another_run_with_its_id(
    start: Start, run_id: str, tmp_path: Path
) -> None:
    shell = start("sleep 1000 > /dev/null & echo $!; wait")
    line_of(shell)
    before = ProcessEngine().find(run_id)
    text = "name: other\nframework: none\nprogram: {command: ['true']}\ncluster: {worker: 1}\n"
    with contextlib.closing(ProcessEngine()) as other:
        result = up(asked(text), other, RunOptions(out=tmp_path / "elsewhere", run_id=run_id))
    assert result.outcome == "succeeded"
    assert ProcessEngine().find(run_id) == before
