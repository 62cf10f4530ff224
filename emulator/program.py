"""The program that tasks run: which files of `program.source` are copied is decided here, once.

Both engines copy the same: regular files and folders. A link to something inside the folder counts
as what it leads to, so that it holds wherever the copy is; anything else is refused.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from emulator.errors import EngineError
from emulator.inputs import is_unreal, kind_of, readable, reason
from emulator.limits import PROGRAM_BYTES, PROGRAM_FILES
from emulator.units import format_size

__all__ = ["LEFT_OUT", "Part", "copy", "parts", "ready"]

LEFT_OUT = ("__pycache__", ".git", ".mypy_cache", ".pytest_cache", ".ruff_cache", "node_modules")
"""Folders that no training needs, wherever they are. So are run folders and virtual environments,
which have links that lead out."""
_OF_A_RUN = ("plan.json", "history.jsonl")
_OF_AN_ENVIRONMENT = "pyvenv.cfg"
"""PEP 405: the file that makes a folder a virtual environment."""


@dataclass(frozen=True)
class Part:
    """A file or folder that is copied."""

    path: Path
    """Where its content is."""
    name: str
    """Where it goes, seen from the task's working directory."""
    is_folder: bool = False


def parts(source: Path) -> tuple[Part, ...]:
    """Return all that is copied of a program, folders before what is in them, sorted by name.

    Raises ValueError with the reason where it is no file or folder, holds something that can't be
    copied, or is too large.
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
            raise ValueError(f"{root} is a folder of the kernel's, not one of files")
        found: list[Part] = []
        size = 0
        for part, taken in _inside(root, root, "", ()):
            found.append(part)
            size += taken
            if len(found) > PROGRAM_FILES:
                raise ValueError(
                    f"{source} holds more than {PROGRAM_FILES:,} files; "
                    "put the program into a folder of its own"
                )
            if size > PROGRAM_BYTES:
                raise ValueError(
                    f"{source} holds more than {format_size(PROGRAM_BYTES)}; "
                    "put the program into a folder of its own, without data"
                )
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{source} can't be read: {reason(error)}") from None
    return tuple(found)


def _inside(
    root: Path, folder: Path, name: str, above: tuple[Path, ...]
) -> Iterator[tuple[Part, int]]:
    """Yield what is in a folder of the program, with its size; `above` are the folders around."""
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
        found = here.stat()
        if not (kind := kind_of(found.st_mode)):
            if not os.access(here, os.R_OK):
                raise ValueError(f"{inner} can't be read: Permission denied")
            yield Part(here, inner), found.st_size
        elif kind != "a folder":
            raise ValueError(f"{inner} is {kind}; only files and folders can be copied")
        elif each not in LEFT_OUT and not _is_run(here) and not _is_environment(here):
            yield Part(here, inner, is_folder=True), 0
            yield from _inside(root, here, f"{inner}/", above)


def _target(root: Path, link: Path, name: str) -> Path:
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError):
        raise ValueError(f"{name} is a link that leads nowhere") from None
    if root not in target.parents and target != root:
        raise ValueError(f"{name} is a link that leads out of the folder; put a copy there")
    return target


def _is_run(folder: Path) -> bool:
    """Say whether a folder is one of ours: it grows while it would be copied."""
    return all((folder / name).is_file() for name in _OF_A_RUN)


def _is_environment(folder: Path) -> bool:
    """Say whether a folder is a virtual environment: it is for this machine, not for a task."""
    return (folder / _OF_AN_ENVIRONMENT).is_file()


def copy(source: Path | None, home: Path) -> None:
    """Make a task's working directory with the program in it.

    Raises EngineError where the program is no such thing any more, OSError where there is no room.
    """
    copied = () if source is None else ready(source)
    home.mkdir(parents=True)
    for part in copied:
        if part.is_folder:
            (home / part.name).mkdir()
        else:
            shutil.copy2(part.path, home / part.name)


def ready(source: Path) -> tuple[Part, ...]:
    """Return `parts` for an engine. Raises EngineError: the scenario's own check is past."""
    try:
        return parts(source)
    except ValueError as error:
        raise EngineError(f"The program has changed and can't be copied: {error}.") from None
