"""The folders of a run's tasks, `work` and `shared`, and the proof that the run made them.

The proof is the file `scratch.json` in the run folder. A run creates it before the two folders, and
then writes their inodes to it. Only folders with these inodes are deleted, and only in a real
directory that has the run's name and whose `plan.json` has its id. Any other `work` or `shared` is
left alone.

A path is opened once, and all further operations are relative to the open directory. So no link can
redirect them out of the run folder, even if a folder is replaced by a link meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from emulator.errors import RecordError, UsageError
from emulator.runtime.files import FOR_OWNER, atomic_write

PARTS = ("work", "shared")
MARKER = "scratch.json"
LONGEST_FILE = 2**26
"""Bytes of a file that is read; the largest known `plan.json` had 2 MB."""


class Scratch:
    """The folders of a run's tasks: `work`, with a folder for each task, and `shared`."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.folder, self.run_id = folder, run_id

    @classmethod
    def make(cls, folder: Path, run_id: str) -> Scratch:
        """Create both in a run folder.

        Raises UsageError if one of them exists already, OSError if they can't be created.
        """
        for name in (*PARTS, MARKER):
            if os.path.lexists(folder / name):
                raise UsageError(
                    f"{folder / name} exists already, and this run did not make it.",
                    "Choose another --run-id, or another --out.",
                )
        # A run that is killed here leaves empty folders and a file with its run id.
        new = os.open(folder / MARKER, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(new, "w") as file:
            json.dump({"run_id": run_id}, file)
        inodes = {}
        for part in PARTS:
            (folder / part).mkdir(FOR_OWNER)
            inodes[part] = os.lstat(folder / part).st_ino
        made = json.dumps({"run_id": run_id, "inodes": inodes})
        atomic_write(folder / MARKER, f"{made}\n", private=True)
        return cls(folder, run_id)

    def home(self, task: str) -> Path:
        """Return the path of a task's working directory, which may not exist yet.

        Raises RecordError if `work` is not the folder that this run made; OSError.
        """
        return self._own("work") / task

    def shared(self) -> Path:
        """Return the path of the folder that all tasks share. Raises RecordError as `home`."""
        return self._own("shared")

    def _own(self, part: str) -> Path:
        with opened(self.folder) as run:
            if part not in _made(run, self.run_id):
                raise RecordError(f"{self.folder / part} is not the folder that the run made.")
        return self.folder / part

    def remove_home(self, task: str) -> None:
        """Delete the working directory of a task, if it exists.

        Raises RecordError if a file system is mounted there.
        """
        with contextlib.suppress(OSError), opened(self.folder) as run:
            if "work" in _made(run, self.run_id):
                _refuse_mounts(self.folder / "work" / task)
                with opened("work", run) as work:
                    _delete(task, work)

    def remove(self) -> int:
        """Delete both, if this run made them; return how many were deleted.

        Raises RecordError if a file system is mounted there.
        """
        with contextlib.suppress(OSError), opened(self.folder) as run:
            return len(remove_scratch(self.folder, run, self.run_id))
        return 0


@contextlib.contextmanager
def opened(folder: Path | str, within: int | None = None) -> Iterator[int]:
    """Yield a descriptor of a directory; links are refused. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_run_folder(folder: Path, run_id: str) -> bool:
    """Return whether a path is a real directory with the record and the name of this run.

    The path may be anything: a link in its last part is not followed, and a pipe does not block.
    """
    with contextlib.suppress(OSError, ValueError), opened(folder) as run:
        return is_ours(folder, run, run_id)
    return False


def is_ours(folder: Path, run: int, run_id: str) -> bool:
    """Return whether an open folder has the record and the name of this run."""
    return folder.name == run_id and _read("plan.json", run).get("run_id") == run_id


def kind_of(name: str, within: int) -> int:
    """Return the file type of a directory entry as in `stat`, 0 if it does not exist."""
    try:
        return stat.S_IFMT(os.lstat(name, dir_fd=within).st_mode)
    except FileNotFoundError:
        return 0


def scratch_in(run: int, run_id: str) -> list[str]:
    """Return those of the two folders that this run made and that still exist."""
    return [*_made(run, run_id), *_made_empty(run, run_id)]


def remove_scratch(folder: Path, run: int, run_id: str) -> list[str]:
    """Delete and return them. Raises RecordError if a file system is mounted there."""
    if not is_ours(folder, run, run_id):
        return []
    removed = []
    for part in _made(run, run_id):
        _refuse_mounts(folder / part)
        _delete(part, run)
        removed.append(part)
    for part in _made_empty(run, run_id):
        with contextlib.suppress(OSError):  # not empty, so not ours
            os.rmdir(part, dir_fd=run)
            removed.append(part)
    if _read(MARKER, run).get("run_id") == run_id and not any(kind_of(p, run) for p in PARTS):
        with contextlib.suppress(OSError):
            os.unlink(MARKER, dir_fd=run)  # no longer needed
    return removed


def _made(run: int, run_id: str) -> list[str]:
    """Return those of the folders that exist with the inodes recorded by the run."""
    marker = _read(MARKER, run)
    inodes = marker.get("inodes")
    if marker.get("run_id") != run_id or not isinstance(inodes, dict):
        return []
    device = os.fstat(run).st_dev
    made = []
    for part in PARTS:
        with contextlib.suppress(FileNotFoundError):
            about = os.lstat(part, dir_fd=run)
            if stat.S_ISDIR(about.st_mode) and about.st_dev == device:
                made += [part] if about.st_ino == inodes.get(part) else []
    return made


def _made_empty(run: int, run_id: str) -> list[str]:
    """Return the folders of a run that was killed before it recorded their inodes."""
    marker = _read(MARKER, run)
    if marker.get("run_id") != run_id or "inodes" in marker:
        return []
    return [part for part in PARTS if kind_of(part, run) == stat.S_IFDIR]


def _read(name: str, within: int) -> dict[str, Any]:
    """Return the JSON object in a regular file; empty if there is none."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=within)
    except OSError:
        return {}
    with os.fdopen(file, "rb") as opened_file:
        about = os.fstat(opened_file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_size > LONGEST_FILE:
            return {}
        try:
            value = json.loads(opened_file.read())
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _delete(name: str, within: int) -> None:
    """Delete a directory entry with its contents; links are removed, not followed."""
    if kind_of(name, within) == stat.S_IFDIR:
        shutil.rmtree(name, ignore_errors=True, dir_fd=within)
    else:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=within)


def _refuse_mounts(folder: Path) -> None:
    """Raise RecordError if a file system is mounted in a folder: its files are not ours."""
    import psutil  # here: slow to import, and most commands delete nothing

    real = folder.resolve()
    for mounted in psutil.disk_partitions(all=True):
        if Path(mounted.mountpoint).is_relative_to(real):
            raise RecordError(
                f"{folder} was not deleted: a file system is mounted on {mounted.mountpoint}.",
                "Unmount it; then `emulate clean` removes the folder.",
            )
