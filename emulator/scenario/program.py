"""The program that tasks run: the files of `program.source` that are copied.

All engines copy regular files and folders. A link to a file inside the folder is copied as that
file, so that the copy works anywhere; other links and special files are refused.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

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


class Copied(NamedTuple):
    """What is copied into the working directory of a task."""

    source: Path
    """A file or folder."""
    exclude: Sequence[str] = ()
    """What of a folder is not copied: patterns as in a .gitignore."""
    shared: str = ""
    """The name of a link to the shared volume that stands there as well; empty: none."""


@dataclass(frozen=True)
class Part:
    """A file or folder that is copied."""

    path: Path
    """The file to copy from."""
    name: str
    """Its path in the task's working directory."""
    is_folder: bool = False


def parts(source: Path, exclude: Sequence[str] = ()) -> tuple[Part, ...]:
    """Return the files and folders to copy, sorted by name, folders before their contents.

    `exclude` are patterns as in a .gitignore. Raises ValueError with the reason if the source is
    not a file or folder, contains something that can't be copied, or is too large.
    """
    try:
        is_excluded = excluding(exclude)
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
        for part, size in _inside(root, root, "", (), is_excluded):
            found.append(part)
            total += size
            advice = "put the program into a folder of its own, without data, or `exclude` the data"
            if len(found) > PROGRAM_FILES:
                raise ValueError(f"{source} contains more than {PROGRAM_FILES:,} files; {advice}")
            if total > PROGRAM_BYTES:
                limit = format_size(PROGRAM_BYTES)
                raise ValueError(f"{source} contains more than {limit}; {advice}")
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{source} can't be read: {reason(error)}") from None
    return tuple(found)


def excluding(patterns: Sequence[str]) -> Callable[[str], object]:
    """Return what says whether a path, of a folder with a slash at its end, is excluded.

    Raises ValueError if a pattern is none.
    """
    if not patterns:
        return lambda path: False
    from pathspec import GitIgnoreSpec  # few scenarios have patterns

    try:
        return GitIgnoreSpec.from_lines(patterns).match_file
    except ValueError as error:
        raise ValueError(f"`exclude` has what is no pattern: {error}") from None


def pattern_of(folder: Path, root: Path) -> list[str]:
    """Return the pattern that excludes a folder from the copy of another; none: it is outside."""
    folder, root = folder.resolve(), root.resolve()
    if root not in folder.parents:
        return []
    name = re.sub(r"([][*? \\])", r"\\\1", folder.relative_to(root).as_posix())
    return [f"/{name}/"]


def _inside(
    root: Path,
    folder: Path,
    name: str,
    above: tuple[Path, ...],
    is_excluded: Callable[[str], object],
) -> Iterator[tuple[Part, int]]:
    """Yield the contents of a folder with their sizes; `above` are its parent folders."""
    above = (*above, folder)
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in islice(entries, PROGRAM_FILES + 1))
    for each in names:
        inner = f"{name}{each}"
        here = folder / each
        if is_excluded(f"{inner}/" if here.is_dir() else inner):
            continue
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
            yield from _inside(root, here, f"{inner}/", above, is_excluded)


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


def copy(copied: Copied | None, home: Path, shared: Path) -> None:
    """Make a task's working directory with the program in it.

    Raises EngineError if the program has changed and can't be copied; OSError.
    """
    found = () if copied is None else ready(copied)
    home.mkdir(parents=True)
    for part in found:
        if part.is_folder:
            (home / part.name).mkdir()
        else:
            shutil.copy2(part.path, home / part.name)
    if copied is not None and copied.shared:
        (home / copied.shared).symlink_to(shared, target_is_directory=True)


def ready(copied: Copied) -> tuple[Part, ...]:
    """Return `parts` for an engine, after the scenario was validated. Raises EngineError."""
    at_the_link = [f"/{copied.shared}"] if copied.shared else []
    try:
        return parts(copied.source, [*copied.exclude, *at_the_link])
    except ValueError as error:
        raise EngineError(f"The program has changed and can't be copied: {error}.") from None
