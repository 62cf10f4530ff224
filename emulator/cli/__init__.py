"""The command line: parse, call, print, exit code. Commands lie beside this by theme.

A command is imported when it is run or listed, and imports what it needs when it is called: most
of the time of a short command is spent on imports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from emulator.cli.added import added_commands, command_of_plugin, with_options
from emulator.cli.command import SETTINGS, Command, SparingPydantic
from emulator.errors import UsageError

__all__ = ["COMMANDS", "app"]


class Entry(NamedTuple):
    """A command: the module that has the function of its name, and an example."""

    module: str
    example: str


SECTIONS: Mapping[str, Mapping[str, Entry]] = {
    "Run": {
        "demo": Entry("demo", "emulate demo --open"),
        "try": Entry("trial", "emulate try -- python train.py"),
        "up": Entry("up", "emulate up quickstart --set cluster.worker=4"),
        "plan": Entry("up", "emulate plan scenario.yaml"),
        "scenarios": Entry("scenarios", "emulate scenarios faults"),
        "wait": Entry("manual", "emulate up -d quickstart && emulate wait"),
        "attach": Entry("manual", "emulate attach"),
        "down": Entry("runs", "emulate down"),
    },
    "Look": {
        "ps": Entry("runs", "emulate ps --all"),
        "top": Entry("runs", "emulate top"),
        "logs": Entry("runs", "emulate logs -f 'worker-*'"),
        "exec": Entry("exec", "emulate exec worker-0 -- nvidia-smi"),
    },
    "Break": {
        "preempt": Entry("manual", "emulate preempt worker-1 --grace 5s --down 10s"),
        "fault": Entry("manual", "emulate fault pause worker-0 --for 5s"),
        "heal": Entry("manual", "emulate heal"),
        "sweep": Entry("sweep", "emulate sweep -- python train.py --out {out}"),
    },
    "Judge": {
        "runs": Entry("report", "emulate runs --verdict failed --since 7d"),
        "check": Entry("up", "emulate check"),
        "report": Entry("report", "emulate report --open"),
        "compare": Entry("report", "emulate compare quickstart-1 quickstart-2 --html page.html"),
        "export": Entry("export", "emulate export --tensorboard logs"),
    },
    "Set up": {
        "init": Entry("setup", "emulate init mine"),
        "doctor": Entry("setup", "emulate doctor"),
        "build": Entry("setup", "emulate build pytorch"),
        "schema": Entry("setup", "emulate schema > schema.json"),
        "clean": Entry("runs", "emulate clean --dry-run"),
        "version": Entry("setup", "emulate version --json"),
    },
}
"""Our commands, as `--help` lists them; plug-ins add others."""
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class _Commands(Mapping[str, Any]):
    """The commands by name; one is built when it is first asked for."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401  Typer has no public name for it
        if name not in self._built:
            function, example = _found(name)
            one = typer.Typer(add_completion=False, **SETTINGS)
            kind = getattr(function, "command_class", Command)
            one.command(name, cls=kind, epilog=f"Example: {example}")(with_options(function))
            self._built[name] = typer.main.get_command(one)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*COMMANDS, *(name for name, _ in added_commands())])

    def __len__(self) -> int:
        return len(list(iter(self)))


def _found(name: str) -> tuple[Callable[..., None], str]:
    """Return the function of a command, and its example.

    Raises KeyError where there is no such command, UsageError where a plug-in has it that can't be
    loaded.
    """
    if name in COMMANDS:
        module = import_module(f"emulator.cli.{COMMANDS[name].module}")
        function = getattr(module, name, None) or getattr(module, f"{name}_")  # `exec`
        return function, COMMANDS[name].example
    one = command_of_plugin(name)
    return one.run, one.example


class _Group(SparingPydantic, TyperGroup):
    def __init__(self, **settings: Any) -> None:  # noqa: ANN401  whatever Typer passes
        super().__init__(**{**settings, "commands": _Commands()})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401  Typer's own types
        """Return the command of the first word; `help up` is `up --help`.

        Raises UsageError for a word of docker or kubectl, with ours, and for a removed command.
        """
        if args[0] not in self.commands:
            from emulator.cli.words import REMOVED, command_for

            if args[0] == "help":
                args = [*args[1:2], "--help"]
                if len(args) == 1:
                    typer.echo(ctx.get_help())
                    raise typer.Exit
            elif ours := command_for(args[0], COMMANDS):
                raise UsageError(f"There is no command {args[0]}.", f"Use `emulate {ours}`.")
            elif instead := REMOVED.get((args[0], "")):
                raise UsageError(f"`emulate {args[0]}` was removed: {instead}.")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  Typer's own types
        """Write what fits on one screen: the commands in groups, and the options in a line."""
        formatter.write(f"Usage: {ctx.command_path} COMMAND [ARGS]...\n\n  {self.help}\n")
        added = dict(added_commands())
        group, width = max(map(len, SECTIONS)), max(map(len, {**COMMANDS, **added}))
        for title, section in SECTIONS.items():
            formatter.write("\n")
            others = (name for name, one in added.items() if one.section == title)
            for number, name in enumerate([*section, *others]):
                head = f"{'' if number else title:<{group}}  {name:<{width}}  "
                room = min(formatter.width, 100) - len(head)
                formatter.write(head + self.commands[name].get_short_help_str(room) + "\n")
        shown = (one for one in self.get_params(ctx) if one.name != "show_completion")
        options = "   ".join(", ".join(sorted(one.opts, key=len)) for one in shown)
        formatter.write(
            f"\nOptions: {options}\n`{ctx.command_path} COMMAND --help` shows those of a command, "
            "with an example.\n"
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
