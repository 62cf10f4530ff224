"""Signals that ended a shell and never got to the program below it (pure).

A shell that runs a program passes no signal on to it. Where a signal is for a task's own command
alone, and that is a shell, the program does not get it. Where it is for all processes, the shell
ends at once, and with it the task: it is luck if the program saves before that.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from emulator.record.events import Entry, FaultEvent, Phase, Reaction, TaskProcesses

if TYPE_CHECKING:
    from emulator.record.timeline import FaultTimeline, Timeline

SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "busybox"})
SCRIPTS = (".sh", ".bash", ".zsh")
"""How files end that a shell runs: the process of one with `#!` in its first line has its name."""
TASKS = 3
"""Tasks that a sentence names."""
LONGEST = 60
"""Characters of a command that are kept."""


def not_passed_on(timeline: Timeline) -> Sequence[str]:
    """Return sentences on each shell that did not pass a fault's signal on, and what helps."""
    seen = {
        entry.fault: entry.processes
        for entry in timeline.history
        if isinstance(entry, TaskProcesses) and entry.moment == "signal"
    }
    said: dict[str, dict[str, None]] = {}
    for fault in timeline.faults.values():
        if words := _words(timeline, fault, seen.get(fault.id, ())):
            said.setdefault(words, {})[fault.planned.target] = None
    return [f"{_several([*tasks])}: {words}" for words, tasks in said.items()]


def _words(timeline: Timeline, fault: FaultTimeline, processes: Sequence[Mapping[str, Any]]) -> str:
    """Return what became of a fault's signal; empty if no shell kept it, or that is unknown."""
    spec, stages = fault.planned.spec, fault.stages
    applied, signalled = stages.get("applied"), stages.get("triggered")
    main: Mapping[str, Any] = next((one for one in processes if one.get("main")), {})
    below = [str(one.get("name", "?")) for one in processes if not one.get("main")]
    if applied is None or signalled is None or spec.sends == "none":
        return ""
    if not (below and _is_shell(str(main.get("name", "")))):
        return ""
    command = timeline.plan.task(fault.planned.target).command
    called = f"`{_shortened(command) or main['name']}`"
    name = next((one for one in below if one.startswith("python")), below[0])
    helps = f"Write `exec {name} …` in {_script(command)}."
    if spec.to_all:
        if _is_ended(applied, spec.sends, main) and not _saved(timeline, signalled, applied):
            return (
                f"{spec.sends} ended {called}, and with it the task; `{name}` below it got the "
                f"signal too, but no time to save. {helps}"
            )
    elif applied.killed:
        # Of other faults nobody has looked for a reaction.
        if spec.replaces_target and not _has_reacted(timeline, signalled, applied):
            return (
                f"{called} ran on after {spec.sends}, until SIGKILL; nothing shows that `{name}` "
                f"below it got the signal. {helps}"
            )
    elif _is_ended(applied, spec.sends, main):
        return f"{spec.sends} ended {called}; `{name}` below it never got it. {helps}"
    return ""


def _is_shell(name: str) -> bool:
    return name in SHELLS or name.endswith(SCRIPTS)


def _is_ended(applied: FaultEvent, sent: str, main: Mapping[str, Any]) -> bool:
    """Return whether the signal ended a shell; one that has a trap may have passed it on."""
    by_signal = applied.exit_code == 128 + signal.Signals[sent]
    return by_signal and not applied.killed and not main.get("handles")


def _has_reacted(timeline: Timeline, signalled: FaultEvent, applied: FaultEvent) -> bool:
    """Return whether a target printed a line, or began or ended a save, between two events."""
    return any(
        isinstance(entry, Reaction) or (isinstance(entry, Phase) and entry.phase == "checkpoint")
        for entry in _between(timeline, signalled, applied)
    )


def _saved(timeline: Timeline, signalled: FaultEvent, applied: FaultEvent) -> bool:
    """Return whether a target ended a save between two events."""
    return any(
        isinstance(entry, Phase) and (entry.phase, entry.state) == ("checkpoint", "end")
        for entry in _between(timeline, signalled, applied)
    )


def _between(timeline: Timeline, signalled: FaultEvent, applied: FaultEvent) -> Iterator[Entry]:
    """Yield what a target did between two events."""
    for entry in timeline.history:
        if signalled.n < entry.n < applied.n and entry.task == applied.task:
            yield entry


def _shortened(command: Sequence[str]) -> str:
    words = " ".join(" ".join(command).split())
    return words if len(words) <= LONGEST else f"{words[:LONGEST]}…"


def _script(command: Sequence[str]) -> str:
    """Return where the shell has its commands from, in words."""
    found = next((PurePath(word).name for word in command if word.endswith(SCRIPTS)), "")
    return found or ("its command" if "-c" in command else "its script")


def _several(tasks: Sequence[str]) -> str:
    more = len(tasks) - TASKS
    return ", ".join(tasks[:TASKS]) + (f" and {more} more" if more > 0 else "")
