"""Claiming, waiting, and giving back."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import socket
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from emulator.broker.book import Book, is_any, own, sender, until_one_closes, visit
from emulator.broker.claims import (
    Capacity,
    Claim,
    Need,
    Run,
    clamped,
    free_devices,
    with_devices,
)
from emulator.errors import EmulatorError, UsageError
from emulator.files import cache_dir

__all__ = ["Broker", "Lease", "default_folder"]


_Watched = list[tuple[Claim, int | None]]
"""Claims, each with an end of its pipe; None where its owner is gone."""


def default_folder() -> Path:
    """Return where the claims on this machine lie.

    Each host has its own: homes are often shared over a network, and who lives on another host
    seems dead from here.
    """
    return cache_dir("broker", socket.gethostname())


def _nobody_told(claims: Sequence[Claim]) -> None:
    pass


class Broker:
    """Hands out the machine; all brokers on one folder know of each other."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` is where claims lie; in the user's cache where nothing is said."""
        self.folder = (folder or default_folder()).resolve()

    def acquire(
        self,
        name: str,
        need: Need,
        capacity: Capacity,
        *,
        recover: Callable[[Claim], None],
        waiting: Callable[[Sequence[Claim]], None] = _nobody_told,
    ) -> Lease:
        """Wait until `need` is free of `capacity`, and take it.

        `recover` removes the runs of a claim whose holder died, before what it held is free.
        `waiting` is told once, and only if there is something to wait for, who holds something or
        came before. Whatever these raise, or a signal's handler, ends the waiting and leaves no
        claim.

        A process that holds a share does not wait for another, which could be for ever: it gets it
        at once, beyond the capacity if need be; only devices are never handed out twice. A lease of
        nothing is no share.

        Raises UsageError where such a one asks for more GPUs than are free; RecordError.
        """
        began = time.monotonic()
        lease = Lease(self.folder, need)
        try:
            self._enter(lease, Claim(0, name, os.getpid(), need, capacity), recover)
            self._wait(lease, recover, waiting)
            lease.waited = time.monotonic() - began
            _leases[lease.key] = weakref.ref(lease)
        except BaseException:
            with contextlib.suppress(EmulatorError):  # its pipe is closed: others will remove it
                lease.release()
            raise
        return lease

    def recover_dead(self, recover: Callable[[Claim], None]) -> int:
        """Recover and remove the claims of all holders that died; return how many.

        What `recover` raises is passed on; the claim is then dead again, for the next to find.
        """
        if not is_any(self.folder):
            return 0
        found: list[tuple[str, Claim, io.FileIO]] = []

        def adopt(book: Book) -> None:
            for key, claim in book.dead().items():
                found.append((key, claim, own(book.path(key))))
                book.write(key, replace(claim, pid=os.getpid()))

        try:
            visit(self.folder, adopt)
            for key, claim, pipe in found:
                recover(claim)
                visit(self.folder, lambda book, key=key: book.remove(key))  # type: ignore[misc]
                pipe.close()  # who watches it looks again
        finally:
            for _, _, pipe in found:
                pipe.close()
        return len(found)

    def _enter(self, lease: Lease, claim: Claim, recover: Callable[[Claim], None]) -> None:
        """Put a claim at the end of the line; grant it where this process has a share."""

        def enter(book: Book) -> bool:
            mine = replace(claim, number=book.next_number)
            if _holds_any(self.folder):
                held = [other for other in book.claims.values() if other.granted]
                if len(free_devices(mine, held)) < clamped(mine).gpus:
                    if book.dead():
                        return False  # one of them died just now
                    raise _too_few(mine, held)
                mine = with_devices(mine, held)
            lease.key = f"{mine.number:08}-{secrets.token_hex(4)}"
            lease.pipe = own(book.path(lease.key))
            book.write(lease.key, mine)
            return True

        self.recover_dead(recover)
        while not visit(self.folder, enter):
            self.recover_dead(recover)

    def _wait(
        self,
        lease: Lease,
        recover: Callable[[Claim], None],
        waiting: Callable[[Sequence[Claim]], None],
    ) -> None:
        """Return once the claim is granted."""
        told = False
        while True:
            self.recover_dead(recover)
            with contextlib.ExitStack() as closing:
                watched = self._look(lease, closing)
                if watched is None:
                    return
                ends = [end for _, end in watched if end is not None]
                if len(ends) < len(watched):
                    continue  # one of them died just now
                if not told:
                    told = True
                    waiting([claim for claim, _ in watched])
                until_one_closes(ends)

    def _look(self, lease: Lease, closing: contextlib.ExitStack) -> _Watched | None:
        """Return what a claim waits for; None: it is granted."""

        def look(book: Book) -> _Watched | None:
            book.settle()
            mine = book[lease.key]
            if mine.granted:
                lease.gpus = mine.gpus
                return None
            return [
                (claim, closing.enter_context(sender(book.path(key))))
                for key, claim in _before(mine, book)
            ]

        return visit(self.folder, look)


class Lease:
    """What was granted, as a context manager that gives it back; so does the process' death."""

    def __init__(self, folder: Path, need: Need) -> None:
        self.folder = folder
        self.need = need
        self.key = ""
        self.pipe: io.FileIO | None = None
        self.gpus: tuple[str, ...] = ()
        """The devices that were handed out."""
        self.waited = 0.0
        """Seconds until it was granted."""

    def began_run(self, run_id: str, engine: str, folder: Path) -> None:
        """Note a run before it starts, so that it is removed if this process is killed.

        Raises RecordError.
        """
        run = Run(run_id, engine, folder.absolute())  # who reads it is anywhere

        def note(book: Book) -> None:
            claim = book[self.key]
            book.write(self.key, replace(claim, runs=(*claim.runs, run)))

        visit(self.folder, note)

    def release(self) -> None:
        """Give it back; a second time does nothing, nor does it in a forked child.

        Raises RecordError.
        """
        _leases.pop(self.key, None)
        pipe = self.pipe
        if pipe is None or pipe.closed:
            return
        try:
            visit(self.folder, lambda book: book.remove(self.key))
        finally:
            pipe.close()  # who watches it looks again

    def abandon(self, run_ids: Collection[str]) -> None:
        """Leave these runs to the next who comes, as if this process had died with them.

        They are removed, if anything is there, before the share is free again: for runs whose end
        went wrong. Raises RecordError.
        """
        _leases.pop(self.key, None)
        pipe = self.pipe
        if pipe is None or pipe.closed:
            return

        def keep(book: Book) -> None:
            claim = book[self.key]
            runs = tuple(run for run in claim.runs if run.run_id in run_ids)
            book.write(self.key, replace(claim, runs=runs))

        try:
            visit(self.folder, keep)
        finally:
            pipe.close()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


_leases: dict[str, weakref.ref[Lease]] = {}
"""What this process holds."""
os.register_at_fork(after_in_child=_leases.clear)


def _holds_any(folder: Path) -> bool:
    """Say whether this process has a share that others may wait for."""
    leases = [known() for known in list(_leases.values())]
    return any(
        lease is not None and lease.folder == folder and lease.need != Need() for lease in leases
    )


def _before(mine: Claim, book: Book) -> Iterator[tuple[str, Claim]]:
    """Yield what a claim waits for: all that is held, and all that came before.

    What comes later is granted later. One that gets beyond the line by then is not watched, and
    need not be: this claim waits for those that were there already. Nobody waits for a claim of
    nothing.
    """
    for key, claim in book.claims.items():
        if claim.need != Need() and (claim.granted or claim.number < mine.number):
            yield key, claim


def _too_few(claim: Claim, held: Sequence[Claim]) -> UsageError:
    wanted, free = clamped(claim).gpus, len(free_devices(claim, held))
    others = ", ".join(sorted({other.name for other in held if other.gpus}))
    return UsageError(
        f"{claim.name} asks for {wanted} GPU(s), but {free} are free. It can't wait for what is "
        f"held by {others}, because this process holds a part of the machine itself.",
        "Give that back first, or ask for fewer.",
    )
