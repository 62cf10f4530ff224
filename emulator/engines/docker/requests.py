"""Requests to the Docker engine as data (pure): `emulate plan` prints exactly these."""

from __future__ import annotations

import io
import socket
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.errors import EngineError
from emulator.files import os_errors
from emulator.scenario.program import Part, ready

if TYPE_CHECKING:
    from emulator.planning.plan import Plan, Task

RUN, TASK, SCENARIO = "emulator.run", "emulator.task", "emulator.scenario"
FOLDER, HOST = "emulator.folder", "emulator.host"
"""Labels: on everything we make, and the only way by which we find anything again."""

SHARED = "/shared"
WORKDIR = "/job"
METADATA = "169.254.169.254"
"""The metadata service of a cloud, which gives machines their credentials."""
NO_IPV6 = {"net.ipv6.conf.all.disable_ipv6": "1", "net.ipv6.conf.default.disable_ipv6": "1"}
"""The service has an IPv6 address too, which the engine gives to no task (it is not local)."""
CPU_PERIOD = 100_000
"""Microseconds; the kernel's default."""
RESTRICTED = {
    "CapDrop": ["ALL"],
    "SecurityOpt": ["no-new-privileges"],
    "LogConfig": {"Type": "json-file", "Config": {}},
}
"""Part of every container's HostConfig."""


def labels(plan: Plan, folder: Path) -> dict[str, str]:
    """Return the labels of everything that a run makes."""
    return {
        RUN: plan.resources,
        SCENARIO: plan.scenario.name,
        FOLDER: str(folder),
        HOST: socket.gethostname(),
    }


def network_request(
    plan: Plan, common: Mapping[str, str], subnet: str | None = None
) -> dict[str, Any]:
    """Return the arguments of the run's network; `internal` closes it to the internet.

    Docker lets a container request an address only in a `subnet` that was requested too.
    """
    return {
        **({"ipam": {"Driver": "default", "Config": [{"Subnet": subnet}]}} if subnet else {}),
        "name": plan.resources,
        "driver": "bridge",
        "internal": not plan.scenario.network.internet,
        "labels": dict(common),
        "check_duplicate": True,
    }


def volume_request(plan: Plan, common: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of the run's shared volume."""
    return {"name": plan.resources, "labels": dict(common)}


def helper_request(
    image: str, network: str, script: str, common: Mapping[str, str]
) -> dict[str, Any]:
    """Return the body for a helper that runs a script in a task's network namespace."""
    return {
        "Image": image,
        "Cmd": ["sh", "-c", script],
        "Labels": dict(common),
        "HostConfig": {"NetworkMode": network, "CapAdd": ["NET_ADMIN"], **RESTRICTED},
    }


def container_request(
    plan: Plan, task: Task, common: Mapping[str, str], address: str = "", *, ipv6: bool = False
) -> dict[str, Any]:
    """Return the body of `POST /containers/create` for one task.

    `address`: its IPv4 address; empty: the engine chooses it. `ipv6`: its network has IPv6.

    An init is PID 1, because Python as PID 1 ignores SIGTERM; the json-file log driver is named,
    because the daemon's default may be one that can't be read back.
    """
    endpoint: dict[str, Any] = {"Aliases": [task.name]}
    ipam: dict[str, Any] = {"IPv4Address": address} if address else {}
    host_config: dict[str, Any] = {
        "NetworkMode": plan.resources,
        "Mounts": [
            {
                "Type": "volume",
                "Source": plan.resources,
                "Target": SHARED,
                # The engine makes a volume again that was removed meanwhile, with these labels.
                "VolumeOptions": {"Labels": dict(common)},
            }
        ],
        "Init": True,
        **RESTRICTED,
    }
    if plan.scenario.network.metadata == "closed":
        # The engine gives this address to the task before its program begins, at each start: what
        # is sent there stays in the task, where nothing listens.
        ipam["LinkLocalIPs"] = [METADATA]
        if ipv6:
            host_config["Sysctls"] = NO_IPV6
    if ipam:
        endpoint["IPAMConfig"] = ipam
    if task.cpus is not None:
        # Not NanoCpus: a limit that was set by it can't be changed in a running container.
        host_config |= {"CpuPeriod": CPU_PERIOD, "CpuQuota": cpu_quota(task.cpus)}
    if task.memory_limit is not None:
        # As much swap as memory means none: a training that swaps measures the disk. The engine
        # ignores MemorySwap where the kernel does not count swap.
        host_config |= {"Memory": task.memory_limit, "MemorySwap": task.memory_limit}
    if task.process_limit is not None:
        host_config["PidsLimit"] = task.process_limit
    if task.gpus:
        host_config["DeviceRequests"] = [
            {"DeviceIDs": list(task.gpus), "Capabilities": [["gpu"]], "Driver": "nvidia"}
        ]
    body: dict[str, Any] = {
        "Image": task.image,
        "Cmd": list(task.command),
        "Env": [f"{key}={value}" for key, value in task.env.items()],
        "Hostname": task.name,
        "Labels": {**common, TASK: task.name},
        "HostConfig": host_config,
        "NetworkingConfig": {"EndpointsConfig": {plan.resources: endpoint}},
    }
    if task.source is not None:
        body["WorkingDir"] = WORKDIR
    return body


def cpu_quota(cpus: float | None) -> int:
    """Return the microseconds of CPU per period for a limit in cores; -1 for none."""
    return -1 if cpus is None else max(1000, round(cpus * CPU_PERIOD))


def container_name(resources: str, task: str) -> str:
    """Return the container's name: it has the id of what the run made, so runs share an engine."""
    return f"{resources}-{task}"


def program_archive(source: Path | None) -> bytes:
    """Return a tar with the program under /job, and with /shared.

    Images may run as any user: both folders are writable by all.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in [SHARED] if source is None else [SHARED, WORKDIR]:
            entry = tarfile.TarInfo(folder.lstrip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o777
            tar.addfile(entry)
        for part in () if source is None else ready(source):
            _pack(tar, part)
    return buffer.getvalue()


def _pack(tar: tarfile.TarFile, part: Part) -> None:
    """Add a file or folder of the program, readable for every user. Raises EngineError."""
    with os_errors(EngineError, f"Can't read {part.path}"):
        entry = tar.gettarinfo(part.path, f"{WORKDIR}/{part.name}".lstrip("/"))
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mode |= 0o444 | (0o111 if part.is_folder else 0)
        if part.is_folder:
            tar.addfile(entry)
            return
        # Not as a link, which gettarinfo makes of a file that has two names.
        entry.type, entry.linkname = tarfile.REGTYPE, ""
        entry.size = part.path.stat().st_size
        with part.path.open("rb") as content:
            tar.addfile(entry, content)
