"""A job of Slurm: the variables of its tasks, and the command with which it requeues itself (pure).

srun sets the variables for each task (srun(1), "OUTPUT ENVIRONMENT VARIABLES"). A program calls
`scontrol` (scontrol(1)); of it there is what handlers of frameworks and their scripts use, as a
shell script (`scontrol.sh`). What can't be known before a start, the task's own shell finds out
(`slurm_begin.sh`): how often it was started, from a file in the shared volume.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

REQUEUE = "requeue"
"""The event that `scontrol requeue` prints, as a line of JSON."""
SCONTROL = "EMULATOR_SCONTROL"
"""The variable with the text of `scontrol`, which the beginning of a task takes."""
SMALLEST_ID, IDS = 1_000_000, 9_000_000
_HERE = Path(__file__).parent
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]*)")


def job_id(run_id: str) -> int:
    """Return the number of a run's job; all of its starts have the same."""
    return SMALLEST_ID + zlib.crc32(run_id.encode()) % IDS


def environments(
    run_id: str, job_name: str, hosts: Mapping[str, str]
) -> Mapping[str, dict[str, str]]:
    """Return the variables of each task; `hosts` has their hosts in the order of their ranks.

    Each host is a node.
    """
    nodes = [*dict.fromkeys(hosts.values())]
    on_node = Counter(hosts.values())
    listed, tasks_per_node = node_list(nodes), [on_node[node] for node in nodes]
    number, count = str(job_id(run_id)), str(len(hosts))
    common = {
        "SLURM_CLUSTER_NAME": "emulator",
        "SLURM_JOB_ID": number,
        "SLURM_JOBID": number,
        "SLURM_JOB_NAME": job_name,
        "SLURM_JOB_NODELIST": listed,
        "SLURM_NODELIST": listed,
        "SLURM_JOB_NUM_NODES": str(len(nodes)),
        "SLURM_NNODES": str(len(nodes)),
        "SLURM_NTASKS": count,
        "SLURM_NPROCS": count,
        "SLURM_TASKS_PER_NODE": _counted(tasks_per_node),
        "SLURM_STEP_ID": "0",
        "SLURM_STEPID": "0",
        SCONTROL: _HERE.joinpath("scontrol.sh").read_text("utf-8"),
    }
    if len(set(tasks_per_node)) == 1:  # else srun was not given it
        common["SLURM_NTASKS_PER_NODE"] = str(tasks_per_node[0])
    seen = Counter[str]()
    made = {}
    for rank, (task, host) in enumerate(hosts.items()):
        made[task] = {
            **common,
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(seen[host]),
            "SLURM_NODEID": str(nodes.index(host)),
            "SLURMD_NODENAME": host,
        }
        seen[host] += 1
    return made


def begun(command: Sequence[str]) -> tuple[str, ...]:
    """Return the command of a task whose shell first finds out what only a start knows."""
    begin = _HERE.joinpath("slurm_begin.sh").read_text("utf-8")
    return ("sh", "-c", begin, "slurm", *command)


def asks_requeue(line: str) -> bool:
    """Return whether a line is that of `scontrol requeue`."""
    if REQUEUE not in line:
        return False
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and event.get("emulate") == REQUEUE


def node_list(nodes: Iterable[str]) -> str:
    """Return names of nodes as Slurm writes a list of them: `chief-0,worker-[0-3]`.

    Addresses are not joined, because they have no numbers that count nodes.
    """
    parts = list[str]()
    for _, group in groupby(enumerate(nodes), _series):
        names = [name for _, name in group]
        found = _NUMBERED.fullmatch(names[0])
        if len(names) == 1 or found is None:
            parts += names
        else:
            first = int(found[2])
            parts.append(f"{found[1]}[{first}-{first + len(names) - 1}]")
    return ",".join(parts)


def _series(numbered: tuple[int, str]) -> tuple[str, int]:
    """Return what neighbours in a series such as worker-0, worker-1 have in common."""
    position, name = numbered
    found = _NUMBERED.fullmatch(name)
    if found is None or "." in name or ":" in name:
        return name, -1
    return found[1], int(found[2]) - position


def _counted(counts: Sequence[int]) -> str:
    """Return numbers as Slurm writes them: `2(x3),1`."""
    groups = [(count, len([*same])) for count, same in groupby(counts)]
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in groups)
