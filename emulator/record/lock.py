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

from filelock import FileLock, Timeout

from emulator.errors import InUse
from emulator.runtime import signals
from emulator.runtime.waiting import for_lock

__all__ = ["LOCK", "acquire", "in_use", "is_live", "lock_of", "locked", "wait_until_over"]

LOCK = "supervisor.lock"
LOOKS_END_WITHIN = 10.0
"""Seconds to wait for others' checks to end; a check needs microseconds of CPU."""


def lock_of(folder: Path) -> FileLock:
    """Return the supervisor's lock of a run."""
    return FileLock(folder / LOCK, thread_local=False)


_REMOVING = b"removing"
"""The content of the lock file while leftovers are removed; empty under a supervisor."""


def acquire(lock: FileLock) -> None:
    """Acquire a run's lock; raises Timeout at once if another supervisor has it.

    Retries while a check of another process has it for a moment.
    """
    until = time.monotonic() + LOOKS_END_WITHIN
    while True:
        try:
            lock.acquire(timeout=0)
            _forget_removal(Path(lock.lock_file))
            return
        except Timeout:
            if is_live(Path(lock.lock_file).parent) or time.monotonic() > until:
                raise
        time.sleep(0.001)  # waiting for the end of a check would be a check itself


@contextlib.contextmanager
def locked(folder: Path, *, make: bool) -> Iterator[None]:
    """Hold a run's lock while its leftovers are removed, so that no process takes the run over.

    `make` creates a missing lock file, for a folder that is known to be a run's; without it nothing
    is locked. Raises InUse if the lock is taken or can't be checked.
    """
    flags = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | (os.O_CREAT if make else 0)
    try:
        lock = os.open(folder / LOCK, flags, 0o644)
    except (FileNotFoundError, NotADirectoryError):
        yield
        return
    except OSError:
        raise in_use(folder) from None
    marked = False
    try:
        _take(lock, folder)
        marked = make and os.fstat(lock).st_size == 0  # else the file may be anything
        if marked:
            os.pwrite(lock, _REMOVING, 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            if marked:
                os.ftruncate(lock, 0)
            fcntl.flock(lock, fcntl.LOCK_UN)  # a forked child may have it open as well
        os.close(lock)


def in_use(folder: Path) -> InUse:
    """Return the error for a lock that another process has."""
    return InUse(f"Another emulate process is using {folder}.", "Try again when it has finished.")


def _take(lock: int, folder: Path) -> None:
    """Acquire the lock at once; wait only for checks of other processes."""
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
    """Return whether a supervisor has the run's lock."""
    try:
        _wait_shared(folder, fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # taken; or unknown, and a run that may be running is left alone
    return False


def is_being_removed(folder: Path) -> bool:
    """Return whether a process has the run's lock to remove its leftovers (see `held`)."""
    try:
        # The path may be anything: do not wait for a named pipe, do not follow a link.
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return os.read(lock, len(_REMOVING) + 1) == _REMOVING and is_live(folder)
    except OSError:
        return False
    finally:
        os.close(lock)


def _forget_removal(path: Path) -> None:
    """Empty a lock file that a process left which was killed while it removed a run."""
    with contextlib.suppress(OSError):
        lock = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            if os.read(lock, len(_REMOVING) + 1) == _REMOVING:
                os.ftruncate(lock, 0)
        finally:
            os.close(lock)


def wait_until_over(folder: Path) -> None:
    """Wait until no supervisor has the run's lock."""
    with contextlib.suppress(FileNotFoundError):  # it never had one
        _wait_shared(folder)


def _wait_shared(folder: Path, flags: int = 0) -> None:
    """Wait until no process has the exclusive lock; with LOCK_NB raise OSError instead.

    Uses the same lock as FileLock (flock, on Linux and macOS), which has no shared mode itself.
    """
    # The path may be anything: do not wait for a named pipe, do not follow a link.
    lock = os.open(folder / LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        if flags & fcntl.LOCK_NB:
            fcntl.flock(lock, fcntl.LOCK_SH | flags)
        else:
            for_lock(lock, fcntl.LOCK_SH, signals.check)
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)  # a forked child may have it open as well
        os.close(lock)
