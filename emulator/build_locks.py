"""What builds of images on one machine owe each other: a tag is built once, and no stage vanishes.

Of one user, that is: an engine that others use as well has locks of none of them.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from emulator import signals
from emulator.waiting import SLICE, for_lock

__all__ = ["last_one_does", "one_at_a_time"]


@contextlib.contextmanager
def one_at_a_time(tag: str) -> Iterator[None]:
    """Let one process of this machine build a tag; the others wait and then find it."""
    lock = FileLock(_folder() / f"{tag.replace(':', '-')}.lock")
    try:
        while not lock.is_locked:
            with contextlib.suppress(Timeout):
                lock.acquire(timeout=SLICE)
            signals.check()
        yield
    finally:
        lock.release()  # nothing happens where it is not held


@contextlib.contextmanager
def last_one_does(tidy: Callable[[], None]) -> Iterator[None]:
    """Build beside others; whoever is the last to be done tidies up, and who comes then waits.

    To an engine a stage that somebody is about to copy from looks like one that nobody needs.
    """
    with (_folder() / "builds.lock").open("w") as lock:
        for_lock(lock.fileno(), fcntl.LOCK_SH, signals.check)
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):  # what went wrong with the build says more
                _tidy_if_last(lock, tidy)
            raise
        _tidy_if_last(lock, tidy)


def _tidy_if_last(lock: IO[str], tidy: Callable[[], None]) -> None:
    # Given back before it is asked for: two who end together would both not be the last.
    fcntl.flock(lock, fcntl.LOCK_UN)
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tidy()


def _folder() -> Path:
    folder = user_cache_path("emulator") / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
