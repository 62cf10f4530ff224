"""What holds for each page of this repository that people read."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCED = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)
RULE = re.compile(r"\|(:?-+:?\|)+")

on_each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def tables(text: str) -> list[list[str]]:
    """Return the blocks of lines that begin with a bar."""
    lines = FENCED.sub("", text).splitlines()
    return [list(b) for bar, b in groupby(lines, lambda line: line.lstrip().startswith("|")) if bar]


def is_table(block: list[str]) -> bool:
    """A header, a rule below it, and rows: else bars are shown as text."""
    return len(block) > 2 and bool(RULE.fullmatch(block[1].replace(" ", "")))


@on_each_page
def test_every_table_begins_with_its_header(page: Path) -> None:
    assert [block[0] for block in tables(page.read_text()) if not is_table(block)] == []


def test_a_blank_line_within_a_table_is_seen() -> None:
    table = "| a | b |\n|---|---|\n| 1 | 2 |\n{}| 3 | 4 |\n"
    assert [is_table(block) for block in tables(table.format(""))] == [True]
    assert [is_table(block) for block in tables(table.format("\n"))] == [True, False]


@on_each_page
def test_make_is_named_with_a_target_that_it_has(page: Path) -> None:
    """Without one it prints its help, and installs nothing."""
    if page.name == "CHANGELOG.md":  # says what has changed
        return
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    shown = re.findall(r"(?m)(?:`|^ *)make\b[ \n]*([a-z-]*)", page.read_text())
    assert set(shown) <= targets
