"""The current state of a run, from the events so far (pure).

`emulate up` feeds it in its own process, `emulate top` over the run's API, and `/metrics` from the
record. It is not thread-safe. Its memory use does not grow with the steps of the run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from emulator.analysis.rate_estimator import RateEstimator
from emulator.analysis.steps_made import StepsMade
from emulator.faults.kinds import FAULTS
from emulator.metrics.samples import Sample, rates
from emulator.record.events import Entry, FaultEvent, Phase, Step, StepSource, TaskExit, TaskStart
from emulator.record.history import HappenedAt
from emulator.record.timeline import FaultTimeline, TaskTimeline, Timeline

if TYPE_CHECKING:
    from emulator.metrics.catalog import GpuShare, GpuUsage, Rates, Usage
    from emulator.planning.plan import Plan, Task

LINES = 200
"""How many of the last lines that tasks printed are kept."""
COURSE = 24
"""How many points of a value are kept, at least, once there are so many."""
VALUES = 20
"""Names of values that are followed."""


@dataclass
class LiveTask:
    """The current state of one task."""

    task: Task
    run: RunState
    timeline: TaskTimeline
    steps: int = 0
    """Steps that it made, including repeated ones; without those before its first report after a
    start, which are unknown."""
    examples: float = 0.0
    """The same in examples, if it reports them or the scenario sets `examples_per_step`."""
    usage: Usage | None = None
    """The last sample; None if it does not run or nothing is sampled."""
    rates: Rates | None = None
    """Between the last two samples."""
    gpus: Mapping[str, GpuShare] = field(default_factory=dict)
    """By the device's uuid; instances of a divided device have the same index."""
    pace: RateEstimator = field(default_factory=RateEstimator)
    examples_reported: float | None = None
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
            waits = self.run.job_waits and self.task.before is None
            return "backoff" if waits else "ended"
        if self.run.outcome and state in ("backoff", "down"):
            return "ended"
        return state

    @property
    def exit_code(self) -> int | None:
        """The code of its last exit."""
        exits = self.timeline.exits
        return exits[-1].exit_code if exits else None

    @property
    def restarts(self) -> int:
        """Restarts by the policy, including those of the whole job."""
        return self.timeline.restarts

    @property
    def starts(self) -> int:
        """All starts: the first, restarts, replacements after a preemption."""
        return sum(one.start is not None for one in self.timeline.incarnations)

    @property
    def oom_kills(self) -> int:
        """How often it ran out of memory."""
        return sum(exit_.oom_killed for exit_ in self.timeline.exits)

    @property
    def step(self) -> int | None:
        """The last step that it reported."""
        return None if self.pace.step is None else int(self.pace.step)

    @property
    def steps_per_second(self) -> float | None:
        """Over the last 10 s; None if it does not run, or has reported less than two steps."""
        return self.pace.rate(self.run.t) if self.state == "running" else None


@dataclass
class LiveValue:
    """A number that a task reports with its steps, such as the loss."""

    task: str
    """The one whose values these are: the first that reported it, until that ends."""
    step: int
    value: float
    points: list[float] = field(default_factory=list)
    """The values since the start, thinned evenly to less than twice COURSE."""
    _every: int = 1
    _seen: int = 0

    def add(self, step: int, value: float) -> None:
        """Add the next value of its task."""
        self.step, self.value = step, value
        if self._seen % self._every == 0:
            self.points.append(value)
        self._seen += 1
        if len(self.points) == 2 * COURSE:
            self.points = self.points[::2]
            self._every *= 2


@dataclass(frozen=True)
class Estimate:
    """When the job will reach its final step."""

    target: int | None
    """The step that the scenario expects, if any."""
    seconds: float | None = None
    """From now; None: unknown."""
    why_not: str = ""
    """Why it is unknown, in a word or two."""


class RunState:
    """A run, event by event; `tick` advances the time without an event."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.timeline = Timeline(plan)
        """Without steps and phases, which would grow with the run."""
        self.t = 0.0
        """The latest known time, in seconds since the run began."""
        self.tasks: dict[str, LiveTask] = {
            task.name: LiveTask(task, self, self.timeline.tasks[task.name]) for task in plan.tasks
        }
        self.front = RateEstimator()
        """The job's furthest step, and how fast that advances."""
        self._steps_made = StepsMade(plan)
        self._made = 0.0
        """Steps of the job, also those that were done again."""
        self._pace = RateEstimator()
        """How fast they are made."""
        self.job_waits = False
        """All tasks have ended and wait for a restart of the whole job."""
        self.values: dict[str, LiveValue] = {}
        """What tasks report with their steps, by name."""
        self.lines: deque[tuple[str, str]] = deque(maxlen=LINES)
        """(task, line)."""
        self.gpus: Sequence[GpuUsage] = ()
        self.sampled: float | None = None
        """When usage was last sampled."""
        self._happened_at = HappenedAt()
        self._failed_at: float | None = None

    @property
    def faults(self) -> Mapping[str, FaultTimeline]:
        """By id, in the order of the plan; then manual ones."""
        return self.timeline.faults

    @property
    def state(self) -> str:
        """starting, running (all tasks have run), ending."""
        if self.outcome:
            return "ending"
        return "starting" if self.timeline.all_running is None else "running"

    @property
    def outcome(self) -> str | None:
        """succeeded, failed, timeout, interrupted, error; None before the job ends."""
        return self.timeline.outcome

    @property
    def reason(self) -> str:
        """The reason for the outcome."""
        return self.timeline.reason

    @property
    def restarts(self) -> int:
        """Restarts by the policy."""
        return len(self.timeline.restarts)

    @property
    def began(self) -> float | None:
        """The time 0 in seconds since 1970; None before the first event."""
        return self._happened_at.began

    @property
    def step(self) -> int | None:
        """The furthest step of the job: of any task that trains (`steps_made`)."""
        return None if self.front.step is None else int(self.front.step)

    @property
    def steps_per_second(self) -> float | None:
        """The job's rate over the last 10 s; 0 while no task that reports steps runs.

        None where it is unknown: before the second step after a restart.
        """
        if self.outcome or self.step is None:
            return None
        if self._steps_made.front is None:
            return None if self._steps_made.some_may_step else 0.0
        return self._pace.rate(self.t)

    @property
    def examples_per_second(self) -> float | None:
        """The same in examples, if the scenario sets `examples_per_step`."""
        each, rate = self.plan.scenario.metrics.examples_per_step, self.steps_per_second
        return each * rate if each and rate is not None else None

    def tick(self, t: float) -> None:
        """Set the time, in seconds since the run began; it never goes back."""
        self.t = max(self.t, t)

    # --- Input ----------------------------------------------------------------------------------

    def line(self, task: str, text: str) -> None:
        """Add a line that a task printed."""
        self.lines.append((task, text))

    def sample(self, sample: Sample) -> None:
        """Add a sample of usage."""
        self.tick(sample.t)
        seconds = 0.0 if self.sampled is None else sample.t - self.sampled
        self.gpus, self.sampled = sample.gpus, sample.t
        for name, task in self.tasks.items():
            # The engine may still report usage of a task that has just ended.
            usage = sample.tasks.get(name) if task.state == "running" else None
            task.rates = None if usage is None else rates(task.usage, usage, seconds)
            task.usage = usage
            task.gpus = {g.uuid: g.tasks[name] for g in sample.gpus if name in g.tasks}

    def entry(self, entry: Entry) -> None:
        """Add an event of the history."""
        self.tick(entry.t)
        entry = entry.having(t=self._happened_at(entry))
        task = self.tasks.get(entry.task)
        if not isinstance(entry, Step | Phase):
            self.timeline.add(entry)
            states = {timeline.state for timeline in self.timeline.tasks.values()}
            active = self.outcome or states & {"starting", "running"}
            self.job_waits = self.timeline.restarting and not active
        if task is not None or not isinstance(entry, Step):
            self._job_made(entry)
        match entry:
            case Step() if task is not None:
                self._step(task, entry)
            case StepSource(retracts=True) if task is not None:
                task.pace, task.steps, task.examples = RateEstimator(), 0, 0.0
                self.front = RateEstimator()
                self.values.clear()
            case TaskStart() if task is not None:
                task.pace.interrupt()
            case TaskExit() if task is not None:
                task.usage, task.rates, task.gpus = None, None, {}
                if entry.fault or (entry.exit_code and not entry.told_to_stop):
                    self._failed_at = entry.t
            case FaultEvent(stage="applied") if FAULTS[entry.kind].blocks_job:
                self._failed_at = entry.t
            case _:
                pass

    def _job_made(self, entry: Entry) -> None:
        goes_on = self._steps_made.front is not None
        made = self._steps_made.add(entry)
        if made.brings_job_on:
            if not goes_on or made.is_first_of_job:
                self._pace.interrupt()
            self._made += sum(one.steps for one in made.job)
            self._pace.advance(entry.t, self._made)
        if made.is_first_of_job:
            self.front = RateEstimator()

    def _step(self, task: LiveTask, entry: Step) -> None:
        self._report(entry)
        # The first step after a start shows where the task continues, not what it did.
        continues = task.pace.is_continuous
        done = entry.step - entry.first
        done += max(0, entry.first - (task.step or 0)) if continues else 0
        task.steps += done
        examples = entry.values.get("examples")
        if isinstance(examples, int | float):
            more = max(0.0, examples - (task.examples_reported or 0.0))
            task.examples += more if continues else 0.0
            task.examples_reported = float(examples)
        else:
            task.examples += done * (self.plan.scenario.metrics.examples_per_step or 0)
        task.pace.advance(entry.t, entry.step)
        if self._steps_made.counts(task.name) and (self.step is None or entry.step > self.step):
            if self._disturbed:
                self.front.interrupt()
            self.front.advance(entry.t, entry.step)

    def _report(self, entry: Step) -> None:
        for name in entry.values:
            value = entry.number(name)
            if value is None or name == "examples":
                continue
            known = self.values.get(name)
            if known is None:
                if len(self.values) == VALUES:
                    continue
                known = self.values[name] = LiveValue(entry.task, entry.step, value)
            elif known.task != entry.task and self.tasks[known.task].state == "ended":
                known.task = entry.task
            if known.task == entry.task:
                known.add(entry.step, value)

    # --- Queries --------------------------------------------------------------------------------

    @property
    def _disturbed(self) -> bool:
        """Whether there was a failure since the job's last advance."""
        return self._failed_at is not None and self._failed_at >= self.front.at

    @property
    def recovering(self) -> bool:
        """Whether the job has not advanced since a failure."""
        return self.step is not None and self.outcome is None and self._disturbed

    @property
    def finishing(self) -> list[str]:
        """The tasks that the job waits for although it has made all of its steps.

        Empty before that. A role that never ends by itself, such as parameter servers, is not
        waited for.
        """
        target = self.plan.scenario.expect.final_step
        if target is None or self.step is None or self.step < target or self.outcome:
            return []
        endless = self.plan.roles.endless_beside
        in_training = (task for task in self.tasks.values() if task.task.before is None)
        waited_for = (task for task in in_training if task.task.role not in endless)
        return [task.name for task in waited_for if task.state != "ended"]

    def impairments(self, task: str) -> list[FaultTimeline]:
        """Return the faults in force on a task."""
        return [f for f in self.faults.values() if f.in_force and task in f.planned.tasks]

    def eta(self) -> Estimate:
        """Estimate when the job reaches the final step that the scenario expects.

        It is the remaining steps divided by the rate of undisturbed training
        (`RateEstimator.undisturbed`), less the time since the last step. The cost of future faults
        is unknown and not included. There is no estimate while the job recovers or has stalled.
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
        remaining = (target - self.step) / rate - (self.t - self.front.at)
        return Estimate(target, max(0.0, remaining))
