"""A comparison of runs: a row of numbers each, and how their scenarios differ (pure)."""

from __future__ import annotations

import contextlib
import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from pydantic import ValidationError

from emulator.analysis.analyse import Analysis
from emulator.analysis.expectations import Status, Verdict, overall
from emulator.analysis.figures import FIGURES, rounded
from emulator.analysis.throughput import scaling_efficiency, workers
from emulator.analysis.values import Values
from emulator.faults.kinds import entries
from emulator.planning.plan import Plan
from emulator.validation.units import format_number

COUNTED = ("final_step", "lost_steps", "restarts")
MEASURED = ("worst_recovery", "goodput", "steps_per_second", "duration")
"""Figures that are shown with their ratio to the first run's."""
COMPARED = (*COUNTED, *MEASURED)
LEARNED = ("examples_per_second", "accuracy")
"""Figures that a run has only if its tasks report them: columns of the second table."""
LISTED = 12
"""Reported values that are columns; a program may report hundreds. As data there are all."""


@dataclass(frozen=True)
class Row:
    """One run. Times are seconds; None: unknown."""

    run_id: str
    variant: str
    outcome: str
    verdict: Status
    figures: Mapping[str, float | None]
    """COMPARED and LEARNED, by key."""
    differs: Mapping[str, Any]
    """This run's values of the keys in which the compared scenarios differ."""
    by_default: frozenset[str] = frozenset()
    """Those of these keys whose value here is the default, which nobody need have written."""
    efficiency: float | None = None
    """Of scaling, relative to the baseline; None without one."""
    efficiency_by: str | None = None
    """Its unit of work: `examples` or `steps`."""
    values: Values = field(default_factory=dict)
    """The last of what its tasks reported with their steps, except what is among the figures."""

    def words(self, key: str) -> str:
        """Return its value of a key that differs, as a scenario has it."""
        value = self.differs[key]
        if key not in self.by_default:
            return written(value)
        return NOT_SET if value in (None, "", [], {}) else f"{written(value)} (default)"


NOT_SET = "not set"
"""What a key is in a scenario that does not have it."""
_NO_GPUS = {"count": 0, "shared": False}
IRRELEVANT = {"description", "parametrize", "reference", "marks", "reserve"}
"""Keys of a scenario that have no effect on what a single run does."""

Judged = tuple[Plan, Analysis, Sequence[Verdict]]
"""A run and its results."""


def rows(judged: Sequence[Judged], baseline: Judged | None = None) -> list[Row]:
    """Return a row for each run, in the order given, with its efficiency against a baseline."""
    scenarios = [plan.scenario.model_dump(mode="json", exclude=IRRELEVANT) for plan, _, _ in judged]
    differing = differences(scenarios)
    made = []
    for number, run in enumerate(judged):
        row = _row(*run, {key: values[number] for key, values in differing.items()}, baseline)
        own = run[0].scenario.model_dump(mode="json", exclude_defaults=True)
        default = {key for key in differing if not (_is_said(key, run[0]) or _has(own, key))}
        made.append(replace(row, by_default=frozenset(default)))
    return made


def _is_said(key: str, plan: Plan) -> bool:
    """Return whether a key was written even if its value is the default, as far as is known."""
    in_variant = any(word.startswith(f"{key}=") for word in plan.variant.split())
    return in_variant or key.endswith(".replicas")  # a role says how many it has, be it one


def _has(value: object, path: str) -> bool:
    """Return whether there is something at a dotted path of data; keys may have dots (pure)."""
    if isinstance(value, Mapping):
        items = [(str(key), inner) for key, inner in value.items()]
    else:
        items = [(str(n), one) for n, one in enumerate(value if isinstance(value, list) else ())]
    return not path or any(
        _has(inner, path[len(key) + 1 :])
        for key, inner in items
        if f"{path}.".startswith(f"{key}.")
    )


def _row(
    plan: Plan,
    analysis: Analysis,
    verdicts: Sequence[Verdict],
    differs: Mapping[str, Any],
    baseline: Judged | None,
) -> Row:
    efficiency = baseline and scaling_efficiency(
        analysis.throughput.job,
        workers(plan),
        baseline[1].throughput.job,
        workers(baseline[0]),
    )
    return Row(
        run_id=plan.run_id,
        variant=plan.variant,
        outcome=analysis.outcome,
        verdict=overall(verdicts),
        figures={key: rounded(FIGURES[key].value_in(analysis)) for key in (*COMPARED, *LEARNED)},
        differs=differs,
        efficiency=rounded(efficiency[0]) if efficiency else None,
        efficiency_by=efficiency[1] if efficiency else None,
        values={k: v for k, v in analysis.values.items() if k not in ("examples", "accuracy")},
    )


def differences(scenarios: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the keys in which scenarios differ, dotted as `--set` takes them, with all values.

    The scenarios are as JSON; None stands for a key that a scenario lacks.
    """
    return dict(_differing("", list(scenarios)))


def _differing(path: str, values: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the deepest places where not all values are the same."""
    if all(value == values[0] for value in values):
        return
    if len({_kind_of(value) for value in values}) > 1:
        yield path, values  # faults of two kinds have hardly a key in common
    elif all(isinstance(value, Mapping) for value in values):
        # A dict keeps the order in which the keys were written; a set would not.
        for key in dict.fromkeys(key for value in values for key in value):
            yield from _differing(_joined(path, key), [value.get(key) for value in values])
    elif all(isinstance(value, list) for value in values) and _aligned(values):
        for index in range(max(map(len, values))):
            entries = [value[index] if index < len(value) else None for value in values]
            yield from _differing(_joined(path, index), entries)
    else:
        yield path, values


def _kind_of(value: object) -> str:
    """Return the kind of a fault; empty for anything else, as for a fault that is not there."""
    keys = value if isinstance(value, Mapping) else ()
    return next((key for key in keys if key in entries()), "")


def _joined(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _aligned(values: Sequence[Sequence[Any]]) -> bool:
    """Return whether lists are compared entry by entry.

    Faults are, and commands of the same length; one more word in a command shifts all others.
    """
    of_mappings = all(isinstance(entry, Mapping) for value in values for entry in value)
    return of_mappings or len({len(value) for value in values}) == 1


def called(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a label for each run: its variant, or its id and variant if that is not unique."""
    count = Counter(row.variant for row in rows)
    for row in rows:
        unique = row.variant and count[row.variant] == 1
        yield row.variant if unique else f"{row.run_id} {row.variant}".strip()


def cell(row: Row, reference: Row, key: str) -> str:
    """Return a figure as text, a measured one with its ratio to that of the `reference`."""
    value, first = row.figures[key], reference.figures[key]
    text = FIGURES[key].text(value, "")
    compared = key in MEASURED and row is not reference
    if not compared or value is None or not first or math.inf in (value, first):
        return text
    return f"{text} x{format_number(value / first, 2)}"


def reported(rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """Return the columns of what tasks reported: a head, and a text for each run.

    Empty if no run has any of it. Tasks that reported different values have their range.
    """
    columns = [(FIGURES[key].column, [cell(row, rows[0], key) for row in rows]) for key in LEARNED]
    names = list(dict.fromkeys(name for row in rows for name in row.values))[:LISTED]
    columns += [(name, [_range(row.values.get(name, {})) for row in rows]) for name in names]
    return [(head, texts) for head, texts in columns if any(texts)]


def _range(of: Mapping[str, float | None]) -> str:
    """Return the last values of tasks as text; those that are no number are left out."""
    known = sorted(value for value in of.values() if value is not None)
    return " to ".join(dict.fromkeys(f"{value:.4g}" for value in (*known[:1], *known[-1:])))


def written(value: object) -> str:
    """Return a value of a scenario as short text, as a scenario has it."""
    if value is None:
        return NOT_SET
    if isinstance(value, str) and value:
        return value
    text: str = yaml.safe_dump(
        _without_defaults(value),
        default_flow_style=True,
        sort_keys=False,
        allow_unicode=True,
        width=sys.maxsize,
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _without_defaults(value: object) -> object:
    """Drop keys of a fault or a role that are not set, or have their default."""
    if isinstance(value, list):
        return [_without_defaults(inner) for inner in value]
    if isinstance(value, Mapping):
        if (kind := next((entries()[key] for key in value if key in entries()), None)) is not None:
            with contextlib.suppress(ValidationError):  # a mapping of something else
                entry = kind.model_validate(value, context={"stored": True})
                value = entry.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        kept = {key: _without_defaults(inner) for key, inner in value.items()}
        return {key: inner for key, inner in kept.items() if inner not in (None, {}, [], _NO_GPUS)}
    return value
