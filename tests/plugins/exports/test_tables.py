"""Which tables a run becomes; every expected number was worked out by hand."""

from __future__ import annotations

from dataclasses import fields

import pytest

from emulator.analysis.analyse import FaultResult, analyse
from emulator.analysis.run_tables import Cell, Column, Table, tables
from emulator.metrics.catalog import GpuShare, GpuUsage, Usage
from emulator.record.timeline import Timeline
from tests.histories import BEGAN, happened, history, step
from tests.runs import a_history, a_plan, some_samples

Row = dict[str, Cell]


def rows(table: Table) -> list[Row]:
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


@pytest.fixture
def found() -> dict[str, Table]:
    faults = analyse(Timeline(a_plan(), a_history())).faults
    return {table.name: table for table in tables(a_history(), some_samples(), faults)}


def types(table: Table) -> dict[str, str]:
    return {column.name: column.type for column in table.columns}


def test_a_step_event_that_stands_for_several_says_for_which() -> None:
    coalesced = {"first": 11, "count": 4}
    entries = history([step(1, "a", 10), step(2, "a", 20, loss=0.5, coalesced=coalesced)])
    table = tables(entries, [], [])[0]
    assert types(table)["coalesced_count"] == "int"
    names = ("step", "coalesced_first", "coalesced_count")
    found = [tuple(row[name] for name in names) for row in rows(table)]
    assert found == [(10, None, None), (20, 11, 4)]


@pytest.mark.parametrize(
    ("values", "type_", "cells"),
    [
        ([1, 2], "int", [1, 2]),
        ([1, 2.5], "float", [1.0, 2.5]),
        ([1, None], "int", [1, None]),
        ([None], "float", [None]),
        ([True, False], "bool", [True, False]),
        ([True, 1], "text", ["true", "1"]),
        (["a", 1], "text", ["a", "1"]),
        ([[1, {"a": None}]], "text", ['[1, {"a": null}]']),
        (["\udcff\n"], "text", ["\\udcff\n"]),
    ],
)
def test_a_column_has_the_narrowest_type_that_holds_its_values(
    values: list[object], type_: str, cells: list[Cell]
) -> None:
    entries = history([step(n, "worker-0", n, x=value) for n, value in enumerate(values)])
    table = tables(entries, [], [])[0]
    assert types(table)["x"] == type_
    assert [row["x"] for row in rows(table)] == cells


def test_nothing_that_is_measured_of_a_task_or_device_is_left_out(found: dict[str, Table]) -> None:
    used, device = {f.name for f in fields(Usage)}, {f.name for f in fields(GpuUsage)}
    assert used <= types(found["samples"]).keys()
    assert device - {"tasks"} <= types(found["gpus"]).keys()
    assert {f.name for f in fields(GpuShare)} <= types(found["gpu_tasks"]).keys()
    assert [f.name for f in fields(FaultResult)] == list(types(found["faults"]))


def test_faults_are_what_the_analysis_says(found: dict[str, Table]) -> None:
    (row,) = rows(found["faults"])
    expected: Row = {
        **{"kind": "preempt", "target": "worker-1", "triggered": 3.0, "applied_after": 1.0},
        **{"restored_after": 3.6, "first_step_after": 5.0, "caught_up_after": 6.0},
    }
    assert expected.items() <= row.items()


def test_every_column_that_has_a_unit_says_it(found: dict[str, Table]) -> None:
    assert Column("power", "float", "W", "what it draws") in found["gpus"].columns
    plain = {"count", "processes", "exit_code", "loss", "index", "n", "step", "xid", "ecc_errors"}
    for name in ("samples", "gpus", "gpu_tasks", "faults"):
        numbers = [c for c in found[name].columns if c.type in ("int", "float")]
        assert {c.name for c in numbers if not c.unit} <= plain


def test_a_run_of_which_nothing_is_known_has_tables_without_rows() -> None:
    found = tables([], [], [])
    assert [(table.name, list(table.rows)) for table in found] == [
        (name, []) for name in ("steps", "samples", "gpus", "gpu_tasks", "events", "faults")
    ]
    assert "loss" in types(found[0])
    entries = history([happened(0, "prepared")])
    assert tables(entries, [], [])[4].rows == [(0, 0.0, BEGAN, "prepared", None)]
