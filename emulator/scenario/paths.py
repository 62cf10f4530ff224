"""Paths in a scenario: made absolute from its folder, and what is there is looked at within limits.

Validators: a scenario that is read back from a record (`stored`) is taken as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, ValidationInfo

from emulator.fields import is_stored, once
from emulator.inputs import is_unreal, readable, reason
from emulator.limits import DOCKERFILE_BYTES
from emulator.program import parts

__all__ = ["Named", "build_context", "dockerfile", "program"]


def _not_empty(path: object) -> object:
    """Refuse the empty text, which Python takes for the present folder."""
    if path == "":
        raise ValueError("a path is empty; write `.` for the scenario's own folder")
    return path


Named = Annotated[Path, BeforeValidator(_not_empty)]
"""A path as it is written, before it is made absolute."""


def program(path: Path | None, info: ValidationInfo) -> Path | None:
    """Return the path of a program, a file or folder that can be copied."""
    if path is None or is_stored(info):
        return path
    resolved = _existing(path, info)
    once(info, ("program", resolved), lambda: parts(resolved))
    return resolved


def dockerfile(path: Path, info: ValidationInfo) -> Path:
    """Return the path of a Dockerfile."""
    if is_stored(info):
        return path
    resolved = _existing(path, info)
    try:
        readable(resolved, DOCKERFILE_BYTES)
    except ValueError as error:
        raise ValueError(f"{resolved} is no Dockerfile: {error}") from None
    return resolved


def build_context(path: Path | None, info: ValidationInfo) -> Path | None:
    """Return the path of a build context, a folder."""
    if path is None or is_stored(info):
        return path
    resolved = _existing(path, info)
    if not resolved.is_dir() or is_unreal(resolved):
        raise ValueError(f"{resolved} is no folder of files; a build context is one")
    return resolved


def _existing(path: Path, info: ValidationInfo) -> Path:
    """Return `path` made absolute; it must exist to be planned."""
    try:
        folder = Path((info.context or {}).get("folder", "."))
        resolved = (folder / path.expanduser()).resolve()
        there = resolved.exists()
        str(resolved).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{path} holds bytes that are no text; rename it") from None
    except (OSError, RuntimeError) as error:  # a name too long, a `~user` that nobody is
        raise ValueError(f"{path} can't be looked for: {reason(error)}") from None
    if not there:
        raise ValueError(f"there is no {resolved}; paths start at the scenario's own folder")
    return resolved
