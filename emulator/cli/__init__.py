"""The command line: parse, call, print, exit code. Commands lie beside this by theme.

A command is imported when it is run or listed, and imports what it needs when it is called: most
of the time of a short command is spent on imports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

__all__ = ["COMMANDS", "app"]

COMMANDS = {
    "up": "up",
    "plan": "up",
    "check": "up",
    "compare": "compare",
    "report": "report",
    "runs": "report",
    "export": "export",
    "preempt": "manual",
    "fault": "manual",
    "heal": "manual",
    "wait": "manual",
    "attach": "manual",
    "top": "top",
    "ps": "runs",
    "logs": "runs",
    "down": "runs",
    "clean": "runs",
    "build": "setup",
    "doctor": "setup",
    "schema": "setup",
    "init": "setup",
}
"""Every command with the module that has the function of that name, in the order of `--help`."""
SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class _Commands(Mapping[str, Any]):
    """The commands by name; one is built when it is first asked for."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401  Typer has no public name for it
        if name not in self._built:
            function = getattr(import_module(f"emulator.cli.{COMMANDS[name]}"), name)
            one = typer.Typer(add_completion=False, **SETTINGS)
            one.command(name, cls=getattr(function, "command_class", None))(function)
            self._built[name] = typer.main.get_command(one)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Group(TyperGroup):
    def __init__(self, **settings: Any) -> None:  # noqa: ANN401  whatever Typer passes
        super().__init__(**{**settings, "commands": _Commands()})


app = typer.Typer(name="emulate", cls=_Group, no_args_is_help=True, **SETTINGS)


@app.callback()
def emulate() -> None:
    """A training cluster on your laptop, from a scenario file."""
