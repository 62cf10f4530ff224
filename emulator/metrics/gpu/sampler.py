"""Samples of all GPUs, with the share of each task.

NVML has the pids of processes on this machine; the engine knows which pids belong to which task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Self

from emulator.metrics.catalog import GpuUsage
from emulator.metrics.gpu.device import Device
from emulator.metrics.gpu.inventory import GpuInventory, survey
from emulator.metrics.gpu.nvml import Nvml, NvmlError


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
