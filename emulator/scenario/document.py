"""Parsing of a scenario's YAML into plain data with line numbers (pure).

YAML allows more than a scenario needs: tags that create objects, aliases that expand to a million
values, keys that are dates. This parser accepts text, numbers, lists and mappings with text keys,
within the limits of `emulator/validation/limits.py`; anything else is an error with its line.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.reader import ReaderError

from emulator.errors import shown
from emulator.validation.limits import DEPTH, SCENARIO_BYTES, VALUES
from emulator.validation.units import format_size

KeyPath = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_LARGEST = 2**63 - 1
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters except tab and newline, and lone surrogates."""
_SURROGATE_PAIR = re.compile(r"[\ud800-\udbff][\udc00-\udfff]")


@dataclass(frozen=True)
class Mistake:
    """An invalid value or key in a document."""

    path: KeyPath
    line: int
    message: str
    hint: str = ""


@dataclass
class Document:
    """A parsed text."""

    data: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    """The line of every key and list entry."""
    mistakes: list[Mistake] = field(default_factory=list)
    line: int = 1
    """Where it begins."""


class ParseError(Exception):
    """A text can't be parsed: the reason, and the line (0: unknown)."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def read(text: str) -> Document:
    """Parse a text. Raises ParseError."""
    try:
        return _read(text, _FastLoader)
    except (ParseError, yaml.YAMLError, ValueError):
        return _read(text, _Loader)  # whose errors have better words


def _read(text: str, kind: _Kind) -> Document:
    loader, root = _compose(text, kind)
    if root is not None:
        loader.document.data = loader.build(root, ())
    return loader.document


def read_all(text: str, most: int = SCENARIO_BYTES) -> list[Document]:
    """Parse a text of any number of documents, `---` between them; empty ones are left out.

    `most`: characters of the text. Raises ParseError.
    """
    try:
        return _read_all(text, most, _FastLoader)
    except (ParseError, yaml.YAMLError, ValueError):
        return _read_all(text, most, _Loader)


def _read_all(text: str, most: int, kind: _Kind) -> list[Document]:
    with _parse_errors(text, most, kind) as loader:
        roots: list[yaml.Node] = []
        while loader.check_node():
            roots += filter(None, [loader.get_node()])
    documents = []
    for root in roots:
        loader.document = Document(line=root.start_mark.line + 1)
        loader.document.data = loader.build(root, ())
        if loader.document.data is not None or loader.document.mistakes:
            documents.append(loader.document)
    return documents


def value(text: str, key: str = "") -> Any:  # noqa: ANN401  YAML
    """Return the value of a text. Raises ParseError, also for a mistake in it.

    `key` is the dotted one that has the value, for the mistake.
    """
    try:
        document = read(text)
    except ParseError as error:
        raise ParseError(error.line, f"the value is not YAML: {error}") from None
    for mistake in document.mistakes:
        where = ".".join(filter(None, (key, *map(str, mistake.path))))
        raise ParseError(mistake.line, shown(": ".join(filter(None, (where, mistake.message)))))
    return document.data


def split_list(text: str) -> list[str]:
    """Return the entries of a YAML list without brackets, `a, {b: c}`, each as it is written.

    Raises ParseError.
    """
    _, root = _compose(f"[{text}]", _Loader)
    if not isinstance(root, yaml.SequenceNode):
        raise ParseError(1, "unbalanced brackets")
    if text.rstrip().endswith(","):
        raise ParseError(1, "an empty value at the end")
    return [text[n.start_mark.index - 1 : n.end_mark.index - 1].strip() for n in root.value]


def _compose(text: str, kind: _Kind) -> tuple[_Nodes, yaml.Node | None]:
    """Return the root node of a text and its loader. Raises ParseError."""
    with _parse_errors(text, SCENARIO_BYTES, kind) as loader:
        return loader, loader.get_single_node()


@contextlib.contextmanager
def _parse_errors(text: str, most: int, kind: _Kind) -> Iterator[_Nodes]:
    """Yield a loader of a text; turn the errors of the parser into ParseError."""
    if len(text) > most:
        raise ParseError(0, f"it has more than {format_size(most)}")
    loader = None
    try:
        loader = kind(text)
        yield loader
    except ReaderError as error:
        message = f"the character #x{int(error.character):04x} is not allowed"
        raise ParseError(text.count("\n", 0, error.position) + 1, message) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = str(error.problem)
        # In a list in brackets or a mapping in braces, YAML takes the brace for one of its own.
        if mark and text.startswith("${", mark.index - 1):
            reason += '; text with ${ is written in quotes here, such as "--rank=${rank}"'
        raise ParseError(mark.line + 1 if mark else 0, reason) from None
    except ValueError as error:  # an escape beyond Unicode, a version of thousands of digits
        raise ParseError(loader.line + 1 if loader else 0, str(error)) from None


_Pair = tuple[str, yaml.ScalarNode, yaml.Node]


class _Nodes(Composer):
    """Composes nodes, and builds data from them with aliases expanded; both within the limits."""

    line: int
    peek_event: Callable[[], Any]

    def __init__(self) -> None:
        Composer.__init__(self)
        self.document = Document()
        self._composed = self._depth = 0
        self._built = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:  # noqa: ANN401
        """Compose the next node with its children."""
        event = self.peek_event()
        line = event.start_mark.line + 1
        tag = getattr(event, "tag", None)
        if tag not in (None, "!", f"{_TAG}str"):
            shown = tag.replace(_TAG, "!!")
            raise ParseError(line, f"the tag {shown!r} is not allowed; leave it out")
        self._composed += 1
        _check_limits(self._composed, self._depth, line)
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def build(self, node: yaml.Node, path: KeyPath) -> Any:  # noqa: ANN401  YAML
        """Return the data of a node. Raises ParseError."""
        self._enter(node)
        made: Any
        match node:
            case yaml.MappingNode():
                made = {}
                for name, key, inner in self._pairs(node, path):
                    self.document.lines[*path, name] = key.start_mark.line + 1
                    made[name] = self.build(inner, (*path, name))
            case yaml.SequenceNode():
                made = []
                for index, inner in enumerate(node.value):
                    self.document.lines[*path, index] = inner.start_mark.line + 1
                    made.append(self.build(inner, (*path, index)))
            case _:
                made = self._scalar(node, path)
        self._depth -= 1
        return made

    def _enter(self, node: yaml.Node) -> None:
        self._built += 1
        _check_limits(self._built, self._depth, node.start_mark.line + 1)
        self._depth += 1

    def _pairs(self, node: yaml.MappingNode, path: KeyPath) -> Iterator[_Pair]:
        """Yield the keys of a mapping with their values, merged ones (`<<`) first."""
        own: dict[str, _Pair] = {}
        for key, inner in node.value:
            if key.tag == f"{_TAG}merge":
                yield from self._merged(inner, path)
            elif not isinstance(key, yaml.ScalarNode) or not _is_text(key):
                shown = (*path, key.value or "null") if isinstance(key, yaml.ScalarNode) else path
                self._note(shown, key, _key_error(key), "write it in quotes")
            else:
                self._built += 1
                name = self._text(key, (*path, key.value))
                if name in own:
                    message = "is given twice; only the last one would count"
                    self._note((*path, name), key, message)
                own[name] = name, key, inner
        yield from own.values()

    def _merged(self, node: yaml.Node, path: KeyPath) -> Iterator[_Pair]:
        """Yield the pairs of `<<`: of several mappings, the first with a key counts."""
        self._enter(node)
        match node:
            case yaml.MappingNode():
                yield from self._pairs(node, path)
            case yaml.SequenceNode():
                for inner in reversed(node.value):
                    if isinstance(inner, yaml.MappingNode):
                        yield from self._merged(inner, path)
                    else:
                        self._note(path, inner, "`<<` takes mappings")
            case _:
                self._note(path, node, "`<<` takes a mapping, such as `<<: *base`")
        self._depth -= 1

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:  # noqa: ANN401  YAML
        kind = node.tag.removeprefix(_TAG)
        if kind not in ("int", "float", "timestamp", "bool", "null"):
            return self._text(node, path)
        try:
            made = getattr(self, f"construct_yaml_{kind}")(node)
        except (ValueError, OverflowError) as error:  # 30 February
            raise ParseError(node.start_mark.line + 1, str(error)) from None
        if kind == "int" and not -_LARGEST - 1 <= made <= _LARGEST:
            hint = f'if it is text, write "{node.value}" in quotes'
            self._note(path, node, "a whole number of more than 64 bits", hint)
            return node.value
        return made

    def _text(self, node: yaml.Node, path: KeyPath) -> str:
        """Return the text with surrogate pairs joined; note control characters as mistakes."""
        text: str = _SURROGATE_PAIR.sub(
            lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), node.value
        )
        if control := _CONTROL.search(text):
            what = "half of a character" if control[0] >= "\ud800" else "a control character"
            message = f"contains {what}, {control[0]!r}"
            self._note(path, node, message, "leave it out")
            return _CONTROL.sub("?", text)
        return text

    def _note(self, path: KeyPath, node: yaml.Node, message: str, hint: str = "") -> None:
        self.document.mistakes.append(Mistake(path, node.start_mark.line + 1, message, hint))


class _Loader(_Nodes, yaml.SafeLoader):
    """Parses in Python: its errors say more."""

    def __init__(self, text: str) -> None:
        yaml.SafeLoader.__init__(self, text)
        _Nodes.__init__(self)


_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _FastLoader(_Nodes, _PARSER):  # type: ignore[misc]
    """Parses with libyaml, where PyYAML has it: in a fifth of the time, to the same nodes."""

    def __init__(self, text: str) -> None:
        _PARSER.__init__(self, text)
        _Nodes.__init__(self)


_Kind = Callable[[str], _Nodes]


def _check_limits(count: int, depth: int, line: int) -> None:
    """Raise ParseError if there are too many values, or nested too deeply."""
    if count > VALUES:
        raise ParseError(
            line, f"it has more than {VALUES:,} keys and values, with aliases expanded"
        )
    if depth >= DEPTH:
        raise ParseError(line, f"nested too deeply: {DEPTH} lists and mappings are the most")


def _is_text(key: yaml.ScalarNode) -> bool:
    """Return whether a key is text, as our key `on` is in YAML 1.2: PyYAML takes it for true."""
    return key.tag == f"{_TAG}str" or key.value == "on"


def _key_error(key: yaml.Node) -> str:
    """Return why a node can't be a key (pure)."""
    match key:
        case yaml.MappingNode():
            return "a mapping can't be a key"
        case yaml.SequenceNode():
            return "a list can't be a key"
    return f"the key {key.value or 'null'} is not text"
