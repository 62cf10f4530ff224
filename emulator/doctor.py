"""What this machine has for the emulator, and what to do about what it lacks."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from emulator.engines.keeper import adopts
from emulator.errors import EmulatorError
from emulator.files import FOR_IMAGES
from emulator.images import KINDS, BuildOptions, Images, recipe_tag
from emulator.metrics.catalog import GpuUsage, in_words
from emulator.metrics.gpu import Gpu
from emulator.metrics.gpu.sampler import GpuSampler
from emulator.units import format_size

__all__ = ["Finding", "examine"]

Status = Literal["ok", "missing", "warning", "fatal"]
TENSORFLOW = {True: "tensorflow-cpu>=2.21,<2.22", False: "tensorflow>=2.21,<2.22"}
"""What is installed on x86_64, and elsewhere."""
KERAS = "tf_keras>=2.21,<2.22"
MEMORY_PER_TASK = 300 * 2**20
"""Bytes: what an idle TensorFlow task holds, measured."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    status: Status
    found: str
    advice: str = ""


def examine() -> list[Finding]:
    """Look at everything; a part that can't be looked at is a finding itself."""
    docker = list(_docker())
    process = list(_process_engine())
    findings = [*docker, *process, _daemons(), *_gpus(), *_kernel(), *_builds()]
    if docker[0].status != "ok" and any(finding.status != "ok" for finding in process):
        advice = f"{docker[0].advice} Or: {process[-1].advice}"
        findings.append(Finding("any engine", "fatal", "neither Docker nor processes", advice))
    return findings


def _docker() -> Iterator[Finding]:
    """Engine, API version, disk, memory, GPU runtime, images."""
    from emulator.engines.docker_connection import ANSWERS_WITHIN, connect, saying

    try:
        api = connect()
        api.timeout = ANSWERS_WITHIN
        with saying("say what it has"):
            version, info = api.version(), api.info()
    except EmulatorError as error:
        yield Finding("Docker engine", "missing", error.message, error.hint)
        return
    yield Finding("Docker engine", "ok", f"{version['Version']}, API {api.api_version}")
    yield _memory(int(info["MemTotal"]))
    yield _disk(info)
    yield _toolkit(info)
    images = Images(api)
    for kind in KINDS:
        there = images.has(recipe_tag(kind))
        advice = "" if there else f"`emulate build {kind}` builds it; `up` does it when needed."
        yield Finding(f"image {kind}", "ok" if there else "missing", recipe_tag(kind), advice)
    api.close()


def _memory(total: int) -> Finding:
    tasks = total // MEMORY_PER_TASK
    found = f"{format_size(total)}, room for about {tasks} TensorFlow tasks"
    if tasks >= 4:
        return Finding("memory", "ok", found)
    return Finding(
        "memory", "warning", found, "Give Docker more memory (Docker Desktop: Resources)."
    )


def _disk(info: dict[str, Any]) -> Finding:
    root = Path(info["DockerRootDir"])
    if not root.exists():
        return Finding("disk", "warning", "the engine is on another machine; not looked at")
    free = shutil.disk_usage(root).free
    found = f"{format_size(free)} free in {root}"
    if free >= FOR_IMAGES:
        return Finding("disk", "ok", found)
    return Finding(
        "disk", "warning", found, "`docker system prune` makes room; images take 2 to 10 GiB."
    )


def _toolkit(info: dict[str, Any]) -> Finding:
    if "nvidia" in info.get("Runtimes", {}):
        return Finding("container toolkit", "ok", "the engine has the nvidia runtime")
    advice = "Only for GPUs: install the NVIDIA Container Toolkit and restart Docker."
    return Finding("container toolkit", "missing", "the engine has no nvidia runtime", advice)


def _process_engine() -> Iterator[Finding]:
    """Python and TensorFlow for tasks that run on this machine."""
    yield Finding("Python", "ok", f"{sys.version.split()[0]} in {sys.executable}")
    for name in ("tensorflow-cpu", "tensorflow"):
        try:
            yield Finding("TensorFlow", "ok", f"{name} {importlib.metadata.version(name)}")
            return
        except importlib.metadata.PackageNotFoundError:
            continue
    library = TENSORFLOW[platform.machine() == "x86_64"]
    advice = f"Only for the process engine: pip install '{library}' '{KERAS}'."
    yield Finding("TensorFlow", "missing", "not installed beside emulate", advice)


def _daemons() -> Finding:
    """Whether the process engine finds what leaves its task's session."""
    if adopts():
        return Finding("daemons of tasks", "ok", "the process engine finds and ends them")
    return Finding(
        "daemons of tasks",
        "warning",
        "a process that leaves its session and clears its environment outlives its task",
        "This is so with the process engine alone; with Docker they end with their container.",
    )


def _gpus() -> Iterator[Finding]:
    """Each device with a sample of it, as a run would take them."""
    with GpuSampler() as sampler:
        used, found, lacking = sampler.sample({}), sampler.found, sampler.unavailable
    if not found.gpus:
        yield Finding(
            "GPU", "missing", found.why_none, "Not needed: `image: auto` takes the CPU image."
        )
        return
    for gpu, usage in zip(found.gpus, used, strict=True):
        yield _gpu(gpu, usage, found.driver)
    advice = "`nvidia-smi` and `dmesg | grep -i xid` say more; a reboot often brings it back."
    for index, why in found.silent.items():
        yield Finding(f"GPU {index}", "warning", f"the driver can't open it ({why})", advice)
    if lacking:
        never = "; ".join(f"{column}, {why}" for column, why in lacking.items())
        advice = "These columns stay empty in what a run measures."
        yield Finding("GPU columns", "warning", f"never told: {never}", advice)


def _gpu(gpu: Gpu, usage: GpuUsage, driver: str) -> Finding:
    what = f"GPU {gpu.index}" + (f": {gpu.uuid}" if gpu.parent else "")
    if usage.lost:
        advice = "`dmesg | grep -i xid` says why; a reboot often brings it back."
        lost = f"{gpu.name or 'the device'} is lost: it no longer answers the driver"
        return Finding(what, "warning", lost, advice)
    size = format_size(gpu.memory) if gpu.memory else "shares the machine's memory"
    state = ", ".join(["in MIG mode"] * gpu.divided + in_words(usage))
    return Finding(what, "ok", f"{gpu.name}, {size}, driver {driver}" + (state and f"; {state}"))


def _kernel() -> Iterator[Finding]:
    """The queueing disciplines that network faults need."""
    if sys.platform != "linux":
        yield Finding("kernel", "warning", "tasks run in Docker's own Linux; not looked at")
        return
    for module, use in (("netem", "delay and loss"), ("tbf", "limited bandwidth")):
        status = _try_discipline(module)
        advice = "" if status == "ok" else f"Needed for {use} only; try `modprobe sch_{module}`."
        found = {"ok": "works", "missing": "the kernel lacks it", "warning": "could not be tried"}
        yield Finding(f"kernel: {module}", status, found[status], advice)


def _try_discipline(module: str) -> Status:
    """Add the discipline to the loopback of a network namespace that lives for this moment."""
    arguments = {
        "netem": ["netem", "delay", "1ms"],
        "tbf": ["tbf", "rate", "1mbit", "burst", "32kbit", "latency", "400ms"],
    }
    tools = [shutil.which("unshare"), shutil.which("tc")]
    if None in tools or os.geteuid() != 0:
        loaded = Path(f"/sys/module/sch_{module}").exists()
        return "ok" if loaded else "warning"
    command = ["unshare", "-n", "tc", "qdisc", "add", "dev", "lo", "root", *arguments[module]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return "ok"
    return "missing" if "qdisc" in done.stderr or "No such" in done.stderr else "warning"


def _builds() -> Iterator[Finding]:
    """What building an image will use."""
    options = BuildOptions.from_environment()
    bundle = str(options.ca_bundle) if options.ca_bundle else "none"
    advice = "" if options.ca_bundle else "Behind a proxy that intercepts TLS, set SSL_CERT_FILE."
    yield Finding("CA bundle", "ok", bundle, advice)
    wheels = str(options.wheels) if options.wheels else "none; pip uses its index"
    yield Finding("wheelhouse", "ok", wheels)
