"""What each GPU does, and which part of it each task has.

NVML knows processes by their pid on this machine. The engine says which pids are whose; the rest
is a join.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Self

from emulator.metrics.gpu import Gpus, survey
from emulator.metrics.gpu_device import Device
from emulator.metrics.nvml import Nvml, Refused
from emulator.metrics.samples import GpuUsage

__all__ = ["GpuSampler"]


class GpuSampler:
    """Samples every GPU of this machine; without a driver it gives nothing and says why.

    Open one for a run: opening it takes a first sample, because a driver averages over the time
    since it was last asked. To be used from one thread at a time.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.found = Gpus()
        """The GPUs as they were at the start."""
        self._nvml: Nvml | None = None
        self._devices: list[Device] = []
        try:
            self._nvml = Nvml()
        except Refused as refused:
            self.found = Gpus(why_none=refused.why)
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
    def why_none(self) -> str:
        """Why there are no GPUs to sample; empty where there are."""
        return self.found.why_none

    @property
    def lacking(self) -> Mapping[str, str]:
        """The columns that no sample has had so far, each with the reason and the devices."""
        reasons: dict[str, dict[str, list[str]]] = {}
        for device in self._devices:
            for column, why in device.lacking.items() if not device.lost else ():
                where = reasons.setdefault(column, {}).setdefault(why, [])
                if str(device.gpu.index) not in where:
                    where.append(str(device.gpu.index))
        return {
            column: "; ".join(f"{why} (GPU {', '.join(where)})" for why, where in by_why.items())
            for column, by_why in reasons.items()
        }

    def sample(self, pids: Mapping[str, Collection[int]]) -> list[GpuUsage]:
        """Return what each GPU does now; `pids`: the processes of each task on this machine.

        A divided device (MIG) comes with what only the whole has, its instances with memory and
        tasks, so that each byte and each process is in one row.
        """
        owners = {pid: task for task, members in pids.items() for pid in members}
        return [device.sample(owners) for device in self._devices]

    def close(self) -> None:
        """Let go of the driver; what is sampled afterwards is nothing."""
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
