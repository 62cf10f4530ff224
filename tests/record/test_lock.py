"""A check whether a run is live is never taken for its supervisor, nor delays it."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest

from emulator.errors import InUse
from emulator.record import lock
from emulator.record.lock import (
    LOCK,
    acquire,
    is_being_removed,
    is_live,
    locked,
    release,
    wait_until_over,
)


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
    try:
        yield
    finally:
        release(taken)


TAKES = (supervised, partial(locked, make=False), partial(locked, make=True))
"""The ways to have the lock: as a supervisor, and for a removal."""
Take = Callable[[Path], AbstractContextManager[None]]


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    """The folder of a run whose supervisor is gone."""
    (tmp_path / LOCK).touch()
    return tmp_path


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
                with supervised(dead):
                    assert is_live(dead)
        finally:
            over.set()
        assert all(looks.result() > 0 for looks in looking)


@pytest.mark.parametrize("take", TAKES)
def test_supervisors_and_removals_wait_for_a_check(dead: Path, take: Take) -> None:
    def have() -> None:
        with take(dead):
            assert is_live(dead)

    with ThreadPoolExecutor() as pool:
        with a_check(dead):
            assert not is_live(dead)
            taking = pool.submit(have)
            with pytest.raises(TimeoutError):
                taking.result(timeout=0.05)
        taking.result(timeout=300)


def test_acquire_does_not_wait_for_a_supervisor_nor_for_ever_for_a_check(
    dead: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, supervised(dead):
        patch.setattr(time, "sleep", pytest.fail)
        with pytest.raises(InUse):
            acquire(dead)
    monkeypatch.setattr(lock, "CHECKS_END_WITHIN", 0.0)
    with a_check(dead), pytest.raises(InUse):
        acquire(dead)


def test_two_wait_for_the_end_of_a_run_which_is_not_live_for_that(dead: Path) -> None:
    holder = acquire(dead)
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(wait_until_over, dead) for _ in range(2)]
        with pytest.raises(TimeoutError):
            waiting[0].result(timeout=0.05)
        release(holder)
        for one in waiting:
            one.result(timeout=300)
            assert not is_live(dead)


def test_a_lock_file_is_made_only_if_asked_for(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path, tmp_path / "gone"):
        wait_until_over(folder)
        with locked(folder, make=False):
            assert not any(map(is_live, (folder, tmp_path / "file")))
            assert os.listdir(tmp_path) == ["file"]
    with locked(tmp_path, make=True):
        assert is_live(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["file", LOCK]


def test_a_run_that_can_not_be_checked_counts_as_live_and_a_pipe_is_not_waited_for(
    tmp_path: Path,
) -> None:
    (tmp_path / LOCK).symlink_to(tmp_path / LOCK)
    assert is_live(tmp_path)
    (tmp_path / LOCK).unlink()
    os.mkfifo(tmp_path / LOCK)
    is_live(tmp_path)


# --- Removal -----------------------------------------------------------------------------------


@pytest.mark.parametrize("take", TAKES)
def test_whoever_has_the_lock_makes_the_run_live_and_all_others_are_refused(
    dead: Path, take: Take
) -> None:
    with take(dead):
        assert is_live(dead)
        opened = os.listdir("/proc/self/fd")
        for other in TAKES:
            with (
                pytest.raises(InUse, match=rf"other emulate process is using {dead}\."),
                other(dead),
            ):
                pytest.fail("not reached")
        assert is_live(dead)
        assert os.listdir("/proc/self/fd") == opened  # who is refused leaves no file open
    assert not is_live(dead)
    with take(dead):
        pass


def test_who_removes_a_run_says_so_in_the_lock_and_a_supervisor_after_it_does_not(
    dead: Path,
) -> None:
    for make in (True, False):
        with locked(dead, make=make):
            assert is_being_removed(dead) == make
        assert (dead / LOCK).read_bytes() == b""
    (dead / LOCK).write_bytes(b"removing")  # it was killed meanwhile
    assert not is_being_removed(dead)
    with locked(dead, make=True):
        assert (dead / LOCK).read_bytes() == b"removing"
    with supervised(dead):
        assert (dead / LOCK).read_bytes() == b""
        assert not is_being_removed(dead)
    assert not is_being_removed(dead / "gone")


def test_a_file_that_is_no_lock_is_neither_followed_nor_changed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / LOCK).symlink_to("file")
    with pytest.raises(InUse), locked(tmp_path, make=True):
        pytest.fail("not reached")
    (tmp_path / LOCK).unlink()
    (tmp_path / LOCK).write_text("removing mine")
    for take in TAKES:
        with take(tmp_path):
            assert not is_being_removed(tmp_path)
    assert (tmp_path / "file").read_text() == "mine"
    assert (tmp_path / LOCK).read_text() == "removing mine"
