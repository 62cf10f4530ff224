"""Scenarios of a shell, which run anywhere in no time."""

from __future__ import annotations

from typing import Any

STEPS = """\
for n in 1 2 3 4 5; do echo '{"emulate": "step", "step": '$n', "loss": 0.'$((9 - n))'}'; done
"""
FOREVER = STEPS + "while :; do sleep 1; done\n"
"""Ends only when it is ended."""


def shell(script: str = STEPS, **keys: Any) -> dict[str, Any]:
    """Return a scenario of one worker, which runs a script; `keys` are added."""
    return {
        "name": "shell",
        "framework": "none",
        "image": "none",
        "program": {"command": ["sh", "-c", script]},
        "cluster": {"worker": 1},
        **keys,
    }
