"""CSV and Parquet: what was written is read back, and is the same in both."""

from __future__ import annotations

import csv
import json
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.analysis.run_tables import Cell, Column, Table, tables
from emulator.metrics.catalog import Usage
from emulator.metrics.samples import Sample
from emulator.plugins.exports.export import write_csv, write_parquet
from emulator.plugins.exports.formats import LIBRARIES
from tests.histories import history, step
from tests.runs import some_samples

ROOT = Path(__file__).parents[3]
SIMPLE = (st.none(), st.booleans(), st.integers(), st.floats(), st.text())
REPORTED = st.one_of(*SIMPLE, st.lists(st.integers(), max_size=2))
"""Values of JSON; Python's also has NaN and infinity, and half of a surrogate pair."""


def from_csv(path: Path, columns: list[Column]) -> list[list[Cell]]:
    """Read with the types of the columns."""
    read: dict[str, Callable[[str], Cell]] = {
        **{"int": int, "float": float, "text": str},
        "bool": {"true": True, "false": False}.__getitem__,
    }
    with path.open(newline="", encoding="utf-8") as file:
        head, *lines = csv.reader(file)
    assert head == [column.name for column in columns]
    return [
        [read[c.type](cell) if cell else None for c, cell in zip(columns, line, strict=True)]
        for line in lines
    ]


def same(one: Cell, two: Cell) -> bool:
    if isinstance(one, float) and isinstance(two, float) and math.isnan(one):
        return math.isnan(two)
    return type(one) is type(two) and one == two


def check(table: Table) -> None:
    with TemporaryDirectory() as folder:
        write_csv(table, Path(folder, "x.csv"))
        write_parquet(table, Path(folder, "x.parquet"), {"run_id": "run-1"})
        text = from_csv(Path(folder, "x.csv"), list(table.columns))
        stored = pq.read_table(Path(folder, "x.parquet"))
    assert stored.column_names == [column.name for column in table.columns]
    columns = [column.to_pylist() for column in stored.columns]
    assert len(text) == stored.num_rows == len(table.rows)
    for number, row in enumerate(table.rows):
        for place, cell in enumerate(row):
            assert same(columns[place][number], cell)
            # A CSV can't distinguish an empty text from none.
            assert same(text[number][place], None if cell == "" else cell)


@given(st.lists(st.dictionaries(st.text(), REPORTED, max_size=4), max_size=6))
def test_csv_and_parquet_have_the_same_values_whatever_tasks_report(
    reported: list[dict[str, object]],
) -> None:
    reserved = {"n", "t", "wall", "event", "task", "step", "late"}  # the history keeps them out
    steps = [
        step(n, "worker-0", n, **{k: v for k, v in one.items() if k not in reserved})
        for n, one in enumerate(reported)
    ]
    check(tables(history(steps), [], [])[0])


def test_samples_too() -> None:
    for table in tables([], some_samples(), []):
        check(table)


def test_parquet_says_types_units_and_which_run(tmp_path: Path) -> None:
    table = next(t for t in tables([], some_samples(), []) if t.name == "samples")
    write_parquet(table, tmp_path / "x.parquet", {"run_id": "run-1", "scenario": "test"})
    schema = pq.read_schema(tmp_path / "x.parquet")
    assert str(schema.field("memory").type) == "int64"
    assert str(schema.field("cpu").type) == "double"
    assert schema.field("cpu").metadata[b"unit"] == b"core-seconds"
    stored = pq.ParquetFile(tmp_path / "x.parquet").metadata.metadata
    assert (stored[b"run_id"], stored[b"scenario"]) == (b"run-1", b"test")
    units = {column["name"]: column.get("unit") for column in json.loads(stored[b"columns"])}
    assert units["received_per_second"] == "bytes/s"


def cells(table: Table, name: str) -> tuple[str, list[Cell]]:
    """Return the type and the cells of a column; both files have what it has."""
    check(table)
    place = [column.name for column in table.columns].index(name)
    return table.columns[place].type, [row[place] for row in table.rows]


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, -(2**63), -(2**63) - 1])
def test_a_number_that_64_bits_do_not_hold_is_text_if_reported_and_left_out_if_measured(
    number: int,
) -> None:
    fits = -(2**63) <= number < 2**63
    reported = tables(history([step(1, "worker-0", number)]), [], [])[0]
    assert cells(reported, "step") == (("int", [number]) if fits else ("text", [str(number)]))
    sample = Sample(1.0, 2.0, {"worker-0": Usage(1.0, received=number)})
    measured = next(t for t in tables([], [sample], []) if t.name == "samples")
    assert cells(measured, "received")[1] == [number if fits else None]


def test_libraries_that_are_named_are_those_of_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["export"]
    for library in LIBRARIES.values():
        assert any(line.startswith(library) for line in extra)
