"""The variants of `--vary KEY=VALUE,VALUE` and `parametrize:`, as overrides (pure)."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import yaml

from emulator.errors import UsageError, shown
from emulator.scenario.document import ParseError, split_list
from emulator.validation.limits import VARIANTS


@dataclass(frozen=True)
class Variant:
    """One combination of values."""

    overrides: tuple[str, ...]
    """Assignments as `--set` takes them, in the order of the options."""

    @property
    def label(self) -> str:
        """Its name in tables: the values by which it differs from the others."""
        return " ".join(self.overrides)


def variants(
    varied: Sequence[str] = (),
    sets: Sequence[str] = (),
    *,
    parametrize: Mapping[str, Sequence[Any]] = {},
) -> list[Variant]:
    """Return every combination of the varied values; the last option changes fastest.

    `sets` are the `--set` that all variants share. Keys of `parametrize` come first; one that is
    set or varied is not parametrized. Raises UsageError.
    """
    options: dict[str, list[str]] = {}
    fixed = {assignment.partition("=")[0] for assignment in sets}
    for text in varied:
        option = f"--vary {shown(text)}"
        key, equals, values = text.partition("=")
        key = key.strip()
        if not equals or not key:
            example = "For example: --vary restart.policy=never,on-failure"
            raise UsageError(f"{option} is not KEY=VALUE,VALUE.", example)
        if key in options:
            raise UsageError(f"{option}: {key} is varied twice.", "Give all values at once.")
        if key in fixed:
            raise UsageError(f"{option}: {key} is also given a value.", "Leave one of them.")
        options[key] = [f"{key}={value}" for value in _values(values, option)]
    left = not_overridden(parametrize, fixed | options.keys())
    count = math.prod([*(len(parametrize[key]) for key in left), *map(len, options.values())])
    if count > VARIANTS:
        raise UsageError(f"That makes {count:,} variants; {VARIANTS:,} are the most.")
    parametrized = [[format_override(key, value) for value in parametrize[key]] for key in left]
    return [Variant(overrides) for overrides in product(*parametrized, *options.values())]


def _values(text: str, option: str) -> list[str]:
    """Split a YAML list without brackets into its values, as they are written."""
    try:
        values = split_list(text)
    except ParseError as error:
        raise UsageError(
            f"{option}: the values are not a YAML list: {shown(str(error))}.",
            "Close brackets and quotes; quote text that contains some, or a comma. `null` is no "
            "value, '\"\"' is empty text.",
        ) from None
    if not values:
        raise UsageError(f"{option} has no values.", "For example: --vary seed=1,2")
    if len(values) > VARIANTS:
        raise UsageError(f"{option} has more than {VARIANTS:,} values.")
    if twice := next((value for value in values if values.count(value) > 1), None):
        raise UsageError(f"{option} has {twice} twice.", "Each value is run once.")
    return values


def not_overridden(keys: Iterable[str], overridden: Iterable[str]) -> list[str]:
    """Return the keys that are neither overridden themselves nor below a key that is."""
    prefixes = tuple(f"{key.strip()}." for key in overridden)
    return [key for key in keys if not f"{key}.".startswith(prefixes)]


def to_overrides(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a mapping such as a scenario's `reference` as assignments that `--set` takes."""
    return tuple(format_override(key, value) for key, value in values.items())


class _Flow(yaml.SafeDumper):
    """Writes any value on one line, as people write it: `5s`, `{step: 10}`, `'yes'`."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401  YAML
        """Write repeated values out."""
        return True


_Flow.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"'
    ),
)


def format_override(key: str, value: Any) -> str:  # noqa: ANN401  YAML
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
