"""What decides what happens to a job: the rules of its scenario, or those of another system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.faults.platforms import slurm
from emulator.supervisor import restart_policy
from emulator.supervisor.restart_policy import Decision, RestartJob

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.engines.base import Exited
    from emulator.planning.plan import Plan
    from emulator.record.timeline import Timeline
    from emulator.supervisor.job import Job, JobEnd, TaskState

DRAIN = 10.0
"""Seconds that the other workers get to finish by themselves once the job has succeeded."""


class Strategy:
    """The rules of the scenario. That of another system overrides what it does in its own way.

    `finish` settles the outcome, `stop` stops every task, `restart` starts all of them again.
    """

    def __init__(
        self,
        plan: Plan,
        job: Job,
        *,
        finish: Callable[[JobEnd], None],
        stop: Callable[[], None],
        restart: Callable[[str, RestartJob], None],
    ) -> None:
        self._plan, self._job, self._finish, self._stop = plan, job, finish, stop
        self._restart = restart
        self._timers = job.timers

    def begin(self) -> None:
        """The tasks are about to be started."""

    def take_over(self, timeline: Timeline, began: float) -> None:
        """Continue with the job of a killed supervisor; the run began at the time `began`."""

    def decide(self, state: TaskState, event: Exited, *, evicted: bool = False) -> Decision:
        """Return what follows from an exit; `evicted`: by a fault that may bring the task back."""
        scenario, job = self._plan.scenario, self._job
        is_before = event.task in job.before_training
        tasks = job.before_training if is_before else job.in_training
        exits = {n: s.exit_code if s.state == "ended" else None for n, s in tasks.items()}
        if is_before:
            return restart_policy.decide_before_training(
                event.task,
                event.exit_code,
                restart=scenario.restart,
                exits=exits,
                restarts=state.restarts,
            )
        return restart_policy.decide(
            event.task,
            event.exit_code,
            restart=scenario.restart,
            success=scenario.success,
            roles=self._plan.roles,
            exits=exits,
            restarts=job.restarts if scenario.restart.scope == "job" else state.restarts,
        )

    def requeued(self, line: str) -> RestartJob | None:
        """Return what follows where a task of a Slurm job has requeued it with this line.

        Slurm does so as often as it is asked: the limit of restarts is that of failures.
        """
        scenario = self._plan.scenario
        if not scenario.slurm or not slurm.asks_requeue(line):
            return None
        delay, number = scenario.restart.first_backoff, self._job.restarts + 1
        return RestartJob(delay, number, requeued=True)

    def comes_back(self, state: TaskState, event: Exited) -> bool:
        """Return whether a task that a fault has ended is started again when the fault says so."""
        return True

    def starts_fresh(self, state: TaskState) -> bool:
        """Return whether the next start of a task is on a fresh disk."""
        return False

    def on_line(self) -> None:
        """A task has printed."""

    def on_exit(self) -> None:
        """A task has ended, and what follows from it was done."""

    def wind_down(self, end: JobEnd, *, drain: bool) -> None:
        """Stop the remaining tasks of a job that has ended; `drain`: once they had some time."""
        if drain:
            self._timers.after(DRAIN, self._stop)
        else:
            self._stop()

    def time_out(self) -> None:
        """The time limit of the run has passed after the end of the job."""


def strategy_of(plan: Plan) -> type[Strategy]:
    """Return what a job follows: the rules of its scenario, or those of another system."""
    rules = plan.scenario.rules
    found: type[Strategy] = Strategy if rules is None else rules.strategy()
    return found
