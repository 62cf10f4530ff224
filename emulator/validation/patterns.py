r"""Regular expressions over task output, searched in time linear in the line's length.

Python's `re` backtracks and may need exponential time for some lines. RE2 reads each byte of a line
once. In return it has no lookaround and no backreferences, and `\d`, `\w`, `\s` and `\b` match
ASCII only.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

import re2

_REASONS: Mapping[str, str] = {
    "(?=": "it looks ahead",
    "(?!": "it looks ahead",
    "(?<=": "it looks behind",
    "(?<!": "it looks behind",
    "(?P": "it refers back to a group, or a group's name is no name",
    "(?>": "it has an atomic group",
    "(?(": "it has a condition",
    "(?#": "it has a comment",
    "(?x": "it has the flag x",
}
"""Features that RE2 lacks, by the operator in its error message."""
_AT_MOST = re.compile(r"\{,[0-9]*\}")


def _options(*, groups: bool) -> re2.Options:
    options = re2.Options()
    options.log_errors = False  # else RE2 writes them to stderr
    options.never_capture = not groups
    return options


_GROUPS, _NO_GROUPS = _options(groups=True), _options(groups=False)


class Pattern:
    """A regular expression. Raises ValueError with the reason if it is invalid or too large."""

    def __init__(self, text: str, *, groups: bool = True) -> None:
        if counted := _AT_MOST.search(text):
            raise ValueError(f"write {{0,...}} for {counted[0]} in {text!r}")
        try:
            compiled_text = re2.compile(text.encode(), _GROUPS if groups else _NO_GROUPS)
        except UnicodeEncodeError:
            raise ValueError(f"{text!r} contains half of a character") from None
        except re2.error as error:
            raise ValueError(_refusal(text, error)) from None
        self._search = compiled_text.search
        self.names: Mapping[str, int] = {
            name.decode("utf-8", "replace"): number
            for name, number in compiled_text.groupindex.items()
        }
        """Named groups with their numbers."""

    def search(self, line: str) -> Sequence[str | None] | None:
        """Return the groups of the first match by number, or None if there is no match.

        A group that did not participate in the match is None.
        """
        match = self._search(line.encode("utf-8", "replace"))
        if match is None:
            return None
        groups: Sequence[bytes | None] = (match[0], *match.groups())
        return [None if one is None else one.decode("utf-8", "replace") for one in groups]

    def matches(self, line: str) -> bool:
        """Return whether it matches anywhere in the line."""
        return self._search(line.encode("utf-8", "replace")) is not None


@functools.lru_cache(maxsize=256)
def compiled(text: str) -> Pattern:
    """Return a cached pattern without groups. Raises ValueError."""
    return Pattern(text, groups=False)


def _refusal(text: str, error: Exception) -> str:
    """Return why a text is not a valid pattern (pure)."""
    raw = error.args[0] if error.args else b""
    why = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)
    kind, _, culprit = why.partition(": ")
    lacking = "; RE2, which never hangs, has no such thing"
    if kind == "invalid perl operator":
        return f"{text!r} is not a regular expression: {_REASONS.get(culprit, why)}{lacking}"
    if kind == "invalid escape sequence" and culprit[1:].isdigit():
        return f"{text!r} is not a regular expression: it refers back to a group{lacking}"
    if kind.startswith("pattern too large"):
        return f"{text!r} is too large a regular expression; write fewer or smaller repetitions"
    return f"{text!r} is not a regular expression: {why}"
