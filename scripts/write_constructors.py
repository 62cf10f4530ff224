#!/usr/bin/env python3
"""Write `emulator/scenario/constructors.pyi`: the constructors of faults, for type checkers.

Everything in it follows from the fields of the kinds. A test fails while the file differs from what
this writes (tests/scenario/test_constructors.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from emulator.scenario import constructors

STUB = Path(constructors.__file__).with_suffix(".pyi")
HEAD = '''\
# fmt: off
# ruff: noqa
"""Constructors of faults. Written by scripts/write_constructors.py from the kinds of faults."""

import inspect
from collections.abc import Callable
from os import PathLike
from typing import Literal

from emulator.faults.spec import Entry, FaultSpec, Trigger

When = float | str | Trigger
"""Seconds since all tasks ran, `40s`, or a trigger such as Step(300)."""

def constructors() -> dict[str, Callable[..., Entry]]: ...
def constructor(kind: type[Entry]) -> Callable[..., Entry]: ...
def documentation(kind: type[Entry]) -> str: ...
def names() -> list[str]: ...
def signature(kind: type[Entry]) -> inspect.Signature: ...

TRIGGERS: tuple[Callable[..., Trigger], ...]
'''


def stub() -> str:
    """Return the text of the stub."""
    made = {**constructors.constructors(), **{one.__name__: one for one in constructors.TRIGGERS}}
    names = "".join(f'    "{name}",\n' for name in sorted(made))
    return f"{HEAD}\n__all__ = [\n{names}]\n\n" + "\n".join(map(_function, made.values()))


def _function(function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    lines = (function.__doc__ or "").splitlines()
    documentation = "\n".join(["", *(f"    {line}".rstrip() for line in lines[1:])])
    if len(lines) > 1:
        documentation += "\n    "
    parameters = "".join(f"    {text},\n" for text in _parameters(signature))
    return (
        f"def {function.__name__}(\n{parameters}) -> {signature.return_annotation}:\n"
        f'    """{lines[0]}{documentation.removesuffix(chr(10)) if len(lines) > 1 else ""}"""\n'
    )


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    starred = False
    for one in signature.parameters.values():
        if one.kind is one.VAR_POSITIONAL:
            yield f"*{one.name}: {one.annotation}"
            starred = True
            continue
        if one.kind is one.KEYWORD_ONLY and not starred:
            yield "*"
            starred = True
        default = "" if one.default is one.empty else " = ..."
        yield f"{one.name}: {one.annotation}{default}"
        if one.kind is one.POSITIONAL_ONLY:
            yield "/"


if __name__ == "__main__":
    STUB.write_text(stub())
    print(f"wrote {STUB}")
