"""The build context of a user's image: within limits, and as the same bytes each time."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from docker.utils.build import PatternMatcher

from emulator.errors import UsageError
from emulator.inputs import text_of
from emulator.limits import CONTEXT_BYTES, CONTEXT_FILES, DOCKERFILE_BYTES
from emulator.scenario.model import Dockerfile
from emulator.units import format_size

__all__ = ["custom_context", "packed"]


def custom_context(wanted: Dockerfile) -> bytes:
    """Return the build context of a user's image, with its Dockerfile as `Dockerfile.emulator`.

    Raises UsageError where it can't be read or is too large.
    """
    context = wanted.context or wanted.dockerfile.parent
    try:
        return packed({**_kept(context), "Dockerfile.emulator": wanted.dockerfile})
    except OSError as error:
        why = f"{error.filename or context}: {error.strerror or error}"
        raise UsageError(f"Can't read the build context: {why}.") from None


def _kept(context: Path) -> dict[str, Path]:
    """Return the files of a build context.

    Raises OSError, and UsageError where they are too many or too large: at once, since somebody may
    have named the root of the disk.
    """
    names: list[str] = []
    size = 0
    walk = PatternMatcher([*_dockerignore(context), "!Dockerfile"]).walk(str(context))
    for name in walk:
        if len(names) >= CONTEXT_FILES:
            raise _too_much(context, f"{CONTEXT_FILES:,} files and folders")
        names.append(name)
        if (context / name).is_file():
            size += (context / name).stat().st_size
        if size > CONTEXT_BYTES:
            raise _too_much(context, format_size(CONTEXT_BYTES))
    return {name: context / name for name in sorted(names) if (context / name).is_file()}


def _too_much(context: Path, limit: str) -> UsageError:
    return UsageError(
        f"The build context {context} holds more than {limit}.",
        "Name a smaller folder as `context:`, or list in its .dockerignore what the image does "
        "not need.",
    )


def _dockerignore(context: Path) -> list[str]:
    """Return what stays out: the user's list, and what would change the tag with every run."""
    file = context / ".dockerignore"
    try:
        lines = text_of(file, DOCKERFILE_BYTES).splitlines() if file.exists() else []
    except ValueError as error:
        raise UsageError(f"Can't read {file}: {error}.") from None
    return ["runs", ".git"] + [
        line.strip() for line in lines if line.strip() and not line.startswith("#")
    ]


def packed(files: Mapping[str, Path]) -> bytes:
    """Pack files so that the same content gives the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, path in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = path.stat().st_size, path.stat().st_mode & 0o755 | 0o444
            with path.open("rb") as content:
                tar.addfile(entry, content)
    return buffer.getvalue()
