"""Which processes of this machine belong to which run.

A process is a run's where its own environment says so, or where it descends from one that does.
What the keeper of a task says (see `keeper.py`) is worth more than what its descendants say: these
may clear their environment, or set in it what they like.

The proof that a process may be killed, taken together: it runs as this user and in this PID
namespace, it names a run by a valid id and a folder of that name, and no emulator holds the lock
of that folder (whoever kills it looks). A folder that is gone, or holds the record of another run,
does not save a process: runs' folders are deleted by hand while something of them still runs, and
nothing else would ever end it. The label itself is the only thing that such a process loses by: it
is in the environment of no process that a run did not start, unless somebody put it there. Neither
this process nor one that it descends from is ever a run's. A folder that a process names is only
looked at: see `record/scratch.py` for what is deleted.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from emulator.planning.plan import is_run_id

__all__ = ["KEEPER", "Labels", "Owned", "Seen", "labelled", "labels_in", "owned", "owners"]

RUN, TASK, FOLDER, KEEPER = (
    "EMULATOR_RUN",
    "EMULATOR_TASK",
    "EMULATOR_FOLDER",
    "EMULATOR_KEEPER",
)


@dataclass(frozen=True)
class Labels:
    """The labels in a process's environment: the run that it belongs to."""

    run_id: str
    task: str
    folder: str
    keeper: bool = False


@dataclass(frozen=True)
class Seen:
    """A process at the moment of a look."""

    parent: int
    labels: Labels | None


@dataclass(frozen=True)
class Owned:
    """A process of a run."""

    process: psutil.Process
    labels: Labels
    """Those of the run that it belongs to; `keeper` says whether it is a keeper itself."""
    childless: bool


def labelled(run_id: str, task: str, folder: Path) -> dict[str, str]:
    """Return the variables by which a process is found again (pure)."""
    return {RUN: run_id, TASK: task, FOLDER: str(folder)}


def labels_in(environment: Mapping[str, str]) -> Labels | None:
    """Return the labels of a process; None where they can't be those of a run (pure)."""
    run_id, folder = environment.get(RUN, ""), environment.get(FOLDER, "")
    path = Path(folder)
    if not is_run_id(run_id) or not path.is_absolute() or path.name != run_id:
        return None
    return Labels(run_id, environment.get(TASK, ""), folder, KEEPER in environment)


def owners(seen: Mapping[int, Seen], me: int) -> dict[int, Labels]:
    """Return the owner of each process by pid; `me` and its ancestors have none (pure).

    The nearest keeper that it descends from decides; without one its own labels, and without
    these those of its nearest ancestor that has some.
    """
    mine = set(_line(seen, me))
    found = {}
    for pid in seen.keys() - mine:
        labels = [one for above in _line(seen, pid) if (one := seen[above].labels)]
        if labels:
            found[pid] = next((one for one in labels if one.keeper), labels[0])
    return found


def _line(seen: Mapping[int, Seen], pid: int) -> Iterator[int]:
    """Yield a process and its ancestors; a pid that was used again may make a ring of them."""
    passed = set[int]()
    while pid in seen and pid not in passed:
        passed.add(pid)
        yield pid
        pid = seen[pid].parent


def owned() -> list[Owned]:
    """Return the processes of this machine that belong to runs, as they are now."""
    processes: dict[int, psutil.Process] = {}
    seen: dict[int, Seen] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError), process.oneshot():
            if process.status() != psutil.STATUS_ZOMBIE:
                seen[process.pid] = Seen(process.ppid(), _labels_of(process))
                processes[process.pid] = process
    parents = {one.parent for one in seen.values()}
    return [
        Owned(
            processes[pid],
            Labels(of.run_id, of.task, of.folder, _is_keeper(seen[pid])),
            pid not in parents,
        )
        for pid, of in owners(seen, os.getpid()).items()
    ]


def _is_keeper(seen: Seen) -> bool:
    return seen.labels is not None and seen.labels.keeper


def _labels_of(process: psutil.Process) -> Labels | None:
    """Return the labels of a process of this user, in our PID namespace."""
    try:
        labels = labels_in(process.environ())
        ours = labels is not None and os.geteuid() in process.uids() and _is_near(process.pid)
    except (psutil.Error, OSError):
        return None
    return labels if ours else None


def _is_near(pid: int) -> bool:
    """Say whether a process numbers processes as we do: in a container it names folders of its."""
    if sys.platform != "linux":
        return True
    return os.stat(f"/proc/{pid}/ns/pid").st_ino == os.stat("/proc/self/ns/pid").st_ino
