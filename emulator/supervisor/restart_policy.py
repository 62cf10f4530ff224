"""Decides what follows from the exit of a task (pure).

The rules follow Kubeflow's training operator where it has one: `exit-code` restarts what ended
with 128 or more (a signal) and takes anything below for permanent; a chief decides for the job, or
without one, worker 0. If a task fails for good, the job fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emulator.scenario.roles import CHIEFS, chief, role_of
from emulator.scenario.schema import Restart, SuccessRule

BACKOFF_CEILING = 300.0
"""Seconds; the kubelet's ceiling for CrashLoopBackOff."""


@dataclass(frozen=True)
class Wait:
    """Nothing to do: other tasks are still running."""


@dataclass(frozen=True)
class RestartTask:
    """Start this task again after `delay` seconds; it is its restart number `number`."""

    delay: float
    number: int


@dataclass(frozen=True)
class RestartJob:
    """Stop every task and start all again after `delay` seconds."""

    delay: float
    number: int


@dataclass(frozen=True)
class Succeed:
    """The job is done. `drain`: let the other workers finish by themselves first.

    Workers of a cluster with parameter servers never end by themselves: they are servers.
    """

    reason: str
    drain: bool = False


@dataclass(frozen=True)
class Fail:
    """The job can't succeed any more."""

    reason: str


Decision = Wait | RestartTask | RestartJob | Succeed | Fail


def decide(
    task: str,
    exit_code: int,
    *,
    restart: Restart,
    success: SuccessRule,
    exits: Mapping[str, int | None],
    restarts: int,
) -> Decision:
    """Return what follows from the exit of `task` with `exit_code`.

    `exits` maps every task to its exit code, None for one that runs or will run again; `restarts`
    counts those of the task so far, or of the job if the scope is `job`.
    """
    if exit_code == 0:
        if reason := _success(success, {**exits, task: 0}):
            return Succeed(reason, drain="ps-0" not in exits)
        if restart.policy != "always" or restart.scope == "job":
            return Wait()
    elif not _retryable(restart, exit_code):
        why = f"{task} failed with exit code {exit_code}"
        if restart.policy == "exit-code":
            why += ", which exit-code takes for permanent (below 128)"
        return Fail(why)
    if restarts >= restart.limit:
        whose = "the job" if restart.scope == "job" else task
        times = f"{restart.limit} restart" + ("" if restart.limit == 1 else "s")
        return Fail(f"{whose} had its {times} and ended again, with exit code {exit_code}")
    doublings = min(restarts, 64)  # more would overflow, and a backoff of 0 never gets there
    delay = min(restart.backoff * 2**doublings, BACKOFF_CEILING)
    kind = RestartJob if restart.scope == "job" else RestartTask
    return kind(delay=delay, number=restarts + 1)


def _retryable(restart: Restart, exit_code: int) -> bool:
    if restart.policy == "exit-code":
        return exit_code >= 128
    return restart.policy in ("on-failure", "always")


def _success(rule: SuccessRule, exits: Mapping[str, int | None]) -> str:
    """Return why the job has succeeded, or nothing."""
    deciding = [task for task in exits if role_of(task) in CHIEFS]
    if rule == "all-workers":
        deciding = [task for task in exits if role_of(task) == "worker"]
    elif not deciding:
        # Without a chief, worker 0 leads; in a cluster without workers, all tasks count.
        deciding = [leader] if (leader := chief(exits)) else list(exits)
    if all(exits[task] == 0 for task in deciding):
        return f"{deciding[0]} finished" if len(deciding) == 1 else "all tasks that count finished"
    return ""
