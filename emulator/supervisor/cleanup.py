"""Finding and removing what runs left on the engines and in their folders.

A supervisor has the lock in its run folder, and labels everything that it makes with that folder
and with the host. So whatever belongs to a folder of this host whose lock is free is a leftover,
however its emulator died. The process that removes it takes the lock meanwhile, so `emulate attach`
is refused; a run whose lock is taken is left alone.

Labels can't be trusted. The folder in a label only decides whether a run is live: on disk nothing
is deleted but what `record/remains.py` proves to be the run's, in the folder of runs that the user
names. A resource with our label and an impossible run id is not ours.

An engine performs a request although its sender was killed: a network or a container may appear
after its run was searched for. The record has the requests without an answer; a process that
removes a run, or takes it over, waits for these first (`let_settle`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.engines import AUTO, BUILT_IN, answering, choose
from emulator.errors import (
    EngineError,
    EngineLost,
    EngineMissing,
    InUse,
    RecordError,
    UsageError,
    printable,
)
from emulator.record.folder import RunFolder, all_runs_in
from emulator.record.lock import is_being_removed, is_live, locked, wait_until_over
from emulator.record.remains import never_began, remains, remove_never_began, remove_remains
from emulator.record.scratch import is_run_folder
from emulator.runtime import signals
from emulator.runtime.host import this_host
from emulator.runtime.waiting import pause
from emulator.validation.run_id import check_run_id, is_run_id

if TYPE_CHECKING:
    import psutil

    from emulator.engines.base import Engine, Resource
    from emulator.scenario.schema import Scenario

SETTLE_TIMEOUT = 5.0
"""Seconds after a kill in which the engine's last answers come; a busy one was seen to take one."""

Say = Callable[[str], None]


def abandoned(
    found: Sequence[Resource],
    *,
    host: str,
    live: Callable[[Path], bool],
    over: Collection[str] = (),
) -> list[Resource]:
    """Return the resources that belong to no live run (pure, given `live`).

    Runs of another host are left alone, as they may well be live there, unless the user says that
    those of that host are `over`. So is everything with the run
    id of a live run, even if it names another folder, because engines remove by run id.
    """
    running = {
        one.run_id
        for one in found
        if one.host not in over
        and (one.host != host or ((folder := _folder(one)) and live(folder)))
    }
    return [one for one in found if is_run_id(one.run_id) and one.run_id not in running]


def find_all(out: Path, say: Say) -> list[Resource]:
    """Return the resources of runs on every engine that answers; report those that should.

    `out` has the runs whose clusters are looked at.
    """

    def missing(error: EngineMissing) -> None:
        if error.configured:
            _say_missing(error, say)

    found: list[Resource] = []
    for engine in _engines(AUTO, out, missing):
        try:
            found += engine.find()
        except EngineMissing as error:  # one of a network answers only now
            missing(error)
    return [one for one in found if is_run_id(one.run_id)]


def _engines(name: str, out: Path, missing: Callable[[EngineMissing], None]) -> Iterator[Engine]:
    """Yield the engine of that name, for `auto` every one that runs in `out` may be on.

    One that takes settings of a scenario is yielded for each place where such a run was.
    """
    from emulator.engines.base import Configuring  # nothing else of a short command needs it

    elsewhere = _runs_elsewhere(out)
    for engine in answering(name, missing, used=elsewhere):
        if not isinstance(engine, Configuring):
            yield engine
            continue
        places = {engine.place_of(one): one for one in elsewhere.get(engine.name, ())}
        if name != AUTO:
            yield engine  # wherever it finds something by itself
        for scenario in places.values():
            try:
                engine.configure(scenario)
            except EngineMissing as error:
                missing(error)
            else:
                yield engine


def _runs_elsewhere(out: Path) -> dict[str, list[Scenario]]:
    """Return the scenarios of runs that may have left something on an engine of a plug-in."""
    found: dict[str, list[Scenario]] = {}
    for record in all_runs_in(out):
        with contextlib.suppress(RecordError):
            engine = record.outline.engine
            if engine not in BUILT_IN and not record.was_removed:
                found.setdefault(engine, []).append(_scenario_of(record))
    return found


def _scenario_of(record: RunFolder) -> Scenario:
    """Return the scenario of a run. Raises RecordError."""
    from emulator.record.reader import Record  # slow to import, and most engines don't need it

    return Record(record.path).plan.scenario


def open_for(record: RunFolder) -> Engine:
    """Open the engine of a run, as the run has used it; the caller closes it.

    Raises EngineMissing, UsageError, RecordError.
    """
    return _opened(record.outline.engine, record)


def _opened(engine_name: str, record: RunFolder | None) -> Engine:
    from emulator.engines.base import Configuring

    engine = choose(engine_name)
    if isinstance(engine, Configuring) and record is not None:
        try:
            engine.configure(_scenario_of(record))
        except BaseException:
            engine.close()
            raise
    return engine


def clean(
    out: Path,
    *,
    engine_name: str,
    dry_run: bool,
    say: Say,
    warm: bool = False,
    over: Collection[str] = (),
) -> int:
    """Remove what runs have left; return how many things that was.

    Also what runs of other hosts have, if all that they began are `over`. On disk only what lies in
    run folders in `out`. What waits for a warm run only if `warm` is set. Raises EngineError.
    """
    if not dry_run:
        let_settle((record for record in all_runs_in(out) if not record.live), say)
    count = 0
    for engine in _engines(engine_name, out, lambda error: _say_missing(error, say)):
        try:
            count += _clean_engine(engine, dry_run=dry_run, say=say, warm=warm, over=over)
        except EngineMissing as error:  # one of a network answers only now
            if engine_name != AUTO:
                raise
            _say_missing(error, say)
    return count + _clean_folders(out, dry_run=dry_run, say=say)


def _clean_engine(
    engine: Engine,
    *,
    dry_run: bool,
    say: Say,
    warm: bool,
    over: Collection[str],
) -> int:
    from emulator.engines.base import Warming  # most commands need nothing of it

    count = 0
    failed: list[EngineError] = []
    found = engine.find()
    if not dry_run:
        _wait_for_removal({folder for one in found if (folder := _folder(one))}, say)
        found = engine.find()
    if strange := [one for one in found if not is_run_id(one.run_id)]:
        names = ", ".join(f"{one.kind} {one.name}" for one in strange)
        say(printable(f"not ours, for what they are labelled with is no run id: {names}"))
    runs: defaultdict[str, list[Resource]] = defaultdict(list)
    folders = {folder for one in found if (folder := _folder(one))}
    live, waiting = {one for one in folders if is_live(one)}, set[Path]()
    if isinstance(engine, Warming) and not warm:
        waiting = {one for one in folders - live if engine.waits(one)}
    for folder in sorted(waiting):
        say(f"{folder.name} waits for a warm run; `emulate clean --warm` removes it")
    here = this_host()
    for host in sorted({one.host for one in found if one.host} - {here, *over}):
        say(
            printable(
                f"what runs of the host {host} have is left alone; once they are over, "
                f"`emulate clean --host {host}` removes it"
            )
        )
    used = live | waiting
    for one in abandoned(found, host=here, live=used.__contains__, over={*over} - {here}):
        runs[one.run_id].append(one)
    for run_id, resources in sorted(runs.items()):
        try:
            with contextlib.ExitStack() as stack:
                if not dry_run:
                    for folder in {folder for one in resources if (folder := _folder(one))}:
                        stack.enter_context(_locked(folder, run_id))
                for one in resources:
                    say(printable(_doing(one, dry_run=dry_run)))
                if not dry_run:
                    engine.tear_down(run_id)
            count += sum(not one.is_lent for one in resources)
        except InUse:
            say(_left_alone(run_id))
        except EngineLost:
            raise
        except EngineError as error:  # what other runs have left is removed first
            say(error.message)
            failed.append(error)
    if failed:
        raise failed[0]
    return count


def _clean_folders(out: Path, *, dry_run: bool, say: Say) -> int:
    """Remove the leftovers in folders of finished runs, and the folders of runs that never began.

    Return how many.
    """
    count = 0
    if not dry_run:
        _wait_for_removal((record.path for record in all_runs_in(out)), say)
    for record in all_runs_in(out):
        if record.live or not remains(record.path, record.run_id):
            continue
        try:
            with contextlib.nullcontext() if dry_run else locked(record.path, make=True):
                for path in remains(record.path, record.run_id):
                    say(printable(f"{_verb(dry_run)} {path}"))
                    count += 1
                if not dry_run:
                    remove_remains(record.path, record.run_id)
        except InUse:
            say(_left_alone(record.run_id))
        except RecordError as error:
            say(str(error))
    for folder in never_began(out):
        if dry_run or remove_never_began(folder):
            say(printable(f"{_verb(dry_run)} {folder}, of a run that never began"))
            count += 1
    return count


def stop_or_remove(record: RunFolder, say: Say = lambda text: None) -> str:
    """Stop a live run and wait for its end, or remove what it left; return what was done.

    Raises UsageError if the folder has another run's record, or if the run is being taken over;
    EngineError.
    """
    record.check_name()
    if record.live and (supervisor := _supervisor_of(record)):
        supervisor.send_signal(signal.SIGTERM)
        wait_until_over(record.path)
        return f"{record.run_id} was stopped"
    removed = remove(record.run_id, record.outline.engine, record.path, say)
    if cluster := record.outline.warm:
        removed += _remove_warm(cluster, record.outline.engine)
    return f"removed {counted(removed)} of {record.run_id}" if removed else "nothing was left"


def counted(things: int) -> str:
    """Return how many things were removed, in words."""
    return "1 thing" if things == 1 else f"{things} things"


def remove(run_id: str, engine_name: str, folder: Path, say: Say = lambda text: None) -> int:
    """Remove what a run has left, even if its folder is gone; return how many things.

    Raises InUse if another emulator uses the run, UsageError if another run of that name is live,
    EngineError.
    """
    check_run_id(run_id)
    record = RunFolder(folder) if is_run_folder(folder, run_id) else None
    with contextlib.closing(_opened(engine_name, record)) as engine, _locked(folder, run_id):
        _refuse_namesakes(engine, run_id, folder)
        if is_run_folder(folder, run_id):
            let_settle([RunFolder(folder)], say)
        return engine.tear_down(run_id) + len(remove_remains(folder, run_id))


def _remove_warm(cluster: str, engine_name: str) -> int:
    """Remove a warm cluster, unless another run uses it by now; return how many things."""
    with contextlib.closing(choose(engine_name)) as engine, contextlib.ExitStack() as stack:
        for folder in {folder for one in engine.find(cluster) if (folder := _folder(one))}:
            try:
                stack.enter_context(locked(folder, make=False))
            except InUse:
                return 0
        return engine.tear_down(cluster)


def settles_at(record: RunFolder) -> float:
    """Return until when the engine may still make something, in seconds since 1970; 0: nothing."""
    files = [record.path / name for name in ("plan.json", "history.jsonl", "samples.jsonl")]
    written = max((path.stat().st_mtime for path in files if path.is_file()), default=0.0)
    until = written + SETTLE_TIMEOUT
    if until < time.time() or record.result("summary.json") is not None:
        return 0.0  # most runs; one that ended by itself has waited for all answers
    from emulator.record.reader import Record  # a run that was just killed is rare
    from emulator.supervisor.takeover import recover

    crashed = Record(record.path)
    try:
        recovered = recover(crashed.plan, crashed.history)
    except RecordError:
        return 0.0
    states = [task.state for task in recovered.tasks.values()]
    states += [helper.state for helper in recovered.helpers.values()]
    starting = "starting" in states
    return until if starting or recovered.timeline.prepared is None else 0.0


def let_settle(records: Iterable[RunFolder], say: Say) -> None:
    """Wait until the engine has made all that these runs asked it for. Raises Interruption."""
    until = {record.run_id: settles_at(record) for record in records}
    if waiting := [run_id for run_id, when in until.items() if when]:
        say(f"waiting a moment for what the engine may still be making for {', '.join(waiting)}")
        pause(max(until.values()) - time.time(), signals.check)


def _wait_for_removal(folders: Iterable[Path], say: Say) -> None:
    """Wait until no other process is removing one of these runs, so that nothing is left of it."""
    for folder in folders:
        if is_being_removed(folder):
            say(printable(f"waiting for another emulate process that removes {folder.name}"))
            wait_until_over(folder)


def _doing(one: Resource, *, dry_run: bool) -> str:
    """Say what is done with what a run has left; nobody's machine is removed (pure)."""
    if not one.is_lent:
        return f"{_verb(dry_run)} {one.kind} {one.name}"
    doing = "found" if dry_run else "uncordoning"
    return f"{doing} {one.kind} {one.name}, which a run has {one.state}; it stays"


def _verb(dry_run: bool) -> str:
    return "found" if dry_run else "removing"


def _left_alone(run_id: str) -> str:
    return f"{run_id} is left alone: another emulate is at work on it by now"


def _say_missing(error: EngineMissing, say: Say) -> None:
    say(f"{error.message} What runs have left on it is not looked at.")


def _refuse_namesakes(engine: Engine, run_id: str, folder: Path) -> None:
    """Raise UsageError if the engine has a live run with this id from another folder."""
    here = folder.resolve()
    for one in engine.find(run_id):
        other = _folder(one)
        if other is not None and other.resolve() != here and is_live(other):
            raise UsageError(
                f"Another run with the id {run_id} is under way, in {other}.",
                "Engines find things by the run id: end that run first.",
            )


def _locked(folder: Path, run_id: str) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of a run; no file is made in a folder that is not proved to be its own."""
    return locked(folder, make=is_run_folder(folder, run_id))


def _folder(resource: Resource) -> Path | None:
    """Return the folder that a resource names; None if that can't be a run's folder."""
    if "\0" in resource.folder or not os.path.isabs(resource.folder):
        return None
    return Path(resource.folder)


def _supervisor_of(record: RunFolder) -> psutil.Process | None:
    """Return the process that began the run, or took it over, if it is still running."""
    import psutil  # slow to import, and most runs that are removed have no supervisor

    from emulator.record.events import Attached, RunStarted
    from emulator.record.reader import Record

    history = Record(record.path).history
    supervisors = [e for e in history if isinstance(e, RunStarted | Attached)]
    if not supervisors or supervisors[-1].pid == os.getpid():
        return None
    try:
        process = psutil.Process(supervisors[-1].pid)
        return process if process.create_time() < supervisors[-1].wall else None
    except psutil.Error:
        return None
