"""Samples of all GPUs, with the share of each task.

NVML has the pids of processes on this machine; the engine knows which pids belong to which task.
Nothing here raises: a value that the driver does not report is None, and `unavailable` says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from emulator.metrics.catalog import GpuShare, GpuUsage
from emulator.metrics.gpu import Gpu, GpuInventory, survey
from emulator.metrics.gpu.nvml import Nvml, NvmlError

VALID_FOR = 1.0
"""Seconds for which a process's utilisation is used when no newer one arrives: the longest period
over which drivers sample ("between 1 second and 1/6 second", NVML's nvmlUtilization_t)."""
EVENTS_AT_ONCE = 64
"""Xids that are read in one sample of a device; others are read in the next."""

Question = tuple[object, ...]
"""A function of the bindings, and its arguments."""


def shares(
    owners: Mapping[int, str],
    memory: Mapping[int, int | None] | None,
    busy: Mapping[int, float] | None,
) -> dict[str, GpuShare]:
    """Return each task's share of a device from those of its processes (pure).

    `memory`: bytes by pid, None where the driver hides them; `busy`: share of the time by pid. None
    for either means that the driver reports no processes. A process that is missing in `memory` has
    left the device; one that is missing in `busy` is idle.
    """
    pids: dict[str, list[int]] = {}
    for pid in (busy if memory is None else memory) or ():
        if pid in owners:
            pids.setdefault(owners[pid], []).append(pid)
    return {
        task: GpuShare(
            memory=None if memory is None else _sum([memory[pid] for pid in own]),
            utilisation=None if busy is None else min(1.0, sum(busy.get(pid, 0.0) for pid in own)),
        )
        for task, own in sorted(pids.items())
    }


def _sum(amounts: Sequence[int | None]) -> int | None:
    """Return the sum; None where a part is not known, because the rest would be a wrong number."""
    return None if None in amounts else sum(filter(None, amounts))


@dataclass
class Poll:
    """One sample's questions to one device, and which columns were answered or refused."""

    nvml: Nvml
    answered: set[str] = field(default_factory=set)
    refused: dict[str, NvmlError] = field(default_factory=dict)

    def ask(self, column: str, *questions: Question) -> Any:  # noqa: ANN401  as the bindings
        """Return the answer to the first question that this driver knows, or None."""
        for function, *arguments in questions:
            try:
                answer = self.nvml.ask(str(function), *arguments)
            except NvmlError as error:
                # The error of another function is more useful than "no such function".
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
        api, codes = self.nvml.api, {error.code for error in self.refused.values()}
        failures = codes - self.nvml.absent - {api.NVML_ERROR_NO_PERMISSION}
        return api.NVML_ERROR_GPU_IS_LOST in codes or bool(failures and not self.answered)


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
        self._last_report = 0
        """The stamp of the last utilisation of a process."""
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
            columns |= self._whole_device(poll)
        if not self.gpu.divided:
            columns |= self._tasks_part(poll, owners)
        gpu, xid = self.gpu, self._last_xid()
        self.lost = poll.lost
        if self.lost:
            return GpuUsage(gpu.index, gpu.uuid, gpu.name, lost=True, xid=xid)
        self._update_unavailable(poll)
        return GpuUsage(gpu.index, gpu.uuid, gpu.name, xid=xid, **columns)

    def forget(self) -> None:
        """Drop the utilisation of processes so far; only newer reports count from now on."""
        self._busy.clear()

    def close(self) -> None:
        """Stop the driver from collecting events for us."""
        if self._events is not None:
            self._nvml.get("nvmlEventSetFree", self._events)
            self._events = None

    def _whole_device(self, poll: Poll) -> dict[str, float | int | None]:
        """Return the columns that only whole devices have: power, temperature, clocks, errors."""
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

    def _tasks_part(self, poll: Poll, owners: Mapping[int, str]) -> dict[str, Any]:
        """Return the columns that tasks share: memory, processes and, without MIG, utilisation."""
        info = "nvmlDeviceGetMemoryInfo"
        memory = poll.ask(
            "memory",
            # The second version excludes what the driver reserves for itself, as nvidia-smi does.
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
        memory: dict[int, int | None] | None = None
        for kind in ("Compute", "Graphics"):
            # The name without a version raises an exception of its own with older drivers.
            names = (f"nvmlDeviceGet{kind}RunningProcesses_{version}" for version in ("v3", "v2"))
            processes = poll.ask("tasks.memory", *((name, self._handle) for name in names))
            if processes is None:
                continue
            memory = memory or {}
            for process in processes:
                used = (process.usedGpuMemory, memory.get(process.pid))
                memory[process.pid] = max((n for n in used if n is not None), default=None)
        return memory

    def _busy_processes(self, poll: Poll) -> dict[int, float] | None:
        """Return the share of the time by pid, since the last call."""
        api, column, last = self._nvml.api, "tasks.utilisation", self._last_report
        now = self._now()
        reports = poll.ask(column, ("nvmlDeviceGetProcessUtilization", self._handle, last))
        if reports is None:
            # The bindings raise "success" for an empty list; "not found" means: nothing new.
            if poll.refused[column].code not in (api.NVML_SUCCESS, api.NVML_ERROR_NOT_FOUND):
                return None
            del poll.refused[column]
        for one in reports or ():
            # Drivers also report empty slots and values above 100 (Syllo/nvtop issue 110).
            if one.timeStamp > last and one.smUtil <= 100:
                self._busy[one.pid] = (one.smUtil / 100, now)
                self._last_report = max(self._last_report, one.timeStamp)
        self._busy = {pid: b for pid, b in self._busy.items() if now - b[1] < VALID_FOR}
        return {pid: share for pid, (share, _) in self._busy.items()}

    def _update_unavailable(self, poll: Poll) -> None:
        """Record why a column was never reported; one that is missing at times is not listed."""
        self._answered |= poll.answered
        for column in self._answered:
            self.unavailable.pop(column, None)
        for column in poll.refused.keys() - self._answered:
            self.unavailable[column] = poll.refused[column].why

    def _watch(self) -> Any:  # noqa: ANN401  as the bindings
        """Let the driver collect Xids, with an event set for each device: a lost one blocks none of
        the others."""
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
        """Read the new events, and return the last Xid."""
        if self._parent is not None:
            return self._parent.xids.get(self._instance)
        for _ in range(EVENTS_AT_ONCE if self._events is not None else 0):
            event = self._nvml.get("nvmlEventSetWait", self._events, 0)
            if event is None:  # there are no more, or the device is lost
                break
            self._xid = self.xids[int(event.gpuInstanceId)] = int(event.eventData)
        return self._xid


class GpuSampler:
    """Samples every GPU of this machine; without a driver, `found.why_none` says why there is none.

    Open one for a run: opening takes a first sample, because a driver averages over the time since
    the last call. Use it from one thread at a time.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.found = GpuInventory()
        """The GPUs as they were at the start."""
        self._nvml: Nvml | None = None
        self._devices: list[Device] = []
        try:
            self._nvml = Nvml()
        except NvmlError as error:
            self.found = GpuInventory(why_none=error.why)
            return
        self.found, handles = survey(self._nvml)
        whole: dict[str, Device] = {}
        for gpu, handle in zip(self.found.gpus, handles, strict=True):
            device = Device(self._nvml, gpu, handle, now, whole.get(gpu.parent))
            whole[gpu.uuid] = device
            self._devices.append(device)
        self.sample({})
        for device in self._devices:
            device.forget()

    @property
    def unavailable(self) -> Mapping[str, str]:
        """The columns that no sample has had yet, each with the reason and the devices."""
        reasons: dict[str, dict[str, dict[str, None]]] = {}
        for device in self._devices:
            for column, why in device.unavailable.items() if not device.lost else ():
                reasons.setdefault(column, {}).setdefault(why, {})[str(device.gpu.index)] = None
        return {
            column: "; ".join(f"{why} (GPU {', '.join(gpus)})" for why, gpus in by_why.items())
            for column, by_why in reasons.items()
        }

    def sample(self, pids: Mapping[str, Collection[int]]) -> list[GpuUsage]:
        """Return a sample of each GPU; `pids`: the processes of each task on this machine.

        A divided device (MIG) has the columns of the whole device, its instances have memory and
        tasks: each byte and each process is in one row.
        """
        owners = {pid: task for task, members in pids.items() for pid in members}
        return [device.sample(owners) for device in self._devices]

    def close(self) -> None:
        """Release the driver; later samples are empty."""
        for device in self._devices:
            device.close()
        self._devices.clear()
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
