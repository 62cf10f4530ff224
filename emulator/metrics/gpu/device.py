"""One GPU: what the driver is asked, and the state kept between samples.

Nothing here raises: what the driver does not report is None, and `unavailable` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.metrics.catalog import GpuShare, GpuUsage
from emulator.metrics.gpu.inventory import Gpu
from emulator.metrics.gpu.nvml import Nvml, NvmlError

__all__ = ["Device", "Poll", "shares"]

FRESH = 1.0
"""Seconds for which a process's utilisation is used when no newer one arrives: the longest period
over which drivers sample ("between 1 second and 1/6 second", NVML's nvmlUtilization_t)."""
EVENTS_AT_ONCE = 64
"""Xids that are read in one sample of a device; more wait for the next."""

Question = tuple[object, ...]
"""A function of the bindings, and its arguments."""


def shares(
    owners: Mapping[int, str],
    memory: Mapping[int, int | None] | None,
    busy: Mapping[int, float] | None,
) -> dict[str, GpuShare]:
    """Return each task's share of a device from what its processes have there (pure).

    `memory`: bytes by pid, None where the driver hides them; `busy`: share of the time by pid. None
    for either means that the driver reports no processes. A process that is missing in `memory` has
    left the device; one that is missing in `busy` is idle.
    """
    listed = busy if memory is None else memory
    there = {pid: owners[pid] for pid in listed or () if pid in owners}
    found: dict[str, GpuShare] = {}
    for task in sorted(set(there.values())):
        own = [pid for pid, owner in there.items() if owner == task]
        found[task] = GpuShare(
            memory=None if memory is None else _sum([memory[pid] for pid in own]),
            utilisation=None if busy is None else min(1.0, sum(busy.get(pid, 0.0) for pid in own)),
        )
    return found


def _sum(amounts: Sequence[int | None]) -> int | None:
    """Return the sum; None where a part is not known, because the rest would be a wrong number."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


@dataclass
class Poll:
    """One sample's questions to one device: which columns were answered, which refused."""

    nvml: Nvml
    answered: set[str] = field(default_factory=set)
    refused: dict[str, NvmlError] = field(default_factory=dict)

    def ask(self, column: str, *questions: Question) -> Any:  # noqa: ANN401  as the bindings
        """Return the answer to the first question that this driver knows, or None."""
        for function, *arguments in questions:
            try:
                answer = self.nvml.ask(str(function), *arguments)
            except NvmlError as error:
                # "No such function" says less than the error of another function in its place.
                if error.code != self.nvml.api.NVML_ERROR_FUNCTION_NOT_FOUND:
                    self.refused[column] = error
                self.refused.setdefault(column, error)
                if error.code not in self.nvml.absent:
                    break
            else:
                self.answered.add(column)
                return answer
        return None

    @property
    def lost(self) -> bool:
        """Whether the device reports that it is lost, or answers no question at all."""
        codes = {error.code for error in self.refused.values()}
        if self.nvml.api.NVML_ERROR_GPU_IS_LOST in codes:
            return True
        return not self.answered and bool(
            codes - self.nvml.absent - {self.nvml.api.NVML_ERROR_NO_PERMISSION}
        )


class Device:
    """One device or MIG instance, with the state kept between samples."""

    def __init__(
        self,
        nvml: Nvml,
        gpu: Gpu,
        handle: object,
        now: Callable[[], float],
        parent: Device | None,
    ) -> None:
        self.gpu = gpu
        self.lost = False
        self.unavailable: dict[str, str] = {}
        self.xids: dict[int | None, int] = {}
        """The last Xid of each GPU instance that had one."""
        self._xid: int | None = None
        self._answered: set[str] = set()
        self._nvml, self._handle, self._now, self._parent = nvml, handle, now, parent
        self._seen = 0
        self._busy: dict[int, tuple[float, float]] = {}
        """Pid -> its share of the time, and when it was reported."""
        # The number by which events name this instance.
        self._instance = nvml.get("nvmlDeviceGetGpuInstanceId", handle) if parent else None
        self._events = None if parent else self._watch()

    def sample(self, owners: Mapping[int, str]) -> GpuUsage:
        """Return what the device does now."""
        poll = Poll(self._nvml)
        columns: dict[str, Any] = {}
        if not self.gpu.parent:
            columns |= self._of_the_whole(poll)
        if not self.gpu.divided:
            columns |= self._of_the_part(poll, owners)
        gpu, xid = self.gpu, self._last_xid()
        self.lost = poll.lost
        if self.lost:
            return GpuUsage(gpu.index, gpu.uuid, gpu.name, lost=True, xid=xid)
        self._note(poll)
        return GpuUsage(gpu.index, gpu.uuid, gpu.name, xid=xid, **columns)

    def forget(self) -> None:
        """Drop the utilisation of processes so far; only newer reports count from here on."""
        self._busy.clear()

    def close(self) -> None:
        """Stop the driver from collecting events for us."""
        if self._events is not None:
            self._nvml.get("nvmlEventSetFree", self._events)
            self._events = None

    def _of_the_whole(self, poll: Poll) -> dict[str, float | int | None]:
        """Ask for what only the whole device has: power, temperature, clocks, errors."""
        api, handle = self._nvml.api, self._handle
        clock, ecc = "nvmlDeviceGetClockInfo", "nvmlDeviceGetTotalEccErrors"
        uncorrected = api.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        power = poll.ask("power", ("nvmlDeviceGetPowerUsage", handle))
        celsius = poll.ask(
            "temperature",
            ("nvmlDeviceGetTemperature", handle, api.NVML_TEMPERATURE_GPU),
            ("nvmlDeviceGetTemperatureV", handle, api.NVML_TEMPERATURE_GPU),  # its successor
        )
        return {
            "power": None if power is None else power / 1000,
            "temperature": None if celsius is None else float(celsius),
            "sm_clock": poll.ask("sm_clock", (clock, handle, api.NVML_CLOCK_SM)),
            "memory_clock": poll.ask("memory_clock", (clock, handle, api.NVML_CLOCK_MEM)),
            "ecc_errors": poll.ask("ecc_errors", (ecc, handle, uncorrected, api.NVML_VOLATILE_ECC)),
        }

    def _of_the_part(self, poll: Poll, owners: Mapping[int, str]) -> dict[str, Any]:
        """Ask for memory and processes; for utilisation of whole devices only, MIG has none."""
        info = "nvmlDeviceGetMemoryInfo"
        memory = poll.ask(
            "memory",
            # The second version leaves out what the driver keeps for itself, as nvidia-smi does.
            (info, self._handle, self._nvml.api.nvmlMemory_v2),
            (info, self._handle),
        )
        columns: dict[str, Any] = {
            "memory": None if memory is None else int(memory.used),
            "memory_total": None if memory is None else int(memory.total),
        }
        busy = None
        if not self.gpu.parent:
            rates = poll.ask("utilisation", ("nvmlDeviceGetUtilizationRates", self._handle))
            columns["utilisation"] = None if rates is None else rates.gpu / 100
            busy = self._busy_processes(poll)
        columns["tasks"] = shares(owners, self._memory_of_processes(poll), busy)
        return columns

    def _memory_of_processes(self, poll: Poll) -> dict[int, int | None] | None:
        """Return bytes by pid. A process that computes and draws is in both lists, in full."""
        found: dict[int, int | None] | None = None
        for kind in ("Compute", "Graphics"):
            # The name without a version raises an exception of its own with older drivers.
            names = (f"nvmlDeviceGet{kind}RunningProcesses_{version}" for version in ("v3", "v2"))
            listed = poll.ask("tasks.memory", *((name, self._handle) for name in names))
            if listed is None:
                continue
            found = found or {}
            for process in listed:
                used = (process.usedGpuMemory, found.get(process.pid))
                found[process.pid] = max((n for n in used if n is not None), default=None)
        return found

    def _busy_processes(self, poll: Poll) -> dict[int, float] | None:
        """Return the share of the time by pid, since the last call."""
        api, column = self._nvml.api, "tasks.utilisation"
        now = self._now()
        reports = poll.ask(column, ("nvmlDeviceGetProcessUtilization", self._handle, self._seen))
        if reports is None and poll.refused[column].code in (
            api.NVML_SUCCESS,  # the bindings raise this for success with an empty list
            api.NVML_ERROR_NOT_FOUND,  # nothing new
        ):
            del poll.refused[column]
            reports = []
        if reports is None:
            return None
        newest = self._seen
        for one in reports:
            # Drivers also report empty slots and values above 100 (Syllo/nvtop issue 110).
            if one.timeStamp > self._seen and one.smUtil <= 100:
                self._busy[one.pid] = (one.smUtil / 100, now)
                newest = max(newest, one.timeStamp)
        self._seen = newest
        self._busy = {pid: (s, when) for pid, (s, when) in self._busy.items() if now - when < FRESH}
        return {pid: share for pid, (share, _) in self._busy.items()}

    def _note(self, poll: Poll) -> None:
        """Keep why a column was never reported; one that is missing now and then is not listed."""
        self._answered |= poll.answered
        for column in self._answered:
            self.unavailable.pop(column, None)
        for column in poll.refused.keys() - self._answered:
            self.unavailable[column] = poll.refused[column].why

    def _watch(self) -> Any:  # noqa: ANN401  as the bindings
        """Have the driver collect Xids. Each device has an event set of its own, so that a lost one
        does not block the others."""
        nvml, xid = self._nvml, self._nvml.api.nvmlEventTypeXidCriticalError
        events = None
        try:
            if not nvml.ask("nvmlDeviceGetSupportedEventTypes", self._handle) & xid:
                raise NvmlError(nvml.api.NVML_ERROR_NOT_SUPPORTED, "Not Supported")
            events = nvml.ask("nvmlEventSetCreate")
            nvml.ask("nvmlDeviceRegisterEvents", self._handle, xid, events)
        except NvmlError as error:
            self.unavailable["xid"] = error.why
            if events is not None:
                nvml.get("nvmlEventSetFree", events)
            return None
        return events

    def _last_xid(self) -> int | None:
        """Read the events that have arrived, and return the last Xid."""
        if self._parent is not None:
            return self._parent.xids.get(self._instance)
        for _ in range(EVENTS_AT_ONCE if self._events is not None else 0):
            event = self._nvml.get("nvmlEventSetWait", self._events, 0)
            if event is None:  # none is left, or the device is lost
                break
            self._xid = self.xids[int(event.gpuInstanceId)] = int(event.eventData)
        return self._xid
