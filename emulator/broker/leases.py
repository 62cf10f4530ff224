"""Acquiring, waiting for, and releasing leases."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import socket
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from emulator.broker.claims import Capacity, Claim, Need, Run, clamped, free_devices, with_devices
from emulator.broker.store import (
    ClaimStore,
    open_liveness_pipe,
    open_writer,
    transaction,
    wait_until_one_closes,
)
from emulator.errors import EmulatorError, UsageError
from emulator.runtime.files import cache_dir

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
