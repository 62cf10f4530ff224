"""The one loop: it handles events, asks the restart policy, calls the engine, writes the history.

All events arrive in one inbox: lines and exits from the engine, results of its calls (made on
workers, so that the loop never waits for one task), signals of the user, requests of the API. The
loop sleeps until the next event or the next timer, and never polls.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from emulator.analysis.incurable import incurable
from emulator.analysis.uninterrupted import RESULTS, UNINTERRUPTED, from_data
from emulator.engines.base import (
    REST,
    Engine,
    EngineDown,
    Exited,
    Inbox,
    Line,
    Lines,
    Reattaching,
    Storing,
)
from emulator.engines.capabilities import capable
from emulator.errors import EngineLost
from emulator.metrics.event_steps import EventSteps
from emulator.metrics.steps import samples_in
from emulator.metrics.unread import UnreadWatch
from emulator.record.events import (
    AllRunning,
    Attached,
    BeforeTraining,
    Entry,
    JobEnded,
    PortPublished,
    Prepared,
    Refused,
    Restart,
    RunStarted,
    Samples,
    SecondInterrupt,
    StepSource,
    TaskExit,
    TrainingBegan,
    Unread,
    observed,
)
from emulator.record.folder import RunFolder
from emulator.record.version import header
from emulator.supervisor import restart_policy as policy
from emulator.supervisor.control import Asked, Interrupted, RunControl
from emulator.supervisor.engine_calls import Called, EngineCalls, Preparing
from emulator.supervisor.injector import Injector
from emulator.supervisor.job import (
    LONGEST_WORD,
    Job,
    JobEnd,
    TaskState,
    have_started,
    is_any,
    is_stoppable,
    pending,
    pending_helpers,
    step_reporters,
)
from emulator.supervisor.sampling import Measured, Sampling
from emulator.supervisor.strategy import strategy_of
from emulator.supervisor.takeover import (
    RecoveredState,
    first_starts,
    init_line,
    resumption,
)
from emulator.supervisor.timers import Timers
from emulator.supervisor.watchdog import DiskWatch, Watchdog
from emulator.supervisor.witness.watched_saves import Saw, WatchedSaves

if TYPE_CHECKING:
    from emulator.engines.kit.origin import Origin
    from emulator.metrics.steps import Observation, Seen
    from emulator.planning.plan import Plan
    from emulator.record.writer import RunWriter
    from emulator.runtime.clock import Clock, Workers
    from emulator.scenario.restart import RestartScope

STOP_GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL when the job is over (as `docker stop`)."""


class Supervisor:
    """Runs one plan on one engine to its end, or continues a run from its `recovered` state.

    `inbox` takes an `Interrupted` at any time; `control` has the commands of the API.
    """

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        history: RunWriter,
        *,
        clock: Clock,
        workers: Workers,
        recovered: RecoveredState | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.inbox = Inbox()
        self._plan, self._engine, self._history = plan, engine, history
        self._clock, self._recovered, self._origin = clock, recovered, origin
        self._timers = Timers(clock)
        started = None if recovered is None else first_starts(recovered.timeline)
        self._calls = EngineCalls(plan, engine, self.inbox, workers, clock, started=started)
        tasks = recovered.tasks if recovered else pending(plan)
        helpers = recovered.helpers if recovered else pending_helpers(plan)
        self._job = Job(
            plan, tasks, helpers, timers=self._timers, calls=self._calls, history=history
        )
        self._job.slow_patterns.update(recovered.slow_patterns if recovered else ())
        self._injector = Injector(plan.faults, recovered.faults if recovered else (), self._job)
        self._watchdog = Watchdog(plan.scenario.restart.stall, self._job)
        storage = engine.storage() if isinstance(engine, Storing) else []
        self._disks = DiskWatch([history.path, *storage], self._timers)
        interval = plan.scenario.metrics.interval
        self._sampling = Sampling(interval, engine, self.inbox, clock, workers, self._job)
        self._saves = WatchedSaves(engine, self.inbox, clock, workers, self._job)
        self._strategy = strategy_of(plan)(
            plan, self._job, finish=self._finish, stop=self._stop_all, restart=self._restart_job
        )
        self.control = RunControl(plan, engine, self.inbox, self._job, self._injector)
        self._init_steps = {step.name for task in plan.tasks for step in task.init}
        self._event_steps = recovered.event_steps if recovered else EventSteps()
        self._unread = UnreadWatch(
            step_reporters(plan) if recovered is None else (),
            has_pattern=any(state.reader.is_given for state in tasks.values()),
        )
        self._stopping = False
        self._tasks_begun = False
        """Whether the tasks were started, which wait for the helpers."""
        self._generation = 0
        """Counts the restarts of the whole job."""

    @property
    def end(self) -> JobEnd | None:
        """How the job ended; None until that is settled."""
        return self._job.end

    def run(self) -> JobEnd:
        """Start every task, supervise the job, stop what remains; return how it ended.

        Raises EngineError, RecordError. Nothing is removed here: `engine.tear_down` does that.
        """
        plan, recovered = self._plan, self._recovered
        if recovered is None:
            name, pid = plan.scenario.name, os.getpid()
            origin = self._origin
            self._history.write(
                RunStarted(
                    run_id=plan.run_id,
                    scenario=name,
                    engine=plan.engine,
                    pid=pid,
                    origin=None if origin is None else origin.machine,
                    software=None if origin is None else origin.software,
                )
            )
        elif recovered.timeline.prepared is None:
            self._engine.tear_down(plan.run_id)
            self._note_takeover(recovered)
        if recovered is not None and recovered.timeline.prepared is not None:
            self._resume(recovered)
        else:
            self._engine.prepare(plan, self._history.path, self.inbox)
            self._calls.update_links()
            self._history.write(Prepared())
            for name in self._job.helpers:
                self._job.start_task(name)
            self._begin_tasks()
        self._sampling.begin()
        try:
            if self._clock.is_real:
                self._disks.begin()
            while self._is_under_way:
                if self._job.end is not None and not self._job.anything_left:
                    self._job.stop_helpers()
                self._handle(self._clock.next_event(self.inbox, self._timers.next_due))
                self._timers.run_due()  # also while a task prints without end
                self.inbox.hurried = self._is_hurried()
            self._saves.end()
            self._look_at_end()
            self._read_results()
        finally:
            self._sampling.end()
        assert self._job.end is not None
        return self._job.end

    def _look_at_end(self) -> None:
        """Look at the disk of the first task of the training, if nothing was saved on /shared."""
        assert self._job.end is not None
        if self._saves.on_shared or self._job.end.outcome == "interrupted":
            return
        plan = self._plan
        trains = (one.name for one in plan.in_training if plan.roles.trains(one.role))
        look = self._calls.look_at_end(next(trains, ""))
        if look is not None and look.saved:
            self._history.write(look)

    def _read_results(self) -> None:
        """Read what the tasks have left, where that is to be compared with other runs."""
        assert self._job.end is not None
        if self._plan.reads_results and self._job.end.outcome == "succeeded":
            before = RunFolder(self._history.path).result(UNINTERRUPTED) or {}
            found = self._calls.read_results(from_data(before).files)
            self._history.write_result(RESULTS, {**header(), **found})

    def _begin_tasks(self) -> None:
        """Start every task, once the helpers run that are to be there before them."""
        if self._tasks_begun or self._job.awaits_helpers or self._job.end is not None:
            return
        self._tasks_begun = True
        if self._plan.scenario.timeout is not None:
            self._timers.after(self._plan.scenario.timeout, self._time_out)
        self._strategy.begin()
        for name in self._job.before_training or self._job.in_training:
            self._job.start_task(name)

    def _begin_training(self) -> None:
        """Start the tasks that have waited for those before training."""
        if self._job.training_began:
            return  # decided again after a take-over
        self._job.training_began = True
        self._history.write(TrainingBegan())
        for name in self._job.in_training:
            self._job.start_task(name)

    @property
    def _is_under_way(self) -> bool:
        """Whether there is something to wait for."""
        left = is_any(self._job.states.values(), "starting", "running")
        return self._job.end is None or left or self._injector.healing

    def _is_hurried(self) -> bool:
        """Return whether something may follow from the next line, or an exit is expected."""
        calm = self._job.phase == "running" and self._job.restarting is None
        return not calm or self._injector.awaits_output or self._history.hurried

    # --- Events ---------------------------------------------------------------------------------

    def _handle(self, event: object) -> None:
        if event is None:
            return  # a timer is due
        if isinstance(event, EngineDown):
            raise event.error
        for kind, handle in self._handlers.items():
            if isinstance(event, kind):
                return handle(event)
        raise TypeError(f"{event!r} is no event of a supervisor")

    @cached_property
    def _handlers(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            Lines: self._on_lines,
            Exited: self._on_exit,
            Called: self._on_answer,
            Entry: self._on_entry,
            Preparing: self._injector.on_preparing,
            Measured: self._sampling.on_measured,
            Saw: self._saves.on_seen,
            Interrupted: self._on_interrupt,
            Asked: Asked.answer,
        }

    def _on_lines(self, event: Lines) -> None:
        with self._history.batch():
            for line in event.lines:
                self._on_line(line)

    def _on_entry(self, entry: Entry) -> None:
        """Write what the engine reports for the history alone."""
        self._history.write(entry, wall=entry.wall or None)

    def _on_answer(self, call: Called) -> None:
        """Take the answer of a call of the engine."""
        task, error = call.subject, call.error
        if isinstance(error, EngineLost):
            raise error
        match call.operation:
            case "port lookup":
                self._on_ports(call)
            case "start" if error is None:
                self._on_started(call)
            case "start" if task in self._job.helpers:
                self._job.fail_helper(task, str(error))
                self._begin_tasks()
            case "start" if error:
                raise error
            case "stop" if error:
                self._on_stop_refused(task, call.answer, error.message)
            case "announce" | "find" | "inject" | "kill" | "heal" | "equip" | "watch":
                self._injector.on_answer(call)

    def _on_line(self, line: Line) -> None:
        """Take a line, or what a progress bar has drawn of one: of that, only the step matters."""
        state = self._job.tasks.get(line.task)
        if state is None:
            if line.is_finished:
                self._on_line_beside(line)
        elif line.is_finished:
            self._strategy.on_line()
            self._history.log(line.task, line.text, wall=line.wall)
            read = state.reader.read(line.text, line.wall)
            for pattern in state.reader.take_slow():
                self._job.do_without(pattern, line.task)
            self._on_steps(line.task, read[:-1])
            self._on_observed(line.task, line.wall, read[-1] if read else None, line.text)
            if not read and (told := self._unread.note(line.task, line.text, line.wall)):
                self._history.write(Unread(task=line.task, line=told.line, pattern=told.pattern))
            self._requeue_if_asked(line)
            if not read and (samples := samples_in(line.text)) is not None:
                self._history.write(
                    Samples(task=line.task, digest=samples[0], step=samples[1]), wall=line.wall
                )
        else:
            self._on_steps(line.task, state.reader.read_part(line.text, line.wall))

    def _on_line_beside(self, line: Line) -> None:
        """Take a line of a helper, or of an init step of a task (`TASK.NAME`)."""
        if line.task in self._init_steps:
            self._history.log(*init_line(line.task, line.text), wall=line.wall)
            return
        reported = None
        if line.task == self._plan.scenario.metrics.helper:
            reported = self._event_steps.read(line.text, self._job.starts)
        self._history.log(line.task, line.text, wall=line.wall, shown=reported is None)
        if reported is not None:
            wall = reported.wall if 0 <= reported.wall <= line.wall else line.wall
            self._on_observed(reported.task, wall, reported.seen)
        elif line.task in self._job.helpers and line.text.strip():
            self._job.helpers[line.task].last_words.append(line.text[:LONGEST_WORD])
            self._begin_tasks()

    def _on_steps(self, task: str, steps: Sequence[Observation]) -> None:
        self._note_sources(task, self._job.tasks[task].reader.take_news())
        for seen in steps:
            self._on_observed(task, seen.wall, seen)

    def _note_sources(self, task: str, news: Sequence[Seen]) -> None:
        """Write what was seen for the first time that counts, before its first step."""
        for one in news:
            source = StepSource(
                task=task,
                source=one.words,
                counts=one.counts,
                retracts=one.retracts,
                drawn=one.is_drawn or None,
            )
            self._job.steps.add(source)
            self._history.write(source)

    def _on_observed(
        self, task: str, wall: float, seen: Observation | None, text: str | None = None
    ) -> None:
        """Do what follows from a step or phase, and from the `text` of a finished line."""
        if seen is not None:
            event = observed(task, seen)
            self._history.write(event, wall=seen.wall or wall)
            if seen.event == "step":
                self._unread.stop()
                self._job.tasks[task].step = cast("int", seen.data["step"])
            if goes_on := self._job.steps.add(event):
                self._watchdog.on_step(task)
            self._injector.on_output(task, text, seen.event, seen.data, goes_on=goes_on)
        elif text is not None:
            self._injector.on_line(task, text, wall)
            self._injector.on_output(task, text, "", {})

    def _on_started(self, call: Called) -> None:
        state = self._job.note_running(call.subject, call.answer)
        if not state.is_helper:
            self._injector.on_answer(call)
            self._injector.on_running(call.subject)
            self._saves.on_running(call.subject)
            self._note_all_running()  # from here, tasks that run are watched
            self._watchdog.on_running()
            prepares = self._job.before_training_ran and not self._job.training_began
            if self._job.all_running or prepares or self._job.end is not None:
                self._calls.go()
        if state.early_exit:
            early, state.early_exit = state.early_exit, None
            self._on_exit(early)
        elif state.is_helper:
            if self._job.stops_helpers:
                self._stop(state)
        elif self._stopping or self._job.restarting:
            # Once more, if it was told before the engine had begun to start it.
            state.stop_sent = None
            self._stop(state)
        self._begin_tasks()

    def _note_all_running(self) -> None:
        job = self._job
        if job.end or job.all_running:
            return
        before = job.before_training.values()
        if before and not job.before_training_ran and have_started(before):
            job.before_training_ran = True
            self._history.write(BeforeTraining())
            self._injector.begin(before_training=True)
        if have_started(job.in_training.values()):
            job.all_running = True
            self._history.write(AllRunning())
            self._injector.begin()
            self._watchdog.begin()

    def _on_ports(self, event: Called) -> None:
        if event.error:
            reason = event.error.message
            self._history.write(
                Refused(task=event.subject, operation=event.operation, reason=reason)
            )
        for port, address in event.ports.items():
            self.control.ports[event.subject, port] = address
            self._history.write(PortPublished(task=event.subject, port=port, address=address))

    def _on_exit(self, event: Exited) -> None:
        state = self._job.states[event.task]
        if state.state == "starting":
            state.early_exit = event
            return
        if state.is_helper:
            self._job.end_helper(event.task, event.exit_code)
            self._begin_tasks()
            return
        self._saves.on_exit(event.task)
        self._on_steps(event.task, state.reader.finish())
        oom = event.oom_killed
        fault = self._injector.on_exit(event)
        evicted = bool(fault)
        if fault and not self._job.restarting and not self._strategy.comes_back(state, event):
            fault = ""
        comes_back = fault and self._job.end is None
        state.state, state.exit_code = "down" if comes_back else "ended", event.exit_code
        exited = TaskExit(
            task=event.task,
            exit_code=event.exit_code,
            oom_killed=oom,
            told_to_stop=state.was_told_before(event),
            fault=fault or None,
            reason=event.reason or None,
            bar_ended=state.reader.is_at_end or None,
        )
        self._job.steps.add(exited)
        self._history.write(exited, wall=event.wall)
        if self._job.restarting:
            self._restart_job_when_all_ended()
        elif self._job.end is None and not fault:
            self._decide(state, event, evicted=evicted)
        self._strategy.on_exit()

    def _decide(self, state: TaskState, event: Exited, *, evicted: bool = False) -> None:
        """Do what follows from an exit; `evicted`: by a fault that may bring the task back."""
        decision = self._strategy.decide(state, event, evicted=evicted)
        if isinstance(decision, policy.Again) and self._is_first_death(state):
            died_of = incurable(RunFolder(self._history.path).tail(event.task), event.exit_code)
            decision = policy.unless_incurable(decision, event.task, event.exit_code, died_of)
        match decision:
            case policy.BeginTraining():
                self._begin_training()
            case policy.Succeed(reason=reason, drain=drain):
                self._finish(JobEnd("succeeded", reason), drain=drain)
            case policy.Fail(reason=reason, cause=cause):
                if event.oom_killed:
                    reason += " (out of memory: the kernel killed it)"
                self._finish(JobEnd("failed", reason, event.task, cause))
            case policy.RestartTask(delay=delay, number=number):
                state.due = self._timers.now() + delay
                if state.state == "down":
                    return  # the fault starts it
                state.state, state.restarts = "backoff", number
                state.crashes += 1
                self._note_restart(event.task, decision)
                self._timers.at(state.due, self._start_unless_over, state)
            case policy.RestartJob():
                self._restart_job(event.task, decision)
            case policy.Wait():
                pass

    def _is_first_death(self, state: TaskState) -> bool:
        """Return whether a task has ended for the first time, and by itself.

        Another system starts its tasks again whatever they have died of.
        """
        by_itself = not self._injector.in_force and self._plan.scenario.rules is None
        return by_itself and len(state.starts) == 1

    def _note_restart(self, task: str, what: policy.RestartTask | policy.RestartJob) -> None:
        scope: RestartScope = "job" if isinstance(what, policy.RestartJob) else "task"
        requeued = isinstance(what, policy.RestartJob) and what.requeued
        self._history.write(
            Restart(task=task, scope=scope, number=what.number, delay=what.delay, requeued=requeued)
        )

    def _on_stop_refused(self, task: str, name: str, reason: str) -> None:
        """Record that the engine refused a signal which was no fault."""
        if task in self._job.helpers:
            if name == signal.SIGKILL.name and self._job.helpers[task].state == "running":
                self._job.fail_helper(task, reason)
            return
        self._history.write(Refused(task=task, operation=name, reason=reason))
        if self._job.end and name == signal.SIGKILL.name:
            # Only its removal can end it now, and that is the next step.
            self._job.tasks[task].state = "ended"

    def _on_interrupt(self, event: Interrupted) -> None:
        name = signal.Signals(event.signal).name
        if self._job.end is None:
            self._finish(JobEnd("interrupted", f"stopped by {name}"))
        else:
            self._history.write(SecondInterrupt(signal=name))
            self.inbox.rest = 0
            self._kill_all()
            self._job.kill_helpers()

    # --- Starting again -------------------------------------------------------------------------

    def _start_unless_over(self, state: TaskState) -> None:
        if self._job.end is not None or self._job.restarting or state.state != "backoff":
            return
        if self._timers.now() < state.due:
            self._timers.at(state.due, self._start_unless_over, state)
        else:
            self._start_again(state)

    def _start_again(self, state: TaskState) -> None:
        """Start a task, which may have run before."""
        self._job.start_task(state.task.name, fresh=self._strategy.starts_fresh(state))

    def _requeue_if_asked(self, line: Line) -> None:
        """Start the job again where one of its tasks has requeued it."""
        decision = self._strategy.requeued(line.text)
        is_over = self._job.end is not None or self._job.restarting is not None
        if decision and not is_over and line.task in self._job.in_training:
            self._restart_job(line.task, decision)

    def _restart_job(self, task: str, what: policy.RestartJob) -> None:
        """Stop every task, and start all again once they have ended."""
        self._job.restarts, self._job.restarting = what.number, what
        self._note_restart(task, what)
        self._stop_all()
        self._restart_job_when_all_ended()

    def _restart_job_when_all_ended(self) -> None:
        restart = self._job.restarting
        if restart is None or self._job.anything_left:
            return
        self._job.restarting = None
        self._generation += 1
        for state in self._job.present.values():
            state.due = self._timers.now() + restart.delay
            # A preempted task joins the others when its node is back.
            if state.state != "down":
                state.state = "backoff"
                self._timers.at(state.due, self._start_unless_over, state)
        self._injector.bring_back_delayed()

    # --- Stopping -------------------------------------------------------------------------------

    def _finish(self, end: JobEnd, *, drain: bool = False) -> None:
        """Settle the outcome; later events can't change it."""
        self._job.end, self._job.restarting = end, None
        self._calls.go()
        self.inbox.rest = REST
        self._history.write(
            JobEnded(task=end.task, outcome=end.outcome, reason=end.reason, cause=end.cause or None)
        )
        self._injector.end()
        for state in self._job.tasks.values():
            if state.state in ("backoff", "down"):
                state.state = "ended"
            if drain and not self._plan.roles.trains(state.task.role):
                self._stop(state)
        self._strategy.wind_down(end, drain=drain)

    def _stop_all(self) -> None:
        """Send SIGTERM to every running task, and SIGKILL after the grace period."""
        self._stopping = self._job.end is not None
        for state in self._job.tasks.values():
            self._stop(state)
        self._timers.after(STOP_GRACE, self._kill_all, self._generation)

    def _stop(self, state: TaskState) -> None:
        if is_stoppable(state) and state.stop_sent is None and not self._is_leaving(state):
            self._job.stop_task(state.task.name, signal.SIGTERM)

    def _kill_all(self, generation: int | None = None) -> None:
        """Kill every running task, unless the job was restarted since that `generation`."""
        if generation not in (None, self._generation):
            return
        is_over = self._job.end is not None
        for state in self._job.tasks.values():
            if is_stoppable(state) and (is_over or not self._is_leaving(state)):
                if is_over:
                    self._injector.give_up(state.task.name)
                self._job.stop_task(state.task.name, signal.SIGKILL)

    def _is_leaving(self, state: TaskState) -> bool:
        """Return whether a fault has asked the task to end, and is to have it so."""
        requeued = self._job.restarting is not None and self._job.restarting.requeued
        return not requeued and self._injector.is_terminating(state.task.name)

    def _time_out(self) -> None:
        if self._job.end is None:
            limit = self._plan.scenario.timeout
            why = f"not done after the timeout of {limit:g} s"
            if not self._job.training_began:
                before = self._job.before_training.items()
                left = [name for name, one in before if (one.state, one.exit_code) != ("ended", 0)]
                why += f"; training had not begun, because it waited for {', '.join(left)}"
            self._finish(JobEnd("timeout", why))
        else:
            self._strategy.time_out()

    # --- Taking over ----------------------------------------------------------------------------

    def _note_takeover(self, recovered: RecoveredState) -> None:
        gap = self._history.t - recovered.timeline.end
        self._history.write(Attached(pid=os.getpid(), gap=round(gap, 6)))

    def _resume(self, recovered: RecoveredState) -> None:
        """Continue from the state in which a killed supervisor left the run."""
        job, record = self._job, self._history
        began = self._clock.now() - record.t
        job.end, job.restarts = recovered.end, recovered.job_restarts
        timeline = recovered.timeline
        job.before_training_ran = timeline.before_training is not None
        job.training_began = not job.before_training or timeline.training_began is not None
        job.all_running = timeline.all_running is not None
        started = capable(self._engine, Reattaching).reattach(
            self._plan, record.path, self.inbox, recovered.known
        )
        self._note_takeover(recovered)
        self._injector.settle_history()
        for entry in timeline.history:
            job.steps.add(entry)
        for name, steps in recovered.unwritten.items():
            self._note_sources(name, recovered.unwritten_sources[name])
            for step in steps:
                event = observed(name, step)
                job.steps.add(event)
                self._history.write(event, wall=step.wall or record.printed_until(name))
        for one in recovered.unwritten_events:
            self._history.write(observed(one.task, one.seen), wall=one.wall)
        self._tasks_begun = True
        self._strategy.take_over(timeline, began)
        for name in (*job.helpers, *job.tasks):
            self._resume_task(name, recovered, started)
        for task in self._plan.everything:
            if task.ports and task.name in started:
                self._calls.look_up_ports(task)
        if job.all_running:
            self._watchdog.begin()
        if job.end is not None:
            self.inbox.rest = REST
            self._injector.end()
            self._strategy.wind_down(job.end, drain=False)
        else:
            tasks = job.tasks.items()
            running = {name: one.starts[-1] for name, one in tasks if one.state == "running"}
            self._saves.take_over(timeline.history, running)
            self._resume_job(recovered, began)
        self._calls.update_links()

    def _resume_task(self, name: str, recovered: RecoveredState, started: dict[str, str]) -> None:
        """Bring one task from its recorded state to its actual one."""
        state = self._job.states[name]
        if state.step is not None and name not in self._job.evaluators:
            self._watchdog.on_step(name)
        match resumption(name, recovered, started):
            case "follow" if state.task.held and state.state == "running":
                self._calls.miss(name)  # nobody has traced it since its emulator was killed
            case "follow" | "wait":
                pass
            case "lost":
                self.inbox.put(Exited(name, self._clock.wall(), 128 + signal.SIGKILL))
            case "started" if state.task.held:
                self._calls.begin_again(state.task, started[name])
            case "started":
                self.inbox.put(Called("start", name, started[name]))
            case "start":
                self._start_again(state)
            case "down" | "ended" as now:
                state.state = now

    def _resume_job(self, recovered: RecoveredState, began: float) -> None:
        """Continue with a job that has not ended; the run began at the time `began`."""
        timeline = recovered.timeline
        if (limit := self._plan.scenario.timeout) is not None:
            self._timers.at(began + limit, self._time_out)
        if timeline.restarting:
            self._job.restarting = policy.RestartJob(0.0, recovered.job_restarts)
            self._stop_all()
            self._restart_job_when_all_ended()
        before, all_running = timeline.before_training, timeline.all_running
        self._injector.resume(
            before_training=None if before is None else began + before,
            all_running=None if all_running is None else began + all_running,
        )
        if (undecided := recovered.undecided()) is not None:
            # Had its consequence been decided, the decision would be the same again.
            evicted = recovered.was_evicted(undecided.task)
            self._decide(self._job.tasks[undecided.task], undecided, evicted=evicted)
        self._note_all_running()
