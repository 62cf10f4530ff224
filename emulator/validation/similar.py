"""What a misspelt name was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST_WORD = 60
"""Characters of a word for which a similar one is suggested; comparing takes quadratic time."""


def nearest(word: str, options: Iterable[str]) -> str:
    """Return the most similar option, or empty text."""
    import difflib  # a command that is right does without it

    options = [option for option in options if len(option) <= LONGEST_WORD]
    close = difflib.get_close_matches(word, options, n=1) if len(word) <= LONGEST_WORD else []
    return close[0] if close else ""


def closest(word: str, options: Iterable[str]) -> str:
    """Return "did you mean ...?" with the most similar option, or empty text."""
    near = nearest(word, options)
    return f"did you mean '{near}'?" if near else ""


def suggestion(word: str, options: Iterable[str], title: str) -> str:
    """Return the hint of an error: the option that was meant, and all of them behind `title`."""
    names = list(options)
    near = nearest(word, names)
    return (f"Did you mean '{near}'? " if near else "") + f"{title}: {', '.join(names)}."
