"""Which NVIDIA GPUs this machine has, by NVML.

A device in MIG mode is divided: its instances follow it in the list, each with a uuid of its own,
and it is these that tasks are given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from emulator.metrics.nvml import Nvml, Refused

__all__ = ["Gpu", "Gpus", "devices", "survey"]


@dataclass(frozen=True)
class Gpu:
    """One device, or one MIG instance of a device."""

    index: int
    """NVML's number; an instance has that of its device."""
    uuid: str
    """The id for Docker; the index where the driver tells no uuid, which Docker takes as well."""
    name: str
    memory: int
    """Bytes; 0: the driver does not tell (chips that share the machine's memory)."""
    parent: str = ""
    """The uuid of the device that this is an instance of."""
    divided: bool = False
    """It is in MIG mode, and of use only through its instances."""


@dataclass(frozen=True)
class Gpus:
    """The devices, or why there are none."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    why_none: str = ""
    silent: Mapping[int, str] = field(default_factory=dict)
    """Devices that the driver counts but can't open, and why."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids that tasks can be given: whole devices, and instances of divided ones."""
        return tuple(gpu.uuid for gpu in self.gpus if not gpu.divided)


def devices() -> Gpus:
    """Ask NVML; a machine without driver or GPU is no error but has a reason."""
    try:
        nvml = Nvml()
    except Refused as refused:
        return Gpus(why_none=refused.why)
    with closing(nvml):
        return survey(nvml)[0]


def survey(nvml: Nvml) -> tuple[Gpus, tuple[Any, ...]]:
    """Return the devices, and NVML's handle of each in the same order."""
    try:
        count = nvml.ask("nvmlDeviceGetCount")
    except Refused as refused:
        return Gpus(why_none=f"the NVIDIA driver does not answer ({refused.why})"), ()
    found: list[tuple[Gpu, Any]] = []
    silent: dict[int, str] = {}
    for index in range(count):
        try:
            handle = nvml.ask("nvmlDeviceGetHandleByIndex", index)
        except Refused as refused:
            silent[index] = refused.why
        else:
            found += _with_instances(nvml, index, handle)
    driver = nvml.text("nvmlSystemGetDriverVersion")
    gpus = tuple(gpu for gpu, _ in found)
    handles = tuple(handle for _, handle in found)
    return Gpus(gpus, driver, "" if gpus else _why_none(silent), silent), handles


def _why_none(silent: Mapping[int, str]) -> str:
    if not silent:
        return "the driver reports no GPU"
    reasons = ", ".join(f"GPU {index}: {why}" for index, why in silent.items())
    return f"no GPU can be opened ({reasons})"


def _with_instances(nvml: Nvml, index: int, handle: object) -> Iterator[tuple[Gpu, Any]]:
    """Yield a device, and its MIG instances where it is divided."""
    divided = _is_divided(nvml, handle)
    uuid = nvml.text("nvmlDeviceGetUUID", handle) or str(index)
    name = nvml.text("nvmlDeviceGetName", handle)
    yield Gpu(index, uuid, name, _memory(nvml, handle), divided=divided), handle
    for number, part in _instances(nvml, handle) if divided else ():
        own = nvml.text("nvmlDeviceGetUUID", part) or f"{index}:{number}"
        title = nvml.text("nvmlDeviceGetName", part) or f"{name} MIG {number}"
        yield Gpu(index, own, title, _memory(nvml, part), parent=uuid), part


def _is_divided(nvml: Nvml, handle: object) -> bool:
    try:
        current, _pending = nvml.ask("nvmlDeviceGetMigMode", handle)
    except Refused:  # no MIG
        return False
    return bool(current == nvml.api.NVML_DEVICE_MIG_ENABLE)


def _instances(nvml: Nvml, handle: object) -> Iterator[tuple[int, Any]]:
    """Yield the MIG instances that were made; the numbers between them may have gaps."""
    try:
        most = nvml.ask("nvmlDeviceGetMaxMigDeviceCount", handle)
    except Refused:
        return
    for number in range(most):
        try:
            yield number, nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
        except Refused:  # none was made there
            continue


def _memory(nvml: Nvml, handle: object) -> int:
    try:
        return int(nvml.ask("nvmlDeviceGetMemoryInfo", handle).total)
    except Refused:
        return 0
