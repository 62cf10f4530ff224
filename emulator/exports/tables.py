"""A run as tables: steps, samples, GPUs, events, faults (pure).

Every column has a type and a unit. A value is text, a bool, an int that 64 bits hold, a float, or
None where nothing is known: CSV and Parquet hold the same. What tasks and events tell beyond the
fixed columns gets a column under its own name, of the narrowest type that holds all its values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Literal

from emulator.analysis.analyse import FaultResult
from emulator.analysis.figures import FAULT_STAGES
from emulator.metrics.catalog import GPU, GPU_SHARE, RATES, USAGE, Metric
from emulator.metrics.samples import Sample, series
from emulator.record.events import Entry, Step, fields_of

__all__ = ["Cell", "Column", "Table", "tables"]

Type = Literal["text", "bool", "int", "float"]
Cell = str | bool | int | float | None


@dataclass(frozen=True)
class Column:
    """What a column holds."""

    name: str
    type: Type
    unit: str = ""
    about: str = ""


@dataclass(frozen=True)
class Table:
    """Rows in the order in which things were written, a cell for each column."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]


_T = Column("t", "float", "s", "since the run began, monotonic")
_WALL = Column("wall", "float", "s", "since 1970; of steps, phases and exits by the engine's clock")
_N = Column("n", "int", "", "number in the history")
_TASK = Column("task", "text")

_STEP = {
    "step": Column("step", "int", "", "global step"),
    "examples": Column("examples", "int", "examples", "seen by the job so far"),
    "loss": Column("loss", "float"),
    "accuracy": Column("accuracy", "float", "0..1"),
}
"""What steps have columns for even where no task tells it; the type is the values' own."""


def _columns(metrics: Iterable[Metric]) -> tuple[Column, ...]:
    """Return the columns of what is measured, by its keys."""
    return tuple(Column(m.key, m.type, m.unit, m.about) for m in metrics)


_USED = _columns(USAGE)
_RATES = [metric for metric in RATES if metric.column]
_DEVICE = _columns(GPU)
_WHICH = _DEVICE[:3]
"""Index, uuid and name."""
_SHARE = _columns(GPU_SHARE)
_FAULT = (
    Column("id", "text"),
    Column("kind", "text"),
    Column("target", "text"),
    Column("status", "text", "", "applied, skipped, failed, pending"),
    Column("reason", "text"),
    Column("triggered", "float", "s", "since the run began"),
    *(
        Column(key, "float", "s after the trigger", about)
        for key, (_, about) in FAULT_STAGES.items()
    ),
    Column("killed", "bool", "", "it was still there when the grace period was over"),
    Column("exit_code", "int"),
    Column("rate_before", "float", "steps/s", "of the job, in the ten seconds before"),
    Column("rate_during", "float", "steps/s", "until the task was back"),
    Column("rate_after", "float", "steps/s", "in the ten seconds after that"),
    Column("target_rate_before", "float", "steps/s", "of the target alone, as the three before"),
    Column("target_rate_during", "float", "steps/s", "likewise"),
    Column("target_rate_after", "float", "steps/s", "likewise"),
)


def tables(
    history: Sequence[Entry], samples: Sequence[Sample], faults: Sequence[FaultResult]
) -> list[Table]:
    """Return every table of a run; those that nothing is known for have no rows."""
    return [
        _steps([entry for entry in history if isinstance(entry, Step)]),
        _samples(samples),
        _gpus(samples),
        _gpu_tasks(samples),
        _events([entry for entry in history if not isinstance(entry, Step)]),
        _faults(faults),
    ]


def _steps(steps: Sequence[Step]) -> Table:
    told, found = _told([_spread(entry) for entry in steps], _STEP)
    fixed = [(entry.n, entry.t, entry.wall, entry.task) for entry in steps]
    return _table("steps", (_N, _T, _WALL, _TASK, *told), _joined(fixed, found))


def _spread(entry: Step) -> Mapping[str, object]:
    """Return the cells of a step event; of merged steps with `coalesced_first` and `_count`."""
    merged = {f"coalesced_{key}": value for key, value in (entry.coalesced or {}).items()}
    return {"step": entry.step, **entry.values, **merged}


def _events(events: Sequence[Entry]) -> Table:
    told, found = _told([fields_of(entry) for entry in events], {})
    fixed = [(entry.n, entry.t, entry.wall, entry.event, entry.task or None) for entry in events]
    columns = (_N, _T, _WALL, Column("event", "text"), _TASK, *told)
    return _table("events", columns, _joined(fixed, found))


def _joined(
    fixed: Iterable[tuple[object, ...]], told: Iterable[tuple[object, ...]]
) -> Iterator[tuple[object, ...]]:
    return ((*one, *other) for one, other in zip(fixed, told, strict=True))


def _samples(samples: Sequence[Sample]) -> Table:
    rates = {
        task: iter(series(samples, task))
        for task in dict.fromkeys(name for sample in samples for name in sample.tasks)
    }
    rows = (
        (
            *(sample.t, sample.wall, task),
            *(getattr(usage, column.name) for column in _USED),
            *(getattr(now, metric.key) for metric in _RATES),
        )
        for sample in samples
        for task, usage in sample.tasks.items()
        for _, now in [next(rates[task])]
    )
    made = [Column(m.column, m.type, m.unit, m.about) for m in _RATES]
    return _table("samples", (_T, _WALL, _TASK, *_USED, *made), rows)


def _gpus(samples: Sequence[Sample]) -> Table:
    rows = (
        (sample.t, sample.wall, *(getattr(gpu, column.name) for column in _DEVICE))
        for sample in samples
        for gpu in sample.gpus
    )
    return _table("gpus", (_T, _WALL, *_DEVICE), rows)


def _gpu_tasks(samples: Sequence[Sample]) -> Table:
    rows = (
        (sample.t, sample.wall, gpu.index, gpu.uuid, gpu.name, task, *astuple(share))
        for sample in samples
        for gpu in sample.gpus
        for task, share in gpu.tasks.items()
    )
    return _table("gpu_tasks", (_T, _WALL, *_WHICH, _TASK, *_SHARE), rows)


def _faults(faults: Sequence[FaultResult]) -> Table:
    rows = (tuple(getattr(fault, column.name) for column in _FAULT) for fault in faults)
    return _table("faults", _FAULT, rows)


def _table(name: str, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> Table:
    types = [column.type for column in columns]
    return Table(name, columns, [tuple(map(_cell, types, row)) for row in rows])


def _told(
    events: Sequence[Mapping[str, object]], known: Mapping[str, Column]
) -> tuple[list[Column], list[tuple[object, ...]]]:
    """Return columns for all that was told, the known ones first, and each event's values."""
    clean = [{_text(key): value for key, value in event.items()} for event in events]
    names = dict.fromkeys([*known, *(key for event in clean for key in event)])
    columns = []
    for name in names:
        like = known.get(name, Column(name, "float"))
        found = _type(event.get(name) for event in clean)
        columns.append(Column(name, found or like.type, like.unit, like.about))
    return columns, [tuple(map(event.get, names)) for event in clean]


def _type(values: Iterable[object]) -> Type | None:
    """Return the narrowest type that holds all values, None where there are none."""
    kinds = {_kind(value) for value in values if value is not None}
    if not kinds:
        return None
    if kinds == {"int", "float"}:
        return "float"
    return kinds.pop() if len(kinds) == 1 else "text"


def _kind(value: object) -> Type:
    match value:
        case bool():
            return "bool"
        case int() if -(2**63) <= value < 2**63:
            return "int"
        case float():
            return "float"
    return "text"


def _cell(type_: Type, value: object) -> Cell:
    if value is None:
        return None
    if type_ == "text":
        return _text(value if isinstance(value, str) else json.dumps(value))
    if type_ == "float":
        return float(value)  # type: ignore[arg-type]  # `_type` has seen that it is a number
    if type_ == "int" and not -(2**63) <= value < 2**63:  # type: ignore[operator]
        return None  # of a column that is measured; elsewhere `_type` has made it text
    return value  # type: ignore[return-value]


def _text(value: str) -> str:
    """Return text that UTF-8 can hold: undecodable bytes of a program as `\\udcff`."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")
