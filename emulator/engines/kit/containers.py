"""What all engines with containers know of a task and of the program that it gets (pure)."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from typing import TYPE_CHECKING

from emulator.errors import EngineError
from emulator.runtime.files import os_errors
from emulator.scenario.program import SHARED, WORKDIR, Copied, Part, ready

if TYPE_CHECKING:
    from emulator.planning.plan import Plan, Task


def home_of(task: Task) -> str:
    """Return the working directory of a task; empty: that of its image."""
    return task.working_dir or ("" if task.source is None else WORKDIR)


def scratches(task: Task) -> list[str]:
    """Return the names of a task's scratch volumes, those of its parts included."""
    mounts = (m for one in (task, *task.init) for m in one.mounts.values())
    return list(dict.fromkeys(mount.scratch for mount in mounts if mount.scratch))


def operator_labels(plan: Plan, task: Task) -> Mapping[str, str]:
    """Return the labels that the operator of a job gives to the task's pod."""
    rules, roles = plan.scenario.rules, list(plan.scenario.cluster)
    if rules is None or task.role not in roles:
        return {}
    return rules.pod_labels(roles, task.role, task.index)


def add_folder(tar: tarfile.TarFile, folder: str) -> None:
    """Add a folder that every user can write to; the root stays as it is."""
    if name := folder.lstrip("/"):
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o777
        tar.addfile(entry)


def add_program(tar: tarfile.TarFile, copied: Copied, home: str) -> None:
    """Add a program, and its link to the shared volume. Raises EngineError."""
    for part in ready(copied):
        _add_part(tar, part, home)
    if copied.shared:
        entry = tarfile.TarInfo(f"{home}/{copied.shared}".lstrip("/"))
        entry.type, entry.linkname = tarfile.SYMTYPE, SHARED
        tar.addfile(entry)


def _add_part(tar: tarfile.TarFile, part: Part, home: str) -> None:
    """Add a file or folder of the program, readable for every user. Raises EngineError."""
    with os_errors(EngineError, f"Can't read {part.path}"):
        entry = tar.gettarinfo(part.path, f"{home}/{part.name}".lstrip("/"))
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mode |= 0o444 | (0o111 if part.is_folder else 0)
        if part.is_folder:
            tar.addfile(entry)
            return
        # Not as a link, which gettarinfo makes of a file that has two names.
        entry.type, entry.linkname = tarfile.REGTYPE, ""
        entry.size = part.path.stat().st_size
        with part.path.open("rb") as content:
            tar.addfile(entry, content)
