"""The claims on disk: a file and a named pipe each, changed under a mutex."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import select
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from emulator.broker.claims import Capacity, Claim, Need, Run, grant
from emulator.errors import RecordError
from emulator.files import atomic_write, os_errors
from emulator.waiting import SLICE, for_lock

__all__ = ["Book", "is_any", "own", "sender", "until_one_closes", "visit"]

Result = TypeVar("Result")

_FAILED = "Can't keep account of what this machine lends in {}"
_HINT = "Make room, or set XDG_CACHE_HOME to a folder that can be written."


def visit(folder: Path, do: Callable[[Book], Result]) -> Result:
    """Have something done to the claims, by one process at a time.

    Raises RecordError.
    """
    with os_errors(RecordError, _FAILED.format(folder), _HINT):
        folder.mkdir(parents=True, exist_ok=True)
        # What gives the mutex back is not written in Python, where an interrupt can come between
        # any two calls. Nor is it a FileLock: that one asks again and again where it has to wait.
        with io.FileIO(folder / "mutex", "a") as mutex:
            try:
                for_lock(mutex.fileno(), fcntl.LOCK_EX)
                return do(Book(folder))
            finally:
                fcntl.flock(mutex, fcntl.LOCK_UN)  # a forked child may have it open as well


class Book:
    """All claims, as they are while the mutex is held. What nobody can mean is swept out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.claims: dict[str, Claim] = {}
        self._dead: set[str] = set()
        names = set(os.listdir(folder))
        for name in names:
            key, _, kind = name.partition(".")
            if kind == "partial" or (kind == "pipe" and f"{key}.json" not in names):
                _unlink(folder / name)  # its writer has died in the middle
        for name in sorted(name for name in names if name.endswith(".json")):
            self._read(name.removesuffix(".json"))

    def _read(self, key: str) -> None:
        """Take in a claim; one that waits, or that nobody can read, goes with its owner."""
        with sender(self.path(key)) as end:
            alive = end is not None
        claim = _claim_in(self._folder / f"{key}.json")
        if not alive and not (claim and claim.granted):
            self.remove(key)
        elif claim is not None:
            self.claims[key] = claim
            if not alive:
                self._dead.add(key)

    def __getitem__(self, key: str) -> Claim:
        """Return a claim that must be there; raises RecordError where somebody has removed it."""
        if key not in self.claims:
            raise RecordError(f"Somebody has removed the claims in {self._folder}.", "Try again.")
        return self.claims[key]

    @property
    def next_number(self) -> int:
        """The number of one who comes now."""
        return 1 + max((claim.number for claim in self.claims.values()), default=0)

    def dead(self) -> dict[str, Claim]:
        """Return the claims of holders that are gone."""
        return {key: self.claims[key] for key in sorted(self._dead)}

    def settle(self) -> None:
        """Grant all that can be granted, for others as well: so nobody comes before his turn."""
        settled = {claim.number: claim for claim in grant(self.claims.values())}
        for key, claim in self.claims.items():
            if claim != settled[claim.number]:
                self.write(key, settled[claim.number])

    def write(self, key: str, claim: Claim) -> None:
        """Store a claim, whole or not at all."""
        atomic_write(self._folder / f"{key}.json", json.dumps(asdict(claim), default=str))
        self.claims[key] = claim

    def remove(self, key: str) -> None:
        """Remove a claim."""
        _unlink(self._folder / f"{key}.json")
        _unlink(self.path(key))
        self.claims.pop(key, None)
        self._dead.discard(key)

    def path(self, key: str) -> Path:
        """Where the pipe of a claim is."""
        return self._folder / f"{key}.pipe"


def own(path: Path) -> io.FileIO:
    """Open a claim's pipe as its owner: the claim lives until that is closed."""
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    # For writing as well, since nobody else may be there to open the other end. As an object and
    # no number: one that an interrupt loses is closed, and keeps nothing alive.
    pipe = io.FileIO(path, "r+")
    _pipes[pipe.fileno()] = weakref.ref(pipe)
    return pipe


_pipes: dict[int, weakref.ref[io.FileIO]] = {}
"""What this process keeps alive, and has kept alive."""


def _leave_to_parent() -> None:
    """Close a forked child's copies of the pipes: it would keep alive what is not its own."""
    for known in list(_pipes.values()):
        if (pipe := known()) is not None:
            pipe.close()


os.register_at_fork(after_in_child=_leave_to_parent)


@contextlib.contextmanager
def sender(path: Path) -> Iterator[int | None]:
    """Open the other end of a claim's pipe; None where its owner is gone."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.ENOENT):
            raise
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def until_one_closes(ends: Sequence[int]) -> None:
    """Wait until one of the owners goes; that it has gone by now is told as well."""
    poll = select.poll()
    for end in ends:
        poll.register(end, 0)  # nothing but that its reader is gone, which is always told
    while not poll.poll(SLICE * 1000):
        pass  # a signal that did not wake it is seen now


def is_any(folder: Path) -> bool:
    """Say whether there is any claim, without waiting for the mutex."""
    try:
        return any(name.endswith(".json") for name in os.listdir(folder))
    except OSError:
        return False


def _claim_in(path: Path) -> Claim | None:
    """Read a claim; None where it is none of this version."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        of, runs = raw["of"], raw["runs"]
        return Claim(
            **{
                **raw,
                "need": Need(**raw["need"]),
                "of": Capacity(**{**of, "gpus": tuple(of["gpus"])}),
                "gpus": tuple(raw["gpus"]),
                "runs": tuple(Run(**{**run, "folder": Path(run["folder"])}) for run in runs),
            }
        )
    except (ValueError, KeyError, TypeError):
        return None


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)
