"""Leftovers in a run folder besides the record, and their removal.

Only a folder that provably belongs to the run is touched, see `scratch.py`. For a run that ended
before it had a plan, the proof is the first line of its log, written by `emulate up -d`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from emulator.errors import UsageError
from emulator.record.folder import GIVEN
from emulator.record.lock import LOCK
from emulator.record.scratch import is_ours, kind_of, opened, remove_scratch, scratch_in
from emulator.runtime.sockets import accepts
from emulator.validation.run_id import is_run_id

SOCKET, PORT, TOKEN = "api.sock", "api.port", "api.token"
"""Files in the run folder, while the API answers."""
TEMPORARY = "emulate-"
"""Prefix of a temporary folder for a socket whose path in the run folder would be too long."""
LOG = "emulate.log"
"""The output of the emulator in the background, in the run folder."""
_BEFORE_THE_PLAN = {
    "logs": stat.S_IFDIR,
    "plan.partial": stat.S_IFREG,
    "scenario.yaml": stat.S_IFREG,
    **dict.fromkeys(GIVEN, stat.S_IFREG),
    "history.jsonl": stat.S_IFREG,
    LOCK: stat.S_IFREG,
    LOG: stat.S_IFREG,
}
"""Everything that a run writes before it has a plan, in the order of removal: the proof last."""


def remains(folder: Path, run_id: str) -> list[Path]:
    """Return the leftovers of a run; none if the folder is not the run's."""
    with contextlib.suppress(OSError), opened(folder) as run:
        if is_ours(folder, run, run_id):
            return [folder / name for name in (*scratch_in(run, run_id), *_api_files(run))]
    return []


def remove_remains(folder: Path, run_id: str) -> list[Path]:
    """Delete the leftovers of a run, and return them.

    The caller has the run's lock. Raises RecordError if a file system is mounted there.
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
    """Remove the temporary folder of a socket, if it is certainly ours.

    It must be in the folder for temporary files, private to this user, and contain only the socket.
    """
    path = Path(socket)
    folder = path.parent
    if path.name != SOCKET or folder.parent != Path(tempfile.gettempdir()):
        return
    if not folder.name.startswith(TEMPORARY):
        return
    with contextlib.suppress(OSError), opened(folder) as inside:
        fcntl.flock(inside, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError: it is in use
        about = os.fstat(inside)
        private = about.st_uid == os.geteuid() and not about.st_mode & 0o077
        if private and os.listdir(inside) == [SOCKET] and kind_of(SOCKET, inside) == stat.S_IFSOCK:
            os.unlink(SOCKET, dir_fd=inside)
            os.rmdir(folder)


@contextlib.contextmanager
def folder_of_socket() -> Iterator[Path]:
    """Yield a temporary folder for a socket, and remove those of emulators that were killed.

    Its lock is taken before there is a socket, and proves that the emulator is alive.
    """
    for path in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*/{SOCKET}"):
        if accepts(str(path)) is False:
            _remove_temporary(str(path))
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as short, opened(Path(short)) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield Path(short)


# --- Runs that never started ----------------------------------------------------------------------


def header(run_id: str) -> str:
    """Return the first line of the log in a folder made by `emulate up -d` (pure)."""
    return f"emulate up -d made this folder for {run_id}\n"


def require_free(folder: Path) -> None:
    """Refuse a folder that is not new, empty, or of a run that ended before it had a plan.

    Raises UsageError, OSError.
    """
    try:
        with opened(folder) as run:
            names = set(os.listdir(run))
            if not names or (names & {LOCK, LOG} and _only_ours(run)):
                return
    except FileNotFoundError:
        return
    what = "a run" if "plan.json" in names else "something else"
    raise UsageError(
        f"There is {what} in {folder} already.", "Leave --run-id out, or choose another."
    )


def never_began(out: Path) -> list[Path]:
    """Return the folders in `out` that `up -d` made for runs that ended before their plan.

    No process uses them: `emulate up -d` locks its log until the run has finished.
    """
    try:
        names = sorted(filter(is_run_id, os.listdir(out)))
    except OSError:
        return []
    return [out / name for name in names if _when_dead(out / name, remove=False)]


def remove_never_began(folder: Path) -> bool:
    """Delete such a folder, unless it is in use by now; return whether it was deleted."""
    return _when_dead(folder, remove=True)


def _when_dead(folder: Path, *, remove: bool) -> bool:
    with contextlib.suppress(OSError), opened(folder) as run:
        log = os.open(LOG, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=run)
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError: it is in use
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
    """Return whether a folder contains only what a run writes before its plan."""
    names = os.listdir(run)
    if any(kind_of(name, run) != _BEFORE_THE_PLAN.get(name) for name in names):
        return False
    return "history.jsonl" not in names or not os.stat("history.jsonl", dir_fd=run).st_size
