"""What containers use: read from their cgroups on this machine, else from the daemon's stream.

And which processes they have, by the daemon. Reading the files costs the daemon nothing and this
process some microseconds. The stream is for a daemon in a virtual machine or on another host: it
takes a connection and a thread per container, and the daemon reads the same files once a second for
each.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import docker
from docker.errors import APIError

from emulator.engines.base import TaskProcess, numbers_in
from emulator.metrics.catalog import Usage


class Meter(NamedTuple):
    """What measures a container."""

    usage: Callable[[], Usage | None]
    """Returns what was used so far; None where it does not run."""
    pids: Callable[[], list[int]]
    """Returns its processes, as this machine numbers them."""


def _from_now(meter: Meter) -> Meter:
    """Return a meter whose counters begin at zero now, or at its first reading."""
    before = meter.usage()

    def usage() -> Usage | None:
        nonlocal before
        now = meter.usage()
        before = before or now
        if now is None or before is None:
            return None
        used = {name: (getattr(now, name), getattr(before, name)) for name in _COUNTERS}
        return replace(now, **{name: a and a - (b or 0) for name, (a, b) in used.items()})

    return Meter(usage, meter.pids)


_COUNTERS = ("cpu", "throttled", "received", "sent", "read", "written")
_NOTHING = Meter(lambda: None, list)
_UNLIMITED = None, None


class ContainerUsage:
    """Reads what each running container uses; `local`: look for cgroups on this machine."""

    def __init__(self, api: docker.APIClient, *, local: bool = True) -> None:
        self._api, self._local = api, local
        self._meters: dict[str, Meter] = {}
        self._limits: dict[str, tuple[float | None, int | None]] = {}
        self._lock = threading.Lock()

    def started(
        self, container: str, cpus: float | None, memory: int | None, *, warm: bool = False
    ) -> None:
        """A container runs from now on, with the limits of its scenario in cores and bytes.

        What a `warm` one has used before is not the task's.
        """
        with self._lock:
            self._meters.pop(container, None)  # of an earlier start: another process, from zero
            self._limits[container] = cpus, memory
        if warm:
            meter = _from_now(self._meter(container))
            with self._lock:
                self._meters[container] = meter

    def set_cpu_limit(self, container: str, cpus: float | None) -> None:
        """A running container's CPU limit has changed."""
        with self._lock:
            self._limits[container] = cpus, self._limits.get(container, _UNLIMITED)[1]

    def ended(self, container: str) -> None:
        """A container no longer runs."""
        with self._lock:
            self._meters.pop(container, None)
            self._limits.pop(container, None)

    def usage_of(self, containers: Mapping[str, str]) -> dict[str, Usage]:
        """Return the usage of each task whose container runs; `containers`: ids by task."""
        used = {task: self._usage_of(container) for task, container in containers.items()}
        return {task: usage for task, usage in used.items() if usage is not None}

    def _usage_of(self, container: str) -> Usage | None:
        usage = self._meter(container).usage()
        if usage is None or self._limits.get(container, _UNLIMITED)[1] is not None:
            return usage
        return replace(usage, memory_limit=None)  # it would be a default, not the scenario's

    def pids(self, containers: Mapping[str, str]) -> dict[str, list[int]]:
        """Return the process ids of each task on this machine; none for another machine's."""
        return {task: self._meter(container).pids() for task, container in containers.items()}

    def _meter(self, container: str) -> Meter:
        with self._lock:
            if container not in self._limits:
                return _NOTHING  # it does not run
            if container in self._meters:
                return self._meters[container]
        meter = self._open_meter(container)
        with self._lock:
            if container in self._limits and meter is not _NOTHING:
                self._meters[container] = meter
        return meter

    def _open_meter(self, container: str) -> Meter:
        if not self._local:
            return self._stream(container)
        try:
            pid = int(self._api.inspect_container(container)["State"]["Pid"])
        except (docker.errors.DockerException, OSError):
            return _NOTHING  # it is being removed, or the engine is lost, which `logs.py` reports
        if not pid:
            return _NOTHING
        return locate(pid, container) or self._stream(container)

    def _stream(self, container: str) -> Meter:
        latest: Usage | None = None

        def follow() -> None:
            nonlocal latest
            with contextlib.suppress(Exception):  # it ends with the container, or the connection
                for stats in self._api.stats(container, decode=True, stream=True):
                    if (usage := usage_of(stats)) is None:
                        break  # the container has ended
                    latest = usage
            latest = None
            with self._lock:  # a stream that broke is opened again at the next sample
                if self._meters.get(container) is meter:
                    del self._meters[container]

        def usage() -> Usage | None:
            cpus, memory = self._limits.get(container, _UNLIMITED)
            return latest and replace(latest, cpus=cpus, memory_limit=memory)

        meter = Meter(usage, list)
        threading.Thread(target=follow, name=f"stats-{container[:12]}", daemon=True).start()
        return meter


def usage_of(stats: Mapping[str, Any]) -> Usage | None:
    """Read one answer of the engine's `GET /containers/{id}/stats` (pure).

    None where the container does not run: memory and processes are missing then. Limits are not
    read: the answer has no CPU limit, and the machine's memory where there is no memory limit.
    """
    memory, cpu = stats.get("memory_stats") or {}, stats.get("cpu_stats") or {}
    if "usage" not in memory:
        return None
    details = memory.get("stats") or {}
    # Version 1 of cgroups names it with `total_`, version 2 without.
    inactive = details.get("total_inactive_file", details.get("inactive_file", 0))
    networks = (stats.get("networks") or {}).values()
    blocks = (stats.get("blkio_stats") or {}).get("io_service_bytes_recursive") or []

    def bytes_of(operation: str) -> int:
        return sum(entry["value"] for entry in blocks if entry["op"].lower() == operation)

    return Usage(
        cpu=cpu["cpu_usage"]["total_usage"] / 1e9,
        throttled=(cpu.get("throttling_data") or {}).get("throttled_time", 0) / 1e9,
        memory=max(0, memory["usage"] - inactive),
        received=sum(network["rx_bytes"] for network in networks),
        sent=sum(network["tx_bytes"] for network in networks),
        read=bytes_of("read"),
        written=bytes_of("write"),
        processes=(stats.get("pids_stats") or {}).get("current"),
    )


def processes_of(api: docker.APIClient, container: str) -> Sequence[TaskProcess]:
    """Return the processes of a container besides its first one. Raises APIError.

    The daemon runs `ps` on its machine, which takes some hundredths of a second.
    """
    first = int(api.inspect_container(container)["State"]["Pid"])
    try:
        rows = api.top(container, "-eo pid,ppid,stat,caught,ignored,comm")["Processes"]
    except APIError:  # it does not run, or that `ps` does not know the masks of signals
        rows = api.top(container, "-eo pid,ppid,stat,tty,tty,comm")["Processes"]
    return arranged(first, rows or ())


def arranged(first: int, rows: Iterable[Sequence[str]]) -> Sequence[TaskProcess]:
    """Return the rows of `ps` as processes, the task's main one first (pure).

    The `first` process of a container is an init, which passes signals on to the main one alone; or
    the parent of a warm start. Either has started the main one before it could get other children.
    """
    found = [
        (int(pid), int(parent), " ".join(name), numbers_in(caught, ignored))
        for pid, parent, state, caught, ignored, *name in rows
        if not state.startswith("Z")
    ]
    main = min((pid for pid, parent, *_ in found if parent == first), default=None)
    processes = [
        TaskProcess(pid, name, pid == main, handled)
        for pid, _, name, handled in found
        if pid != first
    ]
    return sorted(processes, key=lambda one: not one.main)


# --- The files of a cgroup ------------------------------------------------------------------------


# Both versions are read; see admin-guide/cgroup-v1 and admin-guide/cgroup-v2.rst in the kernel's
# documentation. Memory is counted as in `docker stats`.

_NO_LIMIT = 1 << 62
"""Version 1 writes no memory limit as a huge number: this or more."""


def locate(pid: int, belongs_to: str, root: Path = Path("/")) -> Meter | None:
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
        return _meter(lambda: _version_1(folders, network), folders["memory"])
    if "" in folders and (folders[""] / "cpu.stat").exists():
        return _meter(lambda: _version_2(folders[""], network), folders[""])
    return None


def _meter(read_usage: Callable[[], Usage], folder: Path) -> Meter:
    """Return the meter of a cgroup; every call reads its files again."""

    def usage() -> Usage | None:
        try:
            return read_usage()
        except (OSError, ValueError, IndexError, KeyError):
            return None  # it ended between two reads, or while a file was read

    def pids() -> list[int]:
        try:
            return [int(pid) for pid in _read(folder / "cgroup.procs").split()]
        except OSError:
            return []

    return Meter(usage, pids)


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
        memory_limit=memory_limit if memory_limit < _NO_LIMIT else None,
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
