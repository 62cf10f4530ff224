"""A check whether a run is live is never taken for its supervisor, nor delays it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from emulator.errors import InUse
from emulator.record import lock
from emulator.record.lock import LOCK, acquire, is_live, locked, release, wait_until_over

CHECKS = """
import sys
from pathlib import Path
from emulator.record.lock import is_live
print("ready", flush=True)
sys.stdin.readline()
print(sum(is_live(Path(sys.argv[1])) for _ in range(1000)))
"""


def checking(folder: Path) -> subprocess.Popen[str]:
    """Start a process that waits for a line, and then checks a thousand times."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHECKS, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@contextmanager
def a_check(folder: Path) -> Iterator[None]:
    """Be in the middle of a check."""
    with (folder / LOCK).open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def supervised(folder: Path) -> Iterator[None]:
    """Be the supervisor of a run."""
    taken = acquire(folder)
    yield
    release(taken)


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    """The folder of a run whose supervisor is gone."""
    (tmp_path / LOCK).touch()
    return tmp_path


def test_many_checks_of_a_dead_run_do_not_take_each_other_for_its_supervisor(dead: Path) -> None:
    processes = [checking(dead), checking(dead)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate(timeout=300)[0] for process in processes] == ["0\n", "0\n"]


def test_a_lock_is_acquired_and_released_during_checks(dead: Path) -> None:
    over = threading.Event()

    def look() -> int:
        count = 0
        while not over.is_set():
            is_live(dead)
            count += 1
        return count

    with ThreadPoolExecutor() as pool:
        looking = [pool.submit(look) for _ in range(2)]
        try:
            for _ in range(100):
                taken = acquire(dead)
                assert is_live(dead)
                release(taken)
        finally:
            over.set()
        assert all(looks.result() > 0 for looks in looking)


def test_acquire_waits_for_a_check(dead: Path) -> None:
    with ThreadPoolExecutor() as pool:
        with a_check(dead):
            assert not is_live(dead)
            taking = pool.submit(acquire, dead)
            with pytest.raises(TimeoutError):
                taking.result(timeout=0.05)
        taken = taking.result(timeout=60)
    assert is_live(dead)
    release(taken)


def test_acquire_does_not_wait_for_ever_for_a_check(
    dead: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "CHECKS_END_WITHIN", 0.0)
    with a_check(dead), pytest.raises(InUse):
        acquire(dead)


def test_acquire_does_not_wait_for_a_supervisor(
    dead: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", pytest.fail)
    with supervised(dead), pytest.raises(InUse):
        acquire(dead)


def test_two_wait_for_the_end_of_a_run_which_is_not_live_for_that(dead: Path) -> None:
    holder = acquire(dead)
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(wait_until_over, dead) for _ in range(2)]
        with pytest.raises(TimeoutError):
            waiting[0].result(timeout=0.05)
        release(holder)
        for one in waiting:
            one.result(timeout=60)
            assert not is_live(dead)


def test_a_check_makes_no_lock(tmp_path: Path) -> None:
    wait_until_over(tmp_path)
    wait_until_over(tmp_path / "gone")
    (tmp_path / "file").touch()
    assert not any(map(is_live, (tmp_path, tmp_path / "gone", tmp_path / "file")))
    assert os.listdir(tmp_path) == ["file"]


def test_a_run_that_can_not_be_checked_counts_as_live(tmp_path: Path) -> None:
    (tmp_path / LOCK).symlink_to(tmp_path / LOCK)
    assert is_live(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_lock_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOCK)
    is_live(tmp_path)


# --- Removal -----------------------------------------------------------------------------------


def test_a_run_is_live_during_removal_and_a_supervisor_is_refused(dead: Path) -> None:
    with locked(dead, make=False):
        assert is_live(dead)
        with pytest.raises(InUse):
            acquire(dead)
    assert not is_live(dead)
    taken = acquire(dead)
    release(taken)


def test_removal_is_refused_while_a_supervisor_runs(dead: Path) -> None:
    with (
        supervised(dead),
        pytest.raises(InUse, match=rf"Another emulate process is using {dead}\."),
        locked(dead, make=True),
    ):
        pytest.fail("not reached")


def test_two_do_not_remove_at_once(dead: Path) -> None:
    with locked(dead, make=False), pytest.raises(InUse), locked(dead, make=False):
        pytest.fail("not reached")


def test_removal_waits_for_a_check(dead: Path) -> None:
    def remove() -> None:
        with locked(dead, make=False):
            assert is_live(dead)

    with ThreadPoolExecutor() as pool:
        with a_check(dead):
            removing = pool.submit(remove)
            with pytest.raises(TimeoutError):
                removing.result(timeout=0.05)
        removing.result(timeout=60)


def test_a_lock_file_is_made_only_if_asked_for(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "gone"):
        with locked(folder, make=False):
            assert os.listdir(tmp_path) == []
    with locked(tmp_path, make=True):
        assert is_live(tmp_path)
    assert os.listdir(tmp_path) == [LOCK]


def test_a_file_that_is_no_lock_is_neither_followed_nor_changed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / LOCK).symlink_to("file")
    with pytest.raises(InUse), locked(tmp_path, make=True):
        pytest.fail("not reached")
    (tmp_path / LOCK).unlink()
    (tmp_path / LOCK).write_text("mine")
    with locked(tmp_path, make=True):
        pass
    assert (tmp_path / "file").read_text() == (tmp_path / LOCK).read_text() == "mine"
