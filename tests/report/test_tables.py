"""Tables: of any width, and of many tasks."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

import emulator
from emulator.analysis.listing import Listed
from emulator.engines.base import Finding
from emulator.record.folder import RunFolder
from emulator.report import listings
from emulator.report.plan_tables import print_plan
from emulator.report.tables import Column, Table, print_table, table_of
from emulator.report.terminal import print_comparison, print_summary
from tests.report.test_expected import compared, many, rich
from tests.report.test_terminal import rows_of

# --- Of any width ---------------------------------------------------------------------------------

RUN = "accelerate-elastic-1126001605-58c889"
STATUS: dict[str, Any] = {
    **{"run_id": RUN, "state": "running", "engine": "kubernetes"},
    "tasks": [{"name": "w-0", "state": "backoff", "step": 2000, "restarts": 1, "exit_code": 137}],
    "faults": [{"id": "0", "kind": "partition", "target": "w-0 | w-1, w-2", "stage": "applied"}],
    "helpers": {"board-with-a-long-name": {"state": "failed", "exit_code": 3}},
    "ports": [{"name": "w-0", "port": 8080, "address": "127.0.0.1:54321"}],
}
CONDITION = {
    **{"t": 1.0, "type": "Restarting", "status": "True", "reason": "TFJobRestarting"},
    "message": f"TFJob default/{RUN} is restarting because 1 worker has failed",
}
TABLES: dict[str, Callable[[Console], None]] = {
    "summary": lambda console: print_summary(rich().summary, console),
    "many tasks": lambda console: print_summary(many().summary, console),
    "comparison": lambda console: print_comparison(compared()[0], console),
    "plan": lambda console: print_plan(rich().plan, [], console),
    "status": partial(listings.print_status, STATUS),
    "conditions": partial(listings.print_conditions, {RUN: [CONDITION]}),
    "findings": partial(
        listings.print_findings, [Finding("docker", "fatal", "/var/" + RUN, "start it")]
    ),
    "ps": lambda console: listings.print_runs([RunFolder(Path(RUN))], {RUN: 2}, console),
    "runs": partial(
        listings.print_listing, [Listed(RUN, "of", "a=1", "docker", 1.0, "interrupted", "ok")]
    ),
}


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("name", TABLES)
def test_no_table_loses_a_column_or_breaks_a_word(name: str, width: int) -> None:
    shown, whole = rows_of(TABLES[name], width), rows_of(TABLES[name], 1000)
    words, known = (set(re.split(r"[\s,]+", " ".join(lines))) for lines in (shown, whole))
    assert known - words == set()


def test_there_is_one_printer_of_tables() -> None:
    package = Path(emulator.__file__).parent
    users = [path.name for path in package.rglob("*.py") if "rich.table" in path.read_text()]
    assert users == ["tables.py"]


TOLD = Table(("task", "last step", "why"), [("a-0", 12, "it was too slow"), ("b-0", None, "")])


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (36, ["task   last step   why", "a-0    12          it was too slow", "b-0"]),
        (35, ["task   last step   why", "a-0    12          it was too", "slow", "b-0"]),
        (24, ["task  last step  why", "a-0   12         it", "was", "too", "slow", "b-0"]),
        (21, ["task last step why", "a-0  12        it", "was", "too", "slow", "b-0"]),
        (20, ["task        a-0", "last step   12", "why         it was", "too", "slow",
              "task        b-0", "last step", "why"]),
        (9, ["task        a-0", "last step   12", "why         it", "was", "too", "slow",
             "task        b-0", "last step", "why"]),
    ],
)  # fmt: skip
def test_without_room_cells_are_wrapped_then_closer_then_in_lines_of_their_own(
    width: int, lines: list[str]
) -> None:
    assert [line.strip() for line in rows_of(partial(print_table, table=TOLD), width)] == lines


def test_of_columns_to_spare_those_without_room_are_named() -> None:
    table = Table(("run", "took", "cost"), [("a", "1s", "2")], spare={"took", "cost"})
    for width, lines in (
        (19, [" run   took   cost", " a     1s     2"]),
        (18, [" run   took", " a     1s", "no room for cost"]),
        (11, [" run", " a", "no room for took, cost"]),
        (1, [" run   a", "no room for took, cost"]),
    ):
        found = rows_of(partial(print_table, table=table), width)
        assert [line.rstrip() for line in found] == lines


CELLS = st.lists(st.text("ab ö漢", max_size=30).map(str.strip), min_size=4, max_size=4)


@given(
    st.lists(CELLS, min_size=1, max_size=3),
    st.integers(5, 120),
    st.sampled_from(["", "c1", "c3"]),
    st.sampled_from([{}, {"c0": 9}]),
)
def test_whatever_the_cells_are_all_their_words_are_there_and_fit(
    rows: list[list[str]], width: int, whole: str, most: dict[str, int]
) -> None:
    table = Table([f"c{n}" for n in range(4)], rows, whole={whole}, most=most)
    lines = rows_of(partial(print_table, table=table), width)
    words = " ".join(lines).split()
    assert {*table.heads, *" ".join(cell for row in rows for cell in row).split()} <= {*words}
    longest = max(Text(word).cell_len for word in words)
    assert all(Text(line.rstrip()).cell_len <= max(width, longest + 6) for line in lines)


def test_a_terminal_gets_whole_lines_and_a_file_none_with_blanks_at_the_end() -> None:
    whole = [" " * 12, " a   column ", " ────────── ", " x          ", " y   b      ", " " * 12]
    for is_terminal, lines in ((True, whole), (False, [line.rstrip() for line in whole])):
        stream = io.StringIO()
        console = Console(file=stream, width=60, force_terminal=is_terminal, color_system=None)
        print_table(console, Table(("a", "column"), [(Text("x"), None), ("y", "b")]))
        assert stream.getvalue() == "\n".join([*lines, ""])


# --- Of many tasks --------------------------------------------------------------------------------


def test_a_table_of_many_tasks_has_a_row_for_each_role_with_ranges_and_counts() -> None:
    names = [f"ps-{n}" for n in range(5)]
    numbers: dict[str, float | None] = dict(zip(names, (3, 1, None, 2, 1), strict=True))
    words = dict(zip(names, "abcda", strict=True))
    columns = [Column("N", numbers), Column("W", words, number=False)]
    folded = table_of("Task", [*names, "solo"], columns, most=5)
    assert folded.rows == [
        ["ps-0 .. ps-4 (5)", "1 to 3", "a (2), b (1), c (1), …"],
        ["solo", "", ""],
    ]
    assert [row[0] for row in folded.every] == [*names, "solo"]
    assert (folded.heads, folded.numbers) == (["Task", "N", "W"], {"N"})
    whole = table_of("Task", names, columns, most=5)
    assert (len(whole.rows), whole.every) == (5, ())
    words |= {"ps-3": "c"}
    assert table_of("Task", names, columns, most=4).rows[0][2] == "a (2), c (2), b (1)"
