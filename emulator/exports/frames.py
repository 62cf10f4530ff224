"""Tables of a run as data frames: of pandas, or else of pyarrow."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from typing import Any

from emulator.errors import UsageError
from emulator.exports.tables import Column, Table

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
