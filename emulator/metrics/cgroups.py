"""Usage of a container from its cgroup's files, which is cheaper than any other way.

Both versions are read; see admin-guide/cgroup-v1 and admin-guide/cgroup-v2.rst in the kernel's
documentation. Memory is counted as in `docker stats`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from emulator.metrics.catalog import Usage

_UNLIMITED = 1 << 62
"""Version 1 writes no memory limit as a huge number: this or more."""


@dataclass(frozen=True)
class Cgroup:
    """The cgroup of a process; every call reads its files again."""

    read_usage: Callable[[], Usage]
    processes: Path
    """The file that lists its processes."""

    def usage(self) -> Usage | None:
        """Return what has been used so far; None where the cgroup no longer exists."""
        try:
            return self.read_usage()
        except (OSError, ValueError, IndexError, KeyError):
            return None  # it ended between two reads, or while a file was read

    def pids(self) -> list[int]:
        """Return its processes, as this machine numbers them."""
        try:
            return [int(pid) for pid in _read(self.processes).split()]
        except OSError:
            return []


def locate(pid: int, belongs_to: str, root: Path = Path("/")) -> Cgroup | None:
    """Return the cgroup of a process where its files can be read here, else None.

    `belongs_to` (a container's id) has to be in the cgroup's path: the daemon may be on another
    machine, where the same number is another process.
    """
    process = root / "proc" / str(pid)
    try:
        lines = [line.split(":", 2) for line in _read(process / "cgroup").split("\n") if line]
    except OSError:
        return None
    folders = {
        name: root / "sys/fs/cgroup" / name / path.lstrip("/")
        for _, names, path in lines
        for name in names.split(",")  # of controllers; empty in version 2
        if belongs_to in path
    }
    network = process / "net/dev"
    if folders.keys() >= {"cpuacct", "memory"}:
        return Cgroup(lambda: _version_1(folders, network), folders["memory"] / "cgroup.procs")
    if "" in folders and (folders[""] / "cpu.stat").exists():
        return Cgroup(lambda: _version_2(folders[""], network), folders[""] / "cgroup.procs")
    return None


def _version_1(folders: Mapping[str, Path], network: Path) -> Usage:
    cpu, memory = folders.get("cpu", folders["cpuacct"]), folders["memory"]
    quota = _number(cpu / "cpu.cfs_quota_us")
    memory_limit = _number(memory / "memory.limit_in_bytes")
    inactive = _numbers(_read(memory / "memory.stat"))["total_inactive_file"]
    # Each line is `MAJOR:MINOR Read 4096`.
    blkio = folders.get("blkio")
    blocks = _read(blkio / "blkio.throttle.io_service_bytes").split("\n") if blkio else None

    def transferred(kind: str) -> int | None:
        if blocks is None:
            return None
        return sum(int(line.split()[2]) for line in blocks if f" {kind} " in line)

    received, sent = _traffic(_read(network))
    return Usage(
        cpu=_number(folders["cpuacct"] / "cpuacct.usage") / 1e9,
        throttled=_numbers(_read(cpu / "cpu.stat")).get("throttled_time", 0) / 1e9,
        memory=max(0, _number(memory / "memory.usage_in_bytes") - inactive),
        received=received,
        sent=sent,
        read=transferred("Read"),
        written=transferred("Write"),
        processes=_number(folders["pids"] / "pids.current") if "pids" in folders else None,
        cpus=quota / _number(cpu / "cpu.cfs_period_us") if quota > 0 else None,
        memory_limit=memory_limit if memory_limit < _UNLIMITED else None,
    )


def _version_2(folder: Path, network: Path) -> Usage:
    cpu = _numbers(_read(folder / "cpu.stat"))  # exists without the controller too
    throttled = cpu.get("throttled_usec")
    quota, period = (_optional(folder / "cpu.max") or "max 100000").split()
    memory, processes = _optional(folder / "memory.current"), _optional(folder / "pids.current")
    memory_limit = (_optional(folder / "memory.max") or "max").strip()
    inactive = _numbers(_optional(folder / "memory.stat") or "").get("inactive_file", 0)
    io = _optional(folder / "io.stat")
    # Each line is `MAJOR:MINOR rbytes=4096 wbytes=0 ...`.
    blocks = [pair.split("=") for pair in (io or "").split() if "=" in pair]
    received, sent = _traffic(_read(network))
    return Usage(
        cpu=cpu["usage_usec"] / 1e6,
        throttled=None if throttled is None else throttled / 1e6,
        memory=None if memory is None else max(0, int(memory) - inactive),
        received=received,
        sent=sent,
        read=None if io is None else sum(int(n) for name, n in blocks if name == "rbytes"),
        written=None if io is None else sum(int(n) for name, n in blocks if name == "wbytes"),
        processes=None if processes is None else int(processes),
        cpus=int(quota) / int(period) if quota != "max" else None,
        memory_limit=int(memory_limit) if memory_limit != "max" else None,
    )


def _traffic(text: str) -> tuple[int, int]:
    """Return bytes received and sent by all interfaces but loopback, from /proc/PID/net/dev."""
    received = sent = 0
    for line in text.split("\n")[2:]:
        name, _, numbers = line.partition(":")
        if numbers and name.strip() != "lo":
            counts = numbers.split()
            received, sent = received + int(counts[0]), sent + int(counts[8])
    return received, sent


def _numbers(text: str) -> dict[str, int]:
    """Read lines of `name number`."""
    pairs = (line.split() for line in text.split("\n") if line)
    return {name: int(number) for name, number in pairs}


def _number(path: Path) -> int:
    return int(_read(path))


def _optional(path: Path) -> str | None:
    """Return a file of a controller; None where the cgroup lacks the controller.

    A Docker without root only has its user's controllers: mostly not `io`.
    """
    try:
        return _read(path)
    except FileNotFoundError:
        return None


def _read(path: Path) -> str:
    """Read a small file with four system calls; `open` makes ten."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        chunks = []
        while chunk := os.read(descriptor, 65536):
            chunks.append(chunk)
        return b"".join(chunks).decode()
    finally:
        os.close(descriptor)
