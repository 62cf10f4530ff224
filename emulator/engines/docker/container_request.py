"""Requests to the Docker engine as data (pure): `emulate plan` prints exactly these."""

from __future__ import annotations

import io
import secrets
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.engines.kit.containers import (
    add_folder,
    add_program,
    home_of,
    operator_labels,
    scratches,
)
from emulator.engines.kit.gate import gate
from emulator.runtime.host import this_host
from emulator.scenario import program
from emulator.scenario.program import Copied

if TYPE_CHECKING:
    from emulator.planning.plan import Plan, Task
    from emulator.scenario.container import Mount

RUN, TASK, SCENARIO = "emulator.run", "emulator.task", "emulator.scenario"
FOLDER, HOST = "emulator.folder", "emulator.host"
"""Labels: on everything we make, and the only way by which we find anything again."""
PART, DISK = "emulator.part", "emulator.disk"
"""Labels: the name of an init step, such as `worker-0.fetch`; the number of a task's
disk, from 1, where it has more than its own container."""

SHARED, WORKDIR = program.SHARED, program.WORKDIR
LOOPBACK = "127.0.0.1"
"""Where ports are published: nothing outside of the engine's machine can reach them."""
METADATA = "169.254.169.254"
"""The metadata service of a cloud, which gives machines their credentials."""
METADATA_NAME = "metadata.google.internal"
"""Its name on Google's machines."""
NO_IPV6 = {"net.ipv6.conf.all.disable_ipv6": "1", "net.ipv6.conf.default.disable_ipv6": "1"}
"""The service has an IPv6 address too, which the engine gives to no task (it is not local)."""
CPU_PERIOD = 100_000
"""Microseconds; the kernel's default."""
LOST = "-lost"
"""At the end of a container's name: its task has lost power."""
NOBODY = "65534:65534"
"""The user of a helper that needs no right."""
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
        HOST: this_host(),
    }


def probe_labels(scenario: str) -> dict[str, str]:
    """Return the labels of a container that no run has yet: it is found as what a run has left.

    `scenario` is the name of the one that it is made for.
    """
    run_id = f"probe-{secrets.token_hex(6)}"
    return {RUN: run_id, SCENARIO: scenario, HOST: this_host()}


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
    """Return the arguments of the run's shared volume; one of a given size is in memory.

    All users may write to it, as to the folder of one that has none.
    """
    request: dict[str, Any] = {"name": plan.resources, "labels": dict(common)}
    if (size := plan.scenario.shared_limit) is not None:
        options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={size},mode=777"}
        request |= {"driver": "local", "driver_opts": options}
    return request


def holder_request(
    image: str, volume: str, command: list[str], common: Mapping[str, str]
) -> dict[str, Any]:
    """Return the body for a helper that has the volume of a run until it is removed, and no rights.

    A volume in memory is empty again once no container that runs has it.
    """
    mount = {"Type": "volume", "Source": volume, "Target": SHARED}
    return {
        "Image": image,
        "Entrypoint": command,
        "User": "0",
        "Labels": dict(common),
        "HostConfig": {"NetworkMode": "none", "Mounts": [mount], "Init": True, **RESTRICTED},
    }


def helper_request(
    image: str, network: str, script: str, common: Mapping[str, str], *, processes: str = ""
) -> dict[str, Any]:
    """Return the body for a helper that runs a script in a task's network namespace.

    `processes`: also in this PID namespace, whose processes it may kill.
    """
    host_config = {"NetworkMode": network, "CapAdd": ["NET_ADMIN"], **RESTRICTED}
    if processes:
        host_config |= {"PidMode": processes, "CapAdd": ["NET_ADMIN", "KILL"]}
    return {
        "Image": image,
        "Cmd": ["sh", "-c", script],
        "Labels": dict(common),
        "HostConfig": host_config,
    }


STDIN = {"OpenStdin": True, "StdinOnce": True, "AttachStdin": True}
"""Of a container whose standard input ends with the connection to it."""


def tracer_request(
    image: str, processes: str, command: list[str], common: Mapping[str, str]
) -> dict[str, Any]:
    """Return the body for a helper that may trace the processes of a container.

    It ends when the connection to its standard input does.
    """
    rights = {"CapAdd": ["SYS_PTRACE"], "PidMode": processes, "NetworkMode": "none"}
    return {
        "Image": image,
        "Entrypoint": command,
        "User": "0",
        **STDIN,
        "Labels": dict(common),
        "HostConfig": {**rights, **RESTRICTED},
    }


def files_request(
    image: str,
    volume: str,
    command: list[str],
    common: Mapping[str, str],
    *,
    reads: bool = False,
) -> dict[str, Any]:
    """Return the body for a helper that has the volume of a run, and its files whoever owns them.

    LEASE: it may ask the kernel which of them nobody has open. One that `reads` can't change them.
    """
    mount = {"Type": "volume", "Source": volume, "Target": SHARED, "ReadOnly": reads}
    rights = {"CapAdd": ["DAC_OVERRIDE", *([] if reads else ["FOWNER", "CHOWN", "LEASE"])]}
    return {
        "Image": image,
        "Entrypoint": command,
        "User": "0",
        "Labels": dict(common),
        "HostConfig": {"NetworkMode": "none", "Mounts": [mount], **rights, **RESTRICTED},
    }


def witness_request(
    image: str, volume: str, command: list[str], common: Mapping[str, str]
) -> dict[str, Any]:
    """Return the body for a helper that only reads the volume of a run; it ends with its input."""
    mount = {"Type": "volume", "Source": volume, "Target": SHARED, "ReadOnly": True}
    return {
        "Image": image,
        "Entrypoint": command,
        "User": NOBODY,
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "Labels": dict(common),
        "HostConfig": {"NetworkMode": "none", "Mounts": [mount], **RESTRICTED},
    }


def container_request(
    plan: Plan,
    task: Task,
    common: Mapping[str, str],
    address: str = "",
    *,
    ipv6: bool = False,
    disk: int = 1,
    machine: int = 1,
) -> dict[str, Any]:
    """Return the body of `POST /containers/create` for one task.

    `address`: its IPv4 address; empty: the engine chooses it. `ipv6`: its network has IPv6. `disk`:
    the number of its scratch volumes. `machine`: its number among the containers of the task.

    An init is PID 1, because Python as PID 1 ignores SIGTERM; the json-file log driver is named,
    because the daemon's default may be one that can't be read back.
    """
    endpoint: dict[str, Any] = {"Aliases": list(task.names)}
    ipam: dict[str, Any] = {"IPv4Address": address} if address else {}
    host_config = {
        "NetworkMode": plan.resources,
        "Mounts": list(_mounts(plan, task, common, disk)),
        "Init": True,
        **RESTRICTED,
        **_limits(task),
    }
    if link_local := link_local_address(plan, task, machine):
        ipam["LinkLocalIPs"] = [link_local]
        if ipv6:
            host_config["Sysctls"] = NO_IPV6
        if "gce" in plan.metadata:
            host_config["ExtraHosts"] = [f"{METADATA_NAME}:{METADATA}"]
    if ipam:
        endpoint["IPAMConfig"] = ipam
    body: dict[str, Any] = {
        "Image": task.image,
        "Cmd": list(task.command),
        "Env": [f"{key}={value}" for key, value in task.env.items()],
        "Hostname": task.names[0],
        "Labels": {**operator_labels(plan, task), **common, TASK: task.name},
        "HostConfig": host_config,
        "NetworkingConfig": {"EndpointsConfig": {plan.resources: endpoint}},
    }
    if task.ports:
        body["ExposedPorts"] = {tcp(port.port): {} for port in task.ports}
    if task.entrypoint == "none":
        # One empty word: the engine's way to write that there is no entry point.
        body["Entrypoint"] = [""]
    if task.held:
        body["Entrypoint"] = gate(filtered=task.filtered)
    if home := home_of(task):
        body["WorkingDir"] = home
    if has_pod(task):
        body["Labels"][DISK] = str(disk)
    return body


def link_local_address(plan: Plan, task: Task, machine: int = 1) -> str:
    """Return a second address that the engine gives a task, at each start and before its program.

    METADATA itself: what is sent there stays in the task, where nothing listens, unless packets are
    redirected. Another of that network: what is sent there stays on the run's own network, where
    only its metadata server can answer; of two in turn, so that a machine that has lost power, and
    its replacement, have different ones. Empty: none.
    """
    if not plan.metadata or task in plan.helpers:
        return "" if plan.scenario.network.metadata == "open" else METADATA
    if redirects_metadata(plan):
        return METADATA
    return link_local_addresses(plan, task.owner)[(machine - 1) % 2]


def link_local_addresses(plan: Plan, task: str) -> tuple[str, str]:
    """Return the two second addresses of a task's machines, from 169.254.1.1 on."""
    first = 2 * [one.name for one in plan.tasks].index(task)
    one, other = (f"169.254.{1 + n // 250}.{1 + n % 250}" for n in (first, first + 1))
    return one, other


def redirects_metadata(plan: Plan) -> bool:
    """Say whether packets to METADATA are redirected in each task to where it is served.

    The engine lets no packet pass a network without internet whose address is not of its subnet.
    """
    return bool(plan.metadata) and not plan.scenario.network.internet


def metadata_request(
    plan: Plan, image: str, command: list[str], common: Mapping[str, str], address: str = ""
) -> dict[str, Any]:
    """Return the body for the container that serves a run's metadata, on the run's network."""
    ipam: dict[str, Any] = {"LinkLocalIPs": [METADATA]}
    if address:
        ipam["IPv4Address"] = address
    rights = {"CapAdd": ["NET_BIND_SERVICE"], "NetworkMode": plan.resources}
    return {
        "Image": image,
        "Entrypoint": command,
        "User": "0",
        "Labels": dict(common),
        "HostConfig": {**rights, **RESTRICTED},
        "NetworkingConfig": {"EndpointsConfig": {plan.resources: {"IPAMConfig": ipam}}},
    }


def _mounts(
    plan: Plan, task: Task, common: Mapping[str, str], disk: int
) -> Iterator[dict[str, Any]]:
    """Yield the shared volume, and what the scenario mounts."""
    yield {
        "Type": "volume",
        "Source": plan.resources,
        "Target": SHARED,
        # The engine makes a volume again that was removed meanwhile, with these labels.
        "VolumeOptions": {"Labels": dict(common)},
    }
    for target, mount in task.mounts.items():
        if mount.scratch:
            yield scratch_request(plan, task, target, mount, common, disk)
        else:
            yield mount_request(target, mount)


def _limits(task: Task) -> dict[str, Any]:
    """Return what a container may use of the machine: limits, ports, devices."""
    from emulator.scenario.container import settings  # lists of runs do without models

    limits: dict[str, Any] = {}
    if task.cpus is not None:
        # Not NanoCpus: a limit that was set by it can't be changed in a running container.
        limits |= {"CpuPeriod": CPU_PERIOD, "CpuQuota": cpu_quota(task.cpus)}
    if task.memory_limit is not None:
        # As much swap as memory means none: a training that swaps measures the disk. The engine
        # ignores MemorySwap where the kernel does not count swap.
        limits |= {"Memory": task.memory_limit, "MemorySwap": task.memory_limit}
    if task.process_limit is not None:
        limits["PidsLimit"] = task.process_limit
    for _, setting, value in settings(task):
        limits |= setting.docker(value)
    if task.ports:
        # An empty port of the host: the engine chooses a free one at each start.
        limits["PortBindings"] = {
            tcp(port.port): [{"HostIp": LOOPBACK, "HostPort": str(port.host_port or "")}]
            for port in task.ports
        }
    if task.gpus:
        limits["DeviceRequests"] = [
            {"DeviceIDs": list(task.gpus), "Capabilities": [["gpu"]], "Driver": "nvidia"}
        ]
    return limits


def all_requests(
    plan: Plan, task: Task, common: Mapping[str, str]
) -> Iterator[tuple[Task, dict[str, Any]]]:
    """Yield the containers of a task with their requests: init steps, then its own."""
    yield from ((step, init_request(plan, step, common)) for step in task.init)
    yield task, container_request(plan, task, common)


def init_request(
    plan: Plan,
    step: Task,
    common: Mapping[str, str],
    address: str = "",
    *,
    ipv6: bool = False,
    disk: int = 1,
) -> dict[str, Any]:
    """Return the body for an init step: on the run's network, but not under the task's name.

    As in a Kubernetes cluster, whose DNS has no pod that is not ready.
    """
    body = container_request(plan, step, common, address, ipv6=ipv6, disk=disk)
    del body["Hostname"]  # the engine resolves host names too
    body["NetworkingConfig"]["EndpointsConfig"][plan.resources]["Aliases"] = []
    return {**body, "Labels": {**common, PART: step.name, DISK: str(disk)}}


def task_of(labels: Mapping[str, str]) -> str:
    """Return the task that a container belongs to (pure)."""
    return (labels.get(PART) or labels[TASK]).partition(".")[0]


def has_pod(task: Task) -> bool:
    """Say whether a task has more than its own container: parts, or scratch volumes (pure)."""
    return bool(task.init or scratches(task))


def scratch_volume_request(
    plan: Plan, task: Task, scratch: str, common: Mapping[str, str], disk: int
) -> dict[str, Any]:
    """Return the arguments of a scratch volume, which is made before a container has it."""
    name = f"{plan.resources}-{task.owner}.{scratch}.{disk}"
    return {"name": name, "labels": {**common, DISK: str(disk)}}


def scratch_volumes(
    plan: Plan, task: Task, common: Mapping[str, str], disk: int
) -> list[dict[str, Any]]:
    """Return the arguments of all scratch volumes of a task, those of its parts included."""
    return [scratch_volume_request(plan, task, one, common, disk) for one in scratches(task)]


def scratch_request(
    plan: Plan, task: Task, target: str, mount: Mount, common: Mapping[str, str], disk: int
) -> dict[str, Any]:
    """Return the mount of a scratch volume: it begins empty, whatever the image has at its path."""
    assert mount.scratch is not None, "other mounts are of the user's"
    volume = scratch_volume_request(plan, task, mount.scratch, common, disk)
    return {
        "Type": "volume",
        "Source": volume["name"],
        "Target": target,
        "ReadOnly": not mount.is_writable,
        "VolumeOptions": {"NoCopy": True, "Labels": volume["labels"]},
    }


def mount_request(target: str, mount: Mount) -> dict[str, Any]:
    """Return one of a container's mounts.

    A volume of the user's gets no label of ours, so that it is never found among what a run made.
    """
    if mount.tmpfs is not None:
        return {"Type": "tmpfs", "Target": target, "TmpfsOptions": {"SizeBytes": mount.tmpfs}}
    kind, source = ("bind", str(mount.path)) if mount.path else ("volume", mount.volume)
    return {"Type": kind, "Source": source, "Target": target, "ReadOnly": not mount.is_writable}


def bindings(ports: Mapping[str, Any] | None) -> dict[int, str]:
    """Return where a container's ports are, from the engine's description of it (pure)."""
    return {
        int(name.partition("/")[0]): f"{hosts[0]['HostIp']}:{hosts[0]['HostPort']}"
        for name, hosts in (ports or {}).items()
        if hosts  # None: exposed by the image, and not published
    }


def tcp(port: int) -> str:
    """Return the engine's name for a TCP port."""
    return f"{port}/tcp"


def cpu_quota(cpus: float | None) -> int:
    """Return the microseconds of CPU per period for a limit in cores; -1 for none."""
    return -1 if cpus is None else max(1000, round(cpus * CPU_PERIOD))


def container_name(resources: str, task: str) -> str:
    """Return the container's name: it has the id of what the run made, so runs share an engine."""
    return f"{resources}-{task}"


def program_archive(copied: Copied | None, home: str = WORKDIR) -> bytes:
    """Return a tar with the program under `home`, and with /shared.

    Images may run as any user: both folders are writable by all.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in [SHARED] if copied is None else [SHARED, home]:
            add_folder(tar, folder)
        if copied is not None:
            add_program(tar, copied, home)
    return buffer.getvalue()


def files_archive(plan: Plan, task: Task) -> bytes:
    """Return a tar with the small files of a task, and folders of its scratch volumes.

    These are writable by all users. Folders above are made by the engine where they are missing.
    Empty if there is none of these.
    """
    files = plan.files(task)
    scratch = [at for at, one in task.mounts.items() if one.scratch and one.is_writable]
    if not files and not scratch:
        return b""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in scratch:
            add_folder(tar, folder)
        for path, file in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(file.content), file.permissions
            tar.addfile(entry, io.BytesIO(file.content))
    return buffer.getvalue()
