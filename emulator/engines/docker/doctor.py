"""Checks of the Docker engine and its machine, for `emulate doctor`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from emulator.engines.base import Finding, Status
from emulator.engines.docker.connection import CONNECT_TIMEOUT, connect, translate_errors
from emulator.engines.docker.images import BuildOptions, Images
from emulator.engines.kit.recipes import KINDS, recipe_tag
from emulator.errors import EmulatorError, EngineMissing
from emulator.runtime.files import FOR_IMAGES
from emulator.validation.units import format_size

MEMORY_PER_TASK = 300 * 2**20
"""Bytes: what an idle TensorFlow task uses, measured."""
DISCIPLINES = {
    "netem delay 1ms": "delay and loss",
    "tbf rate 1mbit burst 32kbit latency 400ms": "limited bandwidth",
}
"""Queueing disciplines that network faults need, with arguments to try them; and their use."""


def examine() -> Iterator[Finding]:
    """Yield findings on the engine itself, which comes first, its machine and its images."""
    yield from _engine()
    yield from _kernel()
    yield from _builds()


def _engine() -> Iterator[Finding]:
    try:
        api = connect()
        api.timeout = CONNECT_TIMEOUT
        with translate_errors("describe itself"):
            version, info = api.version(), api.info()
    except EmulatorError as error:
        absent = isinstance(error, EngineMissing) and not error.configured
        yield Finding("Docker engine", "missing" if absent else "fatal", error.message, error.hint)
        return
    yield Finding("Docker engine", "ok", f"{version['Version']}, API {api.api_version}")
    yield _memory(int(info["MemTotal"]))
    yield _disk(info)
    yield _toolkit(info)
    images = Images(api)
    for kind in KINDS:
        there = images.has(recipe_tag(kind))
        advice = "" if there else f"`emulate build {kind}` builds it; `up` does it when needed."
        yield Finding(f"image {kind}", "ok" if there else "optional", recipe_tag(kind), advice)
    api.close()


def _memory(total: int) -> Finding:
    tasks = total // MEMORY_PER_TASK
    room = f"{format_size(total)}, room for about {tasks} TensorFlow tasks"
    advice = "Give Docker more memory (Docker Desktop: Resources)."
    return _enough("memory", room, advice, enough=tasks >= 4)


def _disk(info: dict[str, Any]) -> Finding:
    root = Path(info["DockerRootDir"])
    if not root.exists():
        return Finding("disk", "warning", "the engine is on another machine; not examined")
    free = shutil.disk_usage(root).free
    advice = "`docker system prune` makes room; images take 2 to 10 GiB."
    return _enough("disk", f"{format_size(free)} free in {root}", advice, enough=free >= FOR_IMAGES)


def _enough(what: str, room: str, advice: str, *, enough: bool) -> Finding:
    return Finding(what, "ok", room) if enough else Finding(what, "warning", room, advice)


def _toolkit(info: dict[str, Any]) -> Finding:
    if "nvidia" in info.get("Runtimes", {}):
        return Finding("container toolkit", "ok", "the engine has the nvidia runtime")
    advice = "Only for GPUs: install the NVIDIA Container Toolkit and restart Docker."
    return Finding("container toolkit", "optional", "the engine has no nvidia runtime", advice)


def _kernel() -> Iterator[Finding]:
    if sys.platform != "linux":
        yield Finding("kernel", "warning", "tasks run in Docker's own Linux; not examined")
        return
    results = {"ok": "works", "optional": "the kernel lacks it", "warning": "could not be tried"}
    for discipline, use in DISCIPLINES.items():
        module = discipline.partition(" ")[0]
        status = _try_discipline(module, discipline)
        advice = "" if status == "ok" else f"Needed for {use} only; try `modprobe sch_{module}`."
        yield Finding(f"kernel: {module}", status, results[status], advice)


def _try_discipline(module: str, discipline: str) -> Status:
    """Add the discipline to the loopback of a temporary network namespace."""
    if not (shutil.which("unshare") and shutil.which("tc")) or os.geteuid() != 0:
        return "ok" if Path(f"/sys/module/sch_{module}").exists() else "warning"
    command = ["unshare", "-n", "tc", "qdisc", "add", "dev", "lo", "root", *discipline.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return "ok"
    return "optional" if "qdisc" in done.stderr or "No such" in done.stderr else "warning"


def _builds() -> Iterator[Finding]:
    options = BuildOptions.from_environment()
    bundle = str(options.ca_bundle) if options.ca_bundle else "none"
    advice = "" if options.ca_bundle else "Behind a proxy that intercepts TLS, set SSL_CERT_FILE."
    yield Finding("CA bundle", "ok", bundle, advice)
    wheels = str(options.wheels) if options.wheels else "none; pip uses its index"
    yield Finding("wheelhouse", "ok", wheels)
