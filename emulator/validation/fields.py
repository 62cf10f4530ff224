"""Types of scenario fields (`5s`, `1g`, `100mbit`, text), with their JSON schema."""

from __future__ import annotations

import ast
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    TypeAdapter,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from emulator.validation.limits import GLOB, WORD
from emulator.validation.units import (
    format_size,
    parse_duration,
    parse_rate,
    parse_share,
    parse_size,
)

LONGEST = 36_500 * 86_400.0
"""Seconds: a hundred years; timers overflow at three times that."""
LEAST_MEMORY = 6 * 2**20
"""Bytes: Docker's minimum for a container."""
SLOWEST = 1000
"""Bits per second; tc's minimum is 8."""
FASTEST = 10**12
LATEST = 60.0
"""Seconds of a packet's delay; netem's maximum is 274."""


Result = TypeVar("Result")


class Model(BaseModel):
    """Base of the models: unknown keys are errors, instances are immutable."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, serialize_by_alias=True, allow_inf_nan=False, defer_build=True
    )

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield what was given, without the defaults: a fault is shown on one line."""
        return ((key, v) for key, v in super().__repr_args__() if key in self.model_fields_set)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema with what the fields mean, and defaults as users write them."""
        schema = handler(core_schema)
        describe(cls, handler.resolve_ref_schema(schema))
        return schema


def is_stored(info: ValidationInfo) -> bool:
    """Return whether the scenario is read from a record, perhaps of another machine."""
    return bool((info.context or {}).get("stored"))


def once(info: ValidationInfo, key: object, read: Callable[[], Result]) -> Result:
    """Return the result of `read`, or raise its ValueError; it is called once for all variants.

    A scenario is validated for each of its variants, but files are read once.
    """
    results = (info.context or {}).get("known", {})
    if key not in results:
        try:
            results[key] = read()
        except ValueError as error:
            results[key] = error
    if isinstance(results[key], ValueError):
        raise ValueError(str(results[key]))
    result: Result = results[key]
    return result


UNIT = "unit"
"""In the metadata of a field: its number is written with a unit."""


def has_unit(annotation: Any, metadata: Sequence[Any] = ()) -> bool:  # noqa: ANN401  types
    """Return whether a field with this type is written with a unit."""
    inner = getattr(annotation, "__metadata__", ())
    return UNIT in (*metadata, *inner) or any(map(has_unit, get_args(annotation)))


def _parsed(parse: Callable[[object], float]) -> BeforeValidator:
    """Return a validator that parses text like `5s` to a number.

    Python may give the number itself (`Preempt(grace=5)`); a file or a record, which are validated
    with a context, must have the unit.
    """

    def read(value: object, info: ValidationInfo) -> object:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return value if is_number and info.context is None else parse(value)

    return BeforeValidator(read)


def _written(
    parse: Callable[[object], float], write: Callable[[Any], str], pattern: str, example: str
) -> list[Any]:
    """Return annotations that parse text like `5s` to a number, and serialize it back."""
    text: dict[str, Any] = {"type": "string", "pattern": pattern, "examples": [example]}
    # A duration of 0 needs no unit.
    schema = {"anyOf": [text, {"const": 0}]} if parse is parse_duration else text
    return [
        UNIT,
        _parsed(parse),
        PlainSerializer(write, when_used="json"),
        WithJsonSchema(schema),
    ]


def _exactly(number: float) -> str:
    """Format a number with all its digits, without an exponent (`1e-05s` is not a duration)."""
    return f"{Decimal(repr(number)):f}".removesuffix(".0")


def _in_seconds(number: float) -> str:
    """Return a time as a scenario has it: `5s`."""
    return f"{_exactly(number)}s"


def _between(least: float, most: float, write: Callable[[Any], str]) -> Callable[[float], float]:
    """Return a validator of bounds; `write` formats numbers for its messages."""

    def check(number: float) -> float:
        if not number >= least:  # or NaN
            raise ValueError(f"{write(number)} is too small; the minimum is {write(least)}")
        if number > most:
            raise ValueError(f"{write(number)} is too large; the maximum is {write(most)}")
        return number

    return check


def _years(seconds: float) -> str:
    return "36500d (a hundred years)" if seconds == LONGEST else f"{seconds:g}s"


_in_a_century = _between(0, LONGEST, _years)

Duration = Annotated[
    float,
    *_written(parse_duration, _in_seconds, r"^(0|(\d+(\.\d+)?(ms|s|m|h|d|y))+)$", "5s"),
    AfterValidator(_in_a_century),
]
Delay = Annotated[Duration, AfterValidator(_between(0, LATEST, _years))]
DurationOrForever = Annotated[
    float,
    UNIT,
    Field(allow_inf_nan=True),
    AfterValidator(lambda s: s if s == math.inf else _in_a_century(s)),
    _parsed(lambda value: math.inf if value == "forever" else parse_duration(value)),
    PlainSerializer(lambda s: "forever" if s == math.inf else _in_seconds(s), when_used="json"),
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
Cores = Annotated[float, Field(strict=True, gt=0, le=10_000, examples=[1.5])]
Glob = Annotated[str, Field(max_length=GLOB, examples=["worker-1", "worker-*"])]


def _share(value: object) -> object:
    """Parse `5%` as 0.05; leave numbers and anything else to pydantic."""
    return parse_share(value) if isinstance(value, str) and value.strip().endswith("%") else value


_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}
"""What pydantic's bounds are called in a JSON schema."""


def _percentage(**bounds: Any) -> list[Any]:  # noqa: ANN401  passed on to pydantic
    """Return annotations of a number that may also be written as `5%`."""
    number = {"type": "number", **{_BOUNDS[name]: value for name, value in bounds.items()}}
    text = {"type": "string", "pattern": r"^\d+(\.\d+)?%$", "examples": ["80%"]}
    return [
        Field(strict=True, **bounds),
        BeforeValidator(_share),
        WithJsonSchema({"anyOf": [number, text]}),
    ]


Share = Annotated[float, *_percentage(ge=0, le=1)]
"""A part of a whole: `0.8` or `80%`."""
Ratio = Annotated[float, *_percentage(ge=0)]
"""A number relative to another, which may be greater: `1.1` or `110%`."""
PositiveRatio = Annotated[float, *_percentage(gt=0)]


def _text(value: object) -> object:
    """Convert numbers to text (`[--steps, 100]`); refuse booleans, because `yes` is one in YAML."""
    if isinstance(value, bool):
        raise ValueError(f'true or false is not text; write "{str(value).lower()}" in quotes')
    return str(value) if isinstance(value, int | float) else value


def _passable(text: str) -> str:
    """Refuse text that the kernel can't pass to a program."""
    if (size := len(text.encode("utf-8", "surrogatepass"))) > WORD:
        raise ValueError(f"a text of {size} bytes; the maximum for a program is {WORD:,}")
    if "\0" in text:
        raise ValueError("contains a NUL, which can't be passed to a program")
    return text


def _variable(name: str) -> str:
    """Refuse an invalid name of an environment variable."""
    if not name:
        raise ValueError("a variable needs a name")
    if "=" in name or not name.isprintable():
        raise ValueError(f"{name!r} is not a variable name; use letters, digits and _")
    return name


def _runnable(command: list[str]) -> list[str]:
    if command and not command[0].strip():
        raise ValueError("its first word is empty; it names the program, such as python")
    return command


Text = Annotated[
    str,
    BeforeValidator(_text),
    AfterValidator(_passable),
    WithJsonSchema({"type": ["string", "number"]}),
]
Variable = Annotated[
    str, AfterValidator(_variable), WithJsonSchema({"type": "string", "pattern": "^[^=]+$"})
]
Env = Annotated[dict[Variable, Text], Field(examples=[{"TF_CPP_MIN_LOG_LEVEL": 2}])]
Command = Annotated[
    list[Text],
    Field(examples=[["python", "train.py"]]),
    AfterValidator(_runnable),
]
"""The words of a command; none: that of the image."""


# --- What the fields of a model mean: the texts below them in the source --------------------------
# pydantic reads such texts itself (`use_attribute_docstrings`), but when a class is made, which
# every command would wait for. Only a schema needs them.


def describe(model: type[BaseModel], schema: dict[str, Any]) -> None:
    """Add to each property of a model's schema what it lacks of a description.

    Defaults become what users would write: `30s` instead of 30.0.
    """
    texts = descriptions(model)
    for name, field in model.model_fields.items():
        found = schema.get("properties", {}).get(field.alias or name, {})
        if name in texts:
            found.setdefault("description", texts[name])
        if isinstance(found.get("default"), int | float) and field.metadata:
            written: Any = Annotated[field.annotation, *field.metadata]
            kind: TypeAdapter[Any] = TypeAdapter(written)
            found["default"] = kind.dump_python(field.default, mode="json")


def descriptions(model: type) -> dict[str, str]:
    """Return the text below each annotated name of a class and of its bases, in one line each."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if one.__module__.partition(".")[0] == "emulator":
            found |= _fields_of_module(one.__module__).get(one.__qualname__, {})
    return found


@cache
def _fields_of_module(name: str) -> dict[str, dict[str, str]]:
    tree = ast.parse(inspect.getsource(sys.modules[name]))
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return {node.name: dict(_fields_of_class(node)) for node in classes}


def _fields_of_class(node: ast.ClassDef) -> list[tuple[str, str]]:
    return [
        (field.target.id, " ".join(inspect.cleandoc(text.value.value).split()))
        for field, text in pairwise(node.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    ]
