"""Types of fields in what users write (`5s`, `1g`, `100mbit`, words), with their JSON schema."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
)

from emulator.limits import GLOB, WORD
from emulator.units import format_size, parse_duration, parse_rate, parse_size

__all__ = [
    "LONGEST",
    "SECONDS",
    "Command",
    "Cores",
    "Delay",
    "Downtime",
    "Duration",
    "Env",
    "Glob",
    "Memory",
    "Model",
    "Rate",
    "Share",
    "Size",
    "Variable",
    "Word",
    "is_stored",
    "once",
]

LONGEST = 36_500 * 86_400.0
"""Seconds: a hundred years; a timer takes no more than three times that."""
LEAST_MEMORY = 6 * 2**20
"""Bytes: the least that Docker gives a container."""
SLOWEST = 1000
"""Bits per second; tc knows none that is slower than a byte, and a training needs more."""
FASTEST = 10**12
LATEST = 60.0
"""Seconds by which a packet may be late; netem takes 274."""


Made = TypeVar("Made")


class Model(BaseModel):
    """Strict about keys, fixed once made."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, serialize_by_alias=True, allow_inf_nan=False
    )


def is_stored(info: ValidationInfo) -> bool:
    """Say whether a scenario is read back from a record, on whatever machine it was made."""
    return bool((info.context or {}).get("stored"))


def once(info: ValidationInfo, key: object, make: Callable[[], Made]) -> Made:
    """Return what `make` returns, or raise the ValueError that it raises; asked once a scenario.

    A scenario is validated for each of its variants; what lies on the disk is looked at once.
    """
    known = (info.context or {}).get("known", {})
    if key not in known:
        try:
            known[key] = make()
        except ValueError as error:
            known[key] = error
    if isinstance(known[key], ValueError):
        raise ValueError(str(known[key]))
    found: Made = known[key]
    return found


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


def _between(least: float, most: float, write: Callable[[Any], str]) -> Callable[[float], float]:
    """Return what refuses a number that is out of bounds, which are told as people write them."""

    def check(number: float) -> float:
        if number < least:
            raise ValueError(f"{write(number)} is too little; {write(least)} is the least")
        if number > most:
            raise ValueError(f"{write(number)} is too much; {write(most)} is the most")
        return number

    return check


def _years(seconds: float) -> str:
    return "36500d, a hundred years," if seconds == LONGEST else f"{seconds:g}s"


SECONDS = "seconds"
"""In the metadata of a field: its number is a time, which users write with a unit."""
_in_a_century = _between(0, LONGEST, _years)

Duration = Annotated[
    float,
    SECONDS,
    *_written(parse_duration, _seconds, r"^(0|(\d+(\.\d+)?(ms|s|m|h|d))+)$", "5s"),
    AfterValidator(_in_a_century),
]
Delay = Annotated[Duration, AfterValidator(_between(0, LATEST, _years))]
Downtime = Annotated[
    float,
    SECONDS,
    Field(allow_inf_nan=True),
    AfterValidator(lambda s: s if s == math.inf else _in_a_century(s)),
    BeforeValidator(lambda value: math.inf if value == "forever" else parse_duration(value)),
    PlainSerializer(lambda s: "forever" if s == math.inf else _seconds(s), when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["10s", "forever"]}),
]
Size = Annotated[
    int,
    *_written(parse_size, "{}b".format, r"^\d+(\.\d+)?([bB]|[kmgtKMGT]([iI]?[bB])?)$", "512m"),
    AfterValidator(_between(0, 2**63 - 1, format_size)),
]
Memory = Annotated[Size, AfterValidator(_between(LEAST_MEMORY, 2**63 - 1, format_size))]
Rate = Annotated[
    int,
    *_written(parse_rate, "{}bit".format, r"^\d+(\.\d+)?[kmgKMG]?[bB][iI][tT]$", "100mbit"),
    AfterValidator(_between(SLOWEST, FASTEST, "{}bit".format)),
]
Cores = Annotated[float, Field(strict=True, gt=0, le=10_000)]
Glob = Annotated[str, Field(max_length=GLOB)]


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


def _passable(text: str) -> str:
    """Refuse what the kernel would not pass to a program."""
    if (size := len(text.encode("utf-8", "surrogatepass"))) > WORD:
        raise ValueError(f"a text of {size} bytes; {WORD:,} are the most that a program is given")
    if "\0" in text:
        raise ValueError("holds a NUL, which no program can be given")
    return text


def _variable(name: str) -> str:
    """Refuse what would be another variable, or none."""
    if not name:
        raise ValueError("a variable has a name")
    if "=" in name or not name.isprintable():
        raise ValueError(f"{name!r} is no name of a variable; letters, digits and _")
    return name


def _runnable(command: list[str]) -> list[str]:
    if not command[0].strip():
        raise ValueError("its first word is empty; it names the program, such as python")
    return command


Word = Annotated[
    str,
    BeforeValidator(_word),
    AfterValidator(_passable),
    WithJsonSchema({"type": ["string", "number"]}),
]
Variable = Annotated[
    str, AfterValidator(_variable), WithJsonSchema({"type": "string", "pattern": "^[^=]+$"})
]
Env = dict[Variable, Word]
Command = Annotated[
    list[Word],
    Field(min_length=1, examples=[["python", "train.py"]]),
    AfterValidator(_runnable),
]
