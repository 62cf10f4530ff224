"""Tables and texts as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NOTE = "<!-- Made by `python -m scripts.reference`; change the code instead. -->"


def page(title: str, *parts: str) -> str:
    """Return a page from its title and its parts."""
    return "\n\n".join([f"# {title}", NOTE, *(part.strip() for part in parts)]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a bar within a cell is escaped."""
    lines = [_row(head), "|" + "---|" * len(head)]
    return "\n".join([*lines, *map(_row, rows)])


def code(text: str) -> str:
    """Return a text as code within a line."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}"


def anchor(title: str) -> str:
    """Return the anchor of a heading, as sites and code hosts make it."""
    kept = (char for char in title.lower().replace(" ", "-") if char.isalnum() or char in "-_")
    return "".join(kept)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
