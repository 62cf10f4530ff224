"""What users write under `faults:`: what is done to whom, and when."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from emulator.inputs import text_of
from emulator.limits import TRACE_BYTES, TRACE_ROWS
from emulator.patterns import compiled
from emulator.scenario.paths import is_stored, once
from emulator.scenario.values import (
    LATEST,
    LONGEST,
    Cores,
    Duration,
    DurationOrForever,
    Glob,
    Model,
    Rate,
    Share,
    Text,
)

__all__ = ["LASTING", "STRIKES", "TRIGGERS", "Fault", "Strike", "TraceRow", "Trigger"]

Phase = Literal["startup", "data", "compile", "checkpoint", "restore", "eval"]
STRIKES = (
    "preempt",
    "kill",
    "terminate",
    "restart",
    "oom",
    "pause",
    "throttle",
    "partition",
    "shape",
)
"""What can be done to tasks."""
LASTING = ("pause", "throttle", "partition", "shape")
"""Kinds that last for a time and then let the same processes go on."""


def _rows(value: object, info: ValidationInfo) -> object:
    """Read a trace from its file; rows stay as they are."""
    if not isinstance(value, str):
        return value
    path = Path((info.context or {}).get("folder", "."), value)
    return once(info, ("trace", path), lambda: _read(path))


def _read(path: Path) -> list[TraceRow]:
    """Return the rows of a trace. Raises ValueError with its name, and the line of a bad row."""
    try:
        path = path.expanduser()
        lines = text_of(path, TRACE_BYTES).splitlines()
        if len(lines) > TRACE_ROWS + COMMENTS:
            raise ValueError(f"it has more than {TRACE_ROWS:,} rows")
        above = next((n for n, line in enumerate(lines) if not line.startswith("#")), 0)
        rows = csv.DictReader("" if line.startswith("#") else line for line in lines[above:])
        found = [(above + rows.line_num, row) for row in rows]
    except (ValueError, RuntimeError, csv.Error) as error:
        raise ValueError(f"the trace {path} can't be read: {error}") from None
    return [_row(row, f"the trace {path}, line {line}") for line, row in found]


def _row(row: Mapping[str, object], where: str) -> TraceRow:
    try:
        return TraceRow.model_validate(row)
    except ValidationError as error:
        key = error.errors()[0]["loc"][0]
        raise ValueError(
            f"{where}: {key or 'a column too many'} won't do; "
            "a row has time, target and down, in seconds"
        ) from None


COMMENTS = 1000
"""Lines of a trace that are no rows, at most."""
TRIGGERS = ("time", "step", "log", "phase", "after", "recovery")


class Trigger(Model):
    """When a fault strikes; a bare duration is a time."""

    time: Duration | None = None
    """Seconds since all tasks ran for the first time."""
    step: int | None = Field(default=None, strict=True, ge=0)
    """The first step event with at least this step."""
    log: str | None = None
    """The first line of output that this regular expression is found in."""
    phase: Phase | None = None
    """The first time this phase begins: `checkpoint` is while one is being written."""
    after: Text | None = None
    """Once this other fault, by its `name` or number, has struck."""
    recovery: Text | None = None
    """Once the job has stepped again after this other fault."""
    delay: Duration = 0.0
    """Seconds after that."""
    task: Glob | None = None
    """Whose step, line or phase; any task's where nothing is said."""

    @model_validator(mode="after")
    def _one(self) -> Trigger:
        given = [key for key in TRIGGERS if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"a fault has one trigger of: {', '.join(TRIGGERS)}")
        if self.task is not None and given[0] not in ("step", "log", "phase"):
            raise ValueError(f"`{given[0]}` belongs to no task; leave `task` out")
        if self.delay and given[0] not in ("after", "recovery"):
            raise ValueError("`delay` goes with `after` and `recovery`")
        return self

    @field_validator("log")
    @classmethod
    def _expression(cls, log: str | None, info: ValidationInfo) -> str | None:
        if log is not None and not is_stored(info):
            once(info, ("log", log), lambda: compiled(log))
        return log


_OPTIONS = {
    "grace": ("preempt", "restart"),
    "down": ("preempt",),
    "address": ("preempt",),
    "for_": LASTING,
    "cpus": ("throttle",),
    "oneway": ("partition", "shape"),
    "to": ("shape",),
    "delay": ("shape",),
    "jitter": ("shape",),
    "loss": ("shape",),
    "bandwidth": ("shape",),
}


class Strike(Model):
    """What is done to whom: one of STRIKES, with its options."""

    preempt: Glob | None = None
    """SIGTERM, `grace`, SIGKILL if it is still there, `down`, then back on a fresh disk."""
    kill: Glob | None = None
    """SIGKILL now; the restart policy decides, the disk is kept."""
    terminate: Glob | None = None
    """SIGTERM and nothing else; the restart policy decides."""
    restart: Glob | None = None
    """One by one: SIGTERM, `grace`, SIGKILL, started again; the next once the job steps."""
    oom: Glob | None = None
    """Its memory limit is squeezed until the kernel kills it; the restart policy decides."""
    pause: Glob | None = None
    """Frozen `for` a time: it answers nobody, and does not notice."""
    throttle: Glob | None = None
    """Limited to `cpus` cores `for` a time: a straggler."""
    partition: Annotated[list[Annotated[list[Glob], Field(min_length=1)]], Field(min_length=2)] | (
        None
    ) = None
    """Groups of tasks that can't reach each other `for` a time."""
    shape: Glob | None = None
    """Its network is slow, narrow or lossy `for` a time, see the options below."""
    grace: Duration | None = None
    """Seconds between SIGTERM and SIGKILL [default: 30s]."""
    down: DurationOrForever | None = None
    """Seconds until the preempted task is back, or `forever` [default: 10s]."""
    address: Literal["new", "same"] | None = None
    """Of the preempted task when it is back [default: a new one with Docker]."""
    for_: DurationOrForever | None = Field(default=None, alias="for")
    """Seconds of what lasts, or `forever`: until the run ends or it is healed by hand."""
    cpus: Cores | None = None
    """Cores that are left to a throttled task."""
    to: Glob | None = None
    """The tasks, by name or glob, towards which the network is shaped [default: all]."""
    oneway: bool = False
    """Only what the first group, or the shaped task, sends."""
    delay: Duration = 0.0
    """Seconds by which each packet is late."""
    jitter: Duration = 0.0
    """Seconds, give or take: around the delay of `shape`, around `every` of `random`."""
    loss: Share = 0.0
    """The share of packets that is lost, 0 to 1, or `5%`."""
    bandwidth: Rate | None = None
    """Bits per second that each of the tasks can send."""

    @property
    def kind(self) -> str:
        """One of STRIKES."""
        return next(kind for kind in STRIKES if getattr(self, kind) is not None)

    @property
    def target(self) -> str:
        """A task's name, or a glob; the groups of a partition."""
        if self.partition is not None:
            return " | ".join(",".join(group) for group in self.partition)
        return str(getattr(self, self.kind))

    def named(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield each name or glob of tasks, with the keys under which it stands."""
        if self.partition is not None:
            for number, group in enumerate(self.partition):
                for place, name in enumerate(group):
                    yield ("partition", number, place), name
        else:
            yield (self.kind,), self.target
        if self.to is not None:
            yield ("to",), self.to

    @model_validator(mode="after")
    def _one_kind(self) -> Strike:
        kinds = [kind for kind in STRIKES if getattr(self, kind) is not None]
        if len(kinds) > 1:
            raise ValueError(f"{' and '.join(kinds)} in one entry; write one entry for each")
        for option, of in _OPTIONS.items():
            if getattr(self, option) not in (None, False, 0.0) and kinds and kinds[0] not in of:
                raise ValueError(f"`{option.rstrip('_')}` is an option of {' and '.join(of)}")
        if kinds and kinds[0] in LASTING and self.for_ is None:
            raise ValueError(f"`{kinds[0]}` needs `for`: how long, such as `for: 5s`")
        if kinds == ["throttle"] and self.cpus is None:
            raise ValueError("`throttle` needs `cpus`: how many cores are left, such as 0.2")
        if kinds == ["shape"] and not (self.delay or self.loss or self.bandwidth):
            raise ValueError("`shape` needs `delay`, `loss` or `bandwidth`")
        if kinds == ["shape"] and max(self.delay, self.jitter) > LATEST:
            raise ValueError(f"a packet can be late by {LATEST:.0f}s at most")
        if kinds and self.jitter and not self.delay:
            raise ValueError("`jitter` goes around a `delay`")
        return self


class TraceRow(Model):
    """One preemption of a trace."""

    time: float = Field(ge=0, le=LONGEST)
    """Seconds since the beginning of the trace."""
    target: Glob
    down: float = Field(ge=0, le=LONGEST)
    """Seconds until the node was replaced."""


class Fault(Strike):
    """A strike with its trigger, `random:` strikes at a rate, or a `trace:` of preemptions."""

    name: str | None = Field(default=None, pattern=r"^[a-zA-Z][-_a-zA-Z0-9]*$")
    """For `after` and `recovery` of other faults."""
    at: Annotated[
        Trigger | None,
        BeforeValidator(lambda v: v if isinstance(v, Mapping | Trigger | None) else {"time": v}),
    ] = None
    random: Strike | None = None
    every: Duration | None = None
    seed: int | None = Field(default=None, strict=True)
    """Of `random`; the scenario's own where nothing is said."""
    max: int = Field(default=10, strict=True, ge=1, le=1000)
    trace: (
        Annotated[tuple[TraceRow, ...], Field(max_length=TRACE_ROWS), BeforeValidator(_rows)] | None
    ) = None
    """A CSV file with the columns time, target and down, in seconds; or such rows. It begins `at` a
    time, else with the run."""
    speed: float = Field(default=1.0, strict=True, ge=1e-6, le=1e9)
    """How many times faster than it was recorded a trace is replayed."""

    def named(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield each name or glob of tasks, with the keys under which it stands."""
        if self.trace is not None:
            yield from ((("trace",), row.target) for row in self.trace)
        elif self.random is not None:
            yield from ((("random", *path), name) for path, name in self.random.named())
        else:
            yield from super().named()
        if self.at and self.at.task:
            yield ("at", "task"), self.at.task

    @model_validator(mode="after")
    def _when(self) -> Fault:
        struck = any(getattr(self, kind) is not None for kind in STRIKES)
        if self.trace is not None:
            if struck or self.random is not None:
                raise ValueError("`trace` says itself what is preempted, and when")
            if self.at is not None and self.at.time is None:
                raise ValueError("`at` of a trace is the time when it begins, such as `10s`")
            return self
        if self.speed != 1.0:
            raise ValueError("`speed` is an option of trace")
        if self.random is None:
            if not struck:
                raise ValueError(f"a fault is one of {', '.join(STRIKES)}, random or trace")
            if self.at is None:
                raise ValueError("when? `at: 40s`, `at: {step: 120}`, {log: ...} or {phase: ...}")
            return self
        if struck or self.at is not None:
            raise ValueError("`random` has its strike inside and strikes `every` so often")
        if not self.every:
            raise ValueError("`random` needs `every`: the mean time between two, such as `30s`")
        if not any(getattr(self.random, kind) is not None for kind in STRIKES):
            raise ValueError(f"`random` needs one of {', '.join(STRIKES)} inside")
        if self.random.partition is not None:
            raise ValueError("`random` strikes one task each time; `partition` names groups")
        return self
