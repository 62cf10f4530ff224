"""What the help of each command looks like: plain text, with arguments as people write them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from emulator.engines import with_engine_names
from emulator.errors import UsageError

SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
    "rich_markup_mode": None,  # plain help: Typer's other one takes as long to load as all the rest
}
"""Of every `typer.Typer` here."""

_VALUES = {"int": "N", "int range": "N", "path": "PATH", "str": "TEXT", "list[str]": "TEXT"}
"""How a value is shown, by Typer's name of its type; a choice is shown as it is."""


class _Coercion:
    """Makes of a value what Typer does, which loads pydantic also for one that stays as it is."""

    def __init__(self, by_typer: Callable[[], Any]) -> None:
        self._by_typer = by_typer

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401  Typer's own types
        """Return what the command gets."""
        kind, several = param.type_descriptor.annotation, param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        if kind == list[str] and isinstance(value, tuple | list):
            return list(value)
        kept = kind is str and isinstance(value, str) and not several
        if kind is Path and isinstance(value, Path):  # Typer refuses one that can't be read
            kept = os.access(value, os.R_OK) or not os.path.exists(value)
        if kept:
            return value
        try:
            return self._by_typer().coerce(value, param=param, ctx=ctx)
        except Exception as error:
            if message := getattr(error, "message", ""):
                error.message = _in_plain_words(message, value)  # type: ignore[attr-defined]
            raise


def _in_plain_words(message: str, value: object) -> str:
    """Return what pydantic says of a value, without its terms (pure)."""
    message = message.removeprefix("Value error, ")
    if message.startswith("Input should be a valid integer"):
        return f"{value!r} is not a whole number."
    return re.sub(r"^Input should (be .*?)\.?$", rf"{value!r} should \1.", message)


class SparingPydantic:
    """A command whose parameters load pydantic, a fifth of `emulate ps`, only at need."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401  Typer's own types
        """Return the arguments and the options."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in found:
            by_typer = getattr(one, "get_runtime_param", None)  # not of every version
            if by_typer is not None and "get_runtime_param" not in vars(one):
                one.get_runtime_param = partial(_Coercion, by_typer)
        return found


class Command(SparingPydantic, TyperCommand):
    """A command that shows `TASK` and `[RUN]` where Typer has `{TASK}` and `[RUN] <str>`."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401  Typer's own types
        """Return the words that are left.

        Raises UsageError for an option that was removed, or whose plug-in can't be loaded.
        """
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if (option := getattr(error, "option_name", None)) is None:
                raise  # as the end of --help
            from emulator.cli.added import require_option
            from emulator.cli.words import REMOVED

            require_option(option)
            if instead := REMOVED.get((str(self.name), option)):
                message = f"{option} of `emulate {self.name}` was removed: {instead}."
                raise UsageError(message) from None
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401  Typer's own types
        """Return what follows the command's name in the line of its usage."""
        pieces = (_name(one) if _is_argument(one) else "" for one in self.get_params(ctx))
        return ["[OPTIONS]", *filter(None, pieces)]

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Write the arguments and the options, with the kind of value that an option takes."""
        rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for one in self.get_params(ctx):
            if (record := one.get_help_record(ctx)) is None:
                continue
            if _is_argument(one):
                rows["Arguments"].append((_name(one), record[1]))
            else:
                rows["Options"].append((_with_value(record[0]), with_engine_names(record[1])))
        for title, records in rows.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _is_argument(parameter: Any) -> bool:  # noqa: ANN401
    return bool(parameter.param_type_name == "argument")


def _name(argument: Any) -> str:  # noqa: ANN401
    """Return an argument as written in a usage: in brackets, if it may be left out."""
    name = str(argument.metavar or argument.name.upper())
    return name if argument.required or "[" in name else f"[{name}]"


def _with_value(option: str) -> str:
    return re.sub(r"<([^>]*)>", lambda found: _VALUES.get(found[1], found[1]), option)
