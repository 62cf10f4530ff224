"""The Jobs of a JobSet under way: their restarts, deadlines, and a supervisor that takes over."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property

from emulator.engines.base import Exited
from emulator.plugins.kubeflow.kubelet import crashes_after, crashes_of
from emulator.plugins.kubeflow.trainer.ladder import Ladder, PodEnd, Status
from emulator.plugins.kubeflow.trainer.section import JobSet
from emulator.record.events import Restart, TaskExit, TaskStart
from emulator.record.timeline import Timeline
from emulator.supervisor.job import JobEnd, TaskState
from emulator.supervisor.restart_policy import (
    BeginTraining,
    Decision,
    Fail,
    RestartJob,
    RestartTask,
)
from emulator.supervisor.strategy import Strategy

DISRUPTIONS = (
    *("Evicted", "Preempting", "PreemptionByScheduler", "DeletionByTaintManager"),
    *("EvictionByEvictionAPI", "TerminationByKubelet", "DeletionByPodGC"),
)
"""Reasons of an exit, on a cluster, where something else than a fault has taken its Pod away."""


class JobSetRun(Strategy):
    """What Kubernetes does with the Jobs of one run."""

    decides_evictions = True

    @cached_property
    def _rules(self) -> JobSet:
        rules = self._plan.scenario.jobset
        assert isinstance(rules, JobSet), "only its jobs have this strategy"
        return rules

    @cached_property
    def _ladder(self) -> Ladder:
        tasks: dict[str, list[str]] = {}
        for task in self._plan.tasks:
            tasks.setdefault(task.role, []).append(task.name)
        before = frozenset(task.role for task in self._plan.before_training)
        return Ladder(self._rules, tasks, before, self._plan.scenario.restart)

    @cached_property
    def _status(self) -> Status:
        return self._ladder.begin()

    # --- Its beginning --------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to count the time of the Jobs that are made first."""
        self._limit_all(self._timers.now())
        self._limit_jobs(self._timers.now())

    def take_over(self, timeline: Timeline, began: float, undecided: Exited | None) -> None:
        """Continue with the Jobs of a killed supervisor; the run began at the time `began`.

        `undecided`: the last exit, if it is to be decided again.
        """
        for name, state in self._job.tasks.items():
            state.crashes = crashes_of(timeline.tasks[name].incarnations)
        self._status = replayed(self._ladder, timeline, but_last=undecided is not None)
        if timeline.prepared is not None:
            self._limit_all(began + timeline.prepared)
        if not timeline.restarting:
            self._limit_jobs(began + _made_at(timeline, self._job.present))

    # --- While it runs --------------------------------------------------------------------------

    def decide(self, state: TaskState, event: Exited, *, evicted: bool = False) -> Decision:
        """Return what follows from an exit; `evicted`: by a fault that may bring the task back."""
        state.crashes = crashes_after(state.crashes, event.wall - state.starts[-1])
        self._status, decision = self._ladder.after(
            self._status, _end(state, event, evicted=evicted)
        )
        if isinstance(decision, BeginTraining):
            self._limit_jobs(self._timers.now(), began=True)
        return decision

    def comes_back(self, state: TaskState, event: Exited) -> bool:
        """Return whether a task that a fault has ended is started again, alone or with all."""
        if self._job.end is not None:
            return True
        _, decision = self._ladder.after(self._status, _end(state, event, evicted=True))
        return isinstance(decision, RestartTask | RestartJob)

    def starts_fresh(self, state: TaskState) -> bool:
        """Return whether the next start of a task is that of a new Pod, with a new disk."""
        index = self._status.jobs[state.task.role].indexes[state.task.name]
        return bool(state.starts) and index.rung in ("pod", "gang")

    def on_restarted(self) -> None:
        """All Jobs are made again: their time begins anew."""
        self._limit_jobs(self._timers.now())

    # --- Deadlines ------------------------------------------------------------------------------

    def _limit_all(self, since: float) -> None:
        if self._rules.active_deadline is not None:
            self._timers.at(since + self._rules.active_deadline, self._end_all)

    def _end_all(self) -> None:
        if self._job.end is None:
            limit = self._rules.active_deadline or 0.0
            why = f"it was active for longer than its activeDeadlineSeconds of {limit:g} s"
            self._finish(JobEnd("failed", why, cause="deadline"))

    def _limit_jobs(self, since: float, *, began: bool = False) -> None:
        """Fail each Job that runs now once it has been active for too long, from the time `since`.

        `began`: the training begins now.
        """
        present = self._job.in_training if began else self._job.present
        for role in dict.fromkeys(state.task.role for state in present.values()):
            limit = self._rules.job(role).active_deadline
            if limit is not None:
                self._timers.at(since + limit, self._on_deadline, role, self._status.restarts)

    def _on_deadline(self, role: str, restarts: int) -> None:
        is_past = restarts != self._status.restarts or self._status.jobs[role].complete
        if is_past or self._job.end is not None:
            return
        self._status, decision = self._ladder.after_deadline(self._status, role)
        match decision:
            case RestartJob():
                self._restart(self._ladder.tasks[role][0], decision)
            case Fail(reason=reason, cause=cause):
                self._finish(JobEnd("failed", reason, cause=cause))


def _end(state: TaskState, event: Exited, *, evicted: bool) -> PodEnd:
    return PodEnd(
        event.task,
        event.exit_code,
        evicted=evicted or event.reason in DISRUPTIONS,
        leaving=max(0.0, event.wall - state.leaving_since) if evicted else 0.0,
        crashes=state.crashes,
        restarts=state.restarts,
    )


# --- From the history (pure) ----------------------------------------------------------------------


def replayed(ladder: Ladder, timeline: Timeline, *, but_last: bool = False) -> Status:
    """Return the JobSet at the end of a history; `but_last`: without what the last exit led to.

    Nothing follows from the exits while all tasks are being stopped. A restart of all that none of
    the exits has led to is that of a deadline.
    """
    status, up, restarting = ladder.begin(), set[str](), False
    evictions = set(_evictions(timeline))
    exits = [entry.n for entry in timeline.history if isinstance(entry, TaskExit)]
    undecided = exits[-1] if but_last else -1
    for entry in timeline.history:
        match entry:
            case TaskStart():
                up.add(entry.task)
            case TaskExit() if entry.task in timeline.tasks:
                up.discard(entry.task)
                if not restarting and entry.n != undecided:
                    evicted = entry.n in evictions or entry.reason in DISRUPTIONS
                    end = PodEnd(entry.task, entry.exit_code, evicted=evicted)
                    status, _ = ladder.after(status, end)
                restarting = restarting and bool(up)
            case Restart(scope="job"):
                if status.restarts < entry.number:
                    role = timeline.plan.task(entry.task).role
                    status, _ = ladder.after_deadline(status, role)
                restarting = bool(up)
    return status


def _evictions(timeline: Timeline) -> Iterator[int]:
    """Yield the number of each exit that is the doing of a fault which may start its target again.

    It takes effect with the exit, and is written just before it.
    """
    for fault in timeline.faults.values():
        applied = fault.stages.get("applied")
        if applied is not None and fault.planned.spec.restarts_target:
            yield applied.n + 1


def _made_at(timeline: Timeline, tasks: Collection[str]) -> float:
    """Return when the Jobs of some tasks were made last (seconds since the run began)."""
    again = max((one.n for one in timeline.restarts if one.scope == "job"), default=-1)
    starts = (
        entry.t
        for entry in timeline.history
        if isinstance(entry, TaskStart) and entry.n > again and entry.task in tasks
    )
    return min(starts, default=timeline.end)
