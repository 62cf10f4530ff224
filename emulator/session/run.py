"""From a scenario to a judged run folder: the steps of `emulate up`, in order."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.analysis.uninterrupted import UNINTERRUPTED
from emulator.api.server import ApiServer
from emulator.engines.base import Configuring, Engine, Warming
from emulator.engines.capabilities import capable
from emulator.engines.kit.origin import Origin, origin_of
from emulator.engines.requirements import require_of
from emulator.errors import EmulatorError, NameTaken, Unsupported, UsageError
from emulator.planning.requested import RequestedScenario, RunOptions
from emulator.record.events import EmulatorFailed, Removed
from emulator.record.reader import Record
from emulator.record.remains import remove_remains
from emulator.record.writer import RunWriter
from emulator.results import Judged, Result, RunCallbacks, judge
from emulator.runtime import signals
from emulator.runtime.clock import Clock, RealClock
from emulator.runtime.signals import Deferral
from emulator.session.ready import make_ready
from emulator.session.uninterrupted import compared
from emulator.supervisor.cleanup import let_settle
from emulator.supervisor.control import Interrupted
from emulator.supervisor.supervisor import Supervisor
from emulator.supervisor.takeover import RecoveredState, recover, recover_run

if TYPE_CHECKING:
    from emulator.api.tcp import TcpEndpoint
    from emulator.planning.plan import Plan

REMOVED = "the job has already ended; emulate still removes its tasks and writes its report"
KEPT = "the job has already ended; emulate still writes its report"
"""Printed for a signal after the job's end."""


@dataclass
class _Run:
    """A run under way, and its result once it is judged."""

    supervisor: Supervisor
    result: Result = field(init=False)


@dataclass(frozen=True)
class _Session:
    """What a run needs while it is supervised, whether new or taken over."""

    plan: Plan
    engine: Engine
    clock: Clock
    callbacks: RunCallbacks
    deferral: Deferral
    keep: bool
    endpoint: TcpEndpoint | None
    origin: Origin | None = None
    """Of a new run on a real clock."""

    @contextlib.contextmanager
    def open(
        self, record: RunWriter, recovered: RecoveredState | None = None, *, reports: bool = True
    ) -> Iterator[_Run]:
        """Yield the run, to be supervised; then judge it and write its results and reports."""
        reader, judged = Record(record.path), None
        try:
            with self._supervisor(record, recovered) as supervisor:
                yield (run := _Run(supervisor))
                if reports and self.clock.is_real:
                    # Loaded while the engine removes containers, of which it takes the time.
                    threading.Thread(target=_load_reports, name="load", daemon=True).start()
            judged = judge(reader)
            record.write_result("summary.json", judged.summary)
            record.write_result("verdicts.json", [asdict(one) for one in judged.verdicts])
            assert supervisor.end is not None
            run.result = Result(reader.path, supervisor.end, *judged)
        finally:
            try:
                written = not reports or _write_reports(reader, judged, self.callbacks)
                if judged is not None and not written:
                    run.result = replace(run.result, reported=False)
            finally:
                record.close()

    @contextlib.contextmanager
    def _supervisor(
        self, record: RunWriter, recovered: RecoveredState | None
    ) -> Iterator[Supervisor]:
        """Yield a supervisor with its API and the signals; then remove what the run made."""
        workers = self.clock.workers()
        supervisor = Supervisor(
            self.plan,
            self.engine,
            record,
            clock=self.clock,
            workers=workers,
            recovered=recovered,
            origin=self.origin,
        )
        server = self._serve(supervisor, record.path) if self.clock.is_real else None
        self.callbacks.stoppable(supervisor.control.stop)
        received: list[signal.Signals] = []

        def interrupt(number: signal.Signals) -> None:
            received.append(number)
            supervisor.inbox.put(Interrupted(number), urgent=True)

        self.deferral.hand_to(interrupt)
        try:
            with record.telling(self.callbacks, *([server] if server else [])):
                yield supervisor
            if received and supervisor.end and supervisor.end.outcome != "interrupted":
                self.deferral.pass_on(received[0])  # this outcome stands; a sweep ends here
        except EmulatorError as error:
            with contextlib.suppress(EmulatorError):  # the disk may be what failed
                record.write(EmulatorFailed(message=error.message))
                record.write_result("summary.json", judge(Record(record.path)).summary)
            raise
        finally:
            self.deferral.settle(self.callbacks.say, KEPT if self.keep else REMOVED)
            removed = False
            try:
                workers.close()  # a pending start must end before anything is removed
                if server is not None:
                    server.refuse()
                removed = not self.keep and self._tear_down(record)
            finally:
                if server is not None:
                    server.close()
                if removed:
                    with contextlib.suppress(EmulatorError):  # of an emulator that was killed
                        remove_remains(record.path, self.plan.run_id)

    def _serve(self, supervisor: Supervisor, folder: Path) -> ApiServer:
        endpoint = self.endpoint
        server = ApiServer(supervisor.control, folder, self.callbacks.reachable, endpoint=endpoint)
        if endpoint is not None:
            self.callbacks.say(endpoint.describe(folder))
        return server

    def _tear_down(self, record: RunWriter) -> bool:
        """Remove what the run made; return whether it was removed.

        An earlier error is not replaced by one of the removal.
        """
        earlier = sys.exc_info()[1]
        if isinstance(earlier, NameTaken):  # what has the run's id is another's
            return False
        try:
            if self.plan.warm is not None and earlier is None:
                removed = capable(self.engine, Warming).give_back(self.plan)
            else:
                removed = self.engine.tear_down(self.plan.resources)
        except EmulatorError:
            if earlier is None:
                raise
            return False
        with contextlib.suppress(EmulatorError):
            record.write(Removed(count=removed))
        return True


def up(
    requested: RequestedScenario,
    engine: Engine,
    options: RunOptions = RunOptions(),
    *,
    endpoint: TcpEndpoint | None = None,
    callbacks: RunCallbacks = RunCallbacks(),
    clock: Clock | None = None,
) -> Result:
    """Run a scenario to its end, remove what it made unless it is kept, and judge it.

    `endpoint` is a port for the API. The caller closes the engine. Raises EmulatorError, after
    removing what the run made.
    """
    clock = clock or RealClock()
    plan, folder = make_ready(requested, engine, options)
    if clock.is_real and requested.scenario.expect.same_as_uninterrupted is not None:
        options = compared(requested, engine, plan, options, callbacks, _another)
        plan, folder = make_ready(requested, engine, replace(options, run_id=plan.run_id))
    warm = options.warm and not options.begins_held(plan.scenario)
    if options.warm:
        require_of(engine, [("a warm start", "warm")])
        if options.keep:
            raise UsageError("A warm run is not kept: its containers wait for the next run.")
    with signals.deferred() as deferral:
        engine.ensure_images(plan.scenario, callbacks.say)
        if warm:
            plan = capable(engine, Warming).lease_warm(plan)
        signals.check()  # from here on the supervisor gets the signals, and the run has a record
        callbacks.planned(plan, folder)
        again = requested.command(engine.name, folder)
        origin = origin_of(plan, engine, again, requested.source) if clock.is_real else None
        session = _Session(plan, engine, clock, callbacks, deferral, options.keep, endpoint, origin)
        given = requested.given
        record = RunWriter(folder, plan, given.text, clock, given.kept)
        if options.uninterrupted is not None:
            record.write_result(UNINTERRUPTED, options.uninterrupted)
        with session.open(record, reports=options.reports) as run:
            run.supervisor.run()
        return run.result


def _another(
    requested: RequestedScenario, engine: Engine, options: RunOptions, callbacks: RunCallbacks
) -> Result:
    return up(requested, engine, options, callbacks=callbacks)


def attach(
    record: Record,
    engine: Engine,
    *,
    keep: bool = False,
    endpoint: TcpEndpoint | None = None,
    callbacks: RunCallbacks = RunCallbacks(),
    clock: Clock | None = None,
) -> Result:
    """Take over a run whose emulator was killed: run it to its end, remove it and judge it.

    The caller closes the engine. Raises EmulatorError: UsageError if another emulator runs it, if
    it has ended or if it was removed.
    """
    clock = clock or RealClock()
    record = Record(record.path.resolve())  # `emulate clean` finds what it makes by this path
    plan = _plan_to_continue(record, engine)
    with signals.deferred() as deferral:
        if clock.is_real and not record.live:
            let_settle([record], callbacks.say)
        writer = RunWriter.reopen(record, clock)
        try:
            _refuse_removed(engine, Record(record.path))
            callbacks.planned(plan, record.path)
            recovered = recover_run(plan, writer, clock.now() - writer.t)
        except BaseException:
            writer.close()
            raise
        session = _Session(plan, engine, clock, callbacks, deferral, keep, endpoint)
        with session.open(writer, recovered) as run:
            run.supervisor.run()
        return run.result


def _plan_to_continue(record: Record, engine: Engine) -> Plan:
    """Return the plan of a run that can be taken over.

    Raises UsageError, Unsupported, EngineMissing.
    """
    record.check_name()
    plan = record.plan
    if isinstance(engine, Configuring):
        engine.configure(plan.scenario)
    if not record.live and record.result("summary.json") is not None:
        raise UsageError(f"{record.run_id} is over.", "`emulate check` judges it again.")
    if plan.warm is not None:
        raise UsageError(
            f"{record.run_id} started warm: its containers serve other runs as well, so that it "
            "can't be taken over.",
            f"`emulate down {record.run_id}` removes it.",
        )
    if "reattach" not in engine.capabilities:
        raise Unsupported(
            f"The {engine.name} engine can't take over a run whose emulator was killed: exits of "
            "its tasks are reported to their parent process alone.",
            f"`emulate down {record.run_id}` removes it.",
        )
    return plan


def _refuse_removed(engine: Engine, record: Record) -> None:
    """Raise UsageError if `emulate clean` or `down` has removed the run before its end."""
    found = recover(record.plan, record.history)
    if found.end is None and found.timeline.prepared is not None and not engine.find(record.run_id):
        raise UsageError(
            f"{record.run_id} can't be taken over: all that it had made was removed.",
            "`emulate up` begins a new run.",
        )


def _load_reports() -> None:
    with contextlib.suppress(Exception):  # reported where it is used
        from emulator.report.page import load

        load()


def _write_reports(record: Record, judged: Judged | None, callbacks: RunCallbacks) -> bool:
    """Write the pages for people; return whether they are there. A failure is printed."""
    try:
        from emulator.report.files import write  # imported late: it is slow to load

        write(record, judged)
    except Exception as error:
        callbacks.say(f"the report is missing: {error}")
        return False
    return True
