"""What an entry of the history means, in words (pure)."""

from __future__ import annotations

from emulator.faults.table import FAULTS
from emulator.record.events import Entry
from emulator.units import format_duration

__all__ = ["describe"]


def describe(entry: Entry) -> str:
    """Say in words what an entry of the history means; nothing for what the output shows anyway."""
    data = entry.data
    match entry.event:
        case "all-running":
            return "all tasks are running"
        case "attached":
            return f"taken over after {format_duration(float(data['gap']))} without an emulator"
        case "exit" if not data["told_to_stop"]:
            how = " (out of memory)" if data["oom_killed"] else ""
            return f"{entry.task} ended with exit code {data['exit_code']}{how}"
        case "restart":
            what = entry.task if data["scope"] == "task" else "every task"
            delay = format_duration(float(data["delay"]))
            return f"restarting {what} in {delay} (number {data['number']})"
        case "stop" if data["signal"] == "SIGKILL":
            return f"{entry.task} did not leave: SIGKILL"
        case "refused":
            return f"the engine refused {data['operation']} for {entry.task}: {data['reason']}"
        case "stall":
            seconds = format_duration(float(data["seconds"]))
            return f"{entry.task} made no step for {seconds}: SIGKILL"
        case "fault":
            return _fault_in_words(entry)
        case "job":
            return f"job {data['outcome']}: {data['reason']}"
        case "removed":
            return "removed all that this run made"
    return ""


def _fault_in_words(entry: Entry) -> str:
    data = entry.data
    target, kind = data.get("target", entry.task), FAULTS[data["kind"]]
    match data["stage"]:
        case "planned":
            return ""
        case "preparing":
            return f"fault {data['id']}: it waits: {data['reason']}"
        case "triggered":
            return f"fault {data['id']}: {data['kind']} {target}"
        case "applied" if "exit_code" in data:
            how = "killed" if data["killed"] else "left by itself"
            return (
                f"fault {data['id']}: {entry.task} is gone ({how}, exit code {data['exit_code']})"
            )
        case "applied":
            return f"fault {data['id']}: {kind.applied.format(target)}"
        case "healed":
            return f"fault {data['id']}: {kind.healed.format(target)}"
    return f"fault {data['id']}: {data['stage']}: {data.get('reason', '')}"
