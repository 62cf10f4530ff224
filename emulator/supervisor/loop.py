"""The one loop: it takes events, asks the policy, calls the engine and writes the history.

Everything that happens arrives in one inbox: lines and exits from the engine, results of its own
calls (made on other threads, so that the loop never waits for one task), signals of the user.
Timers sit in a heap. The loop sleeps until the next of these, and never polls.
"""

from __future__ import annotations

import heapq
import itertools
import os
import signal
from collections.abc import Callable
from typing import cast

from emulator.clock import Clock
from emulator.engines.base import Engine, EngineDown, Exited, Inbox, Line, Shaping, capable
from emulator.errors import EngineLost
from emulator.metrics.samples import Sample
from emulator.plan import Plan
from emulator.record.events import (
    AllRunning,
    Entry,
    JobEnded,
    Prepared,
    Restart,
    RunStarted,
    SecondInterrupt,
    StopSignal,
    TaskExit,
    TaskRunning,
    TaskStart,
    observed,
)
from emulator.record.folder import RunFolder
from emulator.scenario.faults import PlannedFault
from emulator.steps import Observation, StepReader
from emulator.supervisor import policy
from emulator.supervisor.calls import Calls
from emulator.supervisor.desk import Desk
from emulator.supervisor.events import Asked, Called, Interrupted, JobEnd, Measured, Preparing
from emulator.supervisor.injector import Injector
from emulator.supervisor.sampling import Sampling
from emulator.supervisor.state import TaskState
from emulator.supervisor.watchdog import Watchdog

__all__ = ["Supervisor"]

STOP_GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL when the job is over (as `docker stop`)."""
DRAIN = 10.0
"""Seconds that the other workers get to finish by themselves once the job has succeeded."""
TRAINING_ROLES = ("chief", "master", "worker")
"""Roles that come to an end by themselves when the training does."""


class Supervisor:
    """Runs one plan on one engine to its end.

    `submit` runs an engine call: a thread pool's in real life, `lambda call: call()` on a manual
    clock. `aside` runs one that nobody waits for, not even at the end; without it `submit` does.
    `on_entry`, `on_line` and `on_sample` are told what is written, printed and measured.
    """

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        record: RunFolder,
        *,
        clock: Clock,
        submit: Callable[[Callable[[], None]], object],
        aside: Callable[[Callable[[], None]], object] | None = None,
        on_entry: Callable[[Entry], None] = lambda entry: None,
        on_line: Callable[[str, str], None] = lambda task, text: None,
        on_sample: Callable[[Sample], None] = lambda sample: None,
    ) -> None:
        self.inbox = Inbox()
        self._plan, self._engine, self._record = plan, engine, record
        self._clock = clock
        self._calls = Calls(plan, engine, self.inbox, submit, aside or submit)
        self._on_entry, self._on_line, self._on_sample = on_entry, on_line, on_sample
        rule = plan.scenario.metrics.steps
        self._tasks = {task.name: TaskState(task, StepReader(rule)) for task in plan.tasks}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._end: JobEnd | None = None
        self._stopping = False
        self._job_restarts = 0
        self._life = 0
        self._restarting: policy.RestartJob | None = None
        self._all_running = False
        self._injector = Injector(plan.faults, self)
        self.desk = Desk(
            plan,
            engine,
            self._injector,
            tasks=lambda: self._tasks,
            phase=self._phase,
            stop=lambda: self._interrupted(signal.SIGTERM),
        )
        self._watchdog = Watchdog(plan.scenario.restart.stall, self)
        self._sampling = Sampling(
            plan.scenario.metrics.interval,
            engine,
            record.sample,
            self.inbox,
            self,
            clock=clock,
            aside=aside or submit,
        )

    def run(self) -> JobEnd:
        """Start every task, see the job through, stop what is left; return how it ended.

        Raises EngineError, RecordError. Nothing is removed here: `engine.tear_down` does that.
        """
        plan = self._plan
        name = plan.scenario.name
        self._write(
            RunStarted(run_id=plan.run_id, scenario=name, engine=plan.engine, pid=os.getpid())
        )
        return self._from_the_start()

    def _from_the_start(self) -> JobEnd:
        plan = self._plan
        self._engine.prepare(plan, self._record.path, self.inbox)
        self._calls.link()
        self._write(Prepared())
        if plan.scenario.timeout is not None:
            self._at(plan.scenario.timeout, self._out_of_time)
        for state in self._tasks.values():
            self._start(state)
        return self._see_through()

    def _see_through(self) -> JobEnd:
        self._sampling.begin()
        try:
            while self._end is None or self._anything_left() or self._injector.healing:
                due = self._timers[0][0] if self._timers else None
                self._take(self._clock.next_event(self.inbox, due))
                self._fire_due_timers()  # also while a task prints without end
        finally:
            self._sampling.end()
        return self._end

    # --- Events ---------------------------------------------------------------------------------

    def _take(self, event: object) -> None:
        match event:
            case Line():
                self._heard(event)
            case Exited():
                self._exited(event)
            case Called(operation="start"):
                self._started(event)
            case Called(error=EngineLost() as error):
                raise error
            case Called(operation="impair" | "restore" as operation):
                why = event.error.message if event.error else ""
                self._injector.impaired(event.answer, on=operation == "impair", error=why)
            case Called(operation="equip"):
                self._injector.prepared(event.error.message if event.error else "")
            case Preparing(what=what):
                self._injector.preparing(what)
            case EngineDown(error=error):
                raise error
            case Interrupted():
                self._interrupted(event.signal)
            case Asked():
                event.answer()
            case Measured():
                if (sample := self._sampling.measured(event)) is not None:
                    self._on_sample(sample)

    def _fire_due_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self._clock.now():
            heapq.heappop(self._timers)[2]()

    def _heard(self, line: Line) -> None:
        state = self._tasks[line.task]
        state.last_words.append(line.text)
        self._record.log(line.task, line.text)
        self._on_line(line.task, line.text)
        seen = state.reader.read(line.text) or Observation("", {})
        if seen.event:
            self._write(observed(seen.event, line.task, seen.data), wall=line.wall)
        if seen.event == "step":
            state.step = cast("int", seen.data["step"])
            self._watchdog.stepped(line.task)
        self._injector.heard(line.task, line.text, seen.event, seen.data)

    def _started(self, call: Called) -> None:
        if call.error:
            raise call.error
        state = self._tasks[call.task]
        state.state = "running"
        self._write(TaskRunning(task=call.task, id=call.answer))
        self._note_all_running()
        self._injector.running(call.task)
        self._watchdog.running()
        if state.early_exit:
            early, state.early_exit = state.early_exit, None
            self._exited(early)
        elif self._stopping or self._restarting:
            self._tell_to_stop(state)

    def _note_all_running(self) -> None:
        if self._end or self._all_running:
            return
        if all(state.state != "starting" for state in self._tasks.values()):
            self._all_running = True
            self._write(AllRunning())
            self._injector.begin()
            self._watchdog.begin()

    def _exited(self, event: Exited) -> None:
        state = self._tasks[event.task]
        if state.state == "starting":
            state.early_exit = event
            return
        oom = event.oom_killed
        fault = self._injector.takes(event.task, event.exit_code, oom_killed=oom)
        state.state, state.exit_code = "down" if fault else "ended", event.exit_code
        self._write(
            TaskExit(
                task=event.task,
                exit_code=event.exit_code,
                oom_killed=event.oom_killed,
                told_to_stop=state.told_to_stop,
                fault=fault or None,
            ),
            wall=event.wall,
        )
        if self._restarting:
            self._restart_job_when_all_ended()
        elif self._end is None and not fault:
            self._decide(state, event)

    def _decide(self, state: TaskState, event: Exited) -> None:
        scenario = self._plan.scenario
        by_job = scenario.restart.scope == "job"
        decision = policy.decide(
            event.task,
            event.exit_code,
            restart=scenario.restart,
            success=scenario.success,
            exits={n: s.exit_code if s.state == "ended" else None for n, s in self._tasks.items()},
            restarts=self._job_restarts if by_job else state.restarts,
        )
        match decision:
            case policy.Succeed(reason=reason, drain=drain):
                self._finish(JobEnd("succeeded", reason), drain=drain)
            case policy.Fail(reason=reason):
                if event.oom_killed:
                    reason += " (out of memory: the kernel killed it)"
                words = tuple(line for line in state.last_words if line.strip())
                self._finish(JobEnd("failed", reason, event.task, words))
            case policy.RestartTask(delay=delay, number=number):
                state.state, state.restarts = "backoff", number
                self._write(Restart(task=event.task, scope="task", number=number, delay=delay))
                self._at(delay, lambda: self._start_unless_over(state))
            case policy.RestartJob(number=number, delay=delay):
                self._job_restarts, self._restarting = number, decision
                self._write(Restart(task=event.task, scope="job", number=number, delay=delay))
                self._stop_all()
                self._restart_job_when_all_ended()
            case policy.Wait():
                pass

    def _phase(self) -> str:
        return "ending" if self._end else "running" if self._all_running else "starting"

    def _interrupted(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._end is None:
            self._finish(JobEnd("interrupted", f"stopped by {name}"))
        else:
            self._write(SecondInterrupt(signal=name))
            self._kill_all()

    # --- Starting -------------------------------------------------------------------------------

    def _start_unless_over(self, state: TaskState) -> None:
        if self._end is None and state.state == "backoff":
            self._start(state)

    def _start(self, state: TaskState, *, fresh: bool = False, same_address: bool = False) -> None:
        task = state.task
        state.state, state.told_to_stop = "starting", False
        state.reader = StepReader(self._plan.scenario.metrics.steps)
        self._write(TaskStart(task=task.name, fresh=fresh))

        self._calls.start(task, fresh=fresh, same_address=same_address)

    def _restart_job_when_all_ended(self) -> None:
        pending = self._restarting
        if pending is None or self._anything_left():
            return
        self._restarting = None
        self._life += 1
        # A preempted task is not there yet: it joins the others when its node is back.
        there = [state for state in self._tasks.values() if state.state != "down"]
        for state in there:
            state.state = "backoff"
            self._at(pending.delay, lambda state=state: self._start_unless_over(state))  # type: ignore[misc]

    # --- Stopping -------------------------------------------------------------------------------

    def _finish(self, end: JobEnd, *, drain: bool = False) -> None:
        """Settle the outcome; whatever happens after can't change it."""
        self._end, self._restarting = end, None
        self._write(JobEnded(task=end.task, outcome=end.outcome, reason=end.reason))
        self._injector.end()
        for state in self._tasks.values():
            if state.state in ("backoff", "down"):
                state.state = "ended"
            if drain and state.task.role not in TRAINING_ROLES:
                self._tell_to_stop(state)
        if drain:
            self._at(DRAIN, self._stop_all)
        else:
            self._stop_all()

    def _stop_all(self) -> None:
        """Send SIGTERM to whoever runs, and SIGKILL after the grace period."""
        self._stopping = self._end is not None
        for state in self._tasks.values():
            self._tell_to_stop(state)
        life = self._life

        def kill() -> None:
            if life == self._life:  # else this was for the job's life before
                self._kill_all()

        self._at(STOP_GRACE, kill)

    def _tell_to_stop(self, state: TaskState) -> None:
        if state.state != "running" or self._leaves_anyway(state):
            return
        if not state.told_to_stop:
            state.told_to_stop = True
            self._signal(state, signal.SIGTERM)

    def _kill_all(self) -> None:
        for state in self._tasks.values():
            if state.state == "running" and not self._leaves_anyway(state):
                state.told_to_stop = True
                self._signal(state, signal.SIGKILL)

    def _leaves_anyway(self, state: TaskState) -> bool:
        """Say whether a task that is to start again has its own notice, which takes its time."""
        return self._end is None and self._injector.has_noticed(state.task.name)

    def _signal(self, state: TaskState, number: signal.Signals) -> None:
        name = state.task.name
        self._write(StopSignal(task=name, signal=number.name))
        self._calls.signal(name, number)

    def _anything_left(self) -> bool:
        return any(state.state in ("starting", "running") for state in self._tasks.values())

    def _out_of_time(self) -> None:
        if self._end is None:
            limit = self._plan.scenario.timeout
            self._finish(JobEnd("timeout", f"not done after the timeout of {limit:g} s"))

    # --- What the injector asks for (see `hands.py`) ----------------------------------------------

    def is_running(self, task: str) -> bool:
        """Say whether the task runs now and the job goes on."""
        return self._end is None and self._tasks[task].state == "running"

    def send(self, task: str, number: signal.Signals) -> None:
        """Signal a task as a fault; unlike a stop of ours this counts as a failure."""
        self._calls.signal(task, number)

    def impair(self, fault: PlannedFault, *, on: bool) -> None:
        """Pause, throttle, squeeze, cut off or shape, or let go on as before."""
        self._calls.impair(fault, on=on)

    def can_shape(self) -> bool:
        """Say whether the engine has what faults of the network take."""
        return capable(self._engine, Shaping).can_shape

    def equip(self) -> None:
        """Have the engine make that, in the background."""
        self._calls.equip()

    def bring_back(self, fault: PlannedFault) -> None:
        """Start a task again, after a preemption on a fresh disk."""
        if self._end is None and self._tasks[fault.target].state == "down":
            fresh, same = fault.kind == "preempt", fault.address == "same"
            self._start(self._tasks[fault.target], fresh=fresh, same_address=same)

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Do something after some seconds."""
        self._at(delay, action)

    def now(self) -> float:
        """Return monotonic seconds."""
        return self._clock.now()

    def note(self, entry: Entry) -> None:
        """Write to the history."""
        self._write(entry)

    # --- Effects --------------------------------------------------------------------------------

    def _at(self, delay: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (self._clock.now() + delay, next(self._order), action))

    def _write(self, entry: Entry, *, wall: float | None = None) -> None:
        self._on_entry(self._record.write(entry, wall=wall))
