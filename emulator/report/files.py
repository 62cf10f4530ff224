"""Writes the reports of a run into its folder: report.html, report.md, junit.xml."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from emulator.analysis.comparison import Row
from emulator.errors import RecordError
from emulator.record.reader import Record
from emulator.report import HTML, comparison_page, junit, markdown, page
from emulator.report.data import read
from emulator.results import Judged, judge
from emulator.runtime.files import MAKE_ROOM, atomic_write, os_errors

MARKDOWN, JUNIT = "report.md", "junit.xml"


def write(record: Record, judged: Judged | None = None) -> Path:
    """Write all reports of a run, finished or not; return the page. Raises RecordError."""
    facts = read(record, judged or judge(record))
    put(record.path / MARKDOWN, markdown.render(facts), private=True)
    put(record.path / JUNIT, junit.render(facts), private=True)
    return put(record.path / HTML, page.render(facts), private=True)


def write_page(record: Record, path: Path) -> Path:
    """Write only the page, anywhere; it links to the run folder. Raises RecordError."""
    return put(path, page.render(read(record, judge(record)), place=path.resolve().parent))


def write_comparison(
    rows: Sequence[Row], runs: Sequence[tuple[Record, Judged]], path: Path
) -> Path:
    """Write a page that compares several runs. Raises RecordError."""
    facts = [read(*run) for run in runs]
    return put(path, comparison_page.render_comparison(rows, facts, place=path.resolve().parent))


def put(path: Path, text: str, *, private: bool = False) -> Path:
    """Write a file whole or not at all, also beside other writers. Raises RecordError.

    A link or a device (`/dev/stdout`) is written to, not replaced. A `private` file can be opened
    by its owner only.
    """
    with os_errors(RecordError, f"Can't write {path}", MAKE_ROOM):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.write_text(text, encoding="utf-8")
        else:
            atomic_write(path, text, many_writers=True, private=private)
    return path
