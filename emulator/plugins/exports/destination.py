"""The destination of an export: files of an earlier export are replaced, others never.

A folder with an export contains `emulate-<format>.json`, which lists its files. Exporting again
removes only those: TensorBoard, for example, would also show the files of an earlier export. An
export that can't be completed removes what it has written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from emulator.errors import UsageError
from emulator.runtime.files import MAKE_ROOM, atomic_write, os_errors


@contextmanager
def claimed(
    folder: Path, kind: str, files: Sequence[str], about: Mapping[str, Any]
) -> Iterator[str]:
    """Remove an earlier export from a folder, and list `files` (relative paths) as the new one.

    Yields the run id of the earlier export, empty if there was none; the files are written
    meanwhile. If that fails, no file of the export is left, nor a folder that is empty without it.
    Raises UsageError if a file can't be written, and, before anything is changed, if one with such
    a name exists that no export has listed.
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
    with writing(folder), _undone(folder, marker, [*listed, *files]):
        folder.mkdir(parents=True, exist_ok=True)
        # New files are listed first, so that an export that was killed can be replaced, too.
        _write(marker, about, [*listed, *files])
        for name in listed:
            _remove(folder, name)
        _write(marker, about, files)
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        yield str(earlier.get("run_id", ""))


@contextmanager
def _undone(folder: Path, marker: Path, files: Sequence[str]) -> Iterator[None]:
    """Remove the files of an export, and the folder if nothing else is in it, if it fails."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for name in files:
                _remove(folder, name)
            marker.unlink(missing_ok=True)
            folder.rmdir()  # which refuses a folder that is not empty
        raise


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
    atomic_write(marker, json.dumps(content, indent=2) + "\n", many_writers=True)


def _is_inside(folder: Path, name: object) -> bool:
    """Return whether a listed name is a file below the folder; others must not be removed."""
    return isinstance(name, str) and folder.resolve() in (folder / name).resolve().parents


def _remove(folder: Path, name: str) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    if path.parent != folder and path.parent.is_dir() and not any(path.parent.iterdir()):
        path.parent.rmdir()
