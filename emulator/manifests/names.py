"""Names of scenarios from those of other tools (pure)."""

from __future__ import annotations

import re
from pathlib import PurePath

LONGEST = 40
"""Characters of the name of a scenario."""


def as_name(text: object) -> str:
    """Return a text as the name of a scenario; empty if nothing is left of it."""
    safe = re.sub(r"[^a-z0-9]+", "-", text.lower()) if isinstance(text, str) else ""
    return re.sub(r"^[^a-z]+", "", safe)[:LONGEST].strip("-")


def stem_of(file: str) -> str:
    """Return the name of a file up to its first dot: of `shards.values.yaml`, `shards`."""
    return PurePath(file).name.partition(".")[0]
