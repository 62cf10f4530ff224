"""Where an export goes: an earlier export is replaced, any other file never.

A folder with an export holds `emulate-<format>.json`, which lists its files. Exporting again
removes those and no others: TensorBoard, for example, would show files of an earlier export beside
the new ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from emulator.errors import UsageError
from emulator.files import MAKE_ROOM, os_errors

__all__ = ["claim", "claim_file", "writing"]


def claim(folder: Path, kind: str, files: Sequence[str], about: Mapping[str, Any]) -> str:
    """Make room for `files` (relative paths) in a folder, and note that they are ours.

    Returns the id of the run whose export was there, empty where none was. Raises UsageError
    where a file of that name is not ours, and then has changed nothing.
    """
    marker = folder / f"emulate-{kind}.json"
    before = _read(marker)
    ours = [name for name in before.get("files", ()) if _is_inside(folder, name)]
    with writing(folder):
        foreign = [name for name in files if (folder / name).exists() and name not in ours]
    if foreign:
        raise UsageError(
            f"{folder / foreign[0]} is there already, and no export of ours.",
            "Choose another folder, or move it away.",
        )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # What is to come is noted first: an export that breaks off can be replaced as well.
        _note(marker, about, [*ours, *files])
        for name in ours:
            _remove(folder, name)
        _note(marker, about, files)
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
    return str(before.get("run_id", ""))


def claim_file(path: Path, head: str) -> bool:
    """Say whether an earlier export of ours is in `path`: a file that begins with `head`.

    Raises UsageError where something else is there.
    """
    with writing(path):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            return False
        if path.is_file():
            with path.open("rb") as file:
                if file.read(len(head)) == head.encode():
                    return True
    raise UsageError(
        f"{path} is there already, and no export of ours.", "Choose another name, or move it away."
    )


def writing(path: Path) -> AbstractContextManager[None]:
    """Raise UsageError instead of OSError."""
    return os_errors(UsageError, f"Can't write {path}", MAKE_ROOM)


def _read(marker: Path) -> dict[str, Any]:
    try:
        noted = json.loads(marker.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def _note(marker: Path, about: Mapping[str, Any], files: Sequence[str]) -> None:
    noted = {**about, "files": list(dict.fromkeys(files))}
    marker.write_text(json.dumps(noted, indent=2) + "\n", encoding="utf-8")


def _is_inside(folder: Path, name: object) -> bool:
    """Say whether a note names a file below the folder; anything else is not ours to remove."""
    if not isinstance(name, str):
        return False
    return folder.resolve() in (folder / name).resolve().parents


def _remove(folder: Path, name: str) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    if path.parent != folder and path.parent.is_dir() and not any(path.parent.iterdir()):
        path.parent.rmdir()
