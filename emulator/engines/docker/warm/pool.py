"""Prepared clusters that wait for a run: one folder each, in the cache of this user.

Whoever uses a cluster has the lock in its folder, as a supervisor has that of its run. So a cluster
whose lock is free waits for a run, if its state is written there, and is a leftover if not: its
user was killed. The containers of one that waits end by themselves after IDLE seconds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from emulator.engines import WARM_SESSION
from emulator.errors import InUse
from emulator.record import lock
from emulator.runtime.files import FOR_OWNER, atomic_write, cache_dir

IDLE = 600.0
"""Seconds that a cluster waits for a run."""
STATE = "waiting.json"


@dataclass(frozen=True)
class Waiting:
    """A container that waits for a task."""

    container: str
    after: str
    """The engine's stamp of the last line that it printed for an earlier run."""
    address: str = ""
    changed: tuple[str, ...] = ()
    """Folders that earlier tasks have changed, and were put back."""


@dataclass(frozen=True)
class WaitingCluster:
    """A cluster that this process uses."""

    id: str
    folder: Path
    key: str
    lock: int
    session: str
    waiting: dict[str, Waiting] = field(default_factory=dict)
    """Its containers by task; none where they must be made first."""


def state_of(folder: Path) -> dict[str, Any] | None:
    """Return the state of a cluster that waits for a run; None if it does not."""
    try:
        state = json.loads((folder / STATE).read_text())
        return dict(state) if {"key", "session", "until", "waiting"} <= state.keys() else None
    except (OSError, ValueError, AttributeError):
        return None


def waits(folder: Path) -> bool:
    """Return whether a cluster waits for a run, and has not done so for too long."""
    state = state_of(folder)
    return state is not None and float(state["until"]) > time.time()


def default_folder() -> Path:
    """Return the folder of this machine's clusters."""
    return cache_dir("warm", socket.gethostname())


class Pool:
    """The clusters of one user on one engine."""

    def __init__(self, engine: str, folder: Path | None = None) -> None:
        """`engine` is the id of the engine that has the containers."""
        self.folder = (folder or default_folder()).resolve()
        self._prefix = f"warm-{hashlib.sha256(engine.encode()).hexdigest()[:6]}-"

    def take_cluster(self, key: str) -> WaitingCluster | None:
        """Return a waiting cluster of this key, which this process uses from now on."""
        for folder in self._folders():
            state = state_of(folder)
            if state is None or state["key"] != key or state["until"] < time.time():
                continue
            with contextlib.suppress(InUse, OSError):
                held = lock.acquire(folder)
                if state_of(folder) != state:  # another process was faster
                    lock.release(held)
                    continue
                (folder / STATE).unlink()
                waiting = {name: _waiting(one) for name, one in state["waiting"].items()}
                return WaitingCluster(folder.name, folder, key, held, state["session"], waiting)
        return None

    def make(self, key: str) -> WaitingCluster:
        """Return a new cluster, which has no containers yet. Raises OSError."""
        folder = self.folder / f"{self._prefix}{secrets.token_hex(6)}"
        folder.mkdir(FOR_OWNER, parents=True)
        session = os.environ.get(WARM_SESSION, "")
        return WaitingCluster(folder.name, folder, key, lock.acquire(folder), session)

    def give_back(self, cluster: WaitingCluster, waiting: Mapping[str, Waiting]) -> None:
        """Let a cluster wait for its next run. Raises OSError."""
        state = {
            "key": cluster.key,
            "session": cluster.session,
            "until": time.time() + IDLE,
            "waiting": {name: asdict(one) for name, one in waiting.items()},
        }
        atomic_write(cluster.folder / STATE, json.dumps(state))
        lock.release(cluster.lock)

    def abandon(self, cluster: WaitingCluster) -> None:
        """Use a cluster no longer, and leave it to `ended` or to `emulate clean`."""
        lock.release(cluster.lock)

    def forget(self, cluster: WaitingCluster) -> None:
        """Remove the folder of a cluster that this process has removed."""
        self._remove(cluster.folder)
        lock.release(cluster.lock)

    def ended(self, *, session: str = "", most: int | None = None) -> Generator[str, None, None]:
        """Yield the clusters to remove: with what they had, once the caller has done so.

        Those are the ones that have waited too long, those whose user was killed, all of a
        `session`, and the oldest where more than `most` containers wait. They are locked meanwhile.
        """
        count = 0
        newest_first = sorted(self._folders(), key=_written, reverse=True)
        for folder in newest_first:
            state = state_of(folder)
            if state is not None and state["until"] >= time.time():
                count += len(state["waiting"])
                if not (session and state["session"] == session) and (
                    most is None or count <= most
                ):
                    continue
            with contextlib.suppress(InUse, OSError):
                held = lock.acquire(folder)
                try:
                    if state_of(folder) == state:
                        yield folder.name
                        self._remove(folder)
                finally:
                    lock.release(held)

    def _folders(self) -> list[Path]:
        """Return the folders that are named as ours; nothing else is looked at, or removed."""
        if not self.folder.is_dir():
            return []
        return [
            path
            for path in sorted(self.folder.iterdir())
            if path.name.startswith(self._prefix) and path.is_dir() and not path.is_symlink()
        ]

    def _remove(self, folder: Path) -> None:
        if folder.parent == self.folder and folder.name.startswith(self._prefix):
            shutil.rmtree(folder, ignore_errors=True)


def _written(folder: Path) -> float:
    try:
        return (folder / STATE).stat().st_mtime
    except OSError:
        return 0.0


def _waiting(one: dict[str, Any]) -> Waiting:
    return Waiting(one["container"], one["after"], one["address"], tuple(one["changed"]))
