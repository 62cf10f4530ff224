"""Texts that differ between the tasks of a role, as one text of a pod template (pure).

All pods of a role come from one template, so what differs must be made from the pod's index:
Kubernetes replaces `$(NAME)` in commands and variables by a variable that was set before.
Source: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

INDEX = "EMULATOR_INDEX"
"""The variable with the index of a pod."""
_DIGITS = re.compile(r"([0-9]+)")
_DOLLAR = re.compile(r"\$(?=[$(]|$)")


class Different(Exception):
    """Texts of tasks differ in more than numbers that follow the index."""


@dataclass(frozen=True)
class Template:
    """A text with numbers that follow from the index of a task."""

    pieces: tuple[str | int, ...]
    """Text, and for a number what is added to the index."""

    @property
    def is_constant(self) -> bool:
        """Whether all tasks have the same text."""
        return all(isinstance(piece, str) for piece in self.pieces)

    @property
    def computes(self) -> bool:
        """Whether it needs more than the index itself, which only a shell can add."""
        return any(isinstance(piece, int) and piece for piece in self.pieces)

    @property
    def text(self) -> str:
        """The text for Kubernetes. Only for one that does not compute."""
        assert not self.computes
        return "".join(
            escaped(piece) if isinstance(piece, str) else f"$({INDEX})" for piece in self.pieces
        )

    @property
    def word(self) -> str:
        """The text as one word of a shell's script."""
        words = [
            shlex.quote(piece) if isinstance(piece, str) else f'"$(({INDEX} + {piece}))"'
            for piece in self.pieces
        ]
        return "".join(words) or "''"


def template(texts: Sequence[str]) -> Template:
    """Return what the texts of tasks 0, 1, ... have in common. Raises Different."""
    if len(set(texts)) == 1:
        return Template((texts[0],))
    rows = [_DIGITS.split(text) for text in texts]
    if len({len(row) for row in rows}) > 1:
        raise Different
    pieces: list[str | int] = []
    for number, column in enumerate(zip(*rows, strict=True)):
        piece: str | int
        if len(set(column)) == 1:
            piece = column[0]
        elif number % 2 and (added := _added(column)) is not None:
            piece = added
        else:
            raise Different
        if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
            pieces[-1] += piece
        elif piece != "":
            pieces.append(piece)
    return Template(tuple(pieces))


def _added(column: Sequence[str]) -> int | None:
    """Return what is added to the index in each text; None: it is not that."""
    added = int(column[0])
    return added if all(text == str(n + added) for n, text in enumerate(column)) else None


def escaped(text: str) -> str:
    """Return a text in which Kubernetes replaces nothing: `$(` and `$$` are written with `$$`."""
    return _DOLLAR.sub("$$", text)


def script(variables: Mapping[str, Template], command: Sequence[Template]) -> str:
    """Return the script of a shell that sets variables and becomes the command."""
    exports = "".join(f"export {name}={value.word}; " for name, value in variables.items())
    words = " ".join(word.word for word in command)
    return escaped(f"{exports}exec {words}")
