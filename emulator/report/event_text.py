"""Events in words (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.faults.kinds import FAULTS
from emulator.metrics.unread import unread
from emulator.record import events
from emulator.validation.units import format_duration

MOST, FIRST = 30, 6
"""Events of a story, at most; of a longer history the first ones, and the last."""


def describe(entry: events.Entry) -> str:
    """Return an event in words; empty if the tasks' output shows it anyway."""
    match entry:
        case events.Step() | events.Phase():
            return ""  # first, because nearly all events are one of these
        case events.StepSource(counts=True):
            again = "; the steps before were something else" if entry.retracts else ""
            return f"steps of {entry.task} are read from {entry.source}{again}"
        case events.Unread():
            return f"warning: {unread(entry.line, entry.pattern)}"
        case events.BeforeTraining():
            return "all tasks before training are running"
        case events.TrainingBegan():
            return "the tasks before training have succeeded; starting the others"
        case events.AllRunning():
            return "all tasks are running"
        case events.Attached():
            return f"taken over after {format_duration(entry.gap)} without an emulator"
        case events.TaskExit(told_to_stop=False):
            why = "out of memory" if entry.oom_killed else entry.reason
            how = f" ({why})" if why else ""
            return f"{entry.task} ended with exit code {entry.exit_code}{how}"
        case events.Restart():
            return _restart(entry)
        case events.StopSignal(signal="SIGKILL"):
            return f"{entry.task} did not exit: SIGKILL"
        case events.Refused():
            return f"the engine refused {entry.operation} for {entry.task}: {entry.reason}"
        case events.KernelCall():
            return _call_in_words(entry)
        case events.Stall():
            return f"{entry.task} made no step for {format_duration(entry.seconds)}: SIGKILL"
        case events.PortPublished():
            return f"port {entry.port} of {entry.task} is at {entry.address}"
        case events.EngineNote():
            return (
                "" if entry.is_routine else f"the cluster: {_task_prefix(entry.task)}{entry.words}"
            )
        case events.SavedFiles(removed=True) if entry.saved:
            return f"{entry.task} gets a new disk; on the old one was {entry.saved[0]['path']}"
        case events.OutputLeftOut() | events.LogCut():
            return entry.words
        case events.SlowPattern():
            return f"warning: {entry.words}"
        case events.HelperEvent():
            return _helper_in_words(entry)
        case events.FaultEvent():
            return _fault_in_words(entry)
        case events.Reaction():
            return f"{entry.task} printed, for the first time after the notice: {entry.line}"
        case events.DiskMet():
            return f"{entry.task} met the disk fault first with {entry.call} of {entry.path}"
        case events.Complaint():
            return f"{entry.task} printed: {entry.line}"
        case events.TaskProcesses():
            return _processes_in_words(entry)
        case events.JobEnded():
            return f"job {entry.outcome}: {entry.reason}"
        case events.Removed():
            return "removed everything that this run created"
    return ""


def _task_prefix(task: str) -> str:
    return f"{task}: " if task else ""


def _call_in_words(call: events.KernelCall) -> str:
    if call.line is not None:
        return ""
    size = "" if call.bytes is None else f" of {call.bytes:,} bytes"
    to = "" if call.to is None else f" to {call.to}"
    return f"{call.task} was about to make a {call.call}{size}: {call.path}{to}"


def _helper_in_words(helper: events.HelperEvent) -> str:
    """Return a helper's event in words; empty if it began or ended as it should."""
    head = f"helper {helper.task}"
    match helper.stage:
        case "failed":
            return f"{head} failed, which does not decide the job: {helper.reason or ''}"
        case "ended" if not helper.told_to_stop:
            head = f"{head} ended by itself with exit code {helper.exit_code}"
            if helper.state != "failed":
                return head
            words = "; ".join(helper.last_words or ()) or "none"
            return f"{head}, which does not decide the job; its last output: {words}"
        case "stopping" if helper.signal == "SIGKILL":
            return f"{head} did not exit: SIGKILL"
    return ""


def _fault_in_words(fault: events.FaultEvent) -> str:
    head, target = f"fault {fault.id}", fault.target or fault.task
    match fault.stage:
        case "planned" | "found":
            return ""
        case "preparing":
            return f"{head}: waiting: {fault.reason}"
        case "announced":
            return f"{head}: {fault.kind} {target} is announced"
        case "triggered":
            return f"{head}: {fault.kind} {target}{_effect(fault)}"
        case "applied" if fault.silent:
            return f"{head}: {fault.task} has lost power (exit code {fault.exit_code})"
        case "applied" if fault.exit_code is not None:
            how = "killed" if fault.killed else "by itself"
            how += f", exit code {fault.exit_code}"
            return f"{head}: {fault.task} has exited ({how}){_effect(fault)}"
        case "applied":
            return f"{head}: {FAULTS[fault.kind].applied.format(target)}{_effect(fault)}"
        case "reapplied":
            return f"{head}: {FAULTS[fault.kind].applied.format(target)} again"
        case "healed":
            return f"{head}: {FAULTS[fault.kind].healed.format(target)}"
        case "skipped" | "failed":
            return f"{head}: {fault.stage}: {fault.reason or ''}"


def _processes_in_words(entry: events.TaskProcesses) -> str:
    """Return what ran on after a signal or the end of a task; empty if nothing did."""
    listed = [dict(one) for one in entry.processes]
    names = ", ".join(f"{one.get('name')} ({one.get('pid')})" for one in listed[:3])
    count = len(listed) + entry.more
    names += f" and {count - 3} more" if count > 3 else ""
    match entry.moment:
        case "kill" if listed:
            return f"at the end of the grace period of {entry.task} still ran {names}"
        case "end" if listed:
            return f"when {entry.task} had ended, still ran {names}"
        case _:
            return ""


def _effect(fault: events.FaultEvent) -> str:
    return f"; {fault.effect}" if fault.effect else ""


def event_lines(history: Sequence[events.Entry], most: int = MOST) -> list[str]:
    """Return the events without steps and phases, one a line; of more than `most` the first few
    and the last."""
    lines = [
        f"{format_duration(entry.t):>8}  {words}" for entry in history if (words := describe(entry))
    ]
    if len(lines) <= most:
        return lines
    left_out = f"{'':8}  … {len(lines) - most} more …"
    return [*lines[:FIRST], left_out, *lines[FIRST - most :]]


def _restart(entry: events.Restart) -> str:
    what = entry.task if entry.scope == "task" else "every task"
    why = f"{entry.task} has requeued the job: " if entry.requeued else ""
    return f"{why}restarting {what} in {format_duration(entry.delay)} (number {entry.number})"
