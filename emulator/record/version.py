"""The format of a record, and the version of the emulator that writes it.

`plan.json`, the first event of `history.jsonl` and `summary.json` have both. A record of another
format is refused: its keys may mean something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from emulator.errors import RecordError

FORMAT = 2
"""Raised with every change of a record that other versions would misread."""


class OtherFormat(RecordError):
    """A record of a format that this version of the emulator can't read."""


@cache
def version() -> str:
    """Return the version of this emulator."""
    from emulator import __version__

    return __version__


def header() -> dict[str, Any]:
    """Return format and version, for a file of a record."""
    return {"format": FORMAT, "emulator_version": version()}


def check_format(content: object, path: Path) -> Mapping[str, Any]:
    """Return the content of a file of the record in `path`.

    Raises OtherFormat if it is not of this format, ValueError if it is no object.
    """
    if not isinstance(content, dict):
        raise ValueError("it is no object")
    number, writer = content.get("format", "?"), content.get("emulator_version", "?")
    if number != FORMAT:
        raise OtherFormat(
            f"The record in {path} has format {number} of emulator {writer}; "
            f"this is emulator {version()}, which reads format {FORMAT}.",
            "Read it with the version that wrote it.",
        )
    return content
