"""Writes the reports of a run into its folder: report.html, report.md, junit.xml."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from emulator.analysis.comparison import Row
from emulator.errors import RecordError
from emulator.record.folder import Record
from emulator.report import HTML, junit, markdown, overlay, page
from emulator.report.facts import read

__all__ = ["put", "write", "write_comparison", "write_page"]

MARKDOWN, JUNIT = "report.md", "junit.xml"


def write(record: Record) -> Path:
    """Write all reports of a run, finished or not; return the page.

    Raises RecordError where its plan can't be read or the disk takes no more.
    """
    facts = read(record)
    put(record.path / MARKDOWN, markdown.render(facts))
    put(record.path / JUNIT, junit.render([facts]))
    return put(record.path / HTML, page.render(facts))


def write_page(record: Record, path: Path) -> Path:
    """Write only the page, anywhere; its links lead to the run folder. Raises RecordError."""
    return put(path, page.render(read(record), place=path.resolve().parent))


def write_comparison(rows: Sequence[Row], records: Sequence[Record], path: Path) -> Path:
    """Write a page with several runs over each other; raises RecordError."""
    facts = [read(record) for record in records]
    return put(path, overlay.render(rows, facts, place=path.resolve().parent))


def put(path: Path, text: str) -> Path:
    """Write a file whole or not at all; raises RecordError.

    Several may write it at a time, one of them wins. A link or a device (`/dev/stdout`) stays what
    it is, and is written to.
    """
    partial = path.with_name(f"{path.name}.{uuid4().hex[:8]}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.write_text(text, encoding="utf-8")
            return path
        try:
            partial.write_text(text, encoding="utf-8")
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)  # half of it on a full disk is of no use
    except OSError as error:
        raise RecordError(
            f"Can't write {path}: {error.strerror or error}.", "Make room, or choose another place."
        ) from None
    return path
