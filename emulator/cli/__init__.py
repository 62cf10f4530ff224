"""The command line: parse, call, print, exit code. Commands lie beside this by theme.

A command is imported when it is run or listed, and imports what it needs when it is called: most
of the time of a short command is spent on imports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

__all__ = ["COMMANDS", "app"]

SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Run a scenario": {
        "scenarios": "scenarios",
        "up": "up",
        "plan": "up",
        "convert": "convert",
        "attach": "manual",
        "down": "runs",
    },
    "Follow runs": {"ps": "runs", "top": "top", "logs": "runs", "exec": "inside", "wait": "manual"},
    "Inject faults": {"preempt": "manual", "fault": "manual", "heal": "manual"},
    "Jobs of a training operator": {"suspend": "manual", "resume": "manual"},
    "Look at results": {
        "check": "up",
        "report": "report",
        "runs": "report",
        "compare": "compare",
        "export": "export",
    },
    "Set up and clean up": {
        "init": "setup",
        "doctor": "setup",
        "build": "setup",
        "schema": "setup",
        "clean": "runs",
        "version": "setup",
    },
}
"""Every command with the module that has the function of that name, as `--help` lists them."""
COMMANDS = {name: module for section in SECTIONS.values() for name, module in section.items()}
SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
    "rich_markup_mode": None,  # plain help: Typer's other one takes as long to load as all the rest
}


class _Commands(Mapping[str, Any]):
    """The commands by name; one is built when it is first asked for."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401  Typer has no public name for it
        if name not in self._built:
            module = import_module(f"emulator.cli.{COMMANDS[name]}")
            function = getattr(module, name, None) or getattr(module, f"{name}_")  # `exec`
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

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  Typer's own types
        """List the commands by section."""
        width = max(map(len, COMMANDS))
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (
                            name.ljust(width),
                            self.commands[name].get_short_help_str(formatter.width - width - 6),
                        )
                        for name in section
                    ]
                )


app = typer.Typer(name="emulate", cls=_Group, invoke_without_command=True, **SETTINGS)


def _print_version(wanted: bool) -> None:
    if wanted:
        import emulator

        typer.echo(f"emulate {emulator.__version__}")
        raise typer.Exit


@app.callback()
def emulate(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", is_eager=True, callback=_print_version, help="Show the version."
        ),
    ] = False,
) -> None:
    """A training cluster on your laptop, from a scenario file."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
