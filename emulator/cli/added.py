"""Commands, and options of ours, that plug-ins add: see `emulator/runtime/plugins.py`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, get_type_hints

import typer

from emulator.runtime import plugins

PluginOptions = Mapping[str, Sequence[str]]
"""What was given of the options that plug-ins add, by their name."""
NO_OPTIONS: PluginOptions = {}


def added_commands() -> Iterator[tuple[str, plugins.Command]]:
    """Yield the commands of plug-ins that can be loaded."""
    for name, one in plugins.added("commands", {}):
        if isinstance(one, plugins.Command):
            yield name, one


def command_of_plugin(name: str) -> plugins.Command:
    """Return a command of a plug-in.

    Raises KeyError where there is none of this name, UsageError where it can't be loaded.
    """
    if name not in plugins.names("commands"):
        raise KeyError(name)
    if not isinstance(one := plugins.load("commands", name), plugins.Command):
        raise KeyError(name)
    return one


def require_option(flag: str) -> None:
    """Raise UsageError if an option that there is not is one of a plug-in that can't be loaded."""
    if (error := plugins.broken("commands").get(flag.lstrip("-"))) is not None:
        raise error


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options that plug-ins add, if it takes some."""
    parameters = inspect.signature(command).parameters
    if "plugin_options" in parameters:
        own = {one.name: _option(one.name, one, list[str]) for one in plugins.options()}
        return _extended(command, "plugin_options", own)
    if "exports" in parameters:
        own = {name: _option(name, one, str) for name, one in plugins.formats()}
        for name in plugins.broken("exports"):
            own[name] = Annotated[str | None, typer.Option(f"--{name}", hidden=True)]
        return _extended(command, "exports", own)
    return command


def _option(name: str, one: plugins.Option | plugins.Export, kind: type) -> Any:  # noqa: ANN401
    option = typer.Option(f"--{name}", metavar=one.metavar, help=one.help)
    return Annotated[kind | None, option]


def _extended(
    command: Callable[..., None], instead: str, options: Mapping[str, Any]
) -> Callable[..., None]:
    """Return a command with options, by name, in place of the parameter that gets their values.

    An option that the command has itself stays as it is.
    """
    hints = get_type_hints(command, include_extras=True)
    every = [one for hint in hints.values() for one in getattr(hint, "__metadata__", ())]
    taken = {flag for one in every for flag in getattr(one, "param_decls", None) or ()}
    own = [name for name in options if f"--{name}" not in taken]
    keys = {name.replace("-", "_"): name for name in own}

    @functools.wraps(command)
    def call(**values: Any) -> None:  # noqa: ANN401  whatever Typer passes
        given = {name: values.pop(key) for key, name in keys.items()}
        command(**values, **{instead: {name: value for name, value in given.items() if value}})

    ours = inspect.Parameter.KEYWORD_ONLY
    parameters: list[inspect.Parameter] = []
    for one in inspect.signature(command).parameters.values():
        if one.name == instead:
            parameters += [
                inspect.Parameter(key, ours, default=None, annotation=options[name])
                for key, name in keys.items()
            ]
        else:
            parameters.append(one.replace(kind=ours, annotation=hints[one.name]))
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call
