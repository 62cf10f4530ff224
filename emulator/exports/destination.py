"""The destination of an export: files of an earlier export are replaced, others never.

A folder with an export contains `emulate-<format>.json`, which lists its files. Exporting again
removes only those: TensorBoard, for example, would also show the files of an earlier export.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from emulator.errors import UsageError
from emulator.files import MAKE_ROOM, os_errors


def claim(folder: Path, kind: str, files: Sequence[str], about: Mapping[str, Any]) -> str:
    """Remove an earlier export from a folder, and list `files` (relative paths) as the new one.

    Returns the run id of the earlier export, empty if there was none. Raises UsageError, before
    anything is changed, if a file with such a name exists that no export has listed.
    """
    marker = folder / f"emulate-{kind}.json"
    earlier = _read(marker)
    listed = [name for name in earlier.get("files", ()) if _is_inside(folder, name)]
    with writing(folder):
        foreign = [name for name in files if (folder / name).exists() and name not in listed]
    if foreign:
        raise UsageError(
            f"{folder / foreign[0]} exists already, and no export has written it.",
            "Choose another folder, or move it away.",
        )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # New files are listed first, so that an interrupted export can be replaced, too.
        _write(marker, about, [*listed, *files])
        for name in listed:
            _remove(folder, name)
        _write(marker, about, files)
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
    return str(earlier.get("run_id", ""))


def claim_file(path: Path, head: str) -> bool:
    """Return whether `path` is an earlier export: a file that begins with `head`.

    Raises UsageError if it is anything else.
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
        f"{path} exists already, and no export has written it.",
        "Choose another name, or move it away.",
    )


def writing(path: Path) -> AbstractContextManager[None]:
    """Raise UsageError instead of OSError."""
    return os_errors(UsageError, f"Can't write {path}", MAKE_ROOM)


def _read(marker: Path) -> dict[str, Any]:
    try:
        content = json.loads(marker.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(marker: Path, about: Mapping[str, Any], files: Sequence[str]) -> None:
    content = {**about, "files": list(dict.fromkeys(files))}
    marker.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _is_inside(folder: Path, name: object) -> bool:
    """Return whether a listed name is a file below the folder; others must not be removed."""
    return isinstance(name, str) and folder.resolve() in (folder / name).resolve().parents


def _remove(folder: Path, name: str) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    if path.parent != folder and path.parent.is_dir() and not any(path.parent.iterdir()):
        path.parent.rmdir()
