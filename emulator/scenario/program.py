"""The program that tasks run: the files of `program.source` that are copied.

All engines copy regular files and folders. A link to a file inside the folder is copied as that
file, so that the copy works anywhere; other links and special files are refused.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from emulator.errors import EngineError
from emulator.validation.files import is_unreal, kind_of, readable, reason
from emulator.validation.limits import PROGRAM_BYTES, PROGRAM_FILES
from emulator.validation.units import format_size

WORKDIR = "/job"
"""Where it is in a container, which runs it there."""
SHARED = "/shared"
"""Where the shared volume is in a container."""
EXCLUDED = ("__pycache__", ".git", ".mypy_cache", ".pytest_cache", ".ruff_cache", "node_modules")
"""Folders that are not copied. Neither are run folders and virtual environments."""


@dataclass(frozen=True)
class Part:
    """A file or folder that is copied."""

    path: Path
    """The file to copy from."""
    name: str
    """Its path in the task's working directory."""
    is_folder: bool = False


def parts(source: Path) -> tuple[Part, ...]:
    """Return the files and folders to copy, sorted by name, folders before their contents.

    Raises ValueError with the reason if the source is not a file or folder, contains something that
    can't be copied, or is too large.
    """
    try:
        root = source.resolve(strict=True)
        if not root.is_dir():
            try:
                readable(root, PROGRAM_BYTES)
            except ValueError as error:
                raise ValueError(f"{source} can't be copied: {error}") from None
            return (Part(root, root.name),)
        if is_unreal(root):
            raise ValueError(f"{root} is a kernel folder, without ordinary files")
        found: list[Part] = []
        total = 0
        for part, size in _inside(root, root, "", ()):
            found.append(part)
            total += size
            advice = "put the program into a folder of its own, without data"
            if len(found) > PROGRAM_FILES:
                raise ValueError(f"{source} contains more than {PROGRAM_FILES:,} files; {advice}")
            if total > PROGRAM_BYTES:
                limit = format_size(PROGRAM_BYTES)
                raise ValueError(f"{source} contains more than {limit}; {advice}")
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{source} can't be read: {reason(error)}") from None
    return tuple(found)


def _inside(
    root: Path, folder: Path, name: str, above: tuple[Path, ...]
) -> Iterator[tuple[Part, int]]:
    """Yield the contents of a folder with their sizes; `above` are its parent folders."""
    above = (*above, folder)
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in islice(entries, PROGRAM_FILES + 1))
    for each in names:
        inner = f"{name}{each}"
        here = folder / each
        if here.is_symlink():
            here = _target(root, here, inner)
            if here in above:
                raise ValueError(f"{inner} is a link to a folder that it is in")
        status = here.stat()
        if not (kind := kind_of(status.st_mode)):
            if not os.access(here, os.R_OK):
                raise ValueError(f"{inner} can't be read: Permission denied")
            yield Part(here, inner), status.st_size
        elif kind != "a folder":
            raise ValueError(f"{inner} is {kind}; only files and folders can be copied")
        elif each not in EXCLUDED and not _is_generated(here):
            yield Part(here, inner, is_folder=True), 0
            yield from _inside(root, here, f"{inner}/", above)


def _target(root: Path, link: Path, name: str) -> Path:
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError):
        raise ValueError(f"{name} is a broken link") from None
    if root not in target.parents and target != root:
        raise ValueError(f"{name} is a link out of the folder; put a copy there")
    return target


def _is_generated(folder: Path) -> bool:
    """Return whether a folder is a run folder, which grows, or a virtual environment (PEP 405)."""
    is_run = all((folder / name).is_file() for name in ("plan.json", "history.jsonl"))
    return is_run or (folder / "pyvenv.cfg").is_file()


def copy(source: Path | None, home: Path) -> None:
    """Make a task's working directory with the program in it.

    Raises EngineError if the program has changed and can't be copied; OSError.
    """
    copied = () if source is None else ready(source)
    home.mkdir(parents=True)
    for part in copied:
        if part.is_folder:
            (home / part.name).mkdir()
        else:
            shutil.copy2(part.path, home / part.name)


def ready(source: Path) -> tuple[Part, ...]:
    """Return `parts` for an engine, after the scenario was validated. Raises EngineError."""
    try:
        return parts(source)
    except ValueError as error:
        raise EngineError(f"The program has changed and can't be copied: {error}.") from None
