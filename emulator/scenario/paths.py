"""Types of paths in a scenario: they are made absolute, and the files are checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from emulator.scenario.program import parts
from emulator.validation.fields import is_stored, once
from emulator.validation.files import is_unreal, kind_of, readable, reason
from emulator.validation.limits import DOCKERFILE_BYTES


def _not_empty(path: object) -> object:
    """Refuse empty text, which `Path` takes for the current folder."""
    if path == "":
        raise ValueError("a path is empty; write `.` for the scenario's own folder")
    return path


_Named = Annotated[Path, BeforeValidator(_not_empty)]


def _checked(check: Callable[[Path, ValidationInfo], object]) -> AfterValidator:
    """Return a validator that makes a path absolute and checks it, unless it is from a record."""

    def validate(path: Path, info: ValidationInfo) -> Path:
        if is_stored(info):
            return path
        resolved = _existing(path, info)
        check(resolved, info)
        return resolved

    return AfterValidator(validate)


def _existing(path: Path, info: ValidationInfo) -> Path:
    """Return `path` made absolute. Raises ValueError if it does not exist."""
    try:
        folder = Path((info.context or {}).get("folder", "."))
        resolved = (folder / path.expanduser()).resolve()
        exists = resolved.exists()
        str(resolved).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{path} is not valid UTF-8; rename it") from None
    except (OSError, RuntimeError) as error:  # a name too long, an unknown `~user`
        raise ValueError(f"{path} can't be resolved: {reason(error)}") from None
    if not exists:
        raise ValueError(f"there is no {resolved}; paths are relative to the scenario's folder")
    return resolved


def _check_dockerfile(path: Path, info: ValidationInfo) -> None:
    try:
        readable(path, DOCKERFILE_BYTES)
    except ValueError as error:
        raise ValueError(f"{path} is not a Dockerfile: {error}") from None


def _check_context(path: Path, info: ValidationInfo) -> None:
    if not path.is_dir() or is_unreal(path):
        raise ValueError(f"{path} is not a folder of files; a build context must be one")


def _check_mount(path: Path, info: ValidationInfo) -> None:
    if is_unreal(path):
        raise ValueError(f"{path} is a kernel folder, which can't be mounted")
    kind = kind_of(path.stat().st_mode)
    if kind not in ("", "a folder"):
        raise ValueError(f"{path} is {kind}; only files and folders can be mounted")


def _check_program(path: Path, info: ValidationInfo) -> None:
    exclude = tuple(info.data.get("exclude") or ())
    once(info, ("program", path, exclude), lambda: parts(path, exclude))


ProgramPath = Annotated[
    _Named,
    Field(examples=["train.py"]),
    _checked(lambda path, info: _check_program(path, info)),
]
"""A file or folder that can be copied."""
DockerfilePath = Annotated[_Named, _checked(_check_dockerfile)]
ContextPath = Annotated[_Named, Field(examples=["."]), _checked(_check_context)]
"""The folder of a build context."""
MountPath = Annotated[_Named, _checked(_check_mount)]
"""A file or folder of this machine that can be mounted."""
