"""Tables as CSV and as Parquet.

CSV is what the csv module of Python writes (RFC 4180): a header, nothing where nothing is known,
floats in digits that are read back as the same float. Parquet has the columns' types, and their
units in its metadata; it needs pyarrow, of the extra `export`.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from emulator.exports.tables import Cell, Column, Table

__all__ = ["described", "write_csv", "write_parquet"]


def described(columns: Sequence[Column]) -> list[dict[str, str]]:
    """Return what columns hold, as data: name, type, unit, about."""
    return [{key: value for key, value in vars(column).items() if value} for column in columns]


def write_csv(table: Table, path: Path) -> None:
    """Write a table as CSV in UTF-8."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([column.name for column in table.columns])
        writer.writerows(_as_text(row) for row in table.rows)


def _as_text(row: Sequence[Cell]) -> list[Cell]:
    """Write truth as JSON does; the csv module does the rest."""
    return [str(cell).lower() if isinstance(cell, bool) else cell for cell in row]


def write_parquet(table: Table, path: Path, about: Mapping[str, str]) -> None:
    """Write a table as Parquet; `about` and the columns' units go into the file's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"text": pa.string(), "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64()}
    fields = [
        pa.field(
            column.name,
            types[column.type],
            metadata={"unit": column.unit, "about": column.about},
        )
        for column in table.columns
    ]
    # Arrow's own field metadata is seen by Arrow alone; the file's by every reader.
    metadata = {**about, "columns": json.dumps(described(table.columns))}
    arrays = [
        pa.array([row[number] for row in table.rows], type=types[column.type])
        for number, column in enumerate(table.columns)
    ]
    schema = pa.schema(fields, metadata=metadata)
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path)
