"""How a task asks for the hook inside it (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

HOOK = Path(__file__).with_name("hook")
"""The folder that is in the PYTHONPATH of a task which has the hook."""
VARIABLE, ASKED = "EMULATE_INSIDE", "1"
"""The variable by which a scenario asks for it, and its value."""


def asks_for_hook(env: Mapping[str, str]) -> bool:
    """Return whether a task with these variables asks for the hook."""
    return env.get(VARIABLE) == ASKED
