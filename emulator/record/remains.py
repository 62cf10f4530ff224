"""What a run leaves in its folder besides its record, and how that is deleted.

It is ours where the folder is proved to be the run's, see `scratch.py`. Of a run that was ended
before it had a plan, the first line of its log says that `emulate up -d` made the folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from emulator.plan import is_run_id
from emulator.record.lock import LOCK
from emulator.record.scratch import is_ours, kind_of, opened, remove_scratch, scratch_in

__all__ = [
    "LOG",
    "PORT",
    "SOCKET",
    "TEMPORARY",
    "TOKEN",
    "header",
    "never_began",
    "remains",
    "remove_never_began",
    "remove_remains",
]

SOCKET, PORT, TOKEN = "api.sock", "api.port", "api.token"
"""Files in the run folder, while the API answers."""
TEMPORARY = "emulate-"
"""How the name of a temporary folder begins that holds a socket whose own path is too long."""
LOG = "emulate.log"
"""What the emulator in the background prints, in the run folder."""
_BEFORE_THE_PLAN = {
    "logs": stat.S_IFDIR,
    "plan.partial": stat.S_IFREG,
    "scenario.yaml": stat.S_IFREG,
    "history.jsonl": stat.S_IFREG,
    LOCK: stat.S_IFREG,
    LOG: stat.S_IFREG,
}
"""All that a run writes before it has a plan, in the order in which it is removed: what may hold
something comes first, the proof last."""


def remains(folder: Path, run_id: str) -> list[Path]:
    """Return what a run has left besides its record; nothing where the folder is not ours."""
    with contextlib.suppress(OSError), opened(folder) as run:
        if is_ours(folder, run, run_id):
            return [folder / name for name in (*scratch_in(run, run_id), *_api_files(run))]
    return []


def remove_remains(folder: Path, run_id: str) -> list[Path]:
    """Delete what a run has left besides its record; return what that was.

    The caller holds the run's lock. Raises RecordError where something is mounted in there.
    """
    with contextlib.suppress(OSError), opened(folder) as run:
        if is_ours(folder, run, run_id):
            removed = remove_scratch(folder, run, run_id)
            for name in _api_files(run):
                if kind_of(name, run) == stat.S_IFLNK:
                    _remove_temporary(os.readlink(name, dir_fd=run))
                os.unlink(name, dir_fd=run)
                removed.append(name)
            return [folder / name for name in removed]
    return []


def _api_files(run: int) -> Iterator[str]:
    if kind_of(SOCKET, run) in (stat.S_IFSOCK, stat.S_IFLNK):
        yield SOCKET
    yield from (name for name in (PORT, TOKEN) if kind_of(name, run) == stat.S_IFREG)


def _remove_temporary(socket: str) -> None:
    """Remove the folder of a socket whose own path was too long, where it looks like ours only.

    It is a folder that this user alone can enter, where temporary folders are made, and holds
    nothing but that socket.
    """
    path = Path(socket)
    folder = path.parent
    if path.name != SOCKET or folder.parent != Path(tempfile.gettempdir()):
        return
    if not folder.name.startswith(TEMPORARY):
        return
    with contextlib.suppress(OSError), opened(folder) as inside:
        about = os.fstat(inside)
        private = about.st_uid == os.geteuid() and not about.st_mode & 0o077
        if private and os.listdir(inside) == [SOCKET] and kind_of(SOCKET, inside) == stat.S_IFSOCK:
            os.unlink(SOCKET, dir_fd=inside)
            os.rmdir(folder)


# --- Runs that never began ----------------------------------------------------------------------


def header(run_id: str) -> str:
    """Return the first line of the log in a folder that `emulate up -d` has made (pure)."""
    return f"emulate up -d made this folder for {run_id}\n"


def never_began(out: Path) -> list[Path]:
    """Return the folders in `out` that `up -d` made for runs that were ended before their plan.

    Nobody is at work on them: `emulate up -d` holds a lock on its log until the run is over.
    """
    try:
        names = sorted(filter(is_run_id, os.listdir(out)))
    except OSError:
        return []
    return [out / name for name in names if _when_dead(out / name, remove=False)]


def remove_never_began(folder: Path) -> bool:
    """Delete such a folder, unless somebody is at work on it by now; say whether it was."""
    return _when_dead(folder, remove=True)


def _when_dead(folder: Path, *, remove: bool) -> bool:
    with contextlib.suppress(OSError), opened(folder) as run:
        log = os.open(LOG, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=run)
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError: somebody is at work on it
            first = header(folder.name).encode()
            if os.pread(log, len(first), 0) != first or not _only_ours(run):
                return False
            if remove:
                for name, kind in _BEFORE_THE_PLAN.items():
                    with contextlib.suppress(FileNotFoundError):
                        (os.rmdir if kind == stat.S_IFDIR else os.unlink)(name, dir_fd=run)
                os.rmdir(folder)
            return True
        finally:
            os.close(log)
    return False


def _only_ours(run: int) -> bool:
    """Say whether a folder holds nothing but what a run writes before its plan."""
    names = os.listdir(run)
    if any(kind_of(name, run) != _BEFORE_THE_PLAN.get(name) for name in names):
        return False
    return "history.jsonl" not in names or not os.stat("history.jsonl", dir_fd=run).st_size
