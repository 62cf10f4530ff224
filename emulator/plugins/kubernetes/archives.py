"""The programs and small files of a run as archives in ConfigMaps (pure, but for reading them).

A ConfigMap takes 1 MiB, so an archive is cut into parts. An init container of each Pod puts them
together and unpacks them into a volume of the Pod, the disk: `home` has the task's program, and
`files` the files of each container, which are mounted one by one at their paths.
"""

from __future__ import annotations

import base64
import gzip
import io
import posixpath
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emulator.engines.kit.containers import add_folder, add_program, home_of
from emulator.errors import EngineError
from emulator.plugins.kubernetes import names
from emulator.scenario.container import is_in
from emulator.scenario.program import Copied, ready
from emulator.validation.units import format_size

if TYPE_CHECKING:
    from emulator.planning.plan import Plan, Task

PART_BYTES = 900 * 2**10
"""Of a ConfigMap: the API server takes 1 MiB, with its keys."""
MOST_BYTES = 10 * 2**20
"""Of all archives of a run, compressed: etcd holds them in memory, each node fetches them."""
HOME, FILES = "home", "files"
"""Folders of the disk."""
KEY = "part"
"""The only key of a ConfigMap."""

Delivery = Mapping[str, Sequence[str]]
"""The ConfigMaps of each archive, in the order of its parts."""


@dataclass(frozen=True)
class Archive:
    """A compressed tar in parts."""

    name: str
    """`program-0`, `files-0`."""
    parts: tuple[bytes, ...]


# --- What a task gets -----------------------------------------------------------------------------


def archives_of(plan: Plan, task: Task) -> list[str]:
    """Return the names of the archives that a task's Pod unpacks, in this order."""
    found = []
    if (copied := task.copied) is not None:
        found.append(f"program-{_programs(plan).index(copied)}")
    if _has_files(plan, task):
        found.append(f"files-{_with_files(plan).index(_owner(plan, task))}")
    return found


def file_mounts(plan: Plan, part: Task, container: str) -> dict[str, str]:
    """Return where the files of a container are on the disk, by their paths in it.

    Without those in the folder of its program, which is mounted as a whole.
    """
    paths = enumerate(plan.files(part))
    return {
        path: f"{FILES}/{container}/{number}"
        for number, path in paths
        if not _is_at_home(part, path)
    }


def _is_at_home(part: Task, path: str) -> bool:
    return part.source is not None and is_in(path, home_of(part))


def _programs(plan: Plan) -> list[Copied]:
    return list(dict.fromkeys(one.copied for one in plan.everything if one.copied is not None))


def _has_files(plan: Plan, task: Task) -> bool:
    return any(plan.files(one) for one in names.containers(task).values())


def _with_files(plan: Plan) -> list[tuple[str, str]]:
    """Return the roles and helpers whose Pods have files, which are the same for all of a role."""
    found = (_owner(plan, one) for one in plan.everything if _has_files(plan, one))
    return list(dict.fromkeys(found))


def _owner(plan: Plan, task: Task) -> tuple[str, str]:
    is_helper = any(task.name == one.name for one in plan.helpers)
    return ("helper", task.name) if is_helper else ("role", task.role)


# --- Archives -------------------------------------------------------------------------------------


def archives(plan: Plan) -> list[Archive]:
    """Return all archives of a run.

    Raises EngineError if a program has changed and can't be read, or if all are too large.
    """
    found = list[Archive]()
    for name, entries in _contents(plan):
        left = MOST_BYTES - sum(len(part) for one in found for part in one.parts)
        found.append(Archive(name, tuple(_cut(_packed(name, entries, left)))))
    return found


def _contents(plan: Plan) -> Iterator[tuple[str, _Content]]:
    for number, copied in enumerate(_programs(plan)):
        yield f"program-{number}", _Program(copied)
    first = {_owner(plan, task): task for task in reversed(plan.everything)}
    for number, owner in enumerate(_with_files(plan)):
        yield f"files-{number}", _Files(plan, first[owner])


@dataclass(frozen=True)
class _Program:
    copied: Copied

    def add_to(self, tar: tarfile.TarFile) -> None:
        add_folder(tar, HOME)
        add_program(tar, self.copied, HOME)

    def __str__(self) -> str:
        size = sum(part.path.stat().st_size for part in ready(self.copied) if not part.is_folder)
        return f"The program {self.copied.source} of {format_size(size)}"


@dataclass(frozen=True)
class _Files:
    plan: Plan
    task: Task

    def add_to(self, tar: tarfile.TarFile) -> None:
        for container, part in names.containers(self.task).items():
            at = file_mounts(self.plan, part, container)
            for path, file in self.plan.files(part).items():
                inside = posixpath.join(HOME, posixpath.relpath(path, home_of(part) or "/"))
                entry = tarfile.TarInfo(at.get(path, inside))
                entry.size, entry.mode = len(file.content), file.permissions
                tar.addfile(entry, io.BytesIO(file.content))

    def __str__(self) -> str:
        parts = names.containers(self.task).values()
        files = [file for part in parts for file in self.plan.files(part).values()]
        return (
            f"The files of {self.task.role} with {format_size(sum(len(f.content) for f in files))}"
        )


_Content = _Program | _Files


class _TooMuch(Exception):
    """An archive is larger than allowed."""


class _Bounded(io.BytesIO):
    """Bytes in memory, at most so many."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, data: Any, /) -> int:  # noqa: ANN401  as its base class
        if self.tell() + len(data) > self._most:
            raise _TooMuch
        return super().write(data)


def _packed(name: str, content: _Content, most: int) -> bytes:
    """Return an archive. The same contents give the same bytes."""
    packed = _Bounded(most)
    try:
        with (
            gzip.GzipFile(name, "wb", fileobj=packed, mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            content.add_to(tar)
    except _TooMuch:
        raise EngineError(
            f"{content} is too large to go through a cluster's ConfigMaps, which take "
            f"{format_size(MOST_BYTES)} of a run, compressed.",
            "Put data into the image or on the shared volume, and leave only the program there.",
        ) from None
    return packed.getvalue()


def _cut(content: bytes) -> Iterable[bytes]:
    return (content[at : at + PART_BYTES] for at in range(0, len(content), PART_BYTES))


# --- ConfigMaps -----------------------------------------------------------------------------------


def config_maps(
    resources: str, found: Sequence[Archive], common: names.Common
) -> list[dict[str, Any]]:
    """Return the ConfigMaps with the archives of a run."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": common.metadata(
                names.config_map(resources, archive.name, number),
                archive=archive.name,
                part=str(number),
            ),
            # Nodes need not watch what never changes.
            "immutable": True,
            "binaryData": {KEY: base64.b64encode(part).decode()},
        }
        for archive in found
        for number, part in enumerate(archive.parts)
    ]


def delivery(objects: Iterable[Mapping[str, Any]]) -> Delivery:
    """Return where the archives are, from the run's ConfigMaps: requests, or a cluster's answer."""
    found: dict[str, dict[int, str]] = {}
    for one in objects:
        labels = one["metadata"].get("labels", {})
        if names.ARCHIVE in labels:
            parts = found.setdefault(labels[names.ARCHIVE], {})
            parts[int(labels[names.PART])] = one["metadata"]["name"]
    return {name: [parts[number] for number in sorted(parts)] for name, parts in found.items()}
