"""The lock of a run: one supervisor holds it, and any number of others look whether one does.

The kernel drops it with its holder, however that ends. A holder has it alone and those who look
share it, so that they never take each other for a supervisor.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from emulator import signals
from emulator.errors import InUse
from emulator.waiting import for_lock

__all__ = ["LOCK", "acquire", "held", "in_use", "is_live", "lock_of", "wait_until_over"]

LOCK = "supervisor.lock"
LOOKS_END_WITHIN = 10.0
"""Seconds that a supervisor gives those who look: these need microseconds, and a core to run on."""


def lock_of(folder: Path) -> FileLock:
    """Return the lock of a run, as its supervisor takes it."""
    return FileLock(folder / LOCK, thread_local=False)


def acquire(lock: FileLock) -> None:
    """Take a run's lock; raises Timeout at once where another supervisor holds it.

    Where others only look, which is over in a moment, it is tried again.
    """
    until = time.monotonic() + LOOKS_END_WITHIN
    while True:
        try:
            lock.acquire(timeout=0)
            return
        except Timeout:
            if is_live(Path(lock.lock_file).parent) or time.monotonic() > until:
                raise
        time.sleep(0.001)  # nothing tells when a look is over without being one itself


@contextlib.contextmanager
def held(folder: Path, *, make: bool) -> Iterator[None]:
    """Hold a run's lock while what the run left is removed: nobody takes the run over meanwhile.

    Where there is no lock file, one is made if `make` says so; else nobody can hold it. Only say
    so for a folder that is known to be a run's. Raises InUse where the lock is held, or where
    nobody can tell.
    """
    flags = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | (os.O_CREAT if make else 0)
    try:
        lock = os.open(folder / LOCK, flags, 0o644)
    except (FileNotFoundError, NotADirectoryError):
        yield
        return
    except OSError:
        raise in_use(folder) from None
    try:
        _take(lock, folder)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_UN)  # a forked child may have it open as well
        os.close(lock)


def in_use(folder: Path) -> InUse:
    """Return the error that says that somebody else holds the lock."""
    return InUse(f"Another emulate is at work on {folder}.", "Try again when it has finished.")


def _take(lock: int, folder: Path) -> None:
    """Take the lock at once; only a look, which is over in a moment, is waited for."""
    until = time.monotonic() + LOOKS_END_WITHIN
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            if is_live(folder) or time.monotonic() > until:
                raise in_use(folder) from None
        time.sleep(0.001)


def is_live(folder: Path) -> bool:
    """Say whether a supervisor holds the run's lock."""
    try:
        _look(folder, fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # held; or nobody can tell, and it is safer to leave alone what may go on
    return False


def wait_until_over(folder: Path) -> None:
    """Wait until no supervisor holds the run's lock."""
    with contextlib.suppress(FileNotFoundError):  # it never had one
        _look(folder)


def _look(folder: Path, flags: int = 0) -> None:
    """Wait until nobody has the run's lock for himself; with LOCK_NB raise OSError instead.

    It is a FileLock's own lock (flock, on Linux and macOS), which that can't share.
    """
    # What lies there may be anything: a named pipe would be waited for, a link followed.
    lock = os.open(folder / LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        if flags & fcntl.LOCK_NB:
            fcntl.flock(lock, fcntl.LOCK_SH | flags)
        else:
            for_lock(lock, fcntl.LOCK_SH, signals.check)
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)  # a forked child may have it open as well
        os.close(lock)
