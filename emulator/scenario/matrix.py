"""`--vary KEY=VALUE,VALUE` and `parametrize:` -> variants, each with its overrides (pure)."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import yaml

from emulator.errors import UsageError, shown
from emulator.validation.limits import VARIANTS

__all__ = ["Variant", "assignments", "parametrized", "unsettled", "variants", "written"]

_EXAMPLE = "For example: --vary restart.policy=never,on-failure"


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
    """Split at the commas between values: a part that is not a whole value goes with the next."""
    values: list[str] = []
    begun = ""
    for part in text.split(","):
        value = f"{begun}{part}".strip()
        if value and not _is_whole(value):
            begun = f"{begun}{part},"
            continue
        begun = ""
        if len(values) >= VARIANTS:
            raise UsageError(f"{what} has more than {VARIANTS:,} values.")
        if not value:
            raise UsageError(f"{what} has an empty value.", "`null` means nothing, '\"\"' no text.")
        if value in values:
            raise UsageError(f"{what} has {value} twice.", "Each value is run once.")
        values.append(value)
    if begun:
        raise UsageError(
            f"{what}: {shown(begun.removesuffix(',').strip())} is not a whole value.",
            "Close its brackets and quotes; put a value with others of its own in quotes.",
        )
    return values


def _is_whole(value: str) -> bool:
    try:
        list(yaml.parse(value, Loader=yaml.SafeLoader))
    except yaml.YAMLError:
        return False
    # YAML has no round brackets; a pattern may, and commas in them are its own.
    return value[0] in "'\"" or value.count("(") == value.count(")")
