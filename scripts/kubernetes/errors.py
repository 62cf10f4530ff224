"""What goes wrong, for people."""

from __future__ import annotations


class Problem(Exception):
    """One sentence that says what is in the way, and what to do about it."""
