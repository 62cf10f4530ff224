"""`--vary KEY=VALUE,VALUE` and `parametrize:` -> variants, each with its overrides (pure)."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

import yaml

from emulator.errors import UsageError
from emulator.limits import VARIANTS
from emulator.wording import shown

__all__ = ["Variant", "assignments", "parametrized", "unsettled", "variants", "written"]

_CLOSES = {"[": "]", "{": "}", "(": ")"}
_EXAMPLE = "For example: --vary restart.policy=never,on-failure"
_QUOTE_IT = "Put a value with brackets, quotes or commas of its own in quotes."


@dataclass(frozen=True)
class Variant:
    """One combination of values."""

    overrides: tuple[str, ...]
    """Assignments as `--set` takes them, in the order of the options."""

    @property
    def label(self) -> str:
        """Its name in tables: what sets it apart from the others."""
        return " ".join(self.overrides)


def parametrized(values: Mapping[str, Sequence[Any]]) -> list[Variant]:
    """Return every combination of a scenario's `parametrize`; one without overrides of none."""
    return variants([], parametrize=values)


def variants(
    varied: Sequence[str],
    given: Sequence[str] = (),
    *,
    parametrize: Mapping[str, Sequence[Any]] = {},
) -> list[Variant]:
    """Return every combination of the varied values; the last option changes fastest.

    `given` are the `--set` that all variants share. Those of `parametrize` come first; a key that
    is set or varied is not parametrized any more. Raises UsageError.
    """
    options: list[list[str]] = []
    fixed = {assignment.partition("=")[0] for assignment in given}
    seen: set[str] = set()
    for text in varied:
        what = f"--vary {shown(text)}"
        key, equals, values = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{what} is not KEY=VALUE,VALUE.", _EXAMPLE)
        key = key.strip()
        if key in seen:
            raise UsageError(f"{what}: {key} is varied twice.", "Give all values at once.")
        if key in fixed:
            raise UsageError(f"{what}: {key} is also given a value.", "Leave one of them.")
        seen.add(key)
        options.append([f"{key}={value}" for value in _values(values, what)])
    left = unsettled(parametrize, fixed | seen)
    count = math.prod([*(len(parametrize[key]) for key in left), *map(len, options)])
    if count > VARIANTS:
        raise UsageError(f"That makes {count:,} variants; {VARIANTS:,} are the most.")
    before = [[written(key, value) for value in parametrize[key]] for key in left]
    return [Variant(overrides) for overrides in product(*before, *options)]


def unsettled(keys: Iterable[str], settled: Iterable[str]) -> list[str]:
    """Return the keys that are neither settled themselves nor stand below one that is."""
    above = [f"{key.strip()}." for key in settled]
    return [key for key in keys if not any(f"{key}.".startswith(begin) for begin in above)]


def assignments(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a mapping such as a scenario's `reference` as assignments that `--set` takes."""
    return tuple(written(key, value) for key, value in values.items())


class _Flow(yaml.SafeDumper):
    """Writes any value on one line, as people write it: `5s`, `{step: 10}`, `'yes'`."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401  YAML
        """Write what is there twice twice."""
        return True


_Flow.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"'
    ),
)


def written(key: str, value: Any) -> str:  # noqa: ANN401  YAML
    """Return the assignment that sets a key to a value."""
    text = yaml.dump(
        value,
        Dumper=_Flow,
        default_flow_style=True,
        sort_keys=False,
        allow_unicode=True,
        width=sys.maxsize,
    )
    text = text.removesuffix("\n").removesuffix("\n...")  # the end of a document
    return f"{key}={text}"


def _values(text: str, what: str) -> list[str]:
    values: list[str] = []
    start = 0
    for comma in chain(_commas(text, what), [len(text)]):
        if len(values) >= VARIANTS:
            raise UsageError(f"{what} has more than {VARIANTS:,} values.")
        value = text[start:comma].strip()
        if not value:
            raise UsageError(f"{what} has an empty value.", "`null` means nothing, '\"\"' no text.")
        if value in values:
            raise UsageError(f"{what} has {value} twice.", "Each value is run once.")
        values.append(value)
        start = comma + 1
    return values


def _commas(text: str, what: str) -> Iterator[int]:
    """Yield where the commas are that stand in no brackets and no quotes.

    A quote opens only where a value begins, as in YAML: the one in `it's` is a letter.
    """
    closing: list[str] = []
    quote = ""
    begins = True
    skip = False
    for place, char in enumerate(text):
        if skip:
            skip = False
        elif quote:
            if char == "\\" and quote == '"':
                skip = True
            elif char == quote == "'" and text[place + 1 : place + 2] == "'":
                skip = True  # '' is how YAML writes a quote in single quotes
            elif char == quote:
                quote = ""
        elif char in "'\"" and begins:
            quote = char
        elif char in _CLOSES:
            closing.append(_CLOSES[char])
        elif char in _CLOSES.values():
            if not closing or char != closing.pop():
                raise UsageError(f"{what}: the {char} closes nothing.", _QUOTE_IT)
        elif char == "," and not closing:
            yield place
        begins = not quote and (char in ",:[{" or (begins and char.isspace()))
    if quote or closing:
        raise UsageError(f"{what}: there is no closing {quote or closing[-1]}.", _QUOTE_IT)
