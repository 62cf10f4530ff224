"""The lock of a run: its supervisor has it, and other processes check whether it is taken.

The kernel releases it when the supervisor ends, however that happens. The supervisor's lock is
exclusive and a check takes a shared one, so checks never see each other as a supervisor.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from emulator.errors import InUse
from emulator.runtime import signals
from emulator.runtime.waiting import for_lock

LOCK = "supervisor.lock"
CHECKS_END_WITHIN = 10.0
"""Seconds to wait for others' checks to end; a check needs microseconds of CPU."""
_REMOVING = b"removing"
"""The content of the lock file while leftovers are removed; empty under a supervisor."""


def acquire(folder: Path) -> int:
    """Acquire a run's lock for a supervisor; return its descriptor, for `release`.

    Raises InUse at once if another process has the lock, OSError if there can be no lock file.
    """
    lock = _open(folder, os.O_RDWR | os.O_CREAT)
    try:
        _acquire(lock, folder)
        if _marked(lock):  # by a process that was killed while it removed a run
            os.ftruncate(lock, 0)
    except BaseException:
        release(lock)
        raise
    return lock


def release(lock: int) -> None:
    """Release a lock and close its descriptor."""
    fcntl.flock(lock, fcntl.LOCK_UN)  # a forked child may have it open as well
    os.close(lock)


@contextlib.contextmanager
def locked(folder: Path, *, make: bool) -> Iterator[None]:
    """Hold a run's lock while its leftovers are removed, so that no process takes the run over.

    `make` creates a missing lock file, for a folder that is known to be a run's; without it nothing
    is locked. Raises InUse if the lock is taken or can't be checked.
    """
    try:
        lock = _open(folder, os.O_RDWR | (os.O_CREAT if make else 0))
    except (FileNotFoundError, NotADirectoryError):
        yield
        return
    except OSError:
        raise in_use(folder) from None
    mark = False
    try:
        _acquire(lock, folder)
        mark = make and os.fstat(lock).st_size == 0  # else the file may be anything
        if mark:
            os.pwrite(lock, _REMOVING, 0)
        yield
    finally:
        if mark:
            with contextlib.suppress(OSError):
                os.ftruncate(lock, 0)
        release(lock)


def in_use(folder: Path) -> InUse:
    """Return the error for a lock that another process has."""
    return InUse(f"Another emulate process is using {folder}.", "Try again when it has finished.")


def is_live(folder: Path) -> bool:
    """Return whether a supervisor has the run's lock."""
    try:
        with _opened(folder) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # taken; or unknown, and a run that may be running is left alone
    return False


def is_being_removed(folder: Path) -> bool:
    """Return whether a process has the run's lock to remove its leftovers (see `locked`)."""
    with contextlib.suppress(OSError), _opened(folder) as lock:
        return _marked(lock) and is_live(folder)
    return False


def wait_until_over(folder: Path) -> None:
    """Wait until no supervisor has the run's lock."""
    with contextlib.suppress(FileNotFoundError), _opened(folder) as lock:  # it may never have one
        for_lock(lock, fcntl.LOCK_SH, signals.check)


def _open(folder: Path, flags: int) -> int:
    """Open a lock file. The path may be anything: do not wait for a pipe, do not follow a link.

    Who can read a file can lock it, so it is for its owner alone.
    """
    return os.open(folder / LOCK, flags | os.O_NONBLOCK | os.O_NOFOLLOW, 0o600)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    lock = _open(folder, os.O_RDONLY)
    try:
        yield lock
    finally:
        release(lock)


def _acquire(lock: int, folder: Path) -> None:
    """Acquire the exclusive lock at once; wait only for checks of other processes."""
    until = time.monotonic() + CHECKS_END_WITHIN
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            if is_live(folder) or time.monotonic() > until:
                raise in_use(folder) from None
        time.sleep(0.001)  # waiting for the end of a check would be a check itself


def _marked(lock: int) -> bool:
    return os.pread(lock, len(_REMOVING) + 1, 0) == _REMOVING
