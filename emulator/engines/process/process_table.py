"""Which processes of this machine belong to which run.

A process belongs to a run if its own environment has the run's labels, or if it descends from one
that has. The labels of a task's keeper (`keeper.py`) take precedence over those of its descendants,
which may clear their environment or set anything in it.

A process may be killed if all of this is true: it runs as this user and in this PID namespace, its
labels have a valid run id and a folder of that name, and no emulator has the lock of that folder
(the caller checks it). The folder need not exist, nor have the record of that run: users delete run
folders while some process of the run is still running, and nothing else would ever end it. Only
processes that a run started have the labels, unless somebody copies them. This process and its
ancestors never belong to a run. A folder that a process names is not deleted for that: see
`record/scratch.py`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from emulator.engines.base import numbers_in
from emulator.runtime.host import HOST, this_host
from emulator.validation.run_id import is_run_id

RUN, TASK, FOLDER = "EMULATOR_RUN", "EMULATOR_TASK", "EMULATOR_FOLDER"
KEEPER = "EMULATOR_KEEPER"


@dataclass(frozen=True)
class Labels:
    """The labels in a process's environment: the run that it belongs to."""

    run_id: str
    task: str
    folder: str
    host: str
    keeper: bool = False


@dataclass(frozen=True)
class ProcessEntry:
    """What the process table has of a process."""

    parent: int
    labels: Labels | None


@dataclass(frozen=True)
class Owned:
    """A process of a run."""

    process: psutil.Process
    labels: Labels
    """Those of the run that it belongs to."""
    is_killed_directly: bool
    """Not a keeper that has children: it ends by itself after them."""


def labelled(run_id: str, task: str, folder: Path) -> dict[str, str]:
    """Return the variables by which a process is found again (pure)."""
    return {RUN: run_id, TASK: task, FOLDER: str(folder)}


def labels_in(environment: Mapping[str, str]) -> Labels | None:
    """Return the labels of a process; None where they can't be those of a run (pure)."""
    run_id, folder = environment.get(RUN, ""), environment.get(FOLDER, "")
    path = Path(folder)
    if not is_run_id(run_id) or not path.is_absolute() or path.name != run_id:
        return None
    made_by = environment.get(HOST) or this_host()
    return Labels(run_id, environment.get(TASK, ""), folder, made_by, KEEPER in environment)


def owners(table: Mapping[int, ProcessEntry], me: int) -> dict[int, Labels]:
    """Return the labels of the run of each process by pid; `me` and its ancestors have none (pure).

    The nearest keeper among its ancestors decides, else its own labels, else those of its nearest
    ancestor that has some.
    """
    result = {}
    for pid in table.keys() - set(_with_ancestors(table, me)):
        labels = [one for above in _with_ancestors(table, pid) if (one := table[above].labels)]
        if labels:
            result[pid] = next((one for one in labels if one.keeper), labels[0])
    return result


def _with_ancestors(table: Mapping[int, ProcessEntry], pid: int) -> Iterator[int]:
    """Yield a process and its ancestors; a reused pid may make a cycle of them."""
    yielded = set[int]()
    while pid in table and pid not in yielded:
        yielded.add(pid)
        yield pid
        pid = table[pid].parent


def owned() -> list[Owned]:
    """Return the processes of this machine that belong to runs, as they are now."""
    processes: dict[int, psutil.Process] = {}
    table: dict[int, ProcessEntry] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError), process.oneshot():
            if process.status() != psutil.STATUS_ZOMBIE:
                table[process.pid] = ProcessEntry(process.ppid(), _labels_of(process))
                processes[process.pid] = process
    parents = {one.parent for one in table.values()}
    keepers = {pid for pid, one in table.items() if one.labels and one.labels.keeper}
    return [
        Owned(processes[pid], labels, pid not in parents & keepers)
        for pid, labels in owners(table, os.getpid()).items()
    ]


def signal_descendants(keeper: int, numbers: Sequence[int]) -> int:
    """Send signals to all that a keeper has started; return how many processes got them.

    Its descendants are all of the task's: what leaves its session stays the keeper's.
    """
    found = descendants(keeper)
    return len({one for number in numbers for one in signal_each(found, number)})


def descendants(keeper: int) -> list[psutil.Process]:
    """Return all that a keeper has started and that has not ended."""
    try:
        found = psutil.Process(keeper).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [one for one in found if not has_ended(one)]


def has_ended(process: psutil.Process) -> bool:
    """Say whether a process has ended; a zombie has, even if its parent never waits for it."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def signal_each(processes: Sequence[psutil.Process], number: int) -> list[int]:
    """Send a signal to processes; return the pids of those that got it."""
    reached = []
    for process in processes:
        # psutil refuses where the pid is another process's now.
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.send_signal(number)
            reached.append(process.pid)
    return reached


def bring_all(keeper: int, number: int, reached: Callable[[psutil.Process], bool]) -> str:
    """Send a signal to all that a keeper has started, until all of it is where that brings it.

    `reached` waits until that is so of a process that got it, and says whether it is; what has not
    been reached may start more. Returns which process is not, in words; empty: all are.
    """
    known = set[psutil.Process]()
    while new := [one for one in descendants(keeper) if one not in known]:
        known.update(new)
        signalled = signal_each(new, number)
        for one in new:
            if not has_ended(one) and not (one.pid in signalled and reached(one)):
                why = "does not obey" if one.pid in signalled else "is another user's"
                return f"process {one.pid} of it ({name_of(one)}) {why}"
    return ""


def name_of(process: psutil.Process) -> str:
    """Return the name of a process, `?` if it has ended."""
    with contextlib.suppress(psutil.Error):
        return process.name()
    return "?"


def handled(pid: int) -> frozenset[int] | None:
    """Return which signals a process catches or ignores; None: unknown."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines()
    except OSError:  # macOS has no /proc
        return None
    masks = dict(line.split(":", 1) for line in lines if line.startswith(("SigCgt:", "SigIgn:")))
    return numbers_in(*masks.values())


def _labels_of(process: psutil.Process) -> Labels | None:
    """Return the labels of a process of this user in this PID namespace.

    A process in another namespace, that of a container, names folders of the container.
    """
    try:
        labels = labels_in(process.environ())
        if labels is None or os.geteuid() not in process.uids():
            return None
        if sys.platform != "linux":
            return labels
        namespace = os.stat(f"/proc/{process.pid}/ns/pid").st_ino
        return labels if namespace == os.stat("/proc/self/ns/pid").st_ino else None
    except (psutil.Error, OSError):
        return None
