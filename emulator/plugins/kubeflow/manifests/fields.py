"""A strict reader of manifests: which fields there are, and what is made of each (pure).

`kubernetes_fields.py` has the fields, as data: docs/reference/manifests.md is made of the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from emulator.errors import Problem, ScenarioError, shown
from emulator.scenario.document import KeyPath
from emulator.scenario.manifests import ConversionNote, Document
from emulator.validation.quantities import parse_quantity
from emulator.validation.similar import closest

How = Literal["honoured", "approximated", "ignored"]
LARGEST = 2**31 - 1
"""Of a whole number."""


@dataclass(frozen=True)
class Field:
    """A field of an object."""

    shape: str
    """What it is: `text`, `integer`, `boolean`, `quantity`, `anything`, or the name of an object.

    In brackets a list of these, in braces a mapping of names to these: `[Container]`, `{text}`.
    """
    how: How = "honoured"
    text: str = ""
    """What is done instead, or why nothing is; of an honoured field, what it does."""
    required: bool = False
    options: tuple[str, ...] = ()
    """The values of a text, if it is one of a few."""
    least: int = 0
    most: int = LARGEST
    """Of a whole number."""
    harmless: tuple[object, ...] = ()
    """Values that do the same here without the field; there is no note about them."""
    quiet: bool = False
    """There is never a note about it: a server adds it, or it says what is done anyway."""


Fields = Mapping[str, Field]


@dataclass
class Findings:
    """What is found in a document: mistakes, and fields that do not do all that they say."""

    document: Document
    mistakes: dict[tuple[KeyPath, str], str] = field(default_factory=dict)
    notes: dict[tuple[KeyPath, How, str], list[KeyPath]] = field(default_factory=dict)
    of: str = ""
    """What the document is, where it is not the job: `ConfigMap settings`."""

    def mistake(self, path: KeyPath, message: str, hint: str = "") -> None:
        """Add a mistake, unless there is one at the place or in it already."""
        if not any(known[: len(path)] == path and known != path for known, _ in self.mistakes):
            self.mistakes.setdefault((path, message), hint)

    def note(self, path: KeyPath, how: How, text: str) -> None:
        """Add a note; the same one of several replica types is one note."""
        places = self.notes.setdefault((_of_any_type(path), how, text), [])
        if path not in places:
            places.append(path)

    def ignore(self, path: KeyPath, text: str) -> None:
        """Add a note that a part is ignored, instead of all that are on fields in it."""
        for key, places in [*self.notes.items()]:
            if others := [place for place in places if place[: len(path)] != path]:
                self.notes[key] = others
            else:
                del self.notes[key]
        self.note(path, "ignored", text)

    def problems(self) -> Iterator[Problem]:
        """Yield the mistakes."""
        for (path, message), hint in self.mistakes.items():
            yield self.document.problem(path, message, hint)

    def all_notes(self) -> Iterator[ConversionNote]:
        """Yield the notes in the order of the fields."""
        for (anywhere, how, text), places in self.notes.items():
            assert how != "honoured", "there is nothing to say about it"
            path = self.document.written(places[0] if len(places) == 1 else anywhere)
            yield ConversionNote(f"{self.of}: {path}" if self.of else path, how, text)


def _of_any_type(path: KeyPath) -> KeyPath:
    """Return a path in a pod template as that of all replica types."""
    match path:
        case ("spec", str(specs), _, *rest) if specs.endswith("ReplicaSpecs"):
            return ("spec", specs, "*", *rest)
    return path


def refuse(findings: Sequence[Findings]) -> None:
    """Raise ScenarioError if there are mistakes in any of the documents."""
    problems = [problem for one in findings for problem in one.problems()]
    if problems:
        raise ScenarioError(sorted(problems, key=_line))


def _line(problem: Problem) -> tuple[int, str]:
    return int(problem.place.rpartition(":")[2]), problem.path


# --- Reading --------------------------------------------------------------------------------------


class Reader:
    """Reads objects by their fields, and keeps of them what is valid."""

    def __init__(self, objects: Mapping[str, Fields], moved: Mapping[str, str]) -> None:
        """`objects` are the fields by object; `moved` says of unknown ones where they belong."""
        self._objects, self._moved = objects, moved

    def read(self, findings: Findings, kind: str) -> dict[str, Any]:
        """Return the valid part of a document, without nulls; add what is wrong to `findings`."""
        read = self._object(findings, kind, findings.document.data, ())
        return read if isinstance(read, dict) else {}

    def _object(self, findings: Findings, kind: str, value: object, path: KeyPath) -> Any:  # noqa: ANN401
        if not isinstance(value, dict):
            findings.mistake(path, f"{_written(value)} should be a mapping of keys and values")
            return None
        fields, valid = self._objects[kind], {}
        for key, inner in value.items():
            if key not in fields:
                findings.mistake((*path, key), "unknown field", self._hint(kind, key))
            elif inner is not None:
                read = self._value(findings, fields[key], inner, (*path, key))
                if read is not None:
                    valid[key] = read
                _note(findings, fields[key], inner, (*path, key))
        missing = [key for key, one in fields.items() if one.required and value.get(key) is None]
        for key in missing:
            findings.mistake((*path, key), "is missing")
        is_whole = all(key in valid for key, one in fields.items() if one.required)
        return valid if is_whole else None

    def _hint(self, kind: str, key: str) -> str:
        if place := self._moved.get(f"{kind}.{key}"):
            return f"it belongs in {place}"
        known = sorted(self._objects[kind])
        return closest(key, known) or (f"known here: {', '.join(known)}" if len(known) < 12 else "")

    def _value(self, findings: Findings, one: Field, value: object, path: KeyPath) -> Any:  # noqa: ANN401
        """Return a value of a field if it is valid, else None."""
        bracket, inner = one.shape[0], one.shape[1:-1]
        if bracket == "[":
            if not isinstance(value, list):
                findings.mistake(path, f"{_written(value)} should be a list")
                return None
            read = [self._item(findings, one, inner, v, (*path, n)) for n, v in enumerate(value)]
            return read if None not in read else None
        if bracket == "{":
            if not isinstance(value, dict):
                findings.mistake(path, f"{_written(value)} should be a mapping of keys and values")
                return None
            made = {k: self._item(findings, one, inner, v, (*path, k)) for k, v in value.items()}
            return {key: item for key, item in made.items() if item is not None}
        return self._item(findings, one, one.shape, value, path)

    def _item(
        self, findings: Findings, one: Field, shape: str, value: object, path: KeyPath
    ) -> Any:  # noqa: ANN401
        if shape in self._objects:
            return self._object(findings, shape, value, path)
        if mistake := _mistake(one, shape, value):
            findings.mistake(path, *mistake)
            return None
        return value


def _note(findings: Findings, one: Field, value: object, path: KeyPath) -> None:
    is_said = one.how != "honoured" and not one.quiet
    if is_said and value not in (False, "", [], {}) and value not in one.harmless:
        findings.note(path, one.how, one.text)


def _written(value: object) -> str:
    return shown(json.dumps(value, default=str) if not isinstance(value, str) else repr(value))


def _mistake(one: Field, shape: str, value: object) -> tuple[str, str] | None:
    """Return what is wrong with a value that is no object of the table, and a hint."""
    match shape:
        case "text":
            if not isinstance(value, str):
                plain = value is None or isinstance(value, bool | int | float)
                hint = f'write "{_written(value)}" in quotes' if plain else ""
                return f"{_written(value)} should be text", hint
            if one.options and value not in one.options:
                known = ", ".join(option for option in one.options if option)
                return f"{value!r} is not allowed", closest(value, one.options) or f"known: {known}"
        case "integer":
            if isinstance(value, bool) or not isinstance(value, int):
                return f"{_written(value)} should be a whole number", ""
            if not one.least <= value <= one.most:
                return f"{value} should be from {one.least} to {one.most}", ""
        case "boolean" if not isinstance(value, bool):
            return f"{_written(value)} should be true or false", ""
        case "object" if not isinstance(value, dict):
            return f"{_written(value)} should be a mapping of keys and values", ""
        case "quantity":
            try:
                parse_quantity(value)
            except ValueError as error:
                return str(error), ""
    return None
