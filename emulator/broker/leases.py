"""Acquiring, waiting for, and releasing leases; and the claims on disk.

These are one file and one named pipe per claim, changed under a mutex.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import secrets
import select
import socket
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

from emulator.broker.claims import (
    Capacity,
    Claim,
    Need,
    Run,
    clamped,
    free_devices,
    grant,
    with_devices,
)
from emulator.errors import EmulatorError, RecordError, UsageError
from emulator.runtime.files import FOR_OWNER, atomic_write, cache_dir, os_errors
from emulator.runtime.waiting import SLICE, for_lock

Result = TypeVar("Result")

_Watched = list[tuple[Claim, int | None]]
"""Claims, each with the writing end of its pipe; None if its owner is gone."""


def default_folder() -> Path:
    """Return the folder of this machine's claims.

    There is one per host: homes are often shared over a network, and a process on another host
    would look dead from here.
    """
    return cache_dir("broker", socket.gethostname())


def _ignore(claims: Sequence[Claim]) -> None:
    pass


class Broker:
    """Grants leases; all brokers that use one folder coordinate."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` has the claims; the default is in the user's cache."""
        self.folder = (folder or default_folder()).resolve()

    def acquire(
        self,
        name: str,
        need: Need,
        capacity: Capacity,
        *,
        recover: Callable[[Claim], None],
        waiting: Callable[[Sequence[Claim]], None] = _ignore,
    ) -> Lease:
        """Wait until `need` of `capacity` is free, and return a lease of it.

        `recover` removes the runs of a claim whose owner died, before its resources are free.
        `waiting` is called at most once, and only if it has to wait, with the granted and earlier
        claims. An exception from either, or from a signal's handler, ends the wait and removes the
        claim.

        A process that already has a lease gets another at once, beyond the capacity if necessary:
        waiting could be a deadlock. Only devices are never granted twice. A lease of nothing does
        not count.

        Raises UsageError if such a process asks for more GPUs than are free; RecordError.
        """
        lease = Lease(self.folder, need)
        try:
            self._enter(lease, Claim(0, name, os.getpid(), need, capacity), recover)
            self._wait(lease, recover, waiting)
            _leases[lease.key] = weakref.ref(lease)
        except BaseException:
            with contextlib.suppress(EmulatorError):  # others remove it: its pipe is closed
                lease.release()
            raise
        return lease

    def recover_dead(self, recover: Callable[[Claim], None]) -> int:
        """Recover and remove the claims of all owners that died; return how many.

        An exception from `recover` propagates; another process then finds the claim again.
        """
        if not any(self.folder.glob("*.json")):
            return 0
        adopted: list[tuple[str, Claim, io.FileIO]] = []

        def adopt(store: ClaimStore) -> None:
            for key, claim in store.dead().items():
                adopted.append((key, claim, open_liveness_pipe(store.path(key))))
                store.write(key, replace(claim, pid=os.getpid()))

        try:
            transaction(self.folder, adopt)
            for key, claim, pipe in adopted:
                recover(claim)
                transaction(self.folder, lambda store, key=key: store.remove(key))  # type: ignore[misc]
                pipe.close()  # wakes the processes that wait for it
        finally:
            for _, _, pipe in adopted:
                pipe.close()
        return len(adopted)

    def _enter(self, lease: Lease, claim: Claim, recover: Callable[[Claim], None]) -> None:
        """Append a claim to the queue; grant it at once if this process has a lease."""

        def enter(store: ClaimStore) -> bool:
            mine = replace(claim, number=store.next_number)
            if _has_lease(self.folder):
                granted = [other for other in store.claims.values() if other.granted]
                if len(free_devices(mine, granted)) < clamped(mine).gpus:
                    if store.dead():
                        return False  # one of them died just now
                    raise _too_few(mine, granted)
                mine = with_devices(mine, granted)
            lease.key = f"{mine.number:08}-{secrets.token_hex(4)}"
            lease.pipe = open_liveness_pipe(store.path(lease.key))
            store.write(lease.key, mine)
            return True

        self.recover_dead(recover)
        while not transaction(self.folder, enter):
            self.recover_dead(recover)

    def _wait(
        self,
        lease: Lease,
        recover: Callable[[Claim], None],
        waiting: Callable[[Sequence[Claim]], None],
    ) -> None:
        """Return once the claim is granted."""
        reported = False
        while True:
            self.recover_dead(recover)
            with contextlib.ExitStack() as closing:
                watched = self._blocking(lease, closing)
                if watched is None:
                    return
                ends = [end for _, end in watched if end is not None]
                if len(ends) < len(watched):
                    continue  # one of them died just now
                if not reported:
                    reported = True
                    waiting([claim for claim, _ in watched])
                wait_until_one_closes(ends)

    def _blocking(self, lease: Lease, closing: contextlib.ExitStack) -> _Watched | None:
        """Return all granted and earlier claims, for which a claim waits; None once it is granted.

        Those granted out of order later need no watch: these here still come first.
        """

        def look(store: ClaimStore) -> _Watched | None:
            store.grant_waiting()
            mine = store[lease.key]
            if mine.granted:
                lease.gpus = mine.gpus
                return None
            return [
                (other, closing.enter_context(open_writer(store.path(key))))
                for key, other in store.claims.items()
                if other.need != Need() and (other.granted or other.number < mine.number)
            ]

        return transaction(self.folder, look)


class Lease:
    """Granted resources; released by the context manager, or when the process dies."""

    def __init__(self, folder: Path, need: Need) -> None:
        self.folder = folder
        self.need = need
        self.key = ""
        self.pipe: io.FileIO | None = None
        self.gpus: tuple[str, ...] = ()
        """Ids of the granted devices."""

    def began_run(self, run_id: str, engine: str, folder: Path) -> None:
        """Register a run before it starts, so that it is removed if this process is killed.

        Raises RecordError.
        """
        run = Run(run_id, engine, folder.absolute())  # read by processes in other folders

        def add(store: ClaimStore) -> None:
            claim = store[self.key]
            store.write(self.key, replace(claim, runs=(*claim.runs, run)))

        transaction(self.folder, add)

    def release(self) -> None:
        """Release the lease; does nothing a second time, or in a forked child.

        Raises RecordError.
        """
        self._end(lambda store: store.remove(self.key))

    def abandon(self, run_ids: Collection[str]) -> None:
        """Leave these runs to another process, as if this one had died while they ran.

        For runs that could not be removed: another process removes them before the resources are
        free again. Raises RecordError.
        """

        def keep(store: ClaimStore) -> None:
            claim = store[self.key]
            runs = tuple(run for run in claim.runs if run.run_id in run_ids)
            store.write(self.key, replace(claim, runs=runs))

        self._end(keep)

    def _end(self, change: Callable[[ClaimStore], None]) -> None:
        """Change the claim a last time and close its pipe."""
        _leases.pop(self.key, None)
        if self.pipe is None or self.pipe.closed:
            return
        try:
            transaction(self.folder, change)
        finally:
            self.pipe.close()  # wakes the processes that wait for it

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


_leases: dict[str, weakref.ref[Lease]] = {}
"""The leases of this process, by key."""
os.register_at_fork(after_in_child=_leases.clear)


def _has_lease(folder: Path) -> bool:
    """Return whether this process has a lease that others may wait for."""
    leases = [reference() for reference in list(_leases.values())]
    return any(
        lease is not None and lease.folder == folder and lease.need != Need() for lease in leases
    )


def _too_few(claim: Claim, granted: Sequence[Claim]) -> UsageError:
    needed, free = clamped(claim).gpus, len(free_devices(claim, granted))
    others = ", ".join(sorted({other.name for other in granted if other.gpus}))
    return UsageError(
        f"{claim.name} asks for {needed} GPU(s), but {free} are free. It can't wait for those of "
        f"{others}, because this process has a lease itself.",
        "Release that lease first, or ask for fewer GPUs.",
    )


# --- On disk --------------------------------------------------------------------------------------


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
