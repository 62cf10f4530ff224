"""What commands of docker, compose and kubectl are called here, and what replaces options."""

from __future__ import annotations

from collections.abc import Collection, Mapping

OURS: Mapping[str, str] = {
    **dict.fromkeys(("run", "start", "create", "apply", "deploy"), "up"),
    **dict.fromkeys(("stop", "rm", "remove", "delete"), "down"),
    **dict.fromkeys(("ls", "list", "history"), "runs"),
    **dict.fromkeys(("status", "get", "describe", "inspect"), "ps"),
    **dict.fromkeys(("stats", "watch"), "top"),
    **dict.fromkeys(("unpause", "uncordon", "resume"), "heal"),
    **dict.fromkeys(("config", "validate", "lint"), "plan"),
    **{"scale": "up --set cluster.worker=N", "evict": "preempt", "prune": "clean"},
    **{"suspend": "fault pause '*'"},
    **{"log": "logs", "events": "report", "diff": "compare", "info": "doctor", "new": "init"},
}
"""Words of others, and the command that does it. Kinds of faults are commands of `fault`."""

_MANIFESTS = (
    "a scenario, or a manifest, runs on Kubernetes as it is (`emulate up FILE --engine "
    "kubernetes`), and `emulate plan FILE --json` shows each task with its container"
)
_UI = "a run under way is shown by `emulate top`, one that is over by `emulate report RUN --open`"
REMOVED: Mapping[tuple[str, str], str] = {
    **{("export", one): _MANIFESTS for one in ("--to", "--output", "-o", "--image", "--set")},
    ("convert", "--to"): _MANIFESTS,
    **{
        (one, "--with"): "put all documents of a manifest into one file"
        for one in ("up", "plan", "convert")
    },
    ("ui", ""): _UI,
    ("up", "--ui"): _UI,
    ("init", "--from"): "`emulate init FOLDER --framework NAME` writes a program of each framework",
}
"""What to do instead of an option, or a command (its option is empty), that there was."""


def command_for(word: str, commands: Collection[str]) -> str:
    """Return the command that a word from elsewhere means here; empty if there is none (pure).

    `commands` are the commands that there are: none of them is replaced.
    """
    if word in commands:
        return ""
    from emulator.faults.kinds import FAULTS

    return f"fault {word}" if word in FAULTS else OURS.get(word, "")
