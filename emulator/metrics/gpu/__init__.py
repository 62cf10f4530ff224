"""NVIDIA GPUs, as the driver's management library (NVML) reports them."""

from emulator.metrics.gpu.inventory import Gpu, GpuInventory, devices

__all__ = ["Gpu", "GpuInventory", "devices"]
