"""Runs side by side: one row of numbers each, and what their scenarios have set apart (pure)."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from emulator.analysis.analyse import Analysis
from emulator.analysis.expectations import Status, Verdict, overall
from emulator.analysis.figures import FIGURES, rounded
from emulator.analysis.throughput import scaling_efficiency, workers
from emulator.planning.plan import Plan
from emulator.validation.units import format_number

__all__ = [
    "COMPARED",
    "COUNTED",
    "MEASURED",
    "Judged",
    "Row",
    "called",
    "cell",
    "differences",
    "rows",
    "written",
]

_SAYS_NOTHING = "description"
"""Of all keys the one that changes nothing of what runs."""


COUNTED = ("final_step", "lost_steps", "restarts")
MEASURED = ("worst_recovery", "goodput", "steps_per_second", "duration")
"""Figures of a comparison that are shown with their ratio to the first run's."""
COMPARED = (*COUNTED, *MEASURED)


@dataclass(frozen=True)
class Row:
    """One run. Times are seconds; None: the record does not say."""

    run_id: str
    variant: str
    outcome: str
    verdict: Status
    figures: Mapping[str, float | None]
    """COMPARED, by key."""
    differs: Mapping[str, Any]
    """The keys in which the scenarios of all compared runs differ, as this one has them."""
    efficiency: float | None = None
    """Of scaling, against the baseline; None as well where none is named."""
    efficiency_by: str | None = None
    """What the work was counted in: `examples` or `steps`."""


NOT_OF_A_RUN = {"parametrize", "reference", "marks", "reserve"}
"""Keys of a scenario that say which runs there are, and when, but nothing of what each does."""

Judged = tuple[Plan, Analysis, Sequence[Verdict]]
"""A run with what it came to."""


def rows(judged: Sequence[Judged], baseline: Judged | None = None) -> list[Row]:
    """Return a row for each run, in the order given, with its efficiency against a baseline."""
    scenarios = [
        plan.scenario.model_dump(mode="json", exclude=NOT_OF_A_RUN) for plan, _, _ in judged
    ]
    differing = differences(scenarios)
    found = [
        _row(*run, {key: values[number] for key, values in differing.items()})
        for number, run in enumerate(judged)
    ]
    if baseline is None:
        return found
    return [_scaled(row, run, baseline) for row, run in zip(found, judged, strict=True)]


def _scaled(row: Row, run: Judged, baseline: Judged) -> Row:
    """Return a row with its efficiency, see `throughput.scaling_efficiency`."""
    found = scaling_efficiency(
        run[1].throughput.job, workers(run[0]), baseline[1].throughput.job, workers(baseline[0])
    )
    if found is None:
        return row
    return replace(row, efficiency=rounded(found[0]), efficiency_by=found[1])


def _row(
    plan: Plan, analysis: Analysis, verdicts: Sequence[Verdict], differs: Mapping[str, Any]
) -> Row:
    return Row(
        run_id=plan.run_id,
        variant=plan.variant,
        outcome=analysis.outcome,
        verdict=overall(verdicts),
        figures={key: rounded(FIGURES[key].of(analysis)) for key in COMPARED},
        differs=differs,
    )


def differences(scenarios: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the keys in which scenarios differ, dotted as `--set` takes them, with each's value.

    The scenarios are as JSON; None stands for a key that one of them lacks.
    """
    return {
        key: values
        for key, values in _differing("", list(scenarios))
        if key.partition(".")[0] != _SAYS_NOTHING
    }


def _differing(path: str, values: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the deepest places where not all values are the same."""
    if all(value == values[0] for value in values):
        return
    if all(isinstance(value, Mapping) for value in values):
        # A dict keeps the order in which the keys were written; a set would not.
        for key in dict.fromkeys(key for value in values for key in value):
            yield from _differing(_below(path, key), [value.get(key) for value in values])
    elif all(isinstance(value, list) for value in values) and _line_up(values):
        for index in range(max(map(len, values))):
            entries = [value[index] if index < len(value) else None for value in values]
            yield from _differing(_below(path, index), entries)
    else:
        yield path, values


def _below(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _line_up(values: Sequence[Sequence[Any]]) -> bool:
    """Say whether entry N of one list is to be compared with entry N of another.

    Faults are, and so are commands of the same length; else one more word would shift all others.
    """
    of_mappings = all(isinstance(entry, Mapping) for value in values for entry in value)
    return of_mappings or len({len(value) for value in values}) == 1


def called(rows: Sequence[Row]) -> Iterator[str]:
    """Yield what each run is called: its variant, with its id where two are of the same."""
    count = Counter(row.variant for row in rows)
    for row in rows:
        known = row.variant and count[row.variant] == 1
        yield row.variant if known else f"{row.run_id} {row.variant}".strip()


def cell(row: Row, reference: Row, key: str) -> str:
    """Return a figure as text; of a measured one also how many times the reference's it is."""
    value, first = row.figures[key], reference.figures[key]
    text = FIGURES[key].text(value, "")
    compared = key in MEASURED and row is not reference
    if not compared or value is None or not first or math.inf in (value, first):
        return text
    return f"{text} x{format_number(value / first, 2)}"


def written(value: object) -> str:
    """Return a value of a scenario as short as it can be said."""
    return value if isinstance(value, str) and value else json.dumps(_without_defaults(value))


def _without_defaults(value: object) -> object:
    """Drop what a fault or a role of the other scenario says by default: nothing."""
    if isinstance(value, Mapping):
        kept = {key: _without_defaults(inner) for key, inner in value.items()}
        return {key: inner for key, inner in kept.items() if inner not in (None, {}, [])}
    return value
