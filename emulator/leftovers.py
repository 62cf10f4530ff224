"""What runs have left on the engines, and how it is removed.

A run that goes on holds the lock in its run folder, and everything it made is labelled with that
folder and with the host. So whatever belongs to a folder of this host whose lock nobody holds has
been left behind, however its emulator died.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from emulator.engines import choose
from emulator.engines.base import Engine, Found
from emulator.engines.process import ProcessEngine
from emulator.errors import EngineMissing
from emulator.record.folder import Record, is_live, runs_in, wait_until_over

__all__ = ["abandoned", "clean", "find_all", "remove", "stop_or_remove"]


def abandoned(found: Sequence[Found], *, host: str, live: Callable[[Path], bool]) -> list[Found]:
    """Return what belongs to no run that goes on (pure, given `live`).

    What was started from another host is left alone: its run may well go on there.
    """
    return [
        thing
        for thing in found
        if thing.host == host and not (thing.folder and live(Path(thing.folder)))
    ]


def find_all(say: Callable[[str], None]) -> list[Found]:
    """Return what runs have made on every engine that answers; say which should and does not."""
    found = []
    for engine in _engines("auto", say):
        with contextlib.closing(engine):
            found += engine.find()
    return found


def clean(out: Path, *, engine_name: str, dry_run: bool, say: Callable[[str], None]) -> int:
    """Remove what runs have left; return how many things that was."""
    count = 0
    engines = _engines(engine_name)
    if engine_name == "auto" and not any(engine.name == "docker" for engine in engines):
        say("no Docker engine answers: what runs have left on one is not looked at")
    for engine in engines:
        with contextlib.closing(engine):
            left = abandoned(engine.find(), host=socket.gethostname(), live=is_live)
            for thing in left:
                say(f"{'found' if dry_run else 'removing'} {thing.kind} {thing.name}")
            count += len(left)
            if not dry_run:
                for run_id in sorted({thing.run_id for thing in left}):
                    engine.tear_down(run_id)
    for folder in _scratch_folders(out):
        say(f"{'found' if dry_run else 'removing'} folder {folder}")
        count += 1
        if not dry_run:
            shutil.rmtree(folder, ignore_errors=True)
    return count


def stop_or_remove(record: Record) -> str:
    """End a run; return what was done. A run that goes on is asked to stop, and waited for."""
    if record.live and (supervisor := _supervisor_of(record)):
        supervisor.send_signal(signal.SIGTERM)
        wait_until_over(record.path)
        return f"{record.run_id} was stopped"
    removed = remove(record.run_id, record.plan.engine, record.path)
    return f"removed {removed} things of {record.run_id}" if removed else "nothing was left"


def remove(run_id: str, engine_name: str, folder: Path) -> int:
    """Remove what a run has left, its folder be there or not; return how many things.

    Raises EngineError.
    """
    with contextlib.closing(choose(engine_name)) as engine:
        removed = engine.tear_down(run_id)
    for scratch in ("work", "shared"):
        shutil.rmtree(folder / scratch, ignore_errors=True)
    return removed


def _engines(name: str, say: Callable[[str], None] = lambda text: None) -> list[Engine]:
    """Return the engine of that name; for `auto` every one that answers.

    An engine that is configured and does not answer is said.
    """
    if name != "auto":
        return [choose(name)]
    engines: list[Engine] = [ProcessEngine()]
    try:
        engines.append(choose("docker"))
    except EngineMissing as error:
        if error.configured:
            say(f"{error.message} What runs have left on it is not looked at.")
    return engines


def _scratch_folders(out: Path) -> list[Path]:
    """Return the working and shared folders of process runs that are over."""
    over = [r.path for r in runs_in(out) if not r.live and (r.path / "work").is_dir()]
    return [path / part for path in over for part in ("work", "shared") if (path / part).is_dir()]


def _supervisor_of(record: Record) -> psutil.Process | None:
    """Return the process that began the run, or took it over, if it is still that one."""
    came = [entry for entry in record.history if entry.event in ("run", "attached")]
    if not came or int(came[-1].data.get("pid", 0)) == os.getpid():
        return None
    try:
        process = psutil.Process(int(came[-1].data["pid"]))
        return process if process.create_time() < came[-1].wall else None
    except (psutil.Error, KeyError):
        return None
