"""The pytest options of a scenario: marks, variants, and the reference variant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    WithJsonSchema,
)

from emulator.errors import shown
from emulator.validation.fields import Model
from emulator.validation.limits import VARIANTS

__all__ = ["Mark", "Marks", "Parametrize", "Reference"]


class Mark(Model):
    """A pytest mark: `pytest.mark.<name>(*args, **kwargs)`."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}


def _mark(value: object) -> object:
    """Parse `slow`, `{timeout: 300}`, `{usefixtures: [a, b]}` or `{flaky: {reruns: 2}}`."""
    if isinstance(value, Mark):
        return value
    match value:
        case str(name):
            given: object = None
        case Mapping() if len(value) == 1:
            ((name, given),) = value.items()
        case _:
            raise ValueError("a mark is its name, or {name: value}, such as {timeout: 300}")
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{name!r} is not a mark's name; use letters, digits and underscores")
    _plain(given)
    if name == "xfail" and isinstance(given, str):
        given = {"reason": given}  # else pytest takes it for a condition
    if isinstance(given, Mapping):
        return Mark(name=name, kwargs=dict(given))
    if isinstance(given, list | tuple):
        return Mark(name=name, args=tuple(given))
    return Mark(name=name, args=() if given is None else (given,))


def _unmark(mark: Mark) -> object:
    """Return a mark as `_mark` parses it."""
    if mark.kwargs:
        return {mark.name: mark.kwargs}
    return {mark.name: list(mark.args)} if mark.args else mark.name


def _plain(value: object) -> object:
    """Refuse values that JSON, and so a plan, can't represent."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            for inner in value:
                _plain(inner)
            return value
        case Mapping():
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise ValueError(f"the key {shown(str(key))} is not text; write it in quotes")
                _plain(inner)
            return value
    raise ValueError(f"{shown(str(value))} is neither text nor a number; write it in quotes")


def _key(key: str) -> str:
    if not key.strip() or "=" in key:
        raise ValueError(f"{key!r} is not a scenario key; write one such as `cluster.worker`")
    if key.partition(".")[0] in ("parametrize", "reference"):
        raise ValueError(f"{key} can't be varied: it defines the variants")
    return key


def _each_once(values: list[Any]) -> list[Any]:
    seen: set[str] = set()
    for value in values:
        written = repr(value)  # 1 and true are equal to Python, 1 and 1.0 too
        if written in seen:
            raise ValueError(f"{shown(str(value))} is listed twice; each value runs once")
        seen.add(written)
    return values


def _not_too_many(varied: dict[str, list[Any]]) -> dict[str, list[Any]]:
    if (count := math.prod(len(values) for values in varied.values())) > VARIANTS:
        raise ValueError(f"that makes {count:,} variants; {VARIANTS:,} are the most")
    return varied


Marks = list[
    Annotated[
        Mark,
        BeforeValidator(_mark),
        PlainSerializer(_unmark),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string", "pattern": r"^[^\W\d]\w*$", "examples": ["slow"]},
                    {
                        "type": "object",
                        "propertyNames": {"pattern": r"^[^\W\d]\w*$"},
                        "minProperties": 1,
                        "maxProperties": 1,
                        "examples": [{"timeout": 300}],
                    },
                ]
            }
        ),
    ]
]
_Key = Annotated[str, AfterValidator(_key)]
_Value = Annotated[Any, BeforeValidator(_plain)]
Parametrize = Annotated[
    dict[
        _Key,
        Annotated[
            list[_Value], Field(min_length=1, max_length=VARIANTS), AfterValidator(_each_once)
        ],
    ],
    AfterValidator(_not_too_many),
    Field(examples=[{"cluster.worker": [2, 4]}]),
]
Reference = Annotated[dict[_Key, _Value], Field(examples=[{"cluster.worker": 1}])]
