"""What waits for a warm run: the state in a folder of its own, in the user's cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

STATE = "waiting.json"


def state_of(folder: Path) -> dict[str, Any] | None:
    """Return the state of a cluster that waits for a run; None if it does not."""
    try:
        state = json.loads((folder / STATE).read_text())
        return dict(state) if {"key", "session", "until", "waiting"} <= state.keys() else None
    except (OSError, ValueError, AttributeError):
        return None


def waits_until(folder: Path) -> float:
    """Return until when a cluster waits, in seconds since 1970; 0 if it does not."""
    state = state_of(folder)
    return float(state["until"]) if state else 0.0
