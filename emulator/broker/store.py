"""The claims on disk: one file and one named pipe per claim, changed under a mutex."""

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
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

from emulator.broker.claims import Capacity, Claim, Need, Run, grant
from emulator.errors import RecordError
from emulator.runtime.files import FOR_OWNER, atomic_write, os_errors
from emulator.runtime.waiting import SLICE, for_lock

Result = TypeVar("Result")


def transaction(folder: Path, do: Callable[[ClaimStore], Result]) -> Result:
    """Call `do` with the claims in `folder`, in one process at a time.

    Raises RecordError.
    """
    problem = f"Can't read or write the broker's leases in {folder}"
    hint = "Make room, or set XDG_CACHE_HOME to a folder that can be written."
    with os_errors(RecordError, problem, hint):
        folder.mkdir(FOR_OWNER, parents=True, exist_ok=True)
        # FileIO releases the mutex in C code: Python code could be interrupted before it does so.
        # Not a FileLock, because that polls while it waits.
        with io.FileIO(folder / "mutex", "a") as mutex:
            try:
                for_lock(mutex.fileno(), fcntl.LOCK_EX)
                return do(ClaimStore(folder))
            finally:
                fcntl.flock(mutex, fcntl.LOCK_UN)  # a forked child may have it open as well


class ClaimStore:
    """All claims, read while the mutex is held. Removes files that have no living owner."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.claims: dict[str, Claim] = {}
        self._dead: set[str] = set()
        names = set(os.listdir(folder))
        for name in names:
            key, _, kind = name.partition(".")
            if kind == "partial" or (kind == "pipe" and f"{key}.json" not in names):
                (folder / name).unlink(
                    missing_ok=True
                )  # its writer was killed before it was complete
        for name in sorted(name for name in names if name.endswith(".json")):
            self._read(name.removesuffix(".json"))

    def _read(self, key: str) -> None:
        """Read a claim of this version; without its owner, remove it unless it was granted."""
        with open_writer(self.path(key)) as end:
            alive = end is not None
        claim = _claim_in(self._folder / f"{key}.json")
        if not alive and not (claim and claim.granted):
            self.remove(key)
        elif claim is not None:
            self.claims[key] = claim
            if not alive:
                self._dead.add(key)

    def __getitem__(self, key: str) -> Claim:
        """Return a claim that must exist; raises RecordError if it was removed."""
        if key not in self.claims:
            raise RecordError(f"The claims in {self._folder} were removed.", "Try again.")
        return self.claims[key]

    @property
    def next_number(self) -> int:
        """The number of the next claim."""
        return 1 + max((claim.number for claim in self.claims.values()), default=0)

    def dead(self) -> dict[str, Claim]:
        """Return the granted claims whose owner is gone."""
        return {key: self.claims[key] for key in sorted(self._dead)}

    def grant_waiting(self) -> None:
        """Grant all claims that can be granted, also those of other processes."""
        granted = {claim.number: claim for claim in grant(self.claims.values())}
        for key, claim in self.claims.items():
            if claim != granted[claim.number]:
                self.write(key, granted[claim.number])

    def write(self, key: str, claim: Claim) -> None:
        """Store a claim, whole or not at all."""
        atomic_write(self._folder / f"{key}.json", json.dumps(asdict(claim), default=str))
        self.claims[key] = claim

    def remove(self, key: str) -> None:
        """Remove a claim."""
        for path in (self._folder / f"{key}.json", self.path(key)):
            path.unlink(missing_ok=True)
        self.claims.pop(key, None)
        self._dead.discard(key)

    def path(self, key: str) -> Path:
        """Return the path of a claim's pipe."""
        return self._folder / f"{key}.pipe"


def open_liveness_pipe(path: Path) -> io.FileIO:
    """Open a claim's pipe as its owner; the claim is valid until the pipe is closed."""
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    # "r+": opening for reading alone would block until another process opens the writing end. An
    # object, not a descriptor: it is closed even if an interrupt loses the reference.
    pipe = io.FileIO(path, "r+")
    _pipes[pipe.fileno()] = weakref.ref(pipe)
    return pipe


_pipes: dict[int, weakref.ref[io.FileIO]] = {}
"""The pipes that this process has opened as an owner."""


def _close_in_child() -> None:
    """Close a forked child's copies of the pipes: they would keep its parent's claims valid."""
    for reference in list(_pipes.values()):
        if (pipe := reference()) is not None:
            pipe.close()


os.register_at_fork(after_in_child=_close_in_child)


@contextlib.contextmanager
def open_writer(path: Path) -> Iterator[int | None]:
    """Open the writing end of a claim's pipe; None if its owner is gone."""
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


def wait_until_one_closes(ends: Sequence[int]) -> None:
    """Wait until one of the owners closes its pipe, or has closed it already."""
    poll = select.poll()
    for end in ends:
        poll.register(end, 0)  # no events: POLLERR (no reader left) is always reported
    while not poll.poll(SLICE * 1000):
        pass  # handlers of signals run here


def _claim_in(path: Path) -> Claim | None:
    """Read a claim; None if it is not one of this version."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        need, capacity = Need(**raw.pop("need")), Capacity(**raw.pop("capacity"))
        runs = tuple(Run(**{**run, "folder": Path(run["folder"])}) for run in raw.pop("runs"))
        gpus = tuple(raw.pop("gpus"))
        capacity = replace(capacity, gpus=tuple(capacity.gpus))
        return Claim(**raw, need=need, capacity=capacity, gpus=gpus, runs=runs)
    except (ValueError, KeyError, TypeError):
        return None
