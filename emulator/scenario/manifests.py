"""The documents of a file, YAML or JSON, and what a format of manifests makes of them (pure).

Each value has its line; templates are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from emulator.errors import Problem, ScenarioError, shown
from emulator.scenario import document as yaml_document
from emulator.scenario.document import KeyPath, ParseError
from emulator.validation.limits import DOCUMENTS, MANIFEST_BYTES

RENDER = "render it first, such as with `helm template`, and give the result"
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+|\*")
_JSON_TEXT_OR_TAB = re.compile(r'"(?:[^"\\]|\\.)*+"|\t', re.DOTALL)
_TEMPLATE = re.compile(r"\{\{.{0,200}")
# In a program that is written into a manifest, two braces may be its own.
_GO_TEMPLATE = re.compile(
    r"\{\{-?\s*(?:[.$][A-Za-z]|/\*|(?:if|else|end|range|with|define|include|template|block|toYaml)\b)"
    r".{0,200}"
)
_VERBATIM = ("ConfigMap", "Secret")
_FILES = ("data", "stringData", "binaryData")
"""Of these kinds: the files of the user, which may contain anything."""


@dataclass(frozen=True)
class Document:
    """One document of a file."""

    file: str
    data: Any
    lines: Mapping[KeyPath, int]
    """The line of every key and list entry."""
    line: int = 1
    """Where it begins."""

    def place(self, path: KeyPath = ()) -> str:
        """Return `file:line` of a value, or of its closest parent that is there."""
        ends = range(len(path), 0, -1)
        line = next((self.lines[path[:end]] for end in ends if path[:end] in self.lines), self.line)
        return f"{self.file}:{line}"

    def problem(self, path: KeyPath, message: str, hint: str = "") -> Problem:
        """Return a mistake at a path, which is shown in Kubernetes' notation."""
        return Problem(self.place(path), self.written(path), message, hint)

    def written(self, path: KeyPath) -> str:
        """Return a path as messages have it, in Kubernetes' notation."""
        return dotted(path)

    def get(self, *path: str | int) -> Any:  # noqa: ANN401  YAML
        """Return the value at a path; None if there is none, whatever else is there."""
        found = self.data
        for step in path:
            is_there = isinstance(found, dict) and step in found
            if not is_there and not (
                isinstance(found, list) and isinstance(step, int) and 0 <= step < len(found)
            ):
                return None
            found = found[step]
        return found


def dotted(path: KeyPath) -> str:
    """Return a path in Kubernetes' notation: `containers[0].name`, `annotations[a.b/c]`."""
    text = ""
    for step in path:
        if isinstance(step, int) or not _PLAIN_KEY.fullmatch(step):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def read_documents(text: str, file: str) -> tuple[Document, ...]:
    """Parse a file. Raises ScenarioError with all mistakes, each with its line and path."""
    try:
        found = yaml_document.read_all(_without_tabs(text), MANIFEST_BYTES)
    except ParseError as error:
        raise ScenarioError([_unreadable(text, file, error)]) from None
    documents = tuple(Document(file, one.data, one.lines, one.line) for one in found)
    if len(documents) > DOCUMENTS:
        at = documents[DOCUMENTS]
        raise ScenarioError([at.problem((), f"has more than {DOCUMENTS} documents")])
    problems = [one for document in documents for one in _templates(document)]
    if not problems:
        problems = [
            Problem(f"{file}:{one.line}", dotted(one.path), one.message, one.hint)
            for parsed in found
            for one in parsed.mistakes
        ]
        # A template that is not in quotes is a mapping with a mapping as its key.
        lines = {mistake.line for parsed in found for mistake in parsed.mistakes}
        if template := _first_template(text, file, lines):
            problems = [template]
    if problems:
        raise ScenarioError(problems)
    return documents


def _message(template: str) -> str:
    whole = "".join(template.partition("}}")[:2])
    return f"{shown(whole, 60)} is a template, which the emulator does not render"


def _without_tabs(text: str) -> str:
    """Replace the tabs of JSON, where they only indent; YAML allows none there."""
    if text.lstrip()[:1] not in ("{", "[") or "\t" not in text:
        return text
    return _JSON_TEXT_OR_TAB.sub(lambda found: " " if found[0] == "\t" else found[0], text)


def _unreadable(text: str, file: str, error: ParseError) -> Problem:
    """Return why a file can't be parsed, which is often a template before the place."""
    if template := _first_template(text, file, range(error.line + 1)):
        return template
    place = f"{file}:{error.line}" if error.line else file
    return Problem(place, "", f"not valid YAML: {error}")


def _first_template(text: str, file: str, lines: Container[int]) -> Problem | None:
    for number, line in enumerate(text.splitlines(), 1):
        if number in lines and (found := _TEMPLATE.search(line.partition(" #")[0])):
            return Problem(f"{file}:{number}", "", _message(found[0]), RENDER)
    return None


def _templates(document: Document) -> Iterator[Problem]:
    has_files = document.get("kind") in _VERBATIM
    for path, text in _texts(document.data, ()):
        if has_files and path[0] in _FILES:
            continue
        pattern = _GO_TEMPLATE if "\n" in text.strip() else _TEMPLATE
        if "{{" in text and (found := pattern.search(text)):
            yield document.problem(path, _message(found[0]), RENDER)


def _texts(data: object, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    match data:
        case str():
            yield path, data
        case dict():
            for key, value in data.items():
                yield from _texts(value, (*path, key))
        case list():
            for index, value in enumerate(data):
                yield from _texts(value, (*path, index))


# --- Formats --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConversionNote:
    """A field that does not do here all that it does in a cluster."""

    path: str
    """In Kubernetes' notation: `spec.runPolicy.schedulingPolicy`."""
    how: Literal["approximated", "ignored"]
    text: str
    """What is done instead, or why nothing is."""

    def __str__(self) -> str:
        return f"{self.path} is {self.how}: {self.text}"


@dataclass(frozen=True)
class SourceLocation:
    """Where a value of the converted scenario comes from."""

    place: str
    """`file:line`."""
    path: str
    """In Kubernetes' notation."""


def located(
    document: Document, origins: Mapping[KeyPath, KeyPath], cluster: Mapping[str, Any]
) -> dict[KeyPath, SourceLocation]:
    """Return where the values of a scenario are from, by their paths in it.

    `origins` has their paths in the document. What the first role of `cluster` has is also that of
    all roles, where it is said for all at once.
    """
    places = dict(origins)
    first = next(iter(cluster))
    for path, place in origins.items():
        if path[:2] == ("cluster", first) and len(path) > 2:
            for above in ((), ("program",)):
                places.setdefault((*above, *path[2:]), place)
    return {
        path: SourceLocation(document.place(place), document.written(place))
        for path, place in places.items()
    }


@dataclass(frozen=True)
class Conversion:
    """A scenario as plain YAML data, and what of the manifest is not in it."""

    scenario: dict[str, Any]
    notes: tuple[ConversionNote, ...] = ()
    origins: Mapping[KeyPath, SourceLocation] = field(default_factory=dict)
    """By path in the scenario; a value without one comes from its closest parent's."""


IMAGES = "image"
"""The option that every format knows: container name, role or reference -> the image to use."""
OptionValues = Mapping[str, Mapping[str, str]]
"""What options of plug-ins say of a manifest: by the option's name, value by key."""


@dataclass(frozen=True)
class Format:
    """One format."""

    name: str
    """As users know it: `TFJob`."""
    recognises: Callable[[Sequence[Document]], bool]
    """Whether a file is meant to be of this format, even with mistakes in it."""
    convert: Callable[[Sequence[Document], OptionValues], Conversion]
    """Make the scenario. Raises ScenarioError with all mistakes of the manifest."""


@dataclass(frozen=True)
class Manifests:
    """What a plug-in reads."""

    formats: Sequence[Format]
    """In the order in which they are tried."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """Kinds of the same system that can't run, and what to write instead."""
