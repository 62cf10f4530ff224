"""Run ids, which are names of folders, containers, networks and hosts."""

from __future__ import annotations

import re

from emulator.errors import UsageError

_RUN_ID = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def is_run_id(text: str) -> bool:
    """Return whether a text is a valid run id, which is also part of host names."""
    return _RUN_ID.fullmatch(text) is not None


LATEST = "last"
"""What commands take for the latest run."""


def check_new_run_id(text: str) -> str:
    """Return `text` if a new run may have it as its id. Raises UsageError."""
    if text == LATEST:
        raise UsageError(
            f"{LATEST!r} can't be a run id: to all commands it means the latest run.",
            "Choose another --run-id.",
        )
    return check_run_id(text)


def check_run_id(text: str) -> str:
    """Return `text` if it is a valid run id. Raises UsageError."""
    if is_run_id(text):
        return text
    shown = repr(text if len(text) <= 80 else f"{text[:80]}...")
    raise UsageError(
        f"{shown} can't be a run id.",
        "It has 1 to 63 lower-case letters, digits and dashes, begins with a letter and does not "
        "end with a dash.",
    )
