"""Tables: of any width, and of many tasks."""

from __future__ import annotations

import ast
import io
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

import emulator
from emulator.analysis.listing import LISTED, Listed
from emulator.analysis.notices import Left, NoticeResult
from emulator.cli.sweep import print_sweep
from emulator.engines.base import Finding
from emulator.record.folder import RunFolder
from emulator.report import listings, tables
from emulator.report.data import notice_table
from emulator.report.plan_tables import print_plan
from emulator.report.tables import Column, Table, print_table, table_of
from emulator.report.terminal import print_comparison, print_summary
from emulator.search.moments import Moment
from emulator.search.outcomes import Outcome
from emulator.search.points import Point, SweepResult
from tests.report.test_expected import compared, many, rich
from tests.report.test_terminal import rows_of

# --- Of any width ---------------------------------------------------------------------------------

SHORT_RUN = "accelera…-58c889"
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
WHY = "worker-0 restored 8254e1a456dd811c, which no save of step 20 had"
SWEPT = SweepResult(
    Path(RUN),
    [
        Point(
            Moment("write 5 of /shared/model-*.bin.tmp (8,192 bytes)", {"write": 5}),
            Outcome("silently different", WHY, 10, 20, 0),
            "ok",
            None,
        ),
        Point(Moment("step 10", {"step": 10}), Outcome("undecided", WHY), "unknown", None),
    ],
)
FIGURES = dict(zip(LISTED, (1041.5, 0.043, 991, 85.25), strict=True))
NOTICE = NoticeResult(
    *("0", "preempt", "worker-0", 3.7, True, 1.0, 0.25, "got SIGTERM, saving", 2.0, "worker-1"),
    *(2.5, 0, False, 6.0, -1.5, None, ["python3"], ["python3"], []),
    outlived=[Left("python3", 7, 1.77, "killed")],
)


def noticed() -> Table:
    table = notice_table({"notices": [asdict(NOTICE)]})
    assert table is not None
    assert len(table.heads) == 10
    return table


TABLES: dict[str, Callable[[Console], None]] = {
    "summary": lambda console: print_summary(rich().summary, console),
    "notices": lambda console: print_table(console, noticed()),
    "many tasks": lambda console: print_summary(many().summary, console),
    "comparison": lambda console: print_comparison(compared()[0], console),
    "plan": lambda console: print_plan(rich().plan, [], console),
    "status": partial(listings.print_status, STATUS),
    "conditions": partial(listings.print_conditions, {RUN: [CONDITION]}),
    "findings": partial(
        listings.print_findings,
        [Finding("docker", status, "/var/" + RUN, "start it") for status in ("ok", "fatal")],
    ),
    "ps": lambda console: listings.print_runs([RunFolder(Path(RUN))], {RUN: 2}, console),
    "sweep": partial(print_sweep, SWEPT, Path("sweep.html")),
    "scenarios": partial(
        listings.print_scenarios, [{"theme": "faults", "name": "naive", "description": WHY}]
    ),
    "runs": partial(
        listings.print_listing,
        [Listed("mine", "of", "a=1", "docker", 1.0, "interrupted", "ok", FIGURES)],
    ),
}


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("name", TABLES)
def test_no_table_loses_a_column_or_breaks_a_word(name: str, width: int) -> None:
    shown, whole = rows_of(TABLES[name], width), rows_of(TABLES[name], 1000)
    words, known = (set(re.split(r"[\s,]+", " ".join(lines))) for lines in (shown, whole))
    is_short = any(word.startswith("accel") and word.endswith("…-58c889") for word in words)
    assert known - words <= ({RUN} if is_short else set())


def test_every_place_that_prints_a_table_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    package, seen = Path(emulator.__file__).parent, set[tuple[str, int]]()

    def of_caller(table: Table) -> Table:
        frame = sys._getframe(2)  # who has called `print_table`
        seen.add((frame.f_code.co_filename, frame.f_lineno))
        return filled(table)

    filled = tables.filled
    monkeypatch.setattr(tables, "filled", of_caller)
    for print_it in TABLES.values():
        rows_of(print_it)
    calls = [(str(path), node) for path in package.rglob("*.py") for node in _calls(path)]
    assert len(calls) > 10
    unseen = [
        f"{file}:{node.lineno}"
        for file, node in calls
        if not any((file, line) in seen for line in range(node.lineno, node.end_lineno + 1))
    ]
    assert unseen == [], "add what prints these tables to TABLES"


def _calls(path: Path) -> Iterator[Any]:
    """Yield the calls of `print_table` in a file."""
    if "print_table" in (text := path.read_text()):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print_table":
                yield node


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
        (20, ["task a-0", "last step 12", "why it was too", "slow", "task b-0"]),
        (9, ["task", "a-0", "last", "step", "12", "why", "it", "was", "too", "slow",
             "task", "b-0"]),
    ],
)  # fmt: skip
def test_without_room_cells_are_wrapped_then_closer_then_in_lines_of_their_own(
    width: int, lines: list[str]
) -> None:
    assert [line.strip() for line in rows_of(partial(print_table, table=TOLD), width)] == lines


def test_ids_are_shortened_before_a_row_becomes_lines() -> None:
    table = Table(("run", "took"), [(RUN, "1s"), ("b", "2s")], ids={"run"})
    short, b = f" {SHORT_RUN} 1s", " b"
    for width, lines in (
        (46, [" run" + " " * 36 + "took", f" {RUN}   1s", b + " " * 38 + "2s"]),
        (23, [" run" + " " * 14 + "took", short, b + " " * 16 + "2s"]),
        (22, [" run", f"   {RUN}", "   took 1s", " run b   took 2s"]),
    ):
        found = rows_of(partial(print_table, table=table), width)
        assert [line.rstrip() for line in found] == lines
    alike = Table(("run", "took"), [(RUN, "1s"), (RUN.replace("1126", "1127"), "2s")], ids={"run"})
    assert "…" not in "".join(rows_of(partial(print_table, table=alike), 23))


def test_a_fault_is_two_lines_where_there_is_no_room_for_its_row() -> None:
    lines = rows_of(TABLES["summary"], 80)
    at = next(number for number, line in enumerate(lines) if "0: preempt worker-1" in line)
    assert lines[at : at + 2] == [
        " fault 0: preempt worker-1   status applied   applied 2.00s   restored 6.00s",
        "   first step 7.00s   caught up 8.00s   exit 143   steps/s 9.41 → 0 → 1.00",
    ]


def test_a_column_in_which_nothing_is_has_no_place() -> None:
    table = Table(("a", "b", "c"), [("x", None, 0), ("y", "", 1)])
    assert tables.filled(table) == Table(["a", "c"], [["x", 0], ["y", 1]], every=[])
    for same in (Table(("a", "b"), []), Table(("a", "b"), [("", 1), ("x", None)])):
        assert tables.filled(same) is same


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
    heads = {head for head, *cells in zip(table.heads, *rows, strict=True) if any(cells)}
    assert {*heads, *" ".join(cell for row in rows for cell in row).split()} <= {*words}
    longest = max((Text(word).cell_len for word in words), default=0)
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
