"""What is stored may have been changed by anything since: how files and values are read back.

A file is an ordinary one of bounded size, and a value has the type that its class declares; else
reading it is an error, and not the computing that follows.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from types import UnionType
from typing import (
    IO,
    TYPE_CHECKING,
    Annotated,
    Any,
    NotRequired,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from emulator.errors import RecordError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MOST = 256 * 2**20
"""Bytes of a file that is read at once: none of ours has as many."""
LONGEST = 16 * 2**20
"""Bytes of a line, likewise."""
LARGEST = 10**300
"""Integers may have this size: real numbers have room for them."""


def open_stored(path: Path) -> IO[bytes]:
    """Open a file for reading.

    Raises FileNotFoundError; and RecordError, also where it is a pipe, a device or a folder.
    """
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise _unreadable(path, "It is no file")
    return os.fdopen(number, "rb")


def read_stored(path: Path, most: int = MOST) -> bytes:
    """Return what a file contains. Raises as `open_stored` does."""
    with open_stored(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise _unreadable(path, os.strerror(errno.EFBIG))
        return file.read(most)


def _unreadable(path: Path, why: str) -> RecordError:
    return RecordError(f"Can't read {path}: {why}.")


def stored_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file, up to one that is longer than any of ours."""
    while (line := file.readline(LONGEST)) and len(line) < LONGEST:
        yield line


def stored_json(text: bytes) -> Any:  # noqa: ANN401  whatever JSON can say
    """Return the value in a text of JSON. Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


_Stored = TypeVar("_Stored")


def value_of(kind: type[_Stored], found: object) -> _Stored:
    """Return the dataclass with the fields that were found. Raises ValueError, which names one.

    Types are those that the class declares, and numbers are finite.
    """
    from pydantic import ValidationError

    try:
        return kind(**_fields(kind).validate_python(found))  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = "".join(f"{step}: " for step in first["loc"][:1])
        raise ValueError(f"{where}{first['msg'][:1].lower()}{first['msg'][1:]}") from None


@cache
def _fields(kind: type) -> TypeAdapter[dict[str, Any]]:
    """Return what checks the fields of a dataclass (pydantic takes only instances if strict)."""
    from pydantic import ConfigDict, TypeAdapter, with_config
    from typing_extensions import TypedDict

    hints = get_type_hints(kind)
    declared = {}
    for one in fields(kind):
        hint = _finite(hints[one.name])
        must = one.default is MISSING and one.default_factory is MISSING
        declared[one.name] = hint if must else NotRequired[hint]
    config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    return TypeAdapter(with_config(config)(TypedDict(kind.__name__, declared)))  # type: ignore[operator]


def _finite(hint: Any) -> Any:  # noqa: ANN401  whatever a field may be annotated with
    """Return a type whose integers have at most the size of LARGEST."""
    if hint is int:
        from pydantic import Field

        return Annotated[int, Field(ge=-LARGEST, le=LARGEST)]
    if get_origin(hint) is UnionType:
        return Union[tuple(map(_finite, get_args(hint)))]  # noqa: UP007
    if get_origin(hint) is Mapping:
        return Mapping[tuple(map(_finite, get_args(hint)))]  # type: ignore[misc]
    return hint
