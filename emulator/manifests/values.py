"""A strict reader of the values of a Helm chart (pure).

A chart may give any key any meaning, in its templates. So each chart that is known has a table of
its keys, as data; a key that is not in it is a mistake if it is nearly one that is, else ignored
with a note.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from emulator.errors import Problem, ScenarioError, shown
from emulator.manifests.documents import Document, dotted
from emulator.manifests.expansion import expand, written
from emulator.manifests.quantities import as_cores, as_size, parse_quantity
from emulator.manifests.spec import ConversionNote, SourceLocation
from emulator.scenario.document import KeyPath
from emulator.validation.similar import closest

LONGEST = 10
"""Characters of a number that is text."""
UNKNOWN = "it is not known what the chart makes of it"


@dataclass(frozen=True)
class Key:
    """A key of the values of a chart."""

    path: str
    """Dotted; `*` is any name, `a|b` either."""
    how: Literal["honoured", "ignored"]
    text: str
    """What is made of it, or why nothing is."""
    quiet: bool = False
    """There is no note about it: it could mean nothing here, or it says what is done anyway."""

    @property
    def steps(self) -> tuple[tuple[str, ...], ...]:
        """The names that each part of the path may have."""
        return tuple(tuple(step.split("|")) for step in self.path.split("."))


Table = Sequence[Key]
OF_ANY_CHART: Table = (Key("fullnameOverride|nameOverride", "honoured", "the name of the release"),)


@dataclass
class Values:
    """The values of a chart: reads them, and keeps what is wrong with them."""

    document: Document
    problems: list[Problem] = field(default_factory=list)
    notes: list[ConversionNote] = field(default_factory=list)
    origins: dict[KeyPath, SourceLocation] = field(default_factory=dict)

    def get(self, *path: str) -> Any:  # noqa: ANN401  YAML
        """Return the value at a path; None if there is none."""
        return self.document.get(*path)

    def first(self, *paths: tuple[str, ...]) -> tuple[str, ...]:
        """Return the first of some paths that has a value, else the first."""
        return next((path for path in paths if self.get(*path) is not None), paths[0])

    def count(self, path: tuple[str, ...], default: int = 0, most: int = 10_000) -> int:
        """Return a whole number; text of one counts, as the `int` of templates reads it."""
        value = self.get(*path)
        if value is None:
            return default
        is_text = isinstance(value, str) and value.isdecimal() and len(value) < LONGEST
        number = int(value) if is_text else value
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= most:
            self.problem(path, f"{_written(value)} should be a whole number from 0 to {most:,}")
            return default
        return number

    def port(self, path: tuple[str, ...], default: int) -> int:
        """Return the number of a port."""
        number = self.count(path, default, 65535)
        if number == 0:
            self.problem(path, "0 is not a port", f"a number from 1 on, such as {default}")
            return default
        return number

    def flag(self, path: tuple[str, ...], *, default: bool = False) -> bool:
        """Return true or false."""
        value = self.get(*path)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.problem(path, f"{_written(value)} should be true or false")
        return default

    def text(self, path: tuple[str, ...], default: str = "") -> str:
        """Return a text; a number is the text that a template would print."""
        value = self.get(*path)
        if value is None:
            return default
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
        self.problem(path, f"{_written(value)} should be text")
        return default

    def mapping(self, path: tuple[str, ...]) -> Mapping[str, Any]:
        """Return a mapping."""
        value = self.get(*path)
        if value is None or isinstance(value, dict):
            return value or {}
        self.problem(path, f"{_written(value)} should be a mapping of keys and values")
        return {}

    def variables(self, path: tuple[str, ...]) -> dict[str, str]:
        """Return variables, a mapping of their names to their values, which are no references."""
        names = self.mapping(path)
        return {name: literal(self.text((*path, name))) for name in names}

    def limits(self, cpu: tuple[str, ...], memory: tuple[str, ...]) -> dict[str, Any]:
        """Return the limits of a role from quantities of Kubernetes."""
        made: dict[str, Any] = {}
        for path, key, write in ((cpu, "cpus", as_cores), (memory, "memory", as_size)):
            if (value := self.get(*path)) is not None:
                try:
                    made[key] = write(parse_quantity(value))
                except ValueError as error:
                    self.problem(path, str(error))
        return made

    def command(self, path: tuple[str, ...]) -> list[str] | None:
        """Return a command: a list, or one as JSON, as charts put it into a template."""
        value = self.get(*path)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                value = None
            if value is None:
                hint = 'write [python, train.py], or \'["python", "train.py"]\''
                self.problem(path, f"{_written(self.get(*path))} is not a list of words", hint)
        if value is not None and not (
            isinstance(value, list) and value and all(isinstance(word, str) for word in value)
        ):
            self.problem(path, f"{_written(value)} should be a list of words")
            return None
        return None if value is None else [literal(word) for word in value]

    def problem(self, path: tuple[str, ...], message: str, hint: str = "") -> None:
        """Add a mistake."""
        self.problems.append(self.document.problem(path, message, hint))

    def note(self, path: tuple[str, ...], text: str) -> None:
        """Add a note of a key that is ignored."""
        self.notes.append(ConversionNote(dotted(path), "ignored", text))

    def origin(self, scenario: KeyPath, path: tuple[str, ...]) -> None:
        """Say where a value of the scenario comes from."""
        self.origins[scenario] = SourceLocation(self.document.place(path), dotted(path))

    def check(self, table: Table) -> None:
        """Add what is wrong with the keys, and what is made of them otherwise than in a cluster.

        Raises ScenarioError with all that is wrong.
        """
        self._check(table, self.document.data, ())
        if self.problems:
            raise ScenarioError(list(dict.fromkeys(self.problems)))

    def _check(self, table: Table, data: Mapping[str, Any], path: tuple[str, ...]) -> None:
        depth = len(path)
        here = [key for key in table if len(key.steps) > depth and _begins(key, path)]
        names = {name for key in here for name in key.steps[depth] if name != "*"}
        for name, value in data.items():
            fitting = [key for key in here if {name, "*"} & {*key.steps[depth]}]
            exact = next((key for key in fitting if len(key.steps) == depth + 1), None)
            if exact is not None:
                is_said = exact.how == "ignored" and not exact.quiet
                if is_said and value not in (None, False, "", [], {}):
                    self.note((*path, name), exact.text)
            elif fitting and isinstance(value, dict):
                self._check(table, value, (*path, name))
            elif fitting and value is not None:
                message = f"{_written(value)} should be a mapping of keys and values"
                self.problem((*path, name), message)
            elif not fitting and (hint := closest(name, names - data.keys())):
                self.problem((*path, name), "unknown key", hint)
            elif not fitting and value not in (None, False, "", [], {}):
                self.note((*path, name), UNKNOWN)


def _begins(key: Key, path: tuple[str, ...]) -> bool:
    return all({name, "*"} & {*names} for name, names in zip(path, key.steps, strict=False))


def literal(text: str) -> str:
    """Return a text of a container as a scenario writes it; there, `${name}` would be a value."""
    return written(expand(text, {}))


def _written(value: object) -> str:
    return shown(json.dumps(value, default=str) if not isinstance(value, str) else repr(value), 80)
