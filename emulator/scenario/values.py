"""The texts that stand for values in a scenario (`5s`, `1g`, `100mbit`, words) and their schema."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from emulator.units import parse_duration, parse_rate, parse_size

__all__ = ["Command", "Downtime", "Duration", "Env", "Model", "Rate", "Share", "Size", "Word"]


class Model(BaseModel):
    """Strict about keys, fixed once made."""

    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)


def _written(
    parse: Callable[[object], float], write: Callable[[Any], str], pattern: str, example: str
) -> list[Any]:
    """Validate text like `5s` into a number, and write the number back as such text."""
    text: dict[str, Any] = {"type": "string", "pattern": pattern, "examples": [example]}
    # A bare 0 needs no unit, where it means anything.
    schema = {"anyOf": [text, {"const": 0}]} if parse is parse_duration else text
    return [
        BeforeValidator(parse),
        PlainSerializer(write, when_used="json"),
        WithJsonSchema(schema),
    ]


def _seconds(number: float) -> str:
    """Write seconds in digits that are read back as the same number, never as `1e-05s`."""
    return f"{Decimal(repr(number)):f}".removesuffix(".0") + "s"


Duration = Annotated[
    float, *_written(parse_duration, _seconds, r"^(0|(\d+(\.\d+)?(ms|s|m|h|d))+)$", "5s")
]
Downtime = Annotated[
    float,
    BeforeValidator(lambda value: math.inf if value == "forever" else parse_duration(value)),
    PlainSerializer(lambda s: "forever" if s == math.inf else _seconds(s), when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["10s", "forever"]}),
]
Size = Annotated[
    int,
    *_written(parse_size, "{}b".format, r"^\d+(\.\d+)?([bB]|[kmgtKMGT]([iI]?[bB])?)$", "512m"),
]
Rate = Annotated[
    int, *_written(parse_rate, "{}bit".format, r"^\d+(\.\d+)?[kmgKMG]?[bB][iI][tT]$", "100mbit")
]


def _share(value: object) -> object:
    """Read `5%` as 0.05."""
    text = value.strip() if isinstance(value, str) else ""
    if not text.endswith("%"):
        return value
    try:
        return float(text[:-1]) / 100
    except ValueError:
        raise ValueError(f"{text!r} is no share; write 0.05 or '5%'") from None


Share = Annotated[
    float,
    Field(strict=True, ge=0, le=1),
    BeforeValidator(_share),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"pattern": r"^[\d.]+%$"}]}
    ),
]


def _word(value: object) -> object:
    """Take numbers for the text they are: `[--steps, 100]` is clear, `yes` and `true` are not."""
    if isinstance(value, bool):
        raise ValueError(f'true or false is no text; write "{str(value).lower()}" in quotes')
    return str(value) if isinstance(value, int | float) else value


Word = Annotated[str, BeforeValidator(_word), WithJsonSchema({"type": ["string", "number"]})]
Env = dict[str, Word]
Command = Annotated[list[Word], Field(min_length=1, examples=[["python", "train.py"]])]
