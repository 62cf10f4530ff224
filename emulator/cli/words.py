"""What commands of docker, compose and kubectl are called here."""

from __future__ import annotations

from collections.abc import Collection, Mapping

OURS: Mapping[str, str] = {
    **dict.fromkeys(("run", "start", "create", "apply", "deploy"), "up"),
    **dict.fromkeys(("stop", "rm", "remove", "delete"), "down"),
    **dict.fromkeys(("ls", "list", "history"), "runs"),
    **dict.fromkeys(("status", "get", "describe", "inspect"), "ps"),
    **dict.fromkeys(("stats", "watch"), "top"),
    **dict.fromkeys(("unpause", "uncordon"), "heal"),
    **dict.fromkeys(("config", "validate", "lint"), "plan"),
    **{"scale": "up --set cluster.worker=N", "evict": "preempt", "prune": "clean"},
    **{"log": "logs", "events": "report", "diff": "compare", "info": "doctor", "new": "init"},
}
"""Words of others, and the command that does it. Kinds of faults are commands of `fault`."""

REMOVED: Mapping[str, str] = {
    "ui": "For a run under way: `emulate top`; for one that is over: `emulate report RUN --open`.",
}
"""Commands that an earlier version had, and what to use instead."""


def command_for(word: str, commands: Collection[str]) -> str:
    """Return the command that a word from elsewhere means here; empty if there is none (pure).

    `commands` are the commands that there are: none of them is replaced.
    """
    if word in commands:
        return ""
    from emulator.faults.kinds import FAULTS

    return f"fault {word}" if word in FAULTS else OURS.get(word, "")
