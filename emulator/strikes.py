"""What users write under `faults:`: what is done to whom, and when."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from emulator.values import Downtime, Duration, Model

__all__ = ["STRIKES", "Fault", "Strike", "Trigger"]

Phase = Literal["startup", "data", "compile", "checkpoint", "restore", "eval"]
STRIKES = ("preempt", "kill", "terminate", "pause", "throttle")
"""What can be done to a task."""


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
    task: str | None = None
    """Whose step, line or phase; any task's where nothing is said."""

    @model_validator(mode="after")
    def _one(self) -> Trigger:
        given = [x for x in (self.time, self.step, self.log, self.phase) if x is not None]
        if len(given) != 1:
            raise ValueError("a fault has one trigger: a time, {step:}, {log:} or {phase:}")
        if self.time is not None and self.task is not None:
            raise ValueError("a time belongs to no task; leave `task` out")
        return self

    @field_validator("log")
    @classmethod
    def _expression(cls, log: str | None) -> str | None:
        try:
            re.compile(log or "")
        except re.error as error:
            raise ValueError(f"{log!r} is not a regular expression: {error}") from None
        return log


_OPTIONS = {
    "grace": ("preempt",),
    "down": ("preempt",),
    "for_": ("pause", "throttle"),
    "cpus": ("throttle",),
}


class Strike(Model):
    """What is done to whom: one of STRIKES, with its options."""

    preempt: str | None = None
    """SIGTERM, `grace`, SIGKILL if it is still there, `down`, then back on a fresh disk."""
    kill: str | None = None
    """SIGKILL now; the restart policy decides, the disk is kept."""
    terminate: str | None = None
    """SIGTERM and nothing else; the restart policy decides."""
    pause: str | None = None
    """Frozen `for` a time: it answers nobody, and does not notice."""
    throttle: str | None = None
    """Limited to `cpus` cores `for` a time: a straggler."""
    grace: Duration | None = None
    """Seconds between SIGTERM and SIGKILL of a preemption [default: 30s]."""
    down: Downtime | None = None
    """Seconds until the preempted task is back, or `forever` [default: 10s]."""
    for_: Duration | None = Field(default=None, alias="for")
    """Seconds of a pause or a throttle."""
    cpus: float | None = Field(default=None, strict=True, gt=0)
    """Cores that are left to a throttled task."""

    @property
    def kind(self) -> str:
        """One of STRIKES."""
        return next(kind for kind in STRIKES if getattr(self, kind) is not None)

    @property
    def target(self) -> str:
        """A task's name, or a glob."""
        return str(getattr(self, self.kind))

    @model_validator(mode="after")
    def _one_kind(self) -> Strike:
        kinds = [kind for kind in STRIKES if getattr(self, kind) is not None]
        if len(kinds) > 1:
            raise ValueError(f"{' and '.join(kinds)} in one entry; write one entry for each")
        for option, of in _OPTIONS.items():
            if getattr(self, option) is not None and kinds and kinds[0] not in of:
                raise ValueError(f"`{option.rstrip('_')}` is an option of {' and '.join(of)}")
        if kinds and kinds[0] in _OPTIONS["for_"] and self.for_ is None:
            raise ValueError(f"`{kinds[0]}` needs `for`: how long, such as `for: 5s`")
        if kinds == ["throttle"] and self.cpus is None:
            raise ValueError("`throttle` needs `cpus`: how many cores are left, such as 0.2")
        return self


class Fault(Strike):
    """A strike with its trigger, or `random:` strikes at a rate."""

    at: Annotated[
        Trigger | None,
        BeforeValidator(lambda v: v if isinstance(v, Mapping | None) else {"time": v}),
    ] = None
    random: Strike | None = None
    every: Duration | None = None
    jitter: Duration = 0.0
    seed: int | None = Field(default=None, strict=True)
    """Of `random`; the scenario's own where nothing is said."""
    max: int = Field(default=10, strict=True, ge=1, le=1000)

    @model_validator(mode="after")
    def _when(self) -> Fault:
        struck = any(getattr(self, kind) is not None for kind in STRIKES)
        if self.random is None:
            if not struck:
                raise ValueError(f"a fault is one of {', '.join(STRIKES)}, or random")
            if self.at is None:
                raise ValueError("when? `at: 40s`, `at: {step: 120}`, {log: ...} or {phase: ...}")
            return self
        if struck or self.at is not None:
            raise ValueError("`random` has its strike inside and strikes `every` so often")
        if not self.every:
            raise ValueError("`random` needs `every`: the mean time between two, such as `30s`")
        if not any(getattr(self.random, kind) is not None for kind in STRIKES):
            raise ValueError(f"`random` needs one of {', '.join(STRIKES)} inside")
        return self
