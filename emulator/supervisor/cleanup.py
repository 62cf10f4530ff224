"""What runs have left on the engines and in their folders, and how it is removed.

A run that is under way holds the lock in its run folder, and everything it made is labelled with
that folder and with the host. So whatever belongs to a folder of this host whose lock nobody holds
has been left behind, however its emulator died. Whoever removes it holds that lock meanwhile, and
`emulate attach` is refused; where somebody else holds it, the run is left alone.

A label is what somebody wrote. By a folder in a label it is only decided whether a run is under
way: on disk nothing is deleted but what `record/remains.py` proves to be the run's, in the folder
of runs that the user names. What has our label with a run id that can't be one is not ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import psutil

from emulator.engines import AUTO, answering, choose
from emulator.engines.base import Engine, Resource
from emulator.errors import EngineMissing, InUse, RecordError, UsageError, printable
from emulator.planning.plan import check_run_id, is_run_id
from emulator.record.events import Attached, RunStarted
from emulator.record.lock import is_being_removed, is_live, locked, wait_until_over
from emulator.record.reader import Record, runs_in
from emulator.record.remains import never_began, remains, remove_never_began, remove_remains
from emulator.record.scratch import is_run_folder
from emulator.supervisor.settling import let_settle

__all__ = ["abandoned", "clean", "find_all", "remove", "stop_or_remove"]


def abandoned(
    found: Sequence[Resource], *, host: str, live: Callable[[Path], bool]
) -> list[Resource]:
    """Return what belongs to no run that is under way (pure, given `live`).

    What was started from another host is left alone: its run may well be under way there. So is
    everything that has the run id of a run that is under way, also where it names another folder:
    engines remove by the run id.
    """
    going_on = {
        thing.run_id
        for thing in found
        if thing.host != host or ((folder := _folder(thing)) and live(folder))
    }
    return [thing for thing in found if is_run_id(thing.run_id) and thing.run_id not in going_on]


def find_all(say: Callable[[str], None]) -> list[Resource]:
    """Return what runs have made on every engine that answers; say which should and does not."""

    def missing(error: EngineMissing) -> None:
        if error.configured:
            _say_missing(error, say)

    found = []
    for engine in answering(AUTO, missing):
        found += [thing for thing in engine.find() if is_run_id(thing.run_id)]
    return found


def clean(out: Path, *, engine_name: str, dry_run: bool, say: Callable[[str], None]) -> int:
    """Remove what runs have left; return how many things that was.

    On disk only what lies in run folders in `out`. Raises EngineError.
    """
    count = 0
    if not dry_run:
        let_settle((record for record in runs_in(out) if not record.live), say)
    for engine in answering(engine_name, lambda error: _say_missing(error, say)):
        count += _clean_engine(engine, dry_run=dry_run, say=say)
    return count + _clean_folders(out, dry_run=dry_run, say=say)


def _clean_engine(engine: Engine, *, dry_run: bool, say: Callable[[str], None]) -> int:
    count = 0
    found = engine.find()
    if not dry_run:
        folders = {folder for thing in found if (folder := _folder(thing))}
        _wait_for_removal(folders, say)
        found = engine.find()
    if strange := [thing for thing in found if not is_run_id(thing.run_id)]:
        names = ", ".join(f"{thing.kind} {thing.name}" for thing in strange)
        say(printable(f"not ours, for what they are labelled with is no run id: {names}"))
    runs: defaultdict[str, list[Resource]] = defaultdict(list)
    for thing in abandoned(found, host=socket.gethostname(), live=is_live):
        runs[thing.run_id].append(thing)
    for run_id, things in sorted(runs.items()):
        try:
            with contextlib.ExitStack() as stack:
                if not dry_run:
                    for folder in {folder for one in things if (folder := _folder(one))}:
                        stack.enter_context(_held(folder, run_id))
                for thing in things:
                    say(printable(f"{_doing(dry_run)} {thing.kind} {thing.name}"))
                if not dry_run:
                    engine.tear_down(run_id)
            count += len(things)
        except InUse:
            say(_left_alone(run_id))
    return count


def _clean_folders(out: Path, *, dry_run: bool, say: Callable[[str], None]) -> int:
    """Remove what lies in the folders of runs that are over, and of those that never began."""
    count = 0
    if not dry_run:
        _wait_for_removal((record.path for record in runs_in(out)), say)
    for record in runs_in(out):
        if record.live or not remains(record.path, record.run_id):
            continue
        try:
            with contextlib.nullcontext() if dry_run else locked(record.path, make=True):
                for path in remains(record.path, record.run_id):
                    say(printable(f"{_doing(dry_run)} {path}"))
                    count += 1
                if not dry_run:
                    remove_remains(record.path, record.run_id)
        except InUse:
            say(_left_alone(record.run_id))
        except RecordError as error:
            say(str(error))
    for folder in never_began(out):
        if dry_run or remove_never_began(folder):
            say(printable(f"{_doing(dry_run)} {folder}, of a run that never began"))
            count += 1
    return count


def _wait_for_removal(folders: Iterable[Path], say: Callable[[str], None]) -> None:
    """Wait until no other process removes one of these runs, so that nothing of it is left."""
    for folder in folders:
        if is_being_removed(folder):
            say(printable(f"waiting for another emulate process that removes {folder.name}"))
            wait_until_over(folder)


def _doing(dry_run: bool) -> str:
    return "found" if dry_run else "removing"


def _left_alone(run_id: str) -> str:
    return f"{run_id} is left alone: another emulate is at work on it by now"


def stop_or_remove(record: Record, say: Callable[[str], None] = lambda text: None) -> str:
    """End a run; return what was done. One that is under way is asked to stop, and waited for.

    Raises UsageError where the folder is not the run's own, or where somebody takes the run over
    just now; EngineError.
    """
    record.check_name()
    if record.live and (supervisor := _supervisor_of(record)):
        supervisor.send_signal(signal.SIGTERM)
        wait_until_over(record.path)
        return f"{record.run_id} was stopped"
    removed = remove(record.run_id, record.plan.engine, record.path, say)
    return f"removed {removed} things of {record.run_id}" if removed else "nothing was left"


def remove(
    run_id: str, engine_name: str, folder: Path, say: Callable[[str], None] = lambda text: None
) -> int:
    """Remove what a run has left, its folder be there or not; return how many things.

    Raises InUse where an emulator is at work on the run, UsageError where another run of that name
    is under way, EngineError.
    """
    check_run_id(run_id)
    with contextlib.closing(choose(engine_name)) as engine, _held(folder, run_id):
        _refuse_namesakes(engine, run_id, folder)
        if is_run_folder(folder, run_id):
            let_settle([Record(folder)], say)
        return engine.tear_down(run_id) + len(remove_remains(folder, run_id))


def _refuse_namesakes(engine: Engine, run_id: str, folder: Path) -> None:
    """Raise UsageError where what has this run id belongs to another folder's run."""
    here = folder.resolve()
    for thing in engine.find(run_id):
        there = _folder(thing)
        if there is not None and there.resolve() != here and is_live(there):
            raise UsageError(
                f"Another run with the id {run_id} is under way, in {there}.",
                "Engines find things by the run id: end that run first.",
            )


@contextlib.contextmanager
def _held(folder: Path, run_id: str) -> Iterator[None]:
    """Hold the lock of a run; in a folder that is not proved to be its own, no file is made."""
    with locked(folder, make=is_run_folder(folder, run_id)):
        yield


def _folder(thing: Resource) -> Path | None:
    """Return the folder that a thing names; None where that is no path of a run's folder."""
    if "\0" in thing.folder or not os.path.isabs(thing.folder):
        return None
    return Path(thing.folder)


def _say_missing(error: EngineMissing, say: Callable[[str], None]) -> None:
    say(f"{error.message} What runs have left on it is not looked at.")


def _supervisor_of(record: Record) -> psutil.Process | None:
    """Return the process that began the run, or took it over, if it is still that one."""
    came = [e for e in record.history if isinstance(e, RunStarted | Attached)]
    if not came or came[-1].pid == os.getpid():
        return None
    try:
        process = psutil.Process(came[-1].pid)
        return process if process.create_time() < came[-1].wall else None
    except psutil.Error:
        return None
