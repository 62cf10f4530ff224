"""Variables in the text of a manifest, `$(NAME)`, and text of a manifest in a scenario (pure).

Kubernetes replaces `$(NAME)` in commands, arguments and the values of variables; `$$` is a dollar,
and a name that is not known stays as it is. In a scenario, `${name}` is a value of the task.
Source: k8s.io/kubernetes/third_party/forked/golang/expansion, `Expand`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Value:
    """A value of the task, as in a scenario."""

    name: str
    """Without the dollar and the braces."""


Text = tuple[str | Value, ...]
"""Text with values between; no two pieces of text are next to each other."""

_TOKEN = re.compile(r"\$\$|\$\(([^)]*)\)")


def expand(text: str, known: Mapping[str, Text]) -> Text:
    """Return a text with the variables that are known."""
    pieces, at = list[str | Value](), 0
    for found in _TOKEN.finditer(text):
        pieces.append(text[at : found.start()])
        at = found.end()
        if found[1] is None:
            pieces.append("$")
        else:
            pieces += known.get(found[1], (found[0],))
    return _joined([*pieces, text[at:]])


def _joined(pieces: list[str | Value]) -> Text:
    joined: list[str | Value] = []
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        else:
            joined.append(piece)
    return tuple(joined)


def written(text: Text) -> str:
    """Return a text as a scenario writes it, where `$${` is the text `${`.

    Raises ValueError if it can't be written: a dollar right before a value would be part of it.
    """
    pieces = []
    for number, piece in enumerate(text):
        if isinstance(piece, Value):
            pieces.append(f"${{{piece.name}}}")
            continue
        if piece.endswith("$") and number < len(text) - 1:
            raise ValueError("has a dollar right before a variable, which can't be said here")
        pieces.append(piece.replace("${", "$${"))
    return "".join(pieces)


def plain(text: str) -> Text:
    """Return a text without variables."""
    return (text,)
