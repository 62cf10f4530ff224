"""The state of a run now, from the events so far (pure).

`emulate up` feeds it in its own process, `emulate top` over the run's API, and `/metrics` from the
record. One thread feeds it and reads it: there is no lock. It keeps nothing that grows with the
steps of the run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from emulator.analysis.rate_estimator import RateEstimator
from emulator.faults.table import FAULTS
from emulator.metrics.samples import GpuShare, GpuUsage, Rates, Sample, Usage, rates
from emulator.planning.plan import Plan, Task
from emulator.record.events import Entry, FaultEvent, Phase, Step, TaskExit, TaskStart
from emulator.record.history import HappenedAt
from emulator.record.timeline import FaultTimeline, TaskTimeline, Timeline

__all__ = ["Estimate", "LiveTask", "RunState"]

LINES = 200
"""Of what tasks print, so many of the last lines are kept."""


@dataclass
class LiveTask:
    """One task now."""

    task: Task
    run: RunState
    timeline: TaskTimeline
    steps: int = 0
    """Steps that it reported, those done again counted again; what it did before the first that it
    reports after a start is not known and not counted."""
    examples: float = 0.0
    """The same of examples, where it reports them or the scenario says how many a step has."""
    usage: Usage | None = None
    """As last sampled; None where it does not run or nothing is sampled."""
    rates: Rates | None = None
    """Between the last two samples."""
    gpus: Mapping[str, GpuShare] = field(default_factory=dict)
    """By the device's uuid: instances of a divided device have the same index."""
    pace: RateEstimator = field(default_factory=RateEstimator)
    examples_told: float | None = None
    """The last count of examples that it reported itself."""

    @property
    def name(self) -> str:
        """`<role>-<index>`."""
        return self.task.name

    @property
    def state(self) -> str:
        """pending, starting, running, backoff, down (preempted), ended."""
        state = self.timeline.state
        if state in ("succeeded", "failed", "stopped"):
            return "backoff" if self.run.job_waits else "ended"
        if self.run.outcome and state in ("backoff", "down"):
            return "ended"
        return state

    @property
    def exit_code(self) -> int | None:
        """That of its last exit."""
        exits = self.timeline.exits
        return exits[-1].exit_code if exits else None

    @property
    def restarts(self) -> int:
        """By the restart policy, with those of the whole job."""
        return self.timeline.restarts

    @property
    def starts(self) -> int:
        """All of them: the first, restarts, replacements after a preemption."""
        return sum(one.start is not None for one in self.timeline.incarnations)

    @property
    def oom_kills(self) -> int:
        """How often it ran out of memory."""
        return sum(exit_.oom_killed for exit_ in self.timeline.exits)

    @property
    def step(self) -> int | None:
        """The last that it reported."""
        return self.pace.step

    @property
    def steps_per_second(self) -> float | None:
        """Over the last 10 s; None where it does not run, or has reported less than two steps."""
        return self.pace.rate(self.run.t) if self.state == "running" else None


@dataclass(frozen=True)
class Estimate:
    """When the job will have reached its final step."""

    target: int | None
    """The step that the scenario expects; None where it names none."""
    seconds: float | None = None
    """From now; None where nobody can say."""
    why_not: str = ""
    """Why there is none, in a word or two."""


class RunState:
    """A run, event by event; `tick` says that time has passed without any."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.timeline = Timeline(plan)
        """Without steps and phases, which would grow with the run."""
        self.t = 0.0
        """Seconds since the run began, as far as is known."""
        self.tasks: dict[str, LiveTask] = {
            task.name: LiveTask(task, self, self.timeline.tasks[task.name]) for task in plan.tasks
        }
        self.front = RateEstimator()
        """The job's furthest step."""
        self.job_waits = False
        """All tasks have ended and wait to be started again together."""
        self.lines: deque[tuple[str, str]] = deque(maxlen=LINES)
        """(task, what it printed)."""
        self.gpus: Sequence[GpuUsage] = ()
        self.sampled: float | None = None
        """When usage was sampled last."""
        self._happened_at = HappenedAt()
        self._failed_at: float | None = None

    @property
    def faults(self) -> Mapping[str, FaultTimeline]:
        """By id, in the order of the plan; manual ones after them."""
        return self.timeline.faults

    @property
    def state(self) -> str:
        """starting, running (all tasks have run), ending."""
        if self.outcome:
            return "ending"
        return "starting" if self.timeline.all_running is None else "running"

    @property
    def outcome(self) -> str | None:
        """Once it is settled: succeeded, failed, timeout, interrupted, error."""
        return self.timeline.outcome

    @property
    def reason(self) -> str:
        """Why it is this outcome."""
        return self.timeline.reason

    @property
    def restarts(self) -> int:
        """By the restart policy."""
        return len(self.timeline.restarts)

    @property
    def began(self) -> float | None:
        """Seconds since 1970 of the time 0; None before the first event."""
        return self._happened_at.began

    @property
    def step(self) -> int | None:
        """The furthest step that any task has told of."""
        return self.front.step

    @property
    def steps_per_second(self) -> float | None:
        """Steps that the job got further, over the last 10 s."""
        return None if self.outcome else self.front.rate(self.t)

    @property
    def examples_per_second(self) -> float | None:
        """The same in examples, where the scenario says how many a step has."""
        each, rate = self.plan.scenario.metrics.examples_per_step, self.steps_per_second
        return each * rate if each and rate is not None else None

    def tick(self, t: float) -> None:
        """Say how late it is, in seconds since the run began; it never goes back."""
        self.t = max(self.t, t)

    # --- What is told ---------------------------------------------------------------------------

    def line(self, task: str, text: str) -> None:
        """Take a line that a task printed."""
        self.lines.append((task, text))

    def sample(self, sample: Sample) -> None:
        """Take a sample of usage."""
        self.tick(sample.t)
        seconds = 0.0 if self.sampled is None else sample.t - self.sampled
        self.gpus, self.sampled = sample.gpus, sample.t
        for name, task in self.tasks.items():
            # Of one that has just ended the engine may still tell something: nothing of use.
            usage = sample.tasks.get(name) if task.state == "running" else None
            task.rates = None if usage is None else rates(task.usage, usage, seconds)
            task.usage = usage
            task.gpus = {g.uuid: g.tasks[name] for g in sample.gpus if name in g.tasks}

    def entry(self, entry: Entry) -> None:
        """Take an event of the history."""
        self.tick(entry.t)
        entry = entry.at(self._happened_at(entry))
        task = self.tasks.get(entry.task)
        if not isinstance(entry, Step | Phase):
            self.timeline.add(entry)
            self.job_waits = self.timeline.restarting and not (
                self.outcome or any(t.state in ("starting", "running") for t in self._timelines)
            )
        match entry:
            case Step() if task is not None:
                self._step(task, entry)
            case TaskStart() if task is not None:
                task.pace.break_off()
            case TaskExit() if task is not None:
                task.usage, task.rates, task.gpus = None, None, {}
                if entry.fault or (entry.exit_code and not entry.told_to_stop):
                    self._failed_at = entry.t
            case FaultEvent(stage="applied") if FAULTS[entry.kind].blocks_job:
                self._failed_at = entry.t
            case _:
                pass

    @property
    def _timelines(self) -> Iterable[TaskTimeline]:
        return self.timeline.tasks.values()

    def _step(self, task: LiveTask, entry: Step) -> None:
        t = entry.t
        each = self.plan.scenario.metrics.examples_per_step
        # The first after a start says where it goes on, not what was done.
        going = task.pace.going and task.step is not None
        done = entry.step - entry.first
        done += max(0, entry.first - (task.step or 0)) if going else 0
        task.steps += done
        told = entry.values.get("examples")
        if isinstance(told, int | float):
            task.examples += max(0.0, told - (task.examples_told or 0.0)) if going else 0.0
            task.examples_told = float(told)
        else:
            task.examples += done * (each or 0)
        task.pace.advance(t, entry.step)
        if self.step is None or entry.step > self.step:
            if self._disturbed:
                self.front.break_off()
            self.front.advance(t, entry.step)

    # --- What follows from it -------------------------------------------------------------------

    @property
    def _disturbed(self) -> bool:
        """Whether there was a failure since the job last came further."""
        return self._failed_at is not None and self._failed_at >= self.front.at

    @property
    def recovering(self) -> bool:
        """Whether the job has not come further since a failure."""
        return self.step is not None and self.outcome is None and self._disturbed

    def impairments(self, task: str) -> list[FaultTimeline]:
        """Return the faults that a task is under now."""
        return [f for f in self.faults.values() if f.in_force and task in f.planned.tasks]

    def eta(self) -> Estimate:
        """Estimate when the job reaches the final step that the scenario expects.

        The steps that are left, over the rate of the last minute of training without what lies
        around failures and stalls (`RateEstimator.undisturbed`); the time since the last step is
        taken off. Faults that are still to come are not in it: nobody knows what they will cost.
        So there is no estimate while the job recovers or stands, and none from too little.
        """
        target = self.plan.scenario.expect.final_step
        if target is None:
            return Estimate(None, why_not="no final step is expected")
        if self.step is not None and self.step >= target:
            return Estimate(target, 0.0)
        if self.outcome:
            return Estimate(target, why_not=self.outcome)
        if self.step is None:
            return Estimate(target, why_not="no step yet")
        if self.recovering:
            return Estimate(target, why_not="recovering")
        if self.front.stalled(self.t):
            return Estimate(target, why_not=f"no step for {self.t - self.front.at:.0f}s")
        if not (rate := self.front.undisturbed):
            return Estimate(target, why_not="too early to say")
        left = (target - self.step) / rate - (self.t - self.front.at)
        return Estimate(target, max(0.0, left))
