"""One GPU: the questions to the driver, and what has to be remembered between samples.

Nothing here raises: what the driver does not tell is None, and `lacking` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator.metrics.gpu import Gpu
from emulator.metrics.nvml import Nvml, Refused
from emulator.metrics.samples import GpuShare, GpuUsage

__all__ = ["Device", "Round", "shares"]

FRESH = 1.0
"""Seconds for which a process's utilisation stands when no newer one comes: the longest period over
which drivers sample ("between 1 second and 1/6 second", NVML's nvmlUtilization_t)."""
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
    for either means that the driver tells of no process. Where `memory` is told, a process that is
    not in it has left the device; one that is not in `busy` is idle.
    """
    listed = busy if memory is None else memory
    there = {pid: owners[pid] for pid in listed or () if pid in owners}
    found: dict[str, GpuShare] = {}
    for task in sorted(set(there.values())):
        own = [pid for pid, owner in there.items() if owner == task]
        found[task] = GpuShare(
            memory=None if memory is None else _sum(memory[pid] for pid in own),
            utilisation=None if busy is None else min(1.0, sum(busy.get(pid, 0.0) for pid in own)),
        )
    return found


def _sum(amounts: Iterable[int | None]) -> int | None:
    """Return the sum; None where a part is not known, for the rest would be a wrong figure."""
    total = 0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total


@dataclass
class Round:
    """The questions of one sample to one device, and what came of them."""

    nvml: Nvml
    answered: set[str] = field(default_factory=set)
    refused: dict[str, Refused] = field(default_factory=dict)

    def ask(self, column: str, *questions: Question) -> Any:  # noqa: ANN401  as the bindings
        """Return the answer to the first question that this driver knows, or None."""
        for function, *arguments in questions:
            try:
                answer = self.nvml.ask(str(function), *arguments)
            except Refused as refused:
                # That a function is missing says less than what another one answers in its place.
                if refused.code != self.nvml.api.NVML_ERROR_FUNCTION_NOT_FOUND:
                    self.refused[column] = refused
                self.refused.setdefault(column, refused)
                if refused.code not in self.nvml.absent:
                    break
            else:
                self.answered.add(column)
                return answer
        return None

    @property
    def lost(self) -> bool:
        """Whether the device says that it is lost, or has no answer left to any question."""
        codes = {refused.code for refused in self.refused.values()}
        if self.nvml.api.NVML_ERROR_GPU_IS_LOST in codes:
            return True
        return not self.answered and bool(
            codes - self.nvml.absent - {self.nvml.api.NVML_ERROR_NO_PERMISSION}
        )


class Device:
    """One device or MIG instance, with what has to be remembered from sample to sample."""

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
        self.lacking: dict[str, str] = {}
        self.xids: dict[int | None, int] = {}
        """The last Xid of each GPU instance that had one."""
        self._xid: int | None = None
        self._answered: set[str] = set()
        self._nvml, self._handle, self._now, self._parent = nvml, handle, now, parent
        self._seen = 0
        self._busy: dict[int, tuple[float, float]] = {}
        """Pid -> its share of the time, and when we were told."""
        self._instance = self._instance_id() if parent else None
        self._events = None if parent else self._watch()

    def sample(self, owners: Mapping[int, str]) -> GpuUsage:
        """Return what the device does now."""
        asked = Round(self._nvml)
        columns: dict[str, Any] = {}
        if not self.gpu.parent:
            columns |= self._of_the_whole(asked)
        if not self.gpu.divided:
            columns |= self._of_the_part(asked, owners)
        gpu, xid = self.gpu, self._last_xid()
        self.lost = asked.lost
        if self.lost:
            return GpuUsage(gpu.index, gpu.uuid, gpu.name, lost=True, xid=xid)
        self._note(asked)
        return GpuUsage(gpu.index, gpu.uuid, gpu.name, xid=xid, **columns)

    def forget(self) -> None:
        """Leave out what processes did before; from here on only what is newer counts."""
        self._busy.clear()

    def close(self) -> None:
        """Stop the driver from collecting events for us."""
        if self._events is not None:
            _free(self._nvml, self._events)
            self._events = None

    def _of_the_whole(self, asked: Round) -> dict[str, float | int | None]:
        """Ask for what an instance has no own of: power, temperature, clocks, errors."""
        api, handle = self._nvml.api, self._handle
        clock, ecc = "nvmlDeviceGetClockInfo", "nvmlDeviceGetTotalEccErrors"
        uncorrected = api.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        power = asked.ask("power", ("nvmlDeviceGetPowerUsage", handle))
        celsius = asked.ask(
            "temperature",
            ("nvmlDeviceGetTemperature", handle, api.NVML_TEMPERATURE_GPU),
            ("nvmlDeviceGetTemperatureV", handle, api.NVML_TEMPERATURE_GPU),  # its successor
        )
        return {
            "power": None if power is None else power / 1000,
            "temperature": None if celsius is None else float(celsius),
            "sm_clock": asked.ask("sm_clock", (clock, handle, api.NVML_CLOCK_SM)),
            "memory_clock": asked.ask("memory_clock", (clock, handle, api.NVML_CLOCK_MEM)),
            "ecc_errors": asked.ask(
                "ecc_errors", (ecc, handle, uncorrected, api.NVML_VOLATILE_ECC)
            ),
        }

    def _of_the_part(self, asked: Round, owners: Mapping[int, str]) -> dict[str, Any]:
        """Ask for memory and processes; for utilisation of whole devices, since MIG offers none."""
        info = "nvmlDeviceGetMemoryInfo"
        memory = asked.ask(
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
            rates = asked.ask("utilisation", ("nvmlDeviceGetUtilizationRates", self._handle))
            columns["utilisation"] = None if rates is None else rates.gpu / 100
            busy = self._busy_processes(asked)
        columns["tasks"] = shares(owners, self._memory_of_processes(asked), busy)
        return columns

    def _memory_of_processes(self, asked: Round) -> dict[int, int | None] | None:
        """Return bytes by pid. A process that computes and draws is in both lists, in full."""
        found: dict[int, int | None] | None = None
        for kind in ("Compute", "Graphics"):
            # The name without a version raises an exception of its own with older drivers.
            names = (f"nvmlDeviceGet{kind}RunningProcesses_{version}" for version in ("v3", "v2"))
            listed = asked.ask("tasks.memory", *((name, self._handle) for name in names))
            if listed is None:
                continue
            found = found or {}
            for process in listed:
                used = (process.usedGpuMemory, found.get(process.pid))
                found[process.pid] = max((n for n in used if n is not None), default=None)
        return found

    def _busy_processes(self, asked: Round) -> dict[int, float] | None:
        """Return the share of the time by pid, since we last asked."""
        api, column = self._nvml.api, "tasks.utilisation"
        now = self._now()
        told = asked.ask(column, ("nvmlDeviceGetProcessUtilization", self._handle, self._seen))
        if told is None and asked.refused[column].code in (
            api.NVML_SUCCESS,  # the bindings raise this for success with an empty list
            api.NVML_ERROR_NOT_FOUND,  # nothing new
        ):
            del asked.refused[column]
            told = []
        if told is None:
            return None
        newest = self._seen
        for one in told:
            # Drivers also give empty places and figures beyond 100 (Syllo/nvtop issue 110).
            if one.timeStamp > self._seen and one.smUtil <= 100:
                self._busy[one.pid] = (one.smUtil / 100, now)
                newest = max(newest, one.timeStamp)
        self._seen = newest
        self._busy = {pid: (s, when) for pid, (s, when) in self._busy.items() if now - when < FRESH}
        return {pid: share for pid, (share, _) in self._busy.items()}

    def _note(self, asked: Round) -> None:
        """Keep why a column has never been told; one that falls silent for a moment is no news."""
        self._answered |= asked.answered
        for column in self._answered:
            self.lacking.pop(column, None)
        for column in asked.refused.keys() - self._answered:
            self.lacking[column] = asked.refused[column].why

    def _watch(self) -> Any:  # noqa: ANN401  as the bindings
        """Have the driver collect Xids; a set of events for each device, so that none that is lost
        keeps the others' from being read."""
        nvml, xid = self._nvml, self._nvml.api.nvmlEventTypeXidCriticalError
        events = None
        try:
            if not nvml.ask("nvmlDeviceGetSupportedEventTypes", self._handle) & xid:
                raise Refused(nvml.api.NVML_ERROR_NOT_SUPPORTED, "Not Supported")
            events = nvml.ask("nvmlEventSetCreate")
            nvml.ask("nvmlDeviceRegisterEvents", self._handle, xid, events)
        except Refused as refused:
            self.lacking["xid"] = refused.why
            if events is not None:
                _free(nvml, events)
            return None
        return events

    def _last_xid(self) -> int | None:
        """Read the events that have come, and return the last Xid."""
        if self._parent is not None:
            return self._parent.xids.get(self._instance)
        for _ in range(EVENTS_AT_ONCE if self._events is not None else 0):
            try:
                event = self._nvml.ask("nvmlEventSetWait", self._events, 0)
            except Refused:  # none is left, or the device is lost
                break
            self._xid = self.xids[int(event.gpuInstanceId)] = int(event.eventData)
        return self._xid

    def _instance_id(self) -> int | None:
        """Return the number by which events name this instance."""
        try:
            return int(self._nvml.ask("nvmlDeviceGetGpuInstanceId", self._handle))
        except Refused:
            return None


def _free(nvml: Nvml, events: object) -> None:
    try:
        nvml.ask("nvmlEventSetFree", events)
    except Refused:
        return  # it is as gone as it gets
