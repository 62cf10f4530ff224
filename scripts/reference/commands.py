"""docs/reference/commands.md: what `--help` says of every command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from emulator.cli import SECTIONS, app
from scripts.reference.markdown import page

INTRODUCTION = """
What `emulate --help` and `emulate COMMAND --help` print. Exit codes are those of
[results](../results.md#exit-codes-of-emulate-up-and-emulate-check).
"""
WIDTH = 100
"""Columns of the help."""


def written() -> str:
    """Return the page."""
    parts = [INTRODUCTION, f"## emulate\n\n{_help()}"]
    for title, commands in SECTIONS.items():
        parts.append(f"## {title}")
        for name in commands:
            parts += (f"### emulate {' '.join(words)}\n\n{_help(*words)}" for words in _all(name))
    return page("Commands", *parts)


def _all(name: str) -> Iterator[tuple[str, ...]]:
    """Yield a command and those below it."""
    command: Any = get_command(app)
    yield (name,)
    yield from ((name, below) for below in getattr(command.commands[name], "commands", ()))


def _help(*words: str) -> str:
    done = CliRunner().invoke(
        app, [*words, "--help"], prog_name="emulate", terminal_width=WIDTH, color=False
    )
    assert done.exit_code == 0, (words, done.output)
    lines = (line.rstrip() for line in done.output.strip().splitlines())
    return "\n".join(["```text", *lines, "```"])
