"""A scenario from standard input, which commands call `-`."""

from __future__ import annotations

import os
import sys
from functools import partial

from emulator.errors import UsageError
from emulator.runtime.waiting import result_of

_EXAMPLE = "For example: cat scenario.yaml | emulate plan -"
_AT_ONCE = 1 << 16
"""Bytes that a pipe may have."""


def from_stdin() -> str:
    """Return the text on standard input.

    Raises UsageError if it is a terminal, has nothing, or has what no scenario and no manifest has.
    """
    from emulator.validation.files import decoded, reason
    from emulator.validation.limits import MANIFEST_BYTES

    source = sys.stdin
    if source is not None and source.isatty():
        raise UsageError("- reads a scenario from a pipe, and this is a terminal.", _EXAMPLE)
    try:
        most = MANIFEST_BYTES
        text = decoded(b"" if source is None else _bytes(source.fileno(), most + 1), most)
    except (OSError, ValueError) as error:
        raise UsageError(f"Can't read standard input: {reason(error)}.", _EXAMPLE) from None
    if not text.strip():
        raise UsageError("Standard input is empty: there is no scenario.", _EXAMPLE)
    return text


def _bytes(descriptor: int, most: int) -> bytes:
    """Return what a descriptor has, at most so many bytes.

    It is read past `sys.stdin`, whose lock would stay with a read that a signal ends the wait for.
    """
    content = b""
    while left := most - len(content):
        more = result_of(partial(os.read, descriptor, min(left, _AT_ONCE)))
        if not more:
            break
        content += more
    return content
