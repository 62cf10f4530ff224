#!/usr/bin/env python3
"""Draw docs/architecture.svg: the parts of emulator/ and which of them import which.

Everything in the picture is read from the source: a box is an entry of `ls emulator/` with the
first sentence of its docstring, and an arrow an import. An import that a longer chain of arrows
implies is left out. tests/test_structure.py fails while the file differs from what this draws.
"""

from __future__ import annotations

import ast
import functools
import html
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "emulator"
PICTURE = ROOT / "docs" / "architecture.svg"

WIDTH, HEIGHT, ACROSS, DOWN, MARGIN = 168, 62, 22, 44, 16
"""Pixels: a box, the space between boxes side by side and between rows, and the margin."""
LETTERS, LINES = 30, 3
"""Of the text in a box."""

Graph = Mapping[str, frozenset[str]]


def imports(path: Path) -> Iterator[str]:
    """Yield the full name of every module that a file imports, also inside of functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "emulator":
            yield from (f"emulator.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def part(path: Path) -> str:
    """Return the entry of `ls emulator/` that a file belongs to, without its suffix."""
    return part_of(".".join(path.relative_to(PACKAGE).with_suffix("").parts))


def part_of(name: str) -> str:
    """Return the same for the name of a module within `emulator`."""
    return name.partition(".")[0]


def graph() -> Graph:
    """Return for each part the other parts that it imports."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        of = found.setdefault(part(path), set())
        of.update(
            part_of(name.removeprefix("emulator."))
            for name in imports(path)
            if name.startswith("emulator.")
        )
    outside = {"__init__", "__main__"}  # every part may be named there; they say nothing
    return {
        name: frozenset(others & found.keys() - outside - {name})
        for name, others in found.items()
        if name not in outside
    }


def levels(parts: Graph) -> dict[str, int]:
    """Return the height of each part, 0 at the bottom. Raises ValueError for a circle."""

    @functools.cache
    def level(name: str, above: tuple[str, ...] = ()) -> int:
        if name in above:
            raise ValueError(f"a circle of imports: {' -> '.join([*above, name])}")
        return 1 + max((level(other, (*above, name)) for other in parts[name]), default=-1)

    return {name: level(name) for name in parts}


def reduced(parts: Graph) -> Graph:
    """Return the graph without the imports that a longer chain implies."""

    @functools.cache
    def reached(name: str) -> frozenset[str]:
        return parts[name].union(*(reached(other) for other in parts[name]))

    return {
        name: frozenset(
            other for other in others if not any(other in reached(via) for via in others - {other})
        )
        for name, others in parts.items()
    }


def rows(parts: Graph) -> list[list[str]]:
    """Return the parts from the top down, each row in an order with few crossings."""
    height = levels(parts)
    found = [
        sorted(name for name in parts if height[name] == number)
        for number in range(max(height.values()), -1, -1)
    ]
    for _ in range(8):  # each part moves above or below the middle of those that it is joined to
        for way in (found, found[::-1]):
            place = {name: (i + 0.5) / len(row) for row in found for i, name in enumerate(row)}
            for row in way:
                joined = {
                    name: [place[o] for o in parts if o in parts[name] or name in parts[o]]
                    for name in row
                }
                row.sort(key=lambda name: (sum(joined[name]) / max(1, len(joined[name])), name))
                place.update({name: (i + 0.5) / len(row) for i, name in enumerate(row)})
    return found


def sentence(name: str) -> str:
    """Return the first sentence of a part's docstring."""
    path = PACKAGE / name / "__init__.py"
    text = ast.get_docstring(
        ast.parse((path if path.exists() else PACKAGE / f"{name}.py").read_text())
    )
    return " ".join((text or "").split("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def draw() -> str:
    """Return the picture."""
    parts = graph()
    levels(parts)  # before what would not end in a circle
    parts = reduced(parts)
    of_rows = rows(parts)
    across = max(len(row) for row in of_rows)
    width = 2 * MARGIN + across * (WIDTH + ACROSS) - ACROSS
    height = 2 * MARGIN + len(of_rows) * (HEIGHT + DOWN) - DOWN
    places = {}
    for number, row in enumerate(of_rows):
        indent = (width - len(row) * (WIDTH + ACROSS) + ACROSS) / 2
        for column, name in enumerate(row):
            y = MARGIN + number * (HEIGHT + DOWN)
            places[name] = round(indent + column * (WIDTH + ACROSS)), y
    arrows = [_arrow(places[name], places[o]) for name in places for o in sorted(parts[name])]
    boxes = [_box(name, *place) for name, place in places.items()]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="system-ui, sans-serif">',
            "<title>The parts of emulator/; an arrow leads to what a part imports</title>",
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="#8a94a6"/>'
            "</marker></defs>",
            *arrows,
            *boxes,
            "</svg>\n",
        ]
    )


def _arrow(upper: tuple[int, int], lower: tuple[int, int]) -> str:
    x1, y1 = upper[0] + WIDTH / 2, upper[1] + HEIGHT
    x2, y2 = lower[0] + WIDTH / 2, lower[1]
    bend = (y2 - y1) / 2
    return (
        f'<path d="M{x1:g} {y1:g}C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2:g}" '
        'fill="none" stroke="#b8c0cc" stroke-width="1.2" marker-end="url(#tip)"/>'
    )


def _box(name: str, x: int, y: int) -> str:
    folder = (PACKAGE / name).is_dir()
    lines = textwrap.shorten(sentence(name), LETTERS * LINES, placeholder=" ...")
    words = [
        f'<tspan x="{x + 9}" dy="12">{html.escape(line)}</tspan>'
        for line in textwrap.wrap(lines, LETTERS)[:LINES]
    ]
    return (
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" '
        f'fill="{"#eef4ff" if folder else "#f7f7f4"}" stroke="#5b6b85"/>'
        f'<text x="{x + 9}" y="{y + 17}" font-size="13" font-weight="600" fill="#1b2638">'
        f"{name}{'/' if folder else '.py'}</text>"
        f'<text x="{x + 9}" y="{y + 20}" font-size="10" fill="#44506a">{"".join(words)}</text>'
    )


if __name__ == "__main__":
    PICTURE.write_text(draw())
    print(f"drew {PICTURE.relative_to(ROOT)}")
