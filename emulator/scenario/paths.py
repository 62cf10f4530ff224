"""Validators of paths in a scenario: make them absolute, and check the files there.

A scenario that is read from a record (`stored`) is not checked again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, ValidationInfo

from emulator.scenario.program import parts
from emulator.validation.fields import is_stored, once
from emulator.validation.files import is_unreal, readable, reason
from emulator.validation.limits import DOCKERFILE_BYTES

__all__ = ["Named", "build_context", "dockerfile", "program"]


def _not_empty(path: object) -> object:
    """Refuse empty text, which Python takes for the current folder."""
    if path == "":
        raise ValueError("a path is empty; write `.` for the scenario's own folder")
    return path


Named = Annotated[Path, BeforeValidator(_not_empty)]
"""A path as written, before it is made absolute."""


def program(path: Path | None, info: ValidationInfo) -> Path | None:
    """Validate the path of a program: a file or folder that can be copied."""
    if path is None or is_stored(info):
        return path
    resolved = _existing(path, info)
    once(info, ("program", resolved), lambda: parts(resolved))
    return resolved


def dockerfile(path: Path, info: ValidationInfo) -> Path:
    """Validate the path of a Dockerfile."""
    if is_stored(info):
        return path
    resolved = _existing(path, info)
    try:
        readable(resolved, DOCKERFILE_BYTES)
    except ValueError as error:
        raise ValueError(f"{resolved} is not a Dockerfile: {error}") from None
    return resolved


def build_context(path: Path | None, info: ValidationInfo) -> Path | None:
    """Validate the path of a build context: a folder."""
    if path is None or is_stored(info):
        return path
    resolved = _existing(path, info)
    if not resolved.is_dir() or is_unreal(resolved):
        raise ValueError(f"{resolved} is not a folder of files; a build context must be one")
    return resolved


def _existing(path: Path, info: ValidationInfo) -> Path:
    """Return `path` made absolute. Raises ValueError if it does not exist."""
    try:
        folder = Path((info.context or {}).get("folder", "."))
        resolved = (folder / path.expanduser()).resolve()
        there = resolved.exists()
        str(resolved).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{path} is not valid UTF-8; rename it") from None
    except (OSError, RuntimeError) as error:  # a name too long, an unknown `~user`
        raise ValueError(f"{path} can't be resolved: {reason(error)}") from None
    if not there:
        raise ValueError(f"there is no {resolved}; paths are relative to the scenario's folder")
    return resolved
