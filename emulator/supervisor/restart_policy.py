"""Decides what follows from the exit of a task (pure).

The rules follow Kubeflow's training operator where it has one: `exit-code` restarts what ended
with 128 or more (a signal) and takes anything below for permanent; a chief decides for the job, or
without one, worker 0. If a task fails for good, the job fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emulator.scenario.frameworks.spec import Roles
    from emulator.scenario.restart import Restart
    from emulator.scenario.schema import SuccessRule

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
    fresh: bool = False
    """On a fresh disk."""


@dataclass(frozen=True)
class RestartJob:
    """Stop every task and start all again after `delay` seconds."""

    delay: float
    number: int
    requeued: bool = False
    """A task of a Slurm job has asked for it; it also stops those that a fault lets end."""


@dataclass(frozen=True)
class BeginTraining:
    """Every task before training has succeeded: start the others."""


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
    cause: str = ""
    """Of a job of another system: `backoff-limit`, `stuck`, ...; empty: its task failed."""


Decision = Wait | RestartTask | RestartJob | BeginTraining | Succeed | Fail


Again = RestartTask | RestartJob
"""What was decided for a task that is started again."""


def decide(
    task: str,
    exit_code: int,
    *,
    restart: Restart,
    success: SuccessRule,
    roles: Roles,
    exits: Mapping[str, int | None],
    restarts: int,
) -> Decision:
    """Return what follows from the exit of `task` with `exit_code`.

    `exits` maps every task of the training to its exit code, None for one that runs or will run
    again; `restarts` counts those of the task so far, or of the job if the scope is `job`.
    """
    if exit_code == 0:
        if reason := _success(success, roles, {**exits, task: 0}):
            return Succeed(reason, drain=not roles.endless(exits))
        if restart.policy != "always" or restart.scope == "job":
            return Wait()
    elif not _retryable(restart, exit_code):
        return Fail(_permanent(task, exit_code, restart))
    by_job = restart.scope == "job"
    if restarts >= restart.limit:
        return Fail(_exhausted("the job" if by_job else task, exit_code, restart))
    kind = RestartJob if by_job else RestartTask
    return kind(delay=_backoff(restart, restarts), number=restarts + 1)


def unless_incurable(decision: Decision, task: str, exit_code: int, died_of: str) -> Decision:
    """Return the decision, but no restart of what has `died_of` something that no restart heals."""
    if died_of and isinstance(decision, Again):
        return Fail(f"{task} failed with exit code {exit_code}, and no restart heals: {died_of}")
    return decision


def decide_before_training(
    task: str,
    exit_code: int,
    *,
    restart: Restart,
    exits: Mapping[str, int | None],
    restarts: int,
) -> Decision:
    """Return what follows from the exit of a task that ends before training.

    As with init containers of Kubernetes, code 0 is the end of the task under every policy. A
    failed one is restarted alone whatever the scope is, because no task waits for it in the middle
    of its work. `exits` are those of the tasks before training alone.
    """
    if exit_code == 0:
        done = all(code == 0 for code in {**exits, task: 0}.values())
        return BeginTraining() if done else Wait()
    if not _retryable(restart, exit_code):
        return Fail(f"{_permanent(task, exit_code, restart)}, so that training did not begin")
    if restarts >= restart.limit:
        return Fail(f"{_exhausted(task, exit_code, restart)}, so that training did not begin")
    return RestartTask(delay=_backoff(restart, restarts), number=restarts + 1)


def _permanent(task: str, exit_code: int, restart: Restart) -> str:
    why = f"{task} failed with exit code {exit_code}"
    if restart.policy == "exit-code":
        why += ", which exit-code takes for permanent (below 128)"
    return why


def _exhausted(whose: str, exit_code: int, restart: Restart) -> str:
    times = f"{restart.limit} restart" + ("" if restart.limit == 1 else "s")
    return f"{whose} had its {times} and ended again, with exit code {exit_code}"


def _backoff(restart: Restart, restarts: int) -> float:
    """Return the seconds before the next restart."""
    doublings = min(restarts, 64)  # more would overflow, and a backoff of 0 never gets there
    return min(restart.first_backoff * 2.0**doublings, BACKOFF_CEILING)


def _retryable(restart: Restart, exit_code: int) -> bool:
    if restart.policy == "exit-code":
        return exit_code >= 128
    return restart.policy in ("on-failure", "always")


def _success(rule: SuccessRule, roles: Roles, exits: Mapping[str, int | None]) -> str:
    """Return why the job has succeeded, or nothing."""
    deciding = roles.deciding(rule, exits)
    if all(exits[task] == 0 for task in deciding):
        return f"{deciding[0]} finished" if len(deciding) == 1 else "all tasks that count finished"
    return ""
