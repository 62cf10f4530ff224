"""Runs that have finished: `emulator.result`, `emulator.runs`, `emulator.compare`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from emulator.analysis.comparison import COMPARED, Row, called, cell
from emulator.analysis.figures import FIGURES, as_data
from emulator.analysis.listing import LISTED, Listed, chosen, listed
from emulator.analysis.run_tables import frame_of_rows
from emulator.errors import UsageError
from emulator.record.folder import runs_in
from emulator.record.reader import Record
from emulator.results import Result, load_result
from emulator.session.variants import compare as rows_of
from emulator.session.variants import judge_all

T = TypeVar("T", bound=Listed | Row)
RunLike = str | Path | Result | Record


class Rows(Sequence[T], Generic[T]):
    """Runs as rows of numbers. A notebook shows them as a table, and so does `print`."""

    def __init__(self, rows: Sequence[T], cells: Callable[[T], Mapping[str, str]]) -> None:
        """`cells` are the texts of a row, by the head of their column."""
        self._rows: Sequence[T] = rows
        self._cells: Callable[[T], Mapping[str, str]] = cells

    @property
    def frame(self) -> Any:  # noqa: ANN401  of pandas or pyarrow
        """The rows as a data frame. Raises UsageError without pandas and pyarrow."""
        return frame_of_rows([_flat(row) for row in self._rows])

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Rows[T]: ...

    def __getitem__(self, index: int | slice) -> T | Rows[T]:
        """Return a row, or several."""
        if isinstance(index, slice):
            return Rows(self._rows[index], self._cells)
        return self._rows[index]

    def __repr__(self) -> str:
        """Return the table as text."""
        return "\n".join(_aligned(self._texts())) if self._rows else "no runs"

    def _repr_html_(self) -> str:
        head, *rows = self._texts() if self._rows else [["no runs"]]
        return f"<table>{_row('th', head)}{''.join(_row('td', row) for row in rows)}</table>"

    def _texts(self) -> list[list[str]]:
        cells = [self._cells(row) for row in self._rows]
        return [list(cells[0]), *(list(row.values()) for row in cells)]


def _row(tag: str, texts: Sequence[str]) -> str:
    cells = "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)
    return f"<tr>{cells}</tr>"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(map(str.ljust, row, widths)).rstrip()


def _flat(row: Listed | Row) -> dict[str, Any]:
    """Return a row with a column for each figure, and for each key in which scenarios differ."""
    data = as_data(row)
    data.pop("values", None)
    return {**data, **data.pop("differs", {})}


def runs(
    out: str | Path = "runs",
    *,
    scenario: str = "*",
    verdict: str | None = None,
    limit: int | None = None,
) -> Rows[Listed]:
    """Return the runs in a folder, oldest first, as `emulate runs` lists them.

    `scenario` is a glob; `verdict` is ok, failed or unknown; `limit` leaves the latest ones.
    """
    found = (listed(run) for run in runs_in(Path(out)))
    return Rows(chosen(found, scenario=scenario, verdict=verdict, limit=limit), _listed_cells)


def _listed_cells(row: Listed) -> dict[str, str]:
    figures = {FIGURES[key].column: FIGURES[key].text(row.figures.get(key)) for key in LISTED}
    return {
        "run": row.run_id,
        "variant": row.variant,
        "engine": row.engine,
        "outcome": row.outcome,
        "verdict": row.verdict or "",
        **figures,
    }


def result(run: str | Path = "last", out: str | Path = "runs") -> Result:
    """Return the result of a finished run: an id, the beginning of one, a folder, or `last`.

    It is judged again, from its folder alone. Raises UsageError if there is no such run, or if it
    is still under way, and RecordError if its record can't be read.
    """
    record = Record.find(str(run), Path(out))
    if record.live:
        raise UsageError(f"{record.run_id} is still under way.", "`emulator.connect` follows it.")
    return load_result(record)


def compare(*runs: RunLike, baseline: RunLike | None = None, out: str | Path = "runs") -> Rows[Row]:
    """Return runs side by side, as `emulate compare` shows them; ratios are to the first.

    Each is a result, a run id, the beginning of one, or a folder. With `baseline`, rows have the
    efficiency of scaling. Raises UsageError and RecordError.
    """
    if len(runs) + (baseline is not None) < 2:
        raise UsageError("A comparison takes two runs or more.", "`emulator.runs()` lists them.")
    judged = judge_all([_record(run, out) for run in runs])
    reference = None if baseline is None else _record(baseline, out)
    rows = rows_of(judged, reference)
    names = dict(zip((row.run_id for row in rows), called(rows), strict=True))

    def cells(row: Row) -> dict[str, str]:
        figures = {FIGURES[key].column: cell(row, rows[0], key) for key in COMPARED}
        return {"run": names[row.run_id], "outcome": row.outcome, "verdict": row.verdict, **figures}

    return Rows(rows, cells)


def _record(run: RunLike, out: str | Path) -> Record:
    match run:
        case Record():
            return run
        case Result():
            return Record(run.folder)
    return Record.find(str(run), Path(out))
