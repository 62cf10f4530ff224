"""What processes use, by psutil: for tasks that no cgroup counts."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import psutil

from emulator.metrics.samples import Usage

__all__ = ["Sessions"]


@dataclass(frozen=True)
class _Counted:
    cpu: float = 0.0
    read: int | None = None
    written: int | None = None


class Sessions:
    """Counts what the processes of sessions use: a task that was started in one of its own.

    The system forgets what a process has used once its parent has heard of its end. CPU and bytes
    are then the parent's (and are counted with it); where the parent died first, what was counted
    stands until the others have used as much. So no counter here ever goes back.
    """

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}
        self._counted: dict[int, _Counted] = {}

    def members(self, leaders: Collection[int]) -> dict[int, list[int]]:
        """Return the processes of each session, in one pass over all there are."""
        found: dict[int, list[int]] = defaultdict(list)
        for pid in psutil.pids():
            with contextlib.suppress(OSError):  # it has just ended, or is none of ours
                if (session := os.getsid(pid)) in leaders:
                    found[session].append(pid)
        return found

    def usage(self, leaders: Mapping[str, int]) -> dict[str, Usage]:
        """Return what each task's session has used; one that is gone is left out."""
        members = self.members(leaders.values())
        self._forget({pid for pids in members.values() for pid in pids}, set(leaders.values()))
        return {
            task: self._usage(leader, members[leader])
            for task, leader in leaders.items()
            if leader in members
        }

    def _forget(self, alive: set[int], leaders: set[int]) -> None:
        self._processes = {pid: p for pid, p in self._processes.items() if pid in alive}
        self._counted = {pid: c for pid, c in self._counted.items() if pid in leaders}

    def _usage(self, leader: int, pids: Collection[int]) -> Usage:
        cpu, memory, count = 0.0, 0, 0
        blocks: list[tuple[int, int]] = []
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                process = self._processes.setdefault(pid, psutil.Process(pid))
                with process.oneshot():
                    cpu += sum(process.cpu_times()[:4])  # with children that have ended
                    memory += process.memory_info().rss
                count += 1
                if hasattr(process, "io_counters"):  # not on macOS
                    io = process.io_counters()
                    blocks.append((io.read_bytes, io.write_bytes))
        before = self._counted.get(leader, _Counted())
        now = self._counted[leader] = _Counted(
            max(before.cpu, cpu),
            max(before.read or 0, sum(read for read, _ in blocks)) if blocks else before.read,
            max(before.written or 0, sum(out for _, out in blocks)) if blocks else before.written,
        )
        return Usage(
            cpu=now.cpu, memory=memory, read=now.read, written=now.written, processes=count
        )
