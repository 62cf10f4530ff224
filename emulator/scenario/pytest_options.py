"""The pytest options of a scenario: marks, variants, and the reference variant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from emulator.errors import shown
from emulator.validation.limits import VARIANTS


def _json(value: object) -> object:
    """Refuse values that JSON, and so a plan, can't represent."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return [_json(inner) for inner in value]
        case Mapping():
            for key in value:
                if not isinstance(key, str):
                    raise ValueError(f"the key {shown(str(key))} is not text; write it in quotes")
            return {key: _json(inner) for key, inner in value.items()}
    raise ValueError(f"{shown(str(value))} is neither text nor a number; write it in quotes")


def _mark(value: object) -> object:
    """Check `slow`, `{timeout: 300}`, `{usefixtures: [a, b]}` or `{flaky: {reruns: 2}}`."""
    names = [value] if isinstance(value, str) else [*value] if isinstance(value, Mapping) else []
    if len(names) != 1:
        raise ValueError("a mark is its name, or {name: value}, such as {timeout: 300}")
    if not isinstance(names[0], str) or not names[0].isidentifier():
        raise ValueError(f"{names[0]!r} is not a mark's name; use letters, digits and underscores")
    return _json(value)


def mark_arguments(mark: str | Mapping[str, Any]) -> tuple[str, list[Any], dict[str, Any]]:
    """Return the name and the arguments of `pytest.mark.<name>(*args, **kwargs)`."""
    ((name, value),) = {mark: None}.items() if isinstance(mark, str) else mark.items()
    if name == "xfail" and isinstance(value, str):
        value = {"reason": value}  # pytest would take it for a condition
    if isinstance(value, Mapping):
        return name, [], dict(value)
    return name, value if isinstance(value, list) else [] if value is None else [value], {}


def _key(key: str) -> str:
    if not key.strip() or "=" in key:
        raise ValueError(f"{key!r} is not a scenario key; write one such as `cluster.worker`")
    if key.partition(".")[0] in ("parametrize", "reference"):
        raise ValueError(f"{key} can't be varied: it defines the variants")
    return key


def _each_once(values: list[Any]) -> list[Any]:
    texts = [repr(value) for value in values]  # 1, 1.0 and true are equal in Python
    if len({*texts}) < len(texts):
        twice = next(value for n, value in enumerate(values) if texts[n] in texts[:n])
        raise ValueError(f"{shown(str(twice))} is listed twice; each value runs once")
    return values


def _not_too_many(varied: dict[str, list[Any]]) -> dict[str, list[Any]]:
    if (count := math.prod(len(values) for values in varied.values())) > VARIANTS:
        raise ValueError(f"that makes {count:,} variants; {VARIANTS:,} are the most")
    return varied


_NAME = {"pattern": r"^[^\W\d]\w*$"}
_NAMED = {"propertyNames": _NAME, "minProperties": 1, "maxProperties": 1}
_MARK_SCHEMA = {
    "anyOf": [
        {"type": "string", **_NAME, "examples": ["slow"]},
        {"type": "object", **_NAMED, "examples": [{"timeout": 300}]},
    ]
}
Marks = list[Annotated[Any, BeforeValidator(_mark), WithJsonSchema(_MARK_SCHEMA)]]
"""Marks as they are written; see `mark_arguments`."""
_Key = Annotated[str, AfterValidator(_key)]
_Value = Annotated[Any, BeforeValidator(_json)]
_Values = Annotated[
    list[_Value], Field(min_length=1, max_length=VARIANTS), AfterValidator(_each_once)
]
Parametrize = Annotated[
    dict[_Key, _Values],
    AfterValidator(_not_too_many),
    Field(examples=[{"cluster.worker": [2, 4]}]),
]
Reference = Annotated[dict[_Key, _Value], Field(examples=[{"cluster.worker": 1}])]
