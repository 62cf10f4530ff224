"""A changed source, put into functions that are there already."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType


class AtImport(Exception):
    """The change is in code that runs when the module is imported: functions don't hold it."""


def patch(path: Path, source: bytes, changed: bytes) -> None:
    """Let all functions of an imported file run the changed source.

    Raises AtImport, also if the file is not imported yet.
    """
    if not any(getattr(one, "__file__", None) == str(path) for one in list(sys.modules.values())):
        raise AtImport(path.name)
    was, becomes = (
        compile(text, str(path), "exec", dont_inherit=True) for text in (source, changed)
    )
    codes = dict(_pairs(was, becomes))
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and (code := codes.get(_key(one.__code__))):
            try:
                one.__code__ = code
            except ValueError as error:  # it has other free variables
                raise AtImport(str(error)) from None


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _pairs(was: CodeType, becomes: CodeType) -> Iterator[tuple[tuple[str, str, int], CodeType]]:
    """Yield each function of a module or class, and of functions, with what becomes of it."""
    inner = [
        [one for one in code.co_consts if isinstance(one, CodeType)] for code in (was, becomes)
    ]
    if was.co_flags & inspect.CO_OPTIMIZED:  # a function
        yield _key(was), becomes
    elif _runs(was) != _runs(becomes) or len(inner[0]) != len(inner[1]):
        raise AtImport(was.co_qualname)
    if len(inner[0]) == len(inner[1]):
        for one, other in zip(*inner, strict=True):
            yield from _pairs(one, other)


def _runs(code: CodeType) -> tuple[object, ...]:
    """Return what a module or class does, whatever its functions do."""
    constants = [one for one in code.co_consts if not isinstance(one, CodeType)]
    return code.co_code, code.co_names, [(type(one), one) for one in constants]
