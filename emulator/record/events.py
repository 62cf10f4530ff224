"""Every event of a run as a typed value, and its line in history.jsonl (pure).

A line is a JSON object: `n`, `t`, `wall`, `event`, `task` if the event belongs to one, and the
fields of the event's class; a field that is None is left out. This module is the only one that
knows these names as strings. A new kind of event is one class here, named in `KINDS`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from emulator.errors import shown
from emulator.record.version import FORMAT, version
from emulator.validation.stored import value_of
from emulator.validation.units import LAST_MOMENT, format_size

if TYPE_CHECKING:
    from emulator.metrics.steps import Observation

FaultStage = Literal[
    "planned",
    "preparing",
    "announced",
    "triggered",
    "found",
    "applied",
    "reapplied",
    "healed",
    "skipped",
    "failed",
]
Outcome = Literal["succeeded", "failed", "timeout", "interrupted"]
HelperStage = Literal["starting", "running", "stopping", "ended", "failed"]
ROUTINE = frozenset({"Scheduled", "Pulling", "Pulled", "Created", "Started"})
"""Reasons of an engine's notes in an ordinary start."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry of the history: what happened. The writer sets `n`, `t` and `wall`."""

    event: ClassVar[str] = ""
    """The name of the kind."""
    n: int = -1
    """The number of its line, from 0; -1 as long as it is not written."""
    t: float = 0.0
    """Seconds since the run began, monotonic: when it was written; in `Record.in_time_order`
    when it happened (`history.HappenedAt` has the rule)."""
    wall: float = 0.0
    """Seconds since 1970, by the engine's clock if it stamped the event."""
    task: str = ""
    """The task that it belongs to; empty: the whole job."""

    def having(self, **header: float) -> Self:
        """Return the event with another `n`, `t` or `wall`: `replace`, but four times as fast."""
        event = object.__new__(type(self))
        vars(event).update(vars(self), **header)
        return event


# --- The run --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RunStarted(Entry):
    """The first event."""

    event: ClassVar = "run"
    run_id: str
    """The name of the run and of its folder."""
    scenario: str
    """The name of the scenario."""
    engine: str
    """The name of the engine."""
    pid: int
    """The process of the supervisor."""
    format: int = FORMAT
    """The format of the record."""
    emulator_version: str = field(default_factory=version)
    """The version of the emulator that wrote it."""
    origin: Mapping[str, str] | None = None
    """The machine, the commit of the program, the command, and what the scenario was read from if
    that is no file, in real runs."""
    software: Mapping[str, Mapping[str, str]] | None = None
    """What tasks run in, as far as known: by image (empty: this machine) its `id`, the `base` that
    it was built on, and the versions of packages. In real runs."""


@dataclass(frozen=True, kw_only=True)
class Prepared(Entry):
    """The engine has made what the tasks share."""

    event: ClassVar = "prepared"


@dataclass(frozen=True, kw_only=True)
class BeforeTraining(Entry):
    """All tasks run that end before training; triggers by time of faults on them count from here.

    Only runs with such tasks have this event and the next.
    """

    event: ClassVar = "before-training"


@dataclass(frozen=True, kw_only=True)
class TrainingBegan(Entry):
    """All tasks before training have succeeded: the others are started."""

    event: ClassVar = "training"


@dataclass(frozen=True, kw_only=True)
class AllRunning(Entry):
    """All tasks of the training run for the first time: triggers by time count from here."""

    event: ClassVar = "all-running"


@dataclass(frozen=True, kw_only=True)
class Attached(Entry):
    """Another supervisor took the run over."""

    event: ClassVar = "attached"
    pid: int
    """The process of the new supervisor."""
    gap: float
    """Seconds without a supervisor."""


@dataclass(frozen=True, kw_only=True)
class JobEnded(Entry):
    """The outcome is settled; `task` is the one that failed."""

    event: ClassVar = "job"
    outcome: Outcome
    """How the job ended: `interrupted` by a person, `timeout` by the scenario's limit."""
    reason: str
    """Why, in words."""
    cause: str | None = None
    """Why a job of the training operator failed, if no task did: `backoff-limit`, `deadline`, or
    `stuck`, when all pods had ended and the operator would leave it as it is."""


@dataclass(frozen=True, kw_only=True)
class SecondInterrupt(Entry):
    """A signal arrived while the run was being stopped: the remaining tasks are killed."""

    event: ClassVar = "interrupted-again"
    signal: str
    """Its name: `SIGINT`, `SIGTERM` or `SIGHUP`."""


@dataclass(frozen=True, kw_only=True)
class EmulatorFailed(Entry):
    """The emulator or the engine failed, and with it the run."""

    event: ClassVar = "error"
    message: str
    """What failed, in words."""


@dataclass(frozen=True, kw_only=True)
class Removed(Entry):
    """What the run had made in the engine was removed."""

    event: ClassVar = "removed"
    count: int
    """How many objects of the engine were removed."""


# --- Tasks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TaskStart(Entry):
    """The engine was asked to start a task."""

    event: ClassVar = "start"
    fresh: bool
    """On a new disk."""


@dataclass(frozen=True, kw_only=True)
class TaskRunning(Entry):
    """The engine has started a task."""

    event: ClassVar = "running"
    id: str
    """The container's id, or the process id."""


@dataclass(frozen=True, kw_only=True)
class TaskExit(Entry):
    """A task ended."""

    event: ClassVar = "exit"
    exit_code: int
    """128 + the signal's number if a signal ended it."""
    oom_killed: bool = False
    """The kernel killed it for lack of memory."""
    told_to_stop: bool = False
    """The supervisor had sent it a signal."""
    fault: str | None = None
    """The id of the fault that ended it, if the fault also starts it again."""
    reason: str | None = None
    """Why, in the engine's word, where it has one: `Evicted`, `OOMKilled`."""
    bar_ended: bool | None = None
    """Its progress bar was at its end: it had made no step after the last that was drawn."""

    @property
    def state(self) -> Literal["down", "succeeded", "stopped", "failed"]:
        """What its task is after it; `stopped`: by us, `down`: until a fault starts it again."""
        if self.fault:
            return "down"
        if self.exit_code == 0:
            return "succeeded"
        return "stopped" if self.told_to_stop else "failed"


@dataclass(frozen=True, kw_only=True)
class StopSignal(Entry):
    """The supervisor sent a task a signal, not as a fault."""

    event: ClassVar = "stop"
    signal: str
    """Its name, such as `SIGTERM`."""


@dataclass(frozen=True, kw_only=True)
class Refused(Entry):
    """The engine refused a call for a task that no fault made."""

    event: ClassVar = "refused"
    operation: str
    """What was asked for, such as a signal."""
    reason: str
    """What the engine answered."""


@dataclass(frozen=True, kw_only=True)
class Restart(Entry):
    """The restart policy starts a task again, or with `scope` job all of them."""

    event: ClassVar = "restart"
    scope: Literal["task", "job"]
    """`task`: the one that ended; `job`: all tasks together."""
    number: int
    """From 1."""
    delay: float
    """Seconds until then."""
    requeued: bool = False
    """It is no policy: `task` has requeued the job, as one of Slurm's does with `scontrol`."""


@dataclass(frozen=True, kw_only=True)
class Stall(Entry):
    """The watchdog killed a task: no task had stepped for `seconds`."""

    event: ClassVar = "stall"
    seconds: float
    """How long no task had stepped."""


@dataclass(frozen=True, kw_only=True)
class Step(Entry):
    """A task reported a step, or several steps that were merged: see `Coalescer` in `writer.py`."""

    event: ClassVar = "step"
    step: int
    """The last one."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """What the task reported with it: loss, examples, accuracy, ..."""
    coalesced: Mapping[str, int] | None = None
    """Of merged steps: the `first` of them, and the `count` of different steps."""
    bar_opened: int | None = None
    """The step from which its bar went on, of the first step that is read of a start."""

    @property
    def first(self) -> int:
        """The first of the steps; they ascend."""
        return self.step if self.coalesced is None else self.coalesced["first"]

    @property
    def count(self) -> int:
        """How many steps were reported."""
        return 1 if self.coalesced is None else self.coalesced["count"]

    def number(self, name: str) -> float | None:
        """Return the value that was reported under a name, if it is a finite number."""
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return value if abs(value) <= sys.float_info.max else None


@dataclass(frozen=True, kw_only=True)
class StepSource(Entry):
    """The output of a task has for the first time something that counts, such as a bar."""

    event: ClassVar = "step-source"
    source: str
    """What it is, in words: "the bar `Training` (60)"."""
    counts: bool
    """From here on the steps of the task are read from it; else none are."""
    retracts: bool = False
    """The steps that the task reported before were those of something else: they do not count."""
    drawn: bool | None = None
    """It is a bar, which is drawn now and then: steps between two drawings are not seen."""


@dataclass(frozen=True, kw_only=True)
class Unread(Entry):
    """No step was read of the output of a task so far, although there are numbers in it."""

    event: ClassVar = "unread"
    line: str
    """A line that it has printed."""
    pattern: str | None = None
    """What `metrics.steps` reads a step of it with; none: the scenario's own pattern has matched
    nothing."""


@dataclass(frozen=True, kw_only=True)
class Phase(Entry):
    """A task began or ended a phase of its work."""

    event: ClassVar = "phase"
    phase: str
    """`startup`, `data`, `compile`, `checkpoint`, `restore`, `eval`, or a name of its own."""
    state: Literal["begin", "end"]
    """Whether it began or ended."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """What the task reported with it, such as the `step` that was restored."""

    @property
    def step(self) -> int | None:
        """The step that was saved or restored, if the task reported one."""
        step = self.values.get("step")
        return step if isinstance(step, int) else None


@dataclass(frozen=True, kw_only=True)
class Samples(Entry):
    """A task reported which samples it has read."""

    event: ClassVar = "samples"
    digest: str
    """Of their ids."""
    step: int | None = None
    """The step for which; else they are for the next one that the task reports."""


@dataclass(frozen=True, kw_only=True)
class PortPublished(Entry):
    """A port of a running task or helper can be reached from the engine's machine."""

    event: ClassVar = "port"
    port: int
    """The number in its container."""
    address: str
    """Where it is: `127.0.0.1:49153`."""


@dataclass(frozen=True, kw_only=True)
class EngineNote(Entry):
    """What the engine itself said of a task, such as a cluster's scheduler; it decides nothing."""

    event: ClassVar = "engine-note"
    reason: str
    """One word: `Scheduled`, `Killing`, `Preempted`, `DisruptionTarget`."""
    message: str = ""
    """The rest of what it said."""
    stamp: float | None = None
    """When, by the engine's clock (seconds since 1970), which may be as coarse as a second: so
    the event happened when it was written."""

    @property
    def words(self) -> str:
        """What was said."""
        return f"{self.reason}: {self.message}" if self.message else self.reason

    @property
    def is_routine(self) -> bool:
        """Whether it says no more than that a start goes on as it should."""
        return self.reason in ROUTINE


@dataclass(frozen=True, kw_only=True)
class Witness(Entry):
    """The witness of saves sees what becomes of files from now on, or is blind to some.

    Of the disk of a task, or of /shared (no `task`).
    """

    event: ClassVar = "witness"
    sees: bool
    """It does from now on; else it is blind to `path`."""
    path: str = ""
    """The folder that it can't see, below what is watched; empty: all of it."""
    reason: str = ""
    """Why it is blind."""
    own: bool = False
    """It sees what tasks have as disks of their own, as well as /shared."""


@dataclass(frozen=True, kw_only=True)
class CheckpointSaved(Entry):
    """A save was over: on the disk of a task, or on /shared (no `task`).

    It happened when the last of it was written, or renamed. A save to which more is written, such
    as by another task, is told again with all that it has.
    """

    event: ClassVar = "checkpoint-saved"
    path: str
    """Of its file or folder, or what the names of its files begin with."""
    format: str
    """Of whose kind its files are: torch, TensorFlow, Orbax, ..."""
    bytes: int
    """Of all its files."""
    seconds: float
    """Since the first of it was written."""
    files: Mapping[str, int]
    """Bytes of its files, by path; at most 16."""
    count: int
    """How many files it has."""
    renamed: bool = False
    """The last that was done was to give a file, or the folder, its name."""


@dataclass(frozen=True, kw_only=True)
class CheckpointRead(Entry):
    """A save was read: its first access. Of who did it nothing is known on /shared."""

    event: ClassVar = "checkpoint-read"
    path: str
    """Of the save, as it was told."""
    times: int = 1
    """How often one of its files was opened for that."""
    seconds: float = 0.0
    """Until the first access after which nobody opened one of them for a while, or until one of
    them was written again."""
    files: Sequence[str] = ()
    """Those of its files that were read; at most 16."""
    unfinished: bool = False
    """One of them was being written."""


@dataclass(frozen=True, kw_only=True)
class CheckpointRemoved(Entry):
    """A save was removed, or a part of it, or it got another name."""

    event: ClassVar = "checkpoint-removed"
    path: str
    """Of the save, as it was told."""
    left: int = 0
    """Files of it that are left."""


@dataclass(frozen=True, kw_only=True)
class SavedFiles(Entry):
    """What lay on the disk of a task, or on /shared (no `task`), when a task was started again.

    Also on that of the first task of the training when the run was over: checkpoints that are
    there and not on /shared.
    """

    event: ClassVar = "saved-files"
    saved: Sequence[Mapping[str, Any]]
    """The files and folders that look like checkpoints, the latest first: `path`, `format`, `bytes`
    and `wall`, when the last of it was written (seconds since 1970). At most 8."""
    others: Sequence[str] = ()
    """Names of other files on /shared, the latest first. At most 8."""
    removed: bool = False
    """The disk was removed then: the task has got a new one."""


@dataclass(frozen=True, kw_only=True)
class OutputLeftOut(Entry):
    """The outcome was settled, and more of a task's output was left than is read after that.

    Its last lines are in the log; what stood before them is not.
    """

    event: ClassVar = "output-left-out"
    size: int | None = None
    """How many bytes; None: the engine does not tell."""

    @property
    def words(self) -> str:
        """What was left out, as a sentence."""
        size = "An unknown amount" if self.size is None else format_size(self.size)
        return (
            f"{size} of {self.task}'s output was not read: the run was over, and it had more than "
            "is read after that. Its last lines are in the log."
        )


@dataclass(frozen=True, kw_only=True)
class LogCut(Entry):
    """The log of a task has reached its limit: its beginning and its end are kept.

    Steps and phases are read from all that it prints.
    """

    event: ClassVar = "log-cut"
    limit: int
    """About so many bytes are kept."""

    @property
    def words(self) -> str:
        """What is kept, as a sentence."""
        return (
            f"The log of {self.task} has reached its limit of {format_size(self.limit)}: its "
            "beginning and its end are kept. `log_limit` of the scenario changes it."
        )


@dataclass(frozen=True, kw_only=True)
class SlowPattern(Entry):
    """A regular expression of the scenario took too long for a line, and is not used any more."""

    event: ClassVar = "slow-pattern"
    pattern: str
    """As the scenario has it."""

    @property
    def words(self) -> str:
        """What is not read, as a sentence."""
        return (
            f"The pattern `{shown(self.pattern, 100)}` took too long for a line of {self.task}: it "
            "is not used any more in this run."
        )


@dataclass(frozen=True, kw_only=True)
class HelperEvent(Entry):
    """A helper reached a stage; `task` is its name, and no task of the job has that name."""

    event: ClassVar = "helper"
    stage: HelperStage
    """`failed`: it could not be started, or not be stopped."""
    id: str | None = None
    """The container's id, or the process id."""
    signal: str | None = None
    """What it was sent to stop."""
    exit_code: int | None = None
    """128 + the signal's number if a signal ended it."""
    told_to_stop: bool | None = None
    """The supervisor had sent it a signal, because the job was over."""
    last_words: Sequence[str] | None = None
    """What it printed last, if it ended by itself."""
    reason: str | None = None
    """Why it failed."""

    @property
    def state(self) -> Literal["starting", "running", "succeeded", "stopped", "failed"]:
        """What the helper is after it; `stopped`: by us, when the job was over."""
        match self.stage:
            case "starting" | "failed" as stage:
                return stage
            case "ended":
                if self.told_to_stop:
                    return "stopped"
                return "failed" if self.exit_code else "succeeded"
            case _:
                return "running"


# --- Faults and measurements ----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FaultEvent(Entry):
    """A fault reached a stage; `task` is its target if that is one task."""

    event: ClassVar = "fault"
    id: str
    """Its number in the scenario, or its name by hand; with `.N` for one of several targets."""
    kind: str
    """The kind of the fault, such as `preempt`."""
    stage: FaultStage
    """How far it is; a fault counts only once it is `applied`. `announced`: its target was told of
    it, before it is triggered. `found`: what it is about to change is known. `reapplied`: its
    target has started again, and was brought into the same state."""
    target: str | None = None
    """What it is on if not on one task: groups or tasks of a network fault, or no task at all."""
    reason: str | None = None
    """Why it was skipped, failed, or has to be prepared."""
    plan: Mapping[str, Any] | None = None
    """Of a manual fault: what the plan has of the others."""
    exit_code: int | None = None
    """The exit code of the target that it ended."""
    seconds: float | None = None
    """Seconds from the notice to the exit."""
    killed: bool | None = None
    """SIGKILL was needed."""
    silent: bool | None = None
    """No packet said so to its peers: its address is still there, and answers nothing."""
    effect: str | None = None
    """What else the engine says that it did: `the node n1 is cordoned`; of `triggered`: before
    which call of a task to the kernel."""
    changed: Mapping[str, Any] | None = None
    """The file that it has changed, and `how`: `path`, sizes `before` and `after` in bytes, the
    `byte` and the `bit`; its `inode`, when it was last `written` before, and `at`: when it was
    changed (seconds since 1970). Of `found`: of each file, how it is before and after."""


@dataclass(frozen=True, kw_only=True)
class Reaction(Entry):
    """A task printed its first line after the notice of a preemption that is no step or phase."""

    event: ClassVar = "reaction"
    fault: str
    """The id of the fault that gave the notice."""
    line: str
    """Its beginning."""


@dataclass(frozen=True, kw_only=True)
class Complaint(Entry):
    """A task printed a line that names another task, a time-out, a lost connection or a failing
    disk, after a fault and unlike all before it; the first few after each fault."""

    event: ClassVar = "complaint"
    line: str
    """Its beginning."""


@dataclass(frozen=True, kw_only=True)
class TaskProcesses(Entry):
    """The processes of a task that a fault signals, where the engine can see them."""

    event: ClassVar = "processes"
    fault: str
    """The id of the fault."""
    moment: Literal["signal", "kill", "end"]
    """`signal`: just before its signal; `kill`: when the grace period was over, before SIGKILL;
    `end`: those that ran on when the main one had ended."""
    processes: Sequence[Mapping[str, Any]] = ()
    """Of each `pid`, `name`, whether it is the `main` one; `reached`: the signal was for it;
    `handles`: the main one caught or ignored it, where that is known. Of `end`: for how many
    `seconds` it outlived the main one, and `how` it went: `ended` by itself, was `killed` by
    SIGKILL, or was `left` when it had long enough, and was killed by the engine."""
    more: int = 0
    """How many more there were."""


@dataclass(frozen=True, kw_only=True)
class SamplingStarted(Entry):
    """The first sample was taken; what there is to measure."""

    event: ClassVar = "sampling"
    interval: float
    """Seconds between two samples."""
    gpus: list[Mapping[str, Any]] | None = None
    """The GPUs of the machine."""
    driver: str | None = None
    """The version of their driver."""
    why_no_gpus: str | None = None
    """Why there are none."""
    lacking: Mapping[str, Any] | None = None
    """Measurements that a GPU does not offer, with the reason."""


@dataclass(frozen=True, kw_only=True)
class SamplingFailed(Entry):
    """Sampling failed; an empty reason: it works again."""

    event: ClassVar = "sampling-failed"
    reason: str
    """Why usage can't be measured; empty: it can again."""


@dataclass(frozen=True, kw_only=True)
class KernelCall(Entry):
    """A task was about to make a call to the kernel, in a run that records them.

    Those of a task are in the order in which it made them, and so are its lines of output.
    """

    event: ClassVar = "kernel-call"
    call: str = ""
    """Its kind: write, truncate, fsync, rename or unlink; empty: a line of output."""
    path: str = ""
    """The file, of a rename by its old name; empty: a line of output."""
    to: str | None = None
    """The new name, of a rename."""
    bytes: int | None = None
    """How many are to be written, where the call says it."""
    line: str | None = None
    """The line of output."""


@dataclass(frozen=True, kw_only=True)
class DiskMet(Entry):
    """A task made the first call that a fault of its disk has refused, or made late."""

    event: ClassVar = "disk-met"
    call: str
    """Its name, such as openat."""
    path: str
    """The file, as the task sees it."""


KINDS: Mapping[str, type[Entry]] = {
    kind.event: kind
    for kind in (
        RunStarted,
        Prepared,
        BeforeTraining,
        TrainingBegan,
        AllRunning,
        Attached,
        JobEnded,
        SecondInterrupt,
        EmulatorFailed,
        Removed,
        TaskStart,
        TaskRunning,
        TaskExit,
        StopSignal,
        Refused,
        KernelCall,
        Restart,
        Stall,
        Step,
        StepSource,
        Unread,
        Phase,
        Samples,
        PortPublished,
        EngineNote,
        Witness,
        CheckpointSaved,
        CheckpointRead,
        CheckpointRemoved,
        SavedFiles,
        OutputLeftOut,
        LogCut,
        SlowPattern,
        HelperEvent,
        FaultEvent,
        Reaction,
        Complaint,
        DiskMet,
        TaskProcesses,
        SamplingStarted,
        SamplingFailed,
    )
}
"""Every kind of event, by its name in the history."""

_HEADER = ("n", "t", "wall", "task")
_OWN: Mapping[type[Entry], Sequence[str]] = {
    Step: (*_HEADER, "step", "coalesced", "bar_opened"),
    Phase: (*_HEADER, "phase", "state"),
}
"""Of events with `values`: the keys of a line that are not among them."""
_MERGED = {"first", "count"}


def entry_of(line: Mapping[str, Any]) -> Entry:
    """Return the event of a line of the history.

    Raises ValueError if its event is unknown, or a field, or the type of one.
    """
    fields = dict(line)
    name = fields.pop("event")
    if not isinstance(name, str) or (kind := KINDS.get(name)) is None:
        raise ValueError(f"there is no event {shown(str(name), 30)}")
    if (own := _OWN.get(kind)) is not None:
        known = {key: fields.pop(key) for key in own if key in fields}
        fields = {**known, "values": fields}
    event = value_of(kind, fields)
    if max(abs(event.t), abs(event.wall)) > LAST_MOMENT:
        raise ValueError("t and wall: one is no time of a run")
    merged = event.coalesced if isinstance(event, Step) else None
    if merged is not None and merged.keys() != _MERGED:
        raise ValueError("coalesced: it needs first and count")
    return event


def observed(task: str, seen: Observation) -> Entry:
    """Return the step or phase that a task reported, as `steps.StepReader` reads it."""
    values: dict[str, Any] = dict(seen.data)
    if seen.event == "step":
        return Step(task=task, step=values.pop("step"), values=values, bar_opened=seen.opened)
    return entry_of({**values, "event": seen.event, "task": task})


def fields_of(event: Entry) -> dict[str, Any]:
    """Return the fields of an event's own kind, as they stand in the line."""
    fields = {
        key: value
        for key, value in vars(event).items()
        if value is not None and key not in _HEADER and key != "values"
    }
    values = getattr(event, "values", None)
    if values:
        fields.update(values)
        if "coalesced" in fields:
            fields["coalesced"] = fields.pop("coalesced")  # last, as a reader expects it
    return fields


def line_of(event: Entry) -> str:
    """Return the line of the history, without its newline."""
    header = {"n": event.n, "t": event.t, "wall": event.wall, "event": event.event}
    task = {"task": event.task} if event.task else {}
    return json.dumps({**header, **task, **fields_of(event)})
