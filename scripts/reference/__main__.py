"""Write docs/reference/ from the code. A test fails while it differs from what this writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.reference import commands, events, python, scenario

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "scenario.md": scenario.written,
    "commands.md": commands.written,
    "events.md": events.written,
    "python.md": python.written,
}
"""Every page with the function that makes it."""


def main() -> None:
    """Write them all."""
    for name, written in PAGES.items():
        (FOLDER / name).write_text(written(), encoding="utf-8")


if __name__ == "__main__":
    main()
