"""What a run looks like now, from what has been told of it so far (pure).

`emulate up` feeds it in its own process, `emulate top` over the run's API, and `/metrics` from the
record. Whoever feeds it reads it as well: there is one thread, and no lock. It keeps nothing that
grows with the run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from emulator.analysis.pace import Pace
from emulator.faults.schedule import PlannedFault, from_json
from emulator.metrics.samples import GpuShare, GpuUsage, Rates, Sample, Usage, rates
from emulator.plan import Plan, Task
from emulator.record.events import Entry
from emulator.record.history import HappenedAt

__all__ = ["Estimate", "Live", "LiveFault", "LiveTask"]

LINES = 200
"""Of what tasks print, so many of the last lines are kept."""


@dataclass
class LiveTask:
    """One task now."""

    task: Task
    state: str = "pending"
    """pending, starting, running, backoff, down (preempted), ended."""
    exit_code: int | None = None
    restarts: int = 0
    """By the restart policy, with those of the whole job."""
    starts: int = 0
    """All of them: the first, restarts, replacements after a preemption."""
    oom_kills: int = 0
    steps: int = 0
    """That it told of, those done again counted again; what it did before the first that it tells
    of after a start is not known and not counted."""
    examples: float = 0.0
    """The same of examples, where it tells them or the scenario says how many a step has."""
    usage: Usage | None = None
    """As last sampled; None where it does not run or nobody samples."""
    rates: Rates | None = None
    """Between the last two samples."""
    gpus: Mapping[str, GpuShare] = field(default_factory=dict)
    """By the device's uuid: instances of a divided device have the same index."""
    pace: Pace = field(default_factory=Pace)
    examples_told: float | None = None
    """The last count of examples that it told of itself."""
    now: list[float] = field(default_factory=lambda: [0.0])
    """The run's time: one for all tasks, moved on by whoever feeds them."""

    @property
    def name(self) -> str:
        """`<role>-<index>`."""
        return self.task.name

    @property
    def step(self) -> int | None:
        """The last that it told of."""
        return self.pace.step

    @property
    def steps_per_second(self) -> float | None:
        """Over the last 10 s; None where it does not run, or has told of less than two steps."""
        return self.pace.rate(self.now[0]) if self.state == "running" else None


@dataclass
class LiveFault:
    """One fault now."""

    planned: PlannedFault
    stage: str = "waiting"
    """waiting, preparing, triggered, applied, healed, skipped, failed."""
    since: float | None = None
    """When it came to this stage, in seconds since the run began."""
    triggered: float | None = None
    reason: str = ""
    """Why it was skipped or failed, or what it waits for."""

    @property
    def id(self) -> str:
        """As in the plan; `manual-1` by hand."""
        return self.planned.id

    @property
    def kind(self) -> str:
        """What is done."""
        return self.planned.kind

    @property
    def in_force(self) -> bool:
        """Whether it has been triggered and is not over yet."""
        return self.stage == "triggered" or (
            self.stage == "applied" and self.planned.spec.is_healed
        )


@dataclass(frozen=True)
class Estimate:
    """When the job will have reached its final step."""

    target: int | None
    """The step that the scenario expects; None where it names none."""
    seconds: float | None = None
    """From now; None where nobody can say."""
    why_not: str = ""
    """Why there is none, in a word or two."""


class Live:
    """A run, event by event; `tick` says that time has passed without any."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._now = [0.0]
        self.tasks: dict[str, LiveTask] = {
            task.name: LiveTask(task, now=self._now) for task in plan.tasks
        }
        self.faults: dict[str, LiveFault] = {
            fault.id: LiveFault(fault) for fault in plan.faults
        }  # by id, in the order of the plan; by hand after it
        self.front = Pace()
        """The job's furthest step."""
        self.state = "starting"
        """starting, running (all tasks have run), ending."""
        self.outcome: str | None = None
        """Once it is settled: succeeded, failed, timeout, interrupted, error."""
        self.reason = ""
        self.restarts = 0
        self.lines: deque[tuple[str, str]] = deque(maxlen=LINES)
        """(task, what it printed)."""
        self.gpus: Sequence[GpuUsage] = ()
        self.sampled: float | None = None
        """When usage was sampled last."""
        self._restarting = False
        self._happened_at = HappenedAt()
        self._failed_at: float | None = None

    @property
    def began(self) -> float | None:
        """Seconds since 1970 of the time 0; None before the first event."""
        return self._happened_at.began

    @property
    def t(self) -> float:
        """Seconds since the run began, as far as anybody has said."""
        return self._now[0]

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
        self._now[0] = max(self._now[0], t)

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
        entry = replace(entry, t=self._happened_at(entry))
        match entry.event:
            case "all-running":
                self.state = "running"
            case "fault":
                self._fault(entry)
            case "restart":
                self._restart(entry)
            case "job":
                self._over(str(entry.data["outcome"]), str(entry.data["reason"]))
            case "error":
                self._over("error", str(entry.data["message"]))
        if task := self.tasks.get(entry.task):
            self._of_task(task, entry)

    def _of_task(self, task: LiveTask, entry: Entry) -> None:
        match entry.event:
            case "start":
                task.state, task.starts = "starting", task.starts + 1
                task.pace.break_off()
            case "running":
                task.state = "running"
            case "step":
                self._step(task, entry)
            case "exit":
                self._exit(task, entry)

    def _step(self, task: LiveTask, entry: Entry) -> None:
        t, reached = entry.t, entry.furthest
        each = self.plan.scenario.metrics.examples_per_step
        # The first after a start says where it goes on, not what was done.
        going = task.pace.going and task.step is not None
        done = sum(gap * times for gap, times in entry.gaps.items() if gap > 0)
        done += max(0, entry.first - (task.step or 0)) if going else 0
        task.steps += done
        told = entry.data.get("examples")
        if isinstance(told, int | float):
            task.examples += max(0.0, told - (task.examples_told or 0.0)) if going else 0.0
            task.examples_told = float(told)
        else:
            task.examples += done * (each or 0)
        task.pace.advance(t, entry.step)
        if self.step is None or reached > self.step:
            if self._disturbed:
                self.front.break_off()
            self.front.advance(t, reached)

    def _exit(self, task: LiveTask, entry: Entry) -> None:
        data = entry.data
        task.state = "down" if data.get("fault") else "ended"
        task.exit_code = int(data["exit_code"])
        task.oom_kills += bool(data["oom_killed"])
        task.usage, task.rates, task.gpus = None, None, {}
        if data.get("fault") or (task.exit_code and not data["told_to_stop"]):
            self._failed_at = entry.t
        if self.outcome and task.state == "down":
            task.state = "ended"
        if self._restarting and all(
            other.state not in ("starting", "running") for other in self.tasks.values()
        ):
            self._restarting = False
            for other in self.tasks.values():
                other.state = "backoff" if other.state == "ended" else other.state

    def _restart(self, entry: Entry) -> None:
        self.restarts += 1
        if entry.data["scope"] == "job":
            self._restarting = True
            for task in self.tasks.values():
                task.restarts += 1
        else:
            task = self.tasks[entry.task]
            task.state, task.restarts = "backoff", task.restarts + 1

    def _fault(self, entry: Entry) -> None:
        if entry.data["stage"] == "planned":
            planned = from_json(entry.data["plan"])
            self.faults[planned.id] = LiveFault(planned)
        elif fault := self.faults.get(str(entry.data["id"])):
            fault.stage, fault.since = str(entry.data["stage"]), entry.t
            fault.reason = str(entry.data.get("reason", ""))
            if fault.stage == "triggered":
                fault.triggered = entry.t
            if fault.stage == "applied" and fault.planned.spec.blocks_job:
                self._failed_at = entry.t

    def _over(self, outcome: str, reason: str) -> None:
        self.state, self.outcome, self.reason = "ending", outcome, reason
        for task in self.tasks.values():
            if task.state in ("backoff", "down"):
                task.state = "ended"

    # --- What follows from it -------------------------------------------------------------------

    @property
    def _disturbed(self) -> bool:
        """Whether there was a failure since the job last came further."""
        return self._failed_at is not None and self._failed_at >= self.front.at

    @property
    def recovering(self) -> bool:
        """Whether the job has not come further since a failure."""
        return self.step is not None and self.outcome is None and self._disturbed

    def impairments(self, task: str) -> list[LiveFault]:
        """Return the faults that a task is under now."""
        return [f for f in self.faults.values() if f.in_force and task in f.planned.tasks]

    def eta(self) -> Estimate:
        """Estimate when the job reaches the final step that the scenario expects.

        The steps that are left, over the rate of the last minute of training without what lies
        around failures and stalls (`Pace.undisturbed`); what has passed since the last step is
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
