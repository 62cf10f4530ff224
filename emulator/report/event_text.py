"""Events in words (pure)."""

from __future__ import annotations

from emulator.faults.table import FAULTS
from emulator.record import events
from emulator.validation.units import format_duration


def describe(entry: events.Entry) -> str:
    """Return an event in words; empty if the tasks' output shows it anyway."""
    match entry:
        case events.Step() | events.Phase():
            return ""  # first, because nearly all events are one of these
        case events.AllRunning():
            return "all tasks are running"
        case events.Attached():
            return f"taken over after {format_duration(entry.gap)} without an emulator"
        case events.TaskExit(told_to_stop=False):
            how = " (out of memory)" if entry.oom_killed else ""
            return f"{entry.task} ended with exit code {entry.exit_code}{how}"
        case events.Restart():
            what = entry.task if entry.scope == "task" else "every task"
            return f"restarting {what} in {format_duration(entry.delay)} (number {entry.number})"
        case events.StopSignal(signal="SIGKILL"):
            return f"{entry.task} did not exit: SIGKILL"
        case events.Refused():
            return f"the engine refused {entry.operation} for {entry.task}: {entry.reason}"
        case events.Stall():
            return f"{entry.task} made no step for {format_duration(entry.seconds)}: SIGKILL"
        case events.FaultEvent():
            return _fault_in_words(entry)
        case events.JobEnded():
            return f"job {entry.outcome}: {entry.reason}"
        case events.Removed():
            return "removed everything that this run created"
    return ""


def _fault_in_words(fault: events.FaultEvent) -> str:
    head, target = f"fault {fault.id}", fault.target or fault.task
    match fault.stage:
        case "planned":
            return ""
        case "preparing":
            return f"{head}: waiting: {fault.reason}"
        case "triggered":
            return f"{head}: {fault.kind} {target}"
        case "applied" if fault.exit_code is not None:
            how = "killed" if fault.killed else "by itself"
            return f"{head}: {fault.task} has exited ({how}, exit code {fault.exit_code})"
        case "applied":
            return f"{head}: {FAULTS[fault.kind].applied.format(target)}"
        case "healed":
            return f"{head}: {FAULTS[fault.kind].healed.format(target)}"
        case "skipped" | "failed":
            return f"{head}: {fault.stage}: {fault.reason or ''}"
