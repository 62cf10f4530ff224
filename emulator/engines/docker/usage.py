"""What containers use: read from their cgroups on this machine, else from the daemon's stream.

Reading the files costs the daemon nothing and this process some microseconds. The stream is for a
daemon in a virtual machine or on another host: it takes a connection and a thread per container,
and the daemon reads the same files once a second for each.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import docker

from emulator.metrics.catalog import Usage
from emulator.metrics.cgroups import locate


class _Meter(NamedTuple):
    usage: Callable[[], Usage | None]
    pids: Callable[[], list[int]]


def _from_now(meter: _Meter) -> _Meter:
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

    return _Meter(usage, meter.pids)


_COUNTERS = ("cpu", "throttled", "received", "sent", "read", "written")
_NOTHING = _Meter(lambda: None, list)
_UNLIMITED = None, None


class ContainerUsage:
    """Reads what each running container uses; `local`: look for cgroups on this machine."""

    def __init__(self, api: docker.APIClient, *, local: bool = True) -> None:
        self._api, self._local = api, local
        self._meters: dict[str, _Meter] = {}
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

    def _meter(self, container: str) -> _Meter:
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

    def _open_meter(self, container: str) -> _Meter:
        if not self._local:
            return self._stream(container)
        try:
            pid = int(self._api.inspect_container(container)["State"]["Pid"])
        except (docker.errors.DockerException, OSError):
            return _NOTHING  # it is being removed, or the engine is lost, which `logs.py` reports
        if not pid:
            return _NOTHING
        cgroup = locate(pid, container)
        return _Meter(cgroup.usage, cgroup.pids) if cgroup else self._stream(container)

    def _stream(self, container: str) -> _Meter:
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

        meter = _Meter(usage, list)
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
