"""Usage of processes, by psutil: for tasks without a cgroup of their own."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Collection, Mapping

import psutil

from emulator.metrics.catalog import Usage


def session_members(leaders: Collection[int]) -> dict[int, list[int]]:
    """Return the process ids of each session by its leader, in one pass over all processes."""
    members: dict[int, list[int]] = defaultdict(list)
    for pid in psutil.pids():
        with contextlib.suppress(OSError):  # it has just ended, or belongs to another user
            if (session := os.getsid(pid)) in leaders:
                members[session].append(pid)
    return members


class ProcessSampler:
    """Measures what sessions use: each task was started in a session of its own.

    The system forgets what a process has used once its parent has waited for it. CPU and bytes are
    then the parent's (and counted with it); where the parent died first, the counter stays as it
    is until the other processes have used as much. So no counter here ever goes back.
    """

    def __init__(self) -> None:
        self._counted: dict[int, Usage] = {}
        """The last usage of each session."""

    def usage(self, leaders: Mapping[str, int]) -> dict[str, Usage]:
        """Return what each task's session has used; `leaders`: its first process."""
        members = session_members(leaders.values())
        self._counted = {
            leader: self._usage(pids, self._counted.get(leader, Usage(cpu=0.0)))
            for leader, pids in members.items()
        }
        return {
            task: self._counted[leader]
            for task, leader in leaders.items()
            if leader in self._counted
        }

    @staticmethod
    def pids(leaders: Mapping[str, int]) -> dict[str, list[int]]:
        """Return the process ids of each task's session; `leaders`: its first process."""
        members = session_members(leaders.values())
        return {task: members.get(leader, []) for task, leader in leaders.items()}

    def _usage(self, pids: Collection[int], before: Usage) -> Usage:
        cpu, memory, count = 0.0, 0, 0
        blocks: list[tuple[int, int]] = []
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                with process.oneshot():
                    cpu += sum(process.cpu_times()[:4])  # with children that have ended
                    memory += process.memory_info().rss
                count += 1
                if hasattr(process, "io_counters"):  # not on macOS
                    io = process.io_counters()
                    blocks.append((io.read_bytes, io.write_bytes))
        read, written = before.read, before.written
        if blocks:
            read = max(read or 0, sum(block[0] for block in blocks))
            written = max(written or 0, sum(block[1] for block in blocks))
        cpu = max(before.cpu, cpu)
        return Usage(cpu=cpu, memory=memory, read=read, written=written, processes=count)
