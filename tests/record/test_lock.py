"""Who looks whether a run goes on is never taken for its supervisor, nor stands in its way."""

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

LOOKS = """
import sys
from pathlib import Path
from emulator.record.lock import is_live
print("ready", flush=True)
sys.stdin.readline()
print(sum(is_live(Path(sys.argv[1])) for _ in range(1000)))
"""


def looks(folder: Path) -> subprocess.Popen[str]:
    """Start a process that waits for a word, and then looks a thousand times."""
    process = subprocess.Popen(
        [sys.executable, "-c", LOOKS, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@contextmanager
def a_look(folder: Path) -> Iterator[None]:
    """Be in the middle of a look."""
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


def test_many_who_look_at_a_dead_run_do_not_take_each_other_for_its_supervisor(dead: Path) -> None:
    processes = [looks(dead), looks(dead)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate(timeout=300)[0] for process in processes] == ["0\n", "0\n"]


def test_a_run_is_taken_over_and_given_back_while_others_look(dead: Path) -> None:
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


def test_who_takes_a_run_lets_a_look_end(dead: Path) -> None:
    with ThreadPoolExecutor() as pool:
        with a_look(dead):
            assert not is_live(dead)
            taking = pool.submit(acquire, dead)
            with pytest.raises(TimeoutError):
                taking.result(timeout=0.05)
        taken = taking.result(timeout=60)
    assert is_live(dead)
    release(taken)


def test_who_takes_a_run_does_not_wait_for_ever_for_a_look(
    dead: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "CHECKS_END_WITHIN", 0.0)
    with a_look(dead), pytest.raises(InUse):
        acquire(dead)


def test_who_takes_a_run_does_not_wait_for_its_supervisor(
    dead: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", pytest.fail)
    with supervised(dead), pytest.raises(InUse):
        acquire(dead)


def test_two_wait_for_the_end_of_a_run_and_nobody_sees_it_live_for_that(dead: Path) -> None:
    holder = acquire(dead)
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(wait_until_over, dead) for _ in range(2)]
        with pytest.raises(TimeoutError):
            waiting[0].result(timeout=0.05)
        release(holder)
        for one in waiting:
            one.result(timeout=60)
            assert not is_live(dead)


def test_who_looks_makes_no_lock(tmp_path: Path) -> None:
    wait_until_over(tmp_path)
    wait_until_over(tmp_path / "gone")
    (tmp_path / "file").touch()
    assert not any(map(is_live, (tmp_path, tmp_path / "gone", tmp_path / "file")))
    assert os.listdir(tmp_path) == ["file"]


def test_what_nobody_can_tell_is_left_alone_as_if_it_went_on(tmp_path: Path) -> None:
    (tmp_path / LOCK).symlink_to(tmp_path / LOCK)
    assert is_live(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_lock_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOCK)
    is_live(tmp_path)


# --- Whoever removes ----------------------------------------------------------------------------


def test_who_removes_is_seen_as_at_work_and_a_supervisor_is_refused(dead: Path) -> None:
    with locked(dead, make=False):
        assert is_live(dead)
        with pytest.raises(InUse):
            acquire(dead)
    assert not is_live(dead)
    taken = acquire(dead)
    release(taken)


def test_who_removes_is_refused_while_a_supervisor_is_at_work(dead: Path) -> None:
    with (
        supervised(dead),
        pytest.raises(InUse, match=rf"Another emulate process is using {dead}\."),
        locked(dead, make=True),
    ):
        pytest.fail("it has no business here")


def test_two_do_not_remove_at_once(dead: Path) -> None:
    with locked(dead, make=False), pytest.raises(InUse), locked(dead, make=False):
        pytest.fail("one of them is enough")


def test_who_removes_lets_a_look_end(dead: Path) -> None:
    def remove() -> None:
        with locked(dead, make=False):
            assert is_live(dead)

    with ThreadPoolExecutor() as pool:
        with a_look(dead):
            removing = pool.submit(remove)
            with pytest.raises(TimeoutError):
                removing.result(timeout=0.05)
        removing.result(timeout=60)


def test_a_lock_is_made_only_where_that_was_said(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "gone"):
        with locked(folder, make=False):
            assert os.listdir(tmp_path) == []
    with locked(tmp_path, make=True):
        assert is_live(tmp_path)
    assert os.listdir(tmp_path) == [LOCK]


def test_what_is_no_lock_is_neither_followed_nor_changed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / LOCK).symlink_to("file")
    with pytest.raises(InUse), locked(tmp_path, make=True):
        pytest.fail("nobody can tell")
    (tmp_path / LOCK).unlink()
    (tmp_path / LOCK).write_text("mine")
    with locked(tmp_path, make=True):
        pass
    assert (tmp_path / "file").read_text() == (tmp_path / LOCK).read_text() == "mine"
