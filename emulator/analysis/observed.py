"""What the check of an invariant says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Observed:
    """The result of one invariant."""

    expected: str
    count: int
    """How many things could have violated it."""
    of: str
    """What these are, in the plural."""
    violations: Sequence[str] = ()
    """A sentence each."""
    undecided: Sequence[str] = ()
    """What may have violated it, and the record does not say; a sentence each."""
    held: str = ""
    """What is said if nothing has violated it; empty: how many did not."""
