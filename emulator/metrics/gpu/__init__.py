"""The NVIDIA GPUs of this machine, as the driver's management library (NVML) reports them.

A device in MIG mode is divided: its instances follow it in the list, each with its own uuid, and
tasks get the instances.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from emulator.metrics.gpu.nvml import Nvml, NvmlError


@dataclass(frozen=True)
class Gpu:
    """One device, or one MIG instance of a device."""

    index: int
    """NVML's number; an instance has that of its device."""
    uuid: str
    """The id for Docker; the index, which Docker accepts too, where the driver reports no uuid."""
    name: str
    memory: int
    """Bytes; 0: not reported (chips that share the machine's memory)."""
    parent: str = ""
    """The uuid of the device that this is an instance of."""
    divided: bool = False
    """It is in MIG mode, and only its instances are used."""


@dataclass(frozen=True)
class GpuInventory:
    """The devices, or why there are none."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    why_none: str = ""
    silent: Mapping[int, str] = field(default_factory=dict)
    """Devices that the driver counts but can't open, and why."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids that tasks can get: whole devices, and instances of divided ones."""
        return tuple(gpu.uuid for gpu in self.gpus if not gpu.divided)


def devices() -> GpuInventory:
    """Query NVML; a machine without driver or GPU is not an error, `why_none` has the reason."""
    try:
        nvml = Nvml()
    except NvmlError as error:
        return GpuInventory(why_none=error.why)
    with closing(nvml):
        return survey(nvml)[0]


def survey(nvml: Nvml) -> tuple[GpuInventory, tuple[Any, ...]]:
    """Return the devices, and NVML's handle of each in the same order."""
    try:
        count = nvml.ask("nvmlDeviceGetCount")
    except NvmlError as error:
        return GpuInventory(why_none=f"the NVIDIA driver does not answer ({error.why})"), ()
    pairs: list[tuple[Gpu, Any]] = []
    silent: dict[int, str] = {}
    for index in range(count):
        try:
            handle = nvml.ask("nvmlDeviceGetHandleByIndex", index)
        except NvmlError as error:
            silent[index] = error.why
        else:
            pairs += _with_instances(nvml, index, handle)
    why_none = ""
    if not pairs:
        reasons = ", ".join(f"GPU {index}: {why}" for index, why in silent.items())
        why_none = f"no GPU can be opened ({reasons})" if silent else "the driver reports no GPU"
    driver = nvml.text("nvmlSystemGetDriverVersion")
    inventory = GpuInventory(tuple(gpu for gpu, _ in pairs), driver, why_none, silent)
    return inventory, tuple(handle for _, handle in pairs)


def _with_instances(nvml: Nvml, index: int, handle: object) -> Iterator[tuple[Gpu, Any]]:
    """Yield a device, and its MIG instances where it is divided."""
    current, _pending = nvml.get("nvmlDeviceGetMigMode", handle) or (None, None)
    divided = current == nvml.api.NVML_DEVICE_MIG_ENABLE
    uuid = nvml.text("nvmlDeviceGetUUID", handle) or str(index)
    name = nvml.text("nvmlDeviceGetName", handle)
    yield Gpu(index, uuid, name, _memory(nvml, handle), divided=divided), handle
    most = nvml.get("nvmlDeviceGetMaxMigDeviceCount", handle) if divided else None
    for number in range(most or 0):
        # The numbers of existing instances may have gaps.
        part = nvml.get("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
        if part is not None:
            own_uuid = nvml.text("nvmlDeviceGetUUID", part) or f"{index}:{number}"
            own_name = nvml.text("nvmlDeviceGetName", part) or f"{name} MIG {number}"
            yield Gpu(index, own_uuid, own_name, _memory(nvml, part), parent=uuid), part


def _memory(nvml: Nvml, handle: object) -> int:
    info = nvml.get("nvmlDeviceGetMemoryInfo", handle)
    return int(info.total) if info else 0
