"""A run as tables: steps, samples, GPUs, events, faults; and tables as data frames (pure).

Every column has a type and a unit. A value is text, a bool, a 64-bit int, a float, or None if it is
unknown, in CSV as in Parquet. Other fields of steps and events get columns of their own names, with
the narrowest type for all their values.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Literal

from emulator.analysis.analyse import FaultResult
from emulator.analysis.figures import FAULT_STAGES
from emulator.errors import UsageError
from emulator.metrics.catalog import GPU, GPU_SHARE, RATES, USAGE, Metric
from emulator.metrics.samples import Sample, series
from emulator.record.events import Entry, Step, fields_of

Type = Literal["text", "bool", "int", "float"]
Cell = str | bool | int | float | None


@dataclass(frozen=True)
class Column:
    """A column: its type, the unit of its values, and a description."""

    name: str
    type: Type
    unit: str = ""
    about: str = ""


@dataclass(frozen=True)
class Table:
    """Rows in the order of the record, with a cell for each column."""

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
"""Columns that steps always have; their types follow from the reported values, if there are any."""


def _columns(metrics: Iterable[Metric]) -> tuple[Column, ...]:
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
    Column("killed", "bool", "", "it was still running at the end of the grace period"),
    Column("silent", "bool", "", "it lost power: no packet said so to its peers"),
    Column("exit_code", "int"),
    Column("rate_before", "float", "steps/s", "of the job, in the ten seconds before"),
    Column("rate_during", "float", "steps/s", "until the task was restored"),
    Column("rate_after", "float", "steps/s", "in the ten seconds after that"),
    Column("target_rate_before", "float", "steps/s", "of the target alone, as the three before"),
    Column("target_rate_during", "float", "steps/s", "likewise"),
    Column("target_rate_after", "float", "steps/s", "likewise"),
    Column("detected_by", "text", "", "who noticed it, and by what"),
    Column("effect", "text", "", "what the engine says that it did"),
    Column("notes", "text", "", "what the engine said of the target until it was restored"),
    Column("unmet", "text", "", "why it has shown nothing"),
    Column("wrong_source", "text", "", "what its step was read from, if that was given up later"),
)


def tables(
    history: Sequence[Entry], samples: Sequence[Sample], faults: Sequence[FaultResult]
) -> list[Table]:
    """Return every table of a run; some may have no rows."""
    return [
        _steps([entry for entry in history if isinstance(entry, Step)]),
        _samples(samples),
        _gpus(samples),
        _gpu_tasks(samples),
        _events([entry for entry in history if not isinstance(entry, Step)]),
        _faults(faults),
    ]


def _steps(steps: Sequence[Step]) -> Table:
    fixed = [(entry.n, entry.t, entry.wall, entry.task) for entry in steps]
    fields = [_step_fields(entry) for entry in steps]
    return _with_fields("steps", (_N, _T, _WALL, _TASK), fixed, fields, _STEP)


def _step_fields(entry: Step) -> Mapping[str, object]:
    """Return the fields of a step event; of merged steps with `coalesced_first` and `_count`."""
    merged = {f"coalesced_{key}": value for key, value in (entry.coalesced or {}).items()}
    return {"step": entry.step, **entry.values, **merged}


def _events(events: Sequence[Entry]) -> Table:
    fixed = [(entry.n, entry.t, entry.wall, entry.event, entry.task or None) for entry in events]
    columns = (_N, _T, _WALL, Column("event", "text"), _TASK)
    return _with_fields("events", columns, fixed, [fields_of(entry) for entry in events], {})


def _with_fields(
    table: str,
    columns: Sequence[Column],
    fixed: Iterable[tuple[object, ...]],
    fields: Iterable[Mapping[str, object]],
    known: Mapping[str, Column],
) -> Table:
    """Return a table of `fixed` cells and a column for each field, the known ones first."""
    clean = [{_text(key): value for key, value in row.items()} for row in fields]
    names = dict.fromkeys([*known, *(key for row in clean for key in row)])
    more = []
    for name in names:
        column = known.get(name, Column(name, "float"))
        more.append(replace(column, type=_type(row.get(name) for row in clean) or column.type))
    rows = ((*cells, *map(row.get, names)) for cells, row in zip(fixed, clean, strict=True))
    return _table(table, (*columns, *more), rows)


def _samples(samples: Sequence[Sample]) -> Table:
    tasks = {task for sample in samples for task in sample.tasks}
    rates = {task: dict(series(samples, task)) for task in tasks}
    rows = (
        (
            *(sample.t, sample.wall, task),
            *(getattr(usage, column.name) for column in _USED),
            *(getattr(rates[task][sample.t], metric.key) for metric in _RATES),
        )
        for sample in samples
        for task, usage in sample.tasks.items()
    )
    rate_columns = [Column(m.column, m.type, m.unit, m.about) for m in _RATES]
    return _table("samples", (_T, _WALL, _TASK, *_USED, *rate_columns), rows)


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


def _type(values: Iterable[object]) -> Type | None:
    """Return the narrowest type for all values, None if there are none."""
    kinds = {_kind(value) for value in values if value is not None}
    if kinds == {"int", "float"}:
        return "float"
    return "text" if len(kinds) > 1 else next(iter(kinds), None)


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
        return float(value)  # type: ignore[arg-type]  # `_type` has checked that it is a number
    if type_ == "int" and not -(2**63) <= value < 2**63:  # type: ignore[operator]
        return None  # a metric; `_type` has made other columns text
    return value  # type: ignore[return-value]


def _text(value: str) -> str:
    """Return text that can be encoded as UTF-8: undecodable bytes of a program as `\\udcff`."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


# --- As data frames, of pandas, or else of pyarrow ------------------------------------------------

NEITHER = "A data frame needs pandas or pyarrow, and neither is installed here."
INSTALL = "`pip install pandas` installs one."


def described(columns: Sequence[Column]) -> list[dict[str, str]]:
    """Return what columns hold, as data: name, type, unit, about."""
    return [{key: value for key, value in vars(column).items() if value} for column in columns]


def frame(table: Table, about: Mapping[str, str]) -> Any:  # noqa: ANN401  of either library
    """Return a table as `pandas.DataFrame`, or as `pyarrow.Table` where pandas is not installed.

    Unknown values are missing: columns of integers and of truth have pandas' types that allow it.
    Units are in `frame.attrs["units"]`, or in the metadata of the fields. Raises UsageError where
    neither library is installed.
    """
    if _has("pandas"):
        import pandas

        types = {"text": "string", "bool": "boolean", "int": "Int64", "float": "float64"}
        series = {
            column.name: pandas.array([row[number] for row in table.rows], types[column.type])
            if column.type != "float"
            else pandas.Series([row[number] for row in table.rows], dtype="float64")
            for number, column in enumerate(table.columns)
        }
        made = pandas.DataFrame(series)
        made.attrs = {**about, "units": {c.name: c.unit for c in table.columns if c.unit}}
        return made
    if _has("pyarrow"):
        return arrow(table, about)
    raise UsageError(NEITHER, INSTALL)


def frame_of_rows(rows: Sequence[Mapping[str, Any]]) -> Any:  # noqa: ANN401  of either library
    """Return rows of named values as a data frame. Raises UsageError as `frame`."""
    if _has("pandas"):
        import pandas

        return pandas.DataFrame(list(rows))
    if _has("pyarrow"):
        import pyarrow

        return pyarrow.Table.from_pylist(list(rows))
    raise UsageError(NEITHER, INSTALL)


def _has(library: str) -> bool:
    return importlib.util.find_spec(library) is not None


def arrow(table: Table, about: Mapping[str, str]) -> Any:  # noqa: ANN401  pyarrow has no types
    """Return a table as `pyarrow.Table`; `about` and the columns' units are in its metadata."""
    import pyarrow as pa

    types = {"text": pa.string(), "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64()}
    fields = [
        pa.field(
            column.name, types[column.type], metadata={"unit": column.unit, "about": column.about}
        )
        for column in table.columns
    ]
    # Arrow's own field metadata is seen by Arrow alone; the file's by every reader.
    metadata = {**about, "columns": json.dumps(described(table.columns))}
    arrays = [
        pa.array([row[number] for row in table.rows], type=types[column.type])
        for number, column in enumerate(table.columns)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=metadata))
