"""Writes the reports of a run into its folder: report.html, report.md, junit.xml."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from emulator.analysis.comparison import Row
from emulator.errors import RecordError
from emulator.files import MAKE_ROOM, atomic_write, os_errors
from emulator.record.reader import Record
from emulator.report import HTML, junit, markdown, page
from emulator.report import comparison_page as overlay
from emulator.report.data import read
from emulator.results import Judged

__all__ = ["put", "write", "write_comparison", "write_page"]

MARKDOWN, JUNIT = "report.md", "junit.xml"


def write(record: Record, judged: Judged | None = None) -> Path:
    """Write all reports of a run, finished or not, judged before or not; return the page.

    Raises RecordError where its plan can't be read or the disk takes no more.
    """
    facts = read(record, judged)
    put(record.path / MARKDOWN, markdown.render(facts))
    put(record.path / JUNIT, junit.render([facts]))
    return put(record.path / HTML, page.render(facts))


def write_page(record: Record, path: Path) -> Path:
    """Write only the page, anywhere; its links lead to the run folder. Raises RecordError."""
    return put(path, page.render(read(record), place=path.resolve().parent))


def write_comparison(
    rows: Sequence[Row], runs: Sequence[tuple[Record, Judged]], path: Path
) -> Path:
    """Write a page with several runs over each other; raises RecordError."""
    facts = [read(*run) for run in runs]
    return put(path, overlay.render(rows, facts, place=path.resolve().parent))


def put(path: Path, text: str) -> Path:
    """Write a file whole or not at all; raises RecordError.

    Several may write it at a time, one of them wins. A link or a device (`/dev/stdout`) stays what
    it is, and is written to.
    """
    with os_errors(RecordError, f"Can't write {path}", MAKE_ROOM):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.write_text(text, encoding="utf-8")
        else:
            atomic_write(path, text, many_writers=True)
    return path
