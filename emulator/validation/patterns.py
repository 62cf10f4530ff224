r"""Regular expressions of users over task output: each search has a limit of time.

They are those of Python's `re`, but searched by the package `regex`, which can give a search up.
Who gets `TooSlow` uses the pattern no more.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import regex

LENGTH = 1000
"""Characters of a pattern."""
LINE = 2**20
"""Characters of a line that are searched."""
TIMEOUT = 1.0
"""Seconds of CPU time of one search."""


class TooSlow(Exception):
    """A search has taken too long."""

    def __init__(self, pattern: str) -> None:
        super().__init__(pattern)
        self.pattern = pattern


class Pattern:
    """A regular expression. Raises ValueError with the reason if it is invalid.

    Searches the first `LINE` characters of a line. Raises TooSlow.
    """

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH:
            raise ValueError(
                f"a regular expression has at most {LENGTH} characters, not {len(text)}"
            )
        try:
            text.encode()
            self._compiled = regex.compile(text, regex.V0)
        except UnicodeEncodeError:
            raise ValueError(f"{text!r} contains half of a character") from None
        except (regex.error, ValueError) as error:  # ValueError: two flags exclude each other
            raise ValueError(f"{text!r} is not a regular expression: {error}") from None
        except RecursionError:
            raise ValueError(f"{text!r} has too many groups within groups") from None
        self.text = text
        self.groupindex: Mapping[str, int] = self._compiled.groupindex
        """Named groups with their numbers, as those of `re`."""

    def search(self, line: str) -> regex.Match[str] | None:
        """Return the first match. Raises TooSlow."""
        try:
            return self._compiled.search(line[:LINE], timeout=TIMEOUT)
        except TimeoutError:
            raise TooSlow(self.text) from None


@functools.lru_cache(maxsize=256)
def compiled(text: str) -> Pattern:
    """Return a cached pattern. Raises ValueError."""
    return Pattern(text)
