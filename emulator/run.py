"""From a scenario to a judged run folder: the steps of `emulate up`, in order."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from emulator import signals
from emulator.api.door import Door
from emulator.api.loopback import Loopback
from emulator.baseline import ThroughputReference
from emulator.clock import Clock, ManualClock, RealClock
from emulator.engines.base import Engine
from emulator.engines.requirements import require
from emulator.errors import EmulatorError, Unsupported, UsageError
from emulator.files import disk
from emulator.metrics.samples import Sample
from emulator.plan import Plan, check_run_id, make_plan, new_run_id
from emulator.record.events import AllRunning, Attached, EmulatorFailed, Entry, Removed
from emulator.record.folder import Record, RunFolder
from emulator.record.remains import remove_remains
from emulator.results import Judged, Listener, Result, exit_code, judge
from emulator.scenario.model import Scenario
from emulator.signals import Held
from emulator.supervisor.events import Interrupted, JobEnd
from emulator.supervisor.loop import Supervisor
from emulator.supervisor.settling import let_settle
from emulator.supervisor.state import resumed
from emulator.supervisor.successor import Successor

CALLS_AT_ONCE = 32
"""Engine calls that are under way at the same time."""
REMOVED = "the run is over: what it made is removed and its report is written, whatever comes"
KEPT = "the run is over: its report is written, whatever comes"
"""What is said of a signal that comes after the job's end."""

__all__ = ["Listener", "Result", "attach", "exit_code", "judge", "make_ready", "up"]


def make_ready(
    scenario: Scenario,
    engine: Engine,
    *,
    out: Path,
    run_id: str | None = None,
    variant: str = "",
    gpus: Sequence[str] | None = None,
    yardstick: ThroughputReference | None = None,
) -> tuple[Plan, Path]:
    """Check that the engine can do it, and plan it; return the plan and its run folder.

    Of the engine's devices it gets only `gpus`, where these are given.

    Raises Unsupported; UsageError where `run_id` can't be one, or where the folder has a name that
    no record can hold.
    """
    require(scenario, engine)
    run_id = new_run_id(scenario.name) if run_id is None else check_run_id(run_id)
    folder = _as_text(out.resolve() / run_id)
    site = engine.plan_context(run_id, folder)
    if gpus is not None:
        site = replace(site, gpus=lambda: gpus)
    disks = [*disk("the run folder", folder), *site.disks(scenario)]
    plan = make_plan(scenario, run_id, site, variant=variant, yardstick=yardstick, disks=disks)
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


def up(
    scenario: Scenario,
    engine: Engine,
    *,
    text: str,
    out: Path = Path("runs"),
    run_id: str | None = None,
    variant: str = "",
    gpus: Sequence[str] | None = None,
    yardstick: ThroughputReference | None = None,
    keep: bool = False,
    reports: bool = True,
    loopback: Loopback | None = None,
    listener: Listener = Listener(),
    clock: Clock | None = None,
) -> Result:
    """Run a scenario to its end, remove what it made unless told to `keep` it, and judge it.

    `text` is the scenario as it was written and `variant` what makes this run differ from others
    of it, for the record; `gpus` are the only devices that it gets (None: all that the engine
    has), `yardstick` is what its rate is held against, `reports` are the pages for people,
    `loopback` is a port that the API answers on as well. Raises EmulatorError; what the run made is
    removed then as well.
    """
    clock = clock or RealClock()
    plan, folder = make_ready(
        scenario, engine, out=out, run_id=run_id, variant=variant, gpus=gpus, yardstick=yardstick
    )
    with signals.held() as held:
        engine.ensure_images(scenario, listener.say)
        signals.check()  # from here on the supervisor is told, and the run has a record
        listener.planned(plan, folder)
        record = RunFolder(folder, plan, text, clock)
        return _see_through(
            Supervisor,
            plan,
            engine,
            record,
            clock,
            held,
            keep=keep,
            reports=reports,
            loopback=loopback,
            listener=listener,
        )


def attach(
    record: Record,
    engine: Engine,
    *,
    keep: bool = False,
    loopback: Loopback | None = None,
    listener: Listener = Listener(),
    clock: Clock | None = None,
) -> Result:
    """Take over a run whose emulator was killed; see it to its end, remove it and judge it.

    Raises EmulatorError: UsageError where somebody is at work on it, where it is over, or where it
    was removed.
    """
    clock = clock or RealClock()
    record = Record(record.path.resolve())  # it stands on what is made, for `emulate clean`
    record.check_name()
    plan = record.plan
    if not record.live and record.result("summary.json") is not None:
        raise UsageError(f"{record.run_id} is over.", "`emulate check` judges it again.")
    if "reattach" not in engine.capabilities:
        raise Unsupported(
            f"The {engine.name} engine can't take over a run whose emulator is gone: how its tasks "
            "end is told to their parent alone.",
            f"`emulate down {record.run_id}` removes it.",
        )
    with signals.held() as held:
        if not isinstance(clock, ManualClock) and not record.live:
            let_settle([record], listener.say)
        folder = RunFolder.reopen(record, clock)
        try:
            _refuse_removed(engine, Record(record.path))
        except BaseException:
            folder.close()
            raise
        listener.planned(plan, record.path)
        return _see_through(
            Successor,
            plan,
            engine,
            folder,
            clock,
            held,
            keep=keep,
            loopback=loopback,
            listener=listener,
        )


def _refuse_removed(engine: Engine, record: Record) -> None:
    """Raise UsageError where `emulate clean` or `down` has removed a run that was not over."""
    found = resumed(record.plan, record.history)
    ran = [name for name, task in found.tasks.items() if task.state == "running"]
    if found.end is None and ran and not engine.find(record.run_id):
        raise UsageError(
            f"{record.run_id} can't be taken over: all that it had made was removed.",
            "`emulate up` begins a new run.",
        )


def _see_through(
    kind: type[Supervisor],
    plan: Plan,
    engine: Engine,
    record: RunFolder,
    clock: Clock,
    held: Held,
    *,
    keep: bool,
    reports: bool = True,
    loopback: Loopback | None,
    listener: Listener,
) -> Result:
    """Supervise a run to its end, judge it, and close its folder whatever happens."""
    reader = Record(record.path)
    judged: Judged | None = None
    try:
        end = _supervise(
            kind, plan, engine, record, clock, held, keep=keep, loopback=loopback, listener=listener
        )
        judged = judge(reader)
        record.finish("summary.json", judged.summary)
        record.finish("verdicts.json", [asdict(verdict) for verdict in judged.verdicts])
    finally:
        try:
            if reports:
                _write_reports(reader, judged, listener)
        finally:
            record.close()
    return Result(record.path, end, *judged)


def _write_reports(record: Record, judged: Judged | None, listener: Listener) -> None:
    """Write what people look at; where that fails, say so: verdict and exit code stand without."""
    try:
        from emulator.report.files import write  # only now: a run need not wait for it to load

        write(record, judged)
    except Exception as error:
        listener.say(f"the report is missing: {error}")


def _supervise(
    kind: type[Supervisor],
    plan: Plan,
    engine: Engine,
    record: RunFolder,
    clock: Clock,
    held: Held,
    *,
    keep: bool,
    loopback: Loopback | None,
    listener: Listener,
) -> JobEnd:
    """Run the supervisor, and clean up after it whatever happens."""
    door: Door | None = None

    def on_entry(entry: Entry) -> None:
        listener.entry(entry)
        if door is not None:
            if isinstance(entry, AllRunning | Attached):
                door.open()
            door.grown()

    def on_line(task: str, text: str) -> None:
        listener.line(task, text)
        if door is not None:
            door.grown()

    def on_sample(sample: Sample) -> None:
        listener.sample(sample)
        if door is not None:
            door.grown()

    pool = _Inline() if isinstance(clock, ManualClock) else ThreadPoolExecutor(CALLS_AT_ONCE)
    supervisor = kind(
        plan,
        engine,
        record,
        clock=clock,
        submit=pool.submit,
        aside=None if isinstance(clock, ManualClock) else _aside,
        on_entry=on_entry,
        on_line=on_line,
        on_sample=on_sample,
    )
    listener.stoppable(lambda: supervisor.inbox.put(Interrupted(signal.SIGTERM)))
    if not isinstance(clock, ManualClock):
        desk, inbox = supervisor.desk, supervisor.inbox
        door = Door(desk, inbox, record.path, listener.reachable, loopback=loopback)
        if loopback is not None:
            listener.say(loopback.said(record.path))
    came: list[signal.Signals] = []

    def interrupt(number: signal.Signals) -> None:
        came.append(number)
        supervisor.inbox.put(Interrupted(number))

    held.hand_to(interrupt)
    try:
        end = supervisor.run()
        if came and end.outcome != "interrupted":
            held.pass_over(came[0])  # the outcome stands; a sweep ends here
        return end
    except EmulatorError as error:
        with contextlib.suppress(EmulatorError):  # the disk may be what failed
            record.write(EmulatorFailed(message=error.message))
            record.finish("summary.json", judge(Record(record.path))[2])
        raise
    finally:
        held.settle(listener.say, KEPT if keep else REMOVED)
        try:
            # A start that is still under way must be over before anything is removed.
            pool.shutdown(wait=True, cancel_futures=True)
            if door is not None:
                door.refuse()
        finally:
            removed = False
            try:
                removed = not keep and _tear_down(engine, plan.run_id, record)
            finally:
                if door is not None:
                    door.close()
                if removed:
                    with contextlib.suppress(EmulatorError):
                        remove_remains(record.path, plan.run_id)  # of an emulator that was killed


def _tear_down(engine: Engine, run_id: str, record: RunFolder) -> bool:
    """Remove what the run made; say whether that is done.

    An error on the way here is not hidden by one of removing.
    """
    under_way = sys.exc_info()[1]
    try:
        removed = engine.tear_down(run_id)
    except EmulatorError:
        if under_way is None:
            raise
        return False
    with contextlib.suppress(EmulatorError):
        record.write(Removed(count=removed))
    return True


def _aside(call: Callable[[], None]) -> None:
    """Make a call on a thread of its own, which ends with the program if not before."""
    threading.Thread(target=call, name="aside", daemon=True).start()


class _Inline(Executor):
    """Makes calls at once: on a manual clock nothing takes time."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ANN401
        """Call `fn` now."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future
