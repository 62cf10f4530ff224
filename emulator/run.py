"""From a scenario to a judged run folder: the steps of `emulate up`, in order."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from emulator.api.server import ApiServer
from emulator.api.tcp import TcpEndpoint
from emulator.engines.base import Engine
from emulator.engines.requirements import require
from emulator.errors import EmulatorError, Unsupported, UsageError
from emulator.files import disk
from emulator.planning.baseline import ThroughputReference
from emulator.planning.plan import Plan, check_run_id, make_plan, new_run_id
from emulator.record.events import EmulatorFailed, Removed
from emulator.record.reader import Record
from emulator.record.remains import remove_remains
from emulator.record.writer import RunWriter
from emulator.results import Judged, Result, RunCallbacks, exit_code, judge
from emulator.runtime import signals
from emulator.runtime.clock import Clock, RealClock
from emulator.runtime.signals import Held
from emulator.scenario.schema import Scenario
from emulator.supervisor.cleanup import let_settle
from emulator.supervisor.control import Interrupted
from emulator.supervisor.history import HistoryWriter
from emulator.supervisor.job import JobEnd
from emulator.supervisor.supervisor import Supervisor
from emulator.supervisor.takeover import RecoveredState, recover, recover_run

REMOVED = "the run is over: what it made is removed and its report is written, whatever comes"
KEPT = "the run is over: its report is written, whatever comes"
"""What is said of a signal that comes after the job's end."""

__all__ = ["Result", "RunCallbacks", "attach", "exit_code", "judge", "make_ready", "up"]


def make_ready(
    scenario: Scenario,
    engine: Engine,
    *,
    out: Path,
    run_id: str | None = None,
    variant: str = "",
    gpus: Sequence[str] | None = None,
    reference: ThroughputReference | None = None,
) -> tuple[Plan, Path]:
    """Check that the engine can do it, and plan it; return the plan and its run folder.

    Of the engine's devices it gets only `gpus`, where these are given.

    Raises Unsupported; UsageError where `run_id` can't be one, or where the folder has a name that
    no record can hold.
    """
    require(scenario, engine)
    run_id = new_run_id(scenario.name) if run_id is None else check_run_id(run_id)
    folder = _as_text(out.resolve() / run_id)
    context = engine.plan_context(run_id, folder)
    if gpus is not None:
        context = replace(context, gpus=lambda: gpus)
    disks = [*disk("the run folder", folder), *context.disks(scenario)]
    plan = make_plan(scenario, run_id, context, variant=variant, reference=reference, disks=disks)
    return plan, folder


def _as_text(folder: Path) -> Path:
    """Return a folder whose path is text; a name may be any bytes, but a record is JSON."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"The run folder {folder} has bytes in its path that are no text.",
            "Choose another one with --out.",
        ) from None
    return folder


@dataclass(frozen=True)
class _Session:
    """What opens and closes with a run, whether it begins or is taken over."""

    plan: Plan
    engine: Engine
    clock: Clock
    callbacks: RunCallbacks
    held: Held
    """The signals; the supervisor gets them."""
    keep: bool
    endpoint: TcpEndpoint | None

    @contextlib.contextmanager
    def recording(self, record: RunWriter, *, reports: bool) -> Iterator[_Judging]:
        """Yield what judges the run; write the reports and close the folder, whatever happens."""
        judging = _Judging(record, Record(record.path))
        try:
            yield judging
        finally:
            try:
                if reports:
                    _write_reports(judging.reader, judging.judged, self.callbacks)
            finally:
                record.close()

    @contextlib.contextmanager
    def supervising(
        self, record: RunWriter, recovered: RecoveredState | None = None
    ) -> Iterator[Supervisor]:
        """Yield a supervisor with its API and the signals; then remove what the run made."""
        history, workers = HistoryWriter(record, self.callbacks), self.clock.workers()
        supervisor = Supervisor(
            self.plan,
            self.engine,
            history,
            clock=self.clock,
            workers=workers,
            recovered=recovered,
        )
        server = self._serve(supervisor, history) if self.clock.is_real else None
        self.callbacks.stoppable(supervisor.control.stop)
        came: list[signal.Signals] = []

        def interrupt(number: signal.Signals) -> None:
            came.append(number)
            supervisor.inbox.put(Interrupted(number))

        self.held.hand_to(interrupt)
        try:
            yield supervisor
            if came and supervisor.end and supervisor.end.outcome != "interrupted":
                self.held.pass_over(came[0])  # the outcome stands; a sweep ends here
        except EmulatorError as error:
            with contextlib.suppress(EmulatorError):  # the disk may be what failed
                record.write(EmulatorFailed(message=error.message))
                record.write_result("summary.json", judge(Record(record.path)).summary)
            raise
        finally:
            self.held.settle(self.callbacks.say, KEPT if self.keep else REMOVED)
            removed = False
            try:
                # A start that is still under way must be over before anything is removed.
                workers.close()
                if server is not None:
                    server.refuse()
                removed = not self.keep and self._tear_down(record)
            finally:
                if server is not None:
                    server.close()
                if removed:
                    with contextlib.suppress(EmulatorError):
                        # of an emulator that was killed
                        remove_remains(record.path, self.plan.run_id)

    def _serve(self, supervisor: Supervisor, history: HistoryWriter) -> ApiServer:
        folder, endpoint = history.record.path, self.endpoint
        server = ApiServer(supervisor.control, folder, self.callbacks.reachable, endpoint=endpoint)
        history.subscribe(server)
        if endpoint is not None:
            self.callbacks.say(endpoint.describe(folder))
        return server

    def _tear_down(self, record: RunWriter) -> bool:
        """Remove what the run made; say whether that is done.

        An error on the way here is not hidden by one of removing.
        """
        under_way = sys.exc_info()[1]
        try:
            removed = self.engine.tear_down(self.plan.run_id)
        except EmulatorError:
            if under_way is None:
                raise
            return False
        with contextlib.suppress(EmulatorError):
            record.write(Removed(count=removed))
        return True


def up(
    scenario: Scenario,
    engine: Engine,
    *,
    text: str,
    out: Path = Path("runs"),
    run_id: str | None = None,
    variant: str = "",
    gpus: Sequence[str] | None = None,
    reference: ThroughputReference | None = None,
    keep: bool = False,
    reports: bool = True,
    endpoint: TcpEndpoint | None = None,
    callbacks: RunCallbacks = RunCallbacks(),
    clock: Clock | None = None,
) -> Result:
    """Run a scenario to its end, remove what it made unless told to `keep` it, and judge it.

    `text` is the scenario as it was written and `variant` what makes this run differ from others
    of it, for the record; `gpus` are the only devices that it gets (None: all that the engine
    has), `reference` is what its rate is compared with, `reports` are the pages for people,
    `endpoint` is a port that the API answers on as well. The caller closes the engine. Raises
    EmulatorError; what the run made is removed then as well.
    """
    clock = clock or RealClock()
    plan, folder = make_ready(
        scenario, engine, out=out, run_id=run_id, variant=variant, gpus=gpus, reference=reference
    )
    with signals.held() as held:
        engine.ensure_images(scenario, callbacks.say)
        signals.check()  # from here on the supervisor gets the signals, and the run has a record
        callbacks.planned(plan, folder)
        session = _Session(plan, engine, clock, callbacks, held, keep, endpoint)
        record = RunWriter(folder, plan, text, clock)
        with session.recording(record, reports=reports) as judging:
            with session.supervising(record) as supervisor:
                end = supervisor.run()
            return judging.judge(end)


def attach(
    record: Record,
    engine: Engine,
    *,
    keep: bool = False,
    endpoint: TcpEndpoint | None = None,
    callbacks: RunCallbacks = RunCallbacks(),
    clock: Clock | None = None,
) -> Result:
    """Take over a run whose emulator was killed; run it to its end, remove it and judge it.

    The caller closes the engine. Raises EmulatorError: UsageError where another emulator runs it,
    where it is over, or where it was removed.
    """
    clock = clock or RealClock()
    record = Record(record.path.resolve())  # it stands on what is made, for `emulate clean`
    plan = _plan_to_continue(record, engine)
    with signals.held() as held:
        if clock.is_real and not record.live:
            let_settle([record], callbacks.say)
        folder = RunWriter.reopen(record, clock)
        try:
            _refuse_removed(engine, Record(record.path))
        except BaseException:
            folder.close()
            raise
        callbacks.planned(plan, record.path)
        session = _Session(plan, engine, clock, callbacks, held, keep, endpoint)
        with session.recording(folder, reports=True) as judging:
            recovered = recover_run(plan, folder, clock.now() - folder.t)
            with session.supervising(folder, recovered) as supervisor:
                end = supervisor.run()
            return judging.judge(end)


def _plan_to_continue(record: Record, engine: Engine) -> Plan:
    """Return the plan of a run that can be taken over. Raises UsageError, Unsupported."""
    record.check_name()
    plan = record.plan
    if not record.live and record.result("summary.json") is not None:
        raise UsageError(f"{record.run_id} is over.", "`emulate check` judges it again.")
    if "reattach" not in engine.capabilities:
        raise Unsupported(
            f"The {engine.name} engine can't take over a run whose emulator is gone: the exits of "
            "its tasks are reported to their parent process alone.",
            f"`emulate down {record.run_id}` removes it.",
        )
    return plan


def _refuse_removed(engine: Engine, record: Record) -> None:
    """Raise UsageError where `emulate clean` or `down` has removed a run that was not over."""
    found = recover(record.plan, record.history)
    if found.end is None and found.timeline.prepared is not None and not engine.find(record.run_id):
        raise UsageError(
            f"{record.run_id} can't be taken over: all that it had made was removed.",
            "`emulate up` begins a new run.",
        )


@dataclass
class _Judging:
    """Judges a run once: for its result, its files and its reports."""

    writer: RunWriter
    reader: Record
    judged: Judged | None = None
    """None until it is judged."""

    def judge(self, end: JobEnd) -> Result:
        """Judge the run from its record, and write the results."""
        self.judged = judge(self.reader)
        self.writer.write_result("summary.json", self.judged.summary)
        self.writer.write_result(
            "verdicts.json", [asdict(verdict) for verdict in self.judged.verdicts]
        )
        return Result(self.reader.path, end, *self.judged)


def _write_reports(record: Record, judged: Judged | None, callbacks: RunCallbacks) -> None:
    """Write the pages for people; if that fails, say so: verdict and exit code stand without."""
    try:
        from emulator.report.files import write  # only now: a run need not wait for it to load

        write(record, judged)
    except Exception as error:
        callbacks.say(f"the report is missing: {error}")
