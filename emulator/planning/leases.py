"""Leases of this machine's cores, memory and GPUs, shared by all processes.

A process claims what it needs and waits until that is free. Claims are granted strictly in order
of arrival, so that small claims cannot starve a large one.

A claim is a file, and a FileLock that its owner holds: the kernel releases it however the owner
ends. So a claim whose lock can be taken has no owner any more. The files are changed under a mutex.
One that waits looks again twice a second, and whoever looks grants what can be granted.

The runs of a killed owner are removed before its claim is. The process that finds the claim holds
its lock meanwhile: so no other process removes the same runs, and its death is detected as well.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout

from emulator.errors import EmulatorError, RecordError
from emulator.planning.claims import Capacity, Claim, Need, Run, at_once, grant, parsed, text_of
from emulator.runtime.files import FOR_OWNER, atomic_write, cache_dir, os_errors
from emulator.runtime.waiting import pause, result_of

Result = TypeVar("Result")
Claims = dict[int, Claim]
"""Claims by their number, in order of arrival."""

POLL = 0.4
"""Seconds after which one that waits looks again."""


def default_folder() -> Path:
    """Return the folder of this machine's claims.

    There is one per host: homes are often shared over a network, and a process on another host
    would look dead from here. Earlier versions have theirs in `broker`, and would remove these.
    """
    return cache_dir("leases", socket.gethostname())


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
        waiting: Callable[[Sequence[Claim]], None] = lambda others: None,
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
        lease = Lease(self.folder, Claim(0, name, os.getpid(), need, capacity))
        try:
            self.recover_dead(recover)
            transaction(self.folder, lease.enter)
            reported = False
            while others := transaction(self.folder, lease.look):
                if not reported:
                    reported = True
                    waiting(others)
                pause(POLL)
                self.recover_dead(recover)
            _leases.add(lease)
        except BaseException:
            with contextlib.suppress(EmulatorError):  # others remove it: its lock is released
                lease.release()
            raise
        return lease

    def recover_dead(self, recover: Callable[[Claim], None]) -> int:
        """Recover and remove the claims of all owners that died; return how many.

        An exception from `recover` propagates; another process then finds the claim again.
        """
        count = 0
        while dead := transaction(self.folder, partial(_take_dead, self.folder)):
            claim, lock = dead
            try:
                recover(claim)
                transaction(self.folder, lambda claims, gone=claim.number: claims.pop(gone, None))  # type: ignore[misc]
            finally:
                lock.release()
            count += 1
        return count


class Lease:
    """Granted resources; released by the context manager, or when the process dies."""

    def __init__(self, folder: Path, claim: Claim) -> None:
        """`claim` has no number yet."""
        self.gpus: tuple[str, ...] = ()
        """Ids of the granted devices."""
        self.claim, self.folder = claim, folder
        self._lock: FileLock | None = None
        """That of the claim, which this process holds."""
        self._is_over = False

    def enter(self, claims: Claims) -> None:
        """Append the claim to the queue; grant it at once if this process has a lease."""
        number = max([time.time_ns(), *(1 + number for number in claims)])
        mine = replace(self.claim, number=number)
        if any(one.folder == self.folder and one.claim.need != Need() for one in list(_leases)):
            mine = at_once(mine, claims.values())
        self.claim, lock = mine, _lock_of(self.folder, number)
        lock.acquire()
        self._lock = lock
        if self._is_over:  # the wait for the mutex was interrupted
            lock.release()
        else:
            claims[number] = mine

    def look(self, claims: Claims) -> list[Claim]:
        """Grant what can be granted; return the claims that this one waits for, none if granted."""
        claims.update({claim.number: claim for claim in grant(claims.values())})
        mine = claims[self.claim.number]
        if mine.granted:
            self.gpus = mine.gpus
            return []
        others = [one for one in claims.values() if one.need != Need()]
        return [one for one in others if one.granted or one.number < mine.number]

    def began_run(self, run_id: str, engine: str, folder: Path) -> None:
        """Register a run before it starts, so that it is removed if this process is killed.

        Raises RecordError.
        """
        run = Run(run_id, engine, folder.absolute())  # read by processes in other folders

        def add(claims: Claims) -> None:
            mine = claims[self.claim.number]
            claims[mine.number] = replace(mine, runs=(*mine.runs, run))

        transaction(self.folder, add)

    def release(self) -> None:
        """Release the lease; does nothing a second time, or in a forked child.

        Raises RecordError.
        """
        self._end(lambda claims: claims.pop(self.claim.number, None))

    def abandon(self, run_ids: Collection[str]) -> None:
        """Leave these runs to another process, as if this one had died while they ran.

        For runs that could not be removed: another process removes them before the resources are
        free again. Raises RecordError.
        """

        def keep(claims: Claims) -> None:
            mine = claims[self.claim.number]
            runs = tuple(run for run in mine.runs if run.run_id in run_ids)
            claims[mine.number] = replace(mine, runs=runs)

        self._end(keep)

    def _end(self, change: Callable[[Claims], object]) -> None:
        _leases.discard(self)
        if self._is_over or self.claim.pid != os.getpid():
            return
        self._is_over = True
        if (lock := self._lock) is not None:  # else it has not entered, and does not any more
            try:
                transaction(self.folder, change)
            finally:
                lock.release()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


_leases: weakref.WeakSet[Lease] = weakref.WeakSet()
"""Those of this process that were granted."""
os.register_at_fork(after_in_child=_leases.clear)


# --- On disk --------------------------------------------------------------------------------------


def transaction(folder: Path, do: Callable[[Claims], Result]) -> Result:
    """Call `do` with the claims in `folder`, in one process at a time, and store what it changes.

    On the main thread another one does it: no handler of a signal interrupts that, but it may
    happen after the interrupt. Raises RecordError.
    """

    def perform() -> Result:
        problem = f"Can't read or write the broker's leases in {folder}"
        hint = "Make room, or set XDG_CACHE_HOME to a folder that can be written."
        with os_errors(RecordError, problem, hint):
            folder.mkdir(FOR_OWNER, parents=True, exist_ok=True)
            with FileLock(folder / "mutex"):
                before = _claims_in(folder)
                after = dict(before)
                result = do(after)
                for number in before.keys() - after.keys():
                    for kind in ("json", "lock"):
                        (folder / f"{number}.{kind}").unlink(missing_ok=True)
                for number, claim in after.items():
                    if claim != before.get(number):
                        atomic_write(folder / f"{number}.json", text_of(claim))
                return result

    try:
        return result_of(perform)
    except KeyError:
        raise RecordError(f"The claims in {folder} were removed.", "Try again.") from None


def _claims_in(folder: Path) -> Claims:
    """Return the claims; remove what is of none, as its writer was killed or of another version."""
    read = ((path.stem, parsed(path.read_bytes())) for path in folder.glob("*.json"))
    claims = {claim.number: claim for stem, claim in read if claim and stem == str(claim.number)}
    for path in folder.iterdir():
        if path.name != "mutex" and path.stem not in map(str, claims):
            path.unlink(missing_ok=True)
    return dict(sorted(claims.items()))


def _take_dead(folder: Path, claims: Claims) -> tuple[Claim, FileLock] | None:
    """Return the first granted claim whose owner is gone, with its lock, which is now held.

    So no other process takes it, but one does if this process dies. Claims that wait are removed
    if their owner is gone.
    """
    for number, claim in list(claims.items()):
        lock = _lock_of(folder, number)
        with contextlib.suppress(Timeout):
            lock.acquire(timeout=0)
            if claim.granted:
                return claim, lock
            del claims[number]
            lock.release()
    return None


def _lock_of(folder: Path, number: int) -> FileLock:
    """Return the lock of a claim; it is not held."""
    return FileLock(folder / f"{number}.lock", thread_local=False)
