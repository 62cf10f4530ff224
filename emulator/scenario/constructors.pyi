# fmt: off
# ruff: noqa
"""Constructors of faults. Written by scripts/write_constructors.py from the kinds of faults."""

import inspect
from collections.abc import Callable
from os import PathLike
from typing import Literal

from emulator.faults.spec import Entry, FaultSpec, Trigger

When = float | str | Trigger
"""Seconds since all tasks ran, `40s`, or a trigger such as Step(300)."""

def constructors() -> dict[str, Callable[..., Entry]]: ...
def constructor(kind: type[Entry]) -> Callable[..., Entry]: ...
def documentation(kind: type[Entry]) -> str: ...
def names() -> list[str]: ...
def signature(kind: type[Entry]) -> inspect.Signature: ...

TRIGGERS: tuple[Callable[..., Trigger], ...]

__all__ = [
    "After",
    "Cordon",
    "Drain",
    "Kill",
    "Log",
    "Oom",
    "Partition",
    "Pause",
    "Phase",
    "Preempt",
    "Random",
    "Recovery",
    "Restart",
    "Shape",
    "Step",
    "Terminate",
    "Throttle",
    "Trace",
]

def Preempt(
    target: str,
    /,
    *,
    name: str | None = ...,
    at: When | None = ...,
    grace: float | str = ...,
    down: float | str = ...,
    address: Literal["new", "same"] | None = ...,
    loss: Literal["silent"] | None = ...,
    via: Literal["delete", "eviction"] | None = ...,
    warm: bool = ...,
) -> FaultSpec:
    """SIGTERM, `grace`, SIGKILL if it still runs, `down`, then restarted on a fresh disk.

    - `name`: Its name, for `after` and `recovery` of other faults.
    - `grace`: Seconds between SIGTERM and SIGKILL.
    - `down`: Seconds until it is back, or `forever`.
    - `address`: Its address when it is back; with Docker a new one by default.
    - `loss`: `silent`: it loses power; no notice, no packet, and its name stays.
    - `via`: On a cluster by `delete`, its own way, or by `eviction`, which a disruption budget may forbid.
    - `warm`: Its replacement has imported its framework before, in a run that starts warm.
    - `at`: seconds since all tasks ran, or Step, Log, Phase, After, Recovery.
    """

def Kill(
    target: str,
    /,
    *,
    name: str | None = ...,
    at: When | None = ...,
) -> FaultSpec:
    """SIGKILL now; the disk is kept.

    - `name`: Its name, for `after` and `recovery` of other faults.
    - `at`: seconds since all tasks ran, or Step, Log, Phase, After, Recovery.
    """

def Terminate(
    target: str,
    /,
    *,
    name: str | None = ...,
    at: When | None = ...,
) -> FaultSpec:
    """SIGTERM and nothing else; the disk is kept.

    - `name`: Its name, for `after` and `recovery` of other faults.
    - `at`: seconds since all tasks ran, or Step, Log, Phase, After, Recovery.
    """

def Restart(
    target: str,
    /,
    *,
    name: str | None = ...,
    at: When | None = ...,
    grace: float | str = ...,
) -> FaultSpec:
    """One by one: SIGTERM, `grace`, SIGKILL, restarted; the next one after the job's next step.

    - `name`: Its name, for `after` and `recovery` of other faults.
    - `grace`: Seconds between SIGTERM and SIGKILL.
    - `at`: seconds since all tasks ran, or Step, Log, Phase, After, Recovery.
    """

def Oom(
    target: str,
    /,
    *,
    name: str | None = ...,
    at: When | None = ...,
) -> FaultSpec:
    """Its memory limit is lowered until the kernel kills it; the restart policy decides.

    - `name`: Its name, for `after` and `recovery` of other faults.
    - `at`: seconds since all tasks ran, or Step, Log, Phase, After, Recovery.
    """

def Pause(
    target: str,
    /,
    *,
    for_: float | str,
    name: str | None = ...,
    at: When | None = ...,
) -> FaultSpec:
    """Frozen `for` a time: it answers nothing, and does not notice.

    - `name`: Its name, for `after` and `recovery` of other faults.
    - `for_`: Seconds, or `forever`: until the run ends or it is healed by hand.
    - `at`: seconds since all tasks ran, or Step, Log, Phase, After, Recovery.
    """

def Throttle(
    target: str,
    /,
    *,
    for_: float | str,
    cpus: float,
    name: str | None = ...,
    at: When | None = ...,
) -> FaultSpec:
    """Limited to `cpus` cores `for` a time.

    - `name`: Its name, for `after` and `recovery` of other faults.
    - `for_`: Seconds, or `forever`: until the run ends or it is healed by hand.
    - `cpus`: The cores that are left to it.
    - `at`: seconds since all tasks ran, or Step, Log, Phase, After, Recovery.
    """

def Partition(
    *groups: list[str],
    for_: float | str,
    name: str | None = ...,
    at: When | None = ...,
    oneway: bool = ...,
) -> FaultSpec:
    """Groups of tasks that can't reach each other `for` a time.

    - `name`: Its name, for `after` and `recovery` of other faults.
    - `for_`: Seconds, or `forever`: until the run ends or it is healed by hand.
    - `oneway`: Only what the first group sends.
    - `at`: seconds since all tasks ran, or Step, Log, Phase, After, Recovery.
    """

def Shape(
    target: str,
    /,
    *,
    for_: float | str,
    name: str | None = ...,
    at: When | None = ...,
    to: str | None = ...,
    oneway: bool = ...,
    delay: float | str = ...,
    jitter: float | str = ...,
    loss: float | str = ...,
    bandwidth: int | str | None = ...,
) -> FaultSpec:
    """The task's network is slow, narrow or lossy `for` a time.

    - `name`: Its name, for `after` and `recovery` of other faults.
    - `for_`: Seconds, or `forever`: until the run ends or it is healed by hand.
    - `to`: The tasks, by name or glob, towards which the network is shaped; all by default.
    - `oneway`: Only what the shaped task sends.
    - `delay`: Seconds by which each packet is late.
    - `jitter`: Seconds, give or take, around the delay.
    - `loss`: The share of packets that is lost, 0 to 1, or `5%`.
    - `bandwidth`: Bits per second that each of the tasks can send.
    - `at`: seconds since all tasks ran, or Step, Log, Phase, After, Recovery.
    """

def Cordon(
    target: str,
    /,
    *,
    for_: float | str,
    name: str | None = ...,
    at: When | None = ...,
) -> FaultSpec:
    """Its node takes no new tasks `for` a time; those that it has keep running.

    - `name`: Its name, for `after` and `recovery` of other faults.
    - `for_`: Seconds, or `forever`: until the run ends or it is healed by hand.
    - `at`: seconds since all tasks ran, or Step, Log, Phase, After, Recovery.
    """

def Drain(
    target: str,
    /,
    *,
    for_: float | str,
    name: str | None = ...,
    at: When | None = ...,
    grace: float | str = ...,
) -> FaultSpec:
    """Its node takes no new tasks `for` a time, and the run's tasks there are evicted.

    Each eviction is a preemption of its own, which a disruption budget may forbid. A task that was
    evicted is started again at once: it waits until a node takes it.

    - `name`: Its name, for `after` and `recovery` of other faults.
    - `for_`: Seconds, or `forever`: until the run ends or it is healed by hand.
    - `grace`: Seconds between SIGTERM and SIGKILL.
    - `at`: seconds since all tasks ran, or Step, Log, Phase, After, Recovery.
    """

def Random(
    target: FaultSpec,
    /,
    *,
    every: float | str,
    name: str | None = ...,
    at: When | None = ...,
    seed: int | None = ...,
    max: int = ...,
    jitter: float | str = ...,
) -> Entry:
    """Faults at random times against random targets, from a seed.

    They begin with the run, at the time `at`, or with another trigger: the first one has it then.

    - `name`: Its name, for `after` and `recovery` of other faults.
    - `every`: The mean time between two faults.
    - `seed`: The seed; default: the scenario's.
    - `jitter`: Seconds, give or take, around `every`.
    - `at`: seconds since all tasks ran, or Step, Log, Phase, After, Recovery.
    """

def Trace(
    target: str | PathLike[str],
    /,
    *,
    name: str | None = ...,
    at: When | None = ...,
    speed: float = ...,
    grace: float | str = ...,
    down: float | str | None = ...,
    after_recovery: bool = ...,
) -> Entry:
    """Recorded preemptions, from the beginning of the run, the time `at`, or another trigger on.

    - `name`: Its name, for `after` and `recovery` of other faults.
    - `speed`: The factor by which a trace is replayed faster than it was recorded.
    - `grace`: Seconds between SIGTERM and SIGKILL.
    - `down`: Seconds until a task is back, instead of those of the rows.
    - `after_recovery`: Whether the times between preemptions count from the job's recovery.
    - `at`: seconds since all tasks ran, or Step, Log, Phase, After, Recovery.
    """

def Step(
    step: int,
    *,
    task: str | None = ...,
) -> Trigger:
    """At the first step event with at least this step; `task`: of these tasks only, a glob."""

def Log(
    expression: str,
    *,
    task: str | None = ...,
) -> Trigger:
    """At the first line of output in which this regular expression is found."""

def Phase(
    phase: str,
    *,
    task: str | None = ...,
) -> Trigger:
    """The first time that a phase begins: `checkpoint` is while one is being written."""

def After(
    fault: str,
    *,
    delay: float | str = ...,
) -> Trigger:
    """`delay` after another fault, by its `name` or number, has taken effect."""

def Recovery(
    fault: str,
    *,
    delay: float | str = ...,
) -> Trigger:
    """`delay` after the job's first step after another fault."""
