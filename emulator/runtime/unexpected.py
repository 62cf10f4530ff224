"""The last resort: an error that nobody foresaw becomes a sentence, and its traceback a file.

Errors that can be foreseen have sentences of their own, where they arise; see `errors.py`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from pathlib import Path
from uuid import uuid4

from emulator.errors import EmulatorError, UsageError
from emulator.runtime.files import cache_dir

NAME = "traceback.txt"
"""In the user's cache: the traceback of the last such error."""
VARIABLE = "EMULATOR_TRACEBACK"
"""In the environment: tracebacks are also printed."""


def explained(error: Exception) -> EmulatorError:
    """Return the error for the user in place of one that nobody foresaw; keep its traceback."""
    if isinstance(error, EmulatorError):
        return error
    if isinstance(error, OSError) and not _has_working_directory():
        return UsageError("The working directory was deleted.", "`cd` to one that exists.")
    text = "".join(traceback.format_exception(error))
    if os.environ.get(VARIABLE):
        print(text, end="", file=sys.stderr)  # noqa: T201
    return EmulatorError(_sentence(error), f"{_kept(text)}.")


def _sentence(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "The memory of this machine, or what this process may have of it, is used up."
    if isinstance(error, OSError) and error.strerror:
        about = f"{error.filename}: " if error.filename is not None else ""
        return f"The system has refused something: {about}{error.strerror}."
    words = str(error).partition("\n")[0]
    what = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return f"This is a defect of emulate: {what[:300].removesuffix('.')}."


def _kept(text: str) -> str:
    """Keep a traceback for a report of the defect; return where it is, in words."""
    try:
        path = cache_dir(NAME)
    except ImportError:  # the installation lacks a package, which is perhaps the very error
        return f"{VARIABLE}=1 shows the traceback"
    partial = path.with_name(f"{NAME}.{uuid4().hex[:8]}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        os.replace(partial, path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        return f"{VARIABLE}=1 shows the traceback"
    return f"The traceback is in {path}; a report of the defect needs it"


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True
