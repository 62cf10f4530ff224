"""Which NVIDIA GPUs this machine has, by NVML."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Gpu", "Gpus", "devices"]


@dataclass(frozen=True)
class Gpu:
    """One device."""

    index: int
    uuid: str
    name: str
    memory: int
    """Bytes."""


@dataclass(frozen=True)
class Gpus:
    """The devices, or why there are none."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    why_none: str = ""


def devices() -> Gpus:
    """Ask NVML; a machine without driver or GPU is no error but has a reason."""
    import pynvml  # loads the driver's library, so only where somebody asks

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Gpus(why_none=f"no NVIDIA driver ({error})")
    try:
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
            uuid, name = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
            found.append(Gpu(index, _text(uuid), _text(name), memory))
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        return Gpus(tuple(found), driver, "" if found else "the driver reports no GPU")
    except pynvml.NVMLError as error:
        return Gpus(why_none=f"the NVIDIA driver does not answer ({error})")
    finally:
        pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
