"""Requests to a cluster as data (pure): `emulate plan --json` prints exactly these.

The objects are those of the core API, which all clusters have: a headless Service, a claim,
ConfigMaps with the program, and a Pod a task.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from emulator.engines.kit.containers import home_of, operator_labels
from emulator.errors import Unsupported
from emulator.plugins.kubernetes import names
from emulator.plugins.kubernetes.archives import (
    HOME,
    KEY,
    Archive,
    Delivery,
    archives_of,
    config_maps,
    delivery,
    file_mounts,
)
from emulator.plugins.kubernetes.security import RESTRICTED, pod_security_context
from emulator.plugins.kubernetes.shared import HOSTNAME, Shared
from emulator.scenario.container import settings
from emulator.scenario.program import SHARED
from emulator.validation.units import format_size

if TYPE_CHECKING:
    from emulator.planning.plan import Plan, Task
    from emulator.plugins.kubernetes.section import Kubernetes, Toleration
    from emulator.scenario.container import ContainerSettings, Mount

Data = dict[str, Any]

GRACE = 30
"""Seconds between SIGTERM and SIGKILL where whoever deletes a Pod does not say."""
_DISK, _ARCHIVES = "/.emulator/disk", "/.emulator/archives"
"""Where our init container has them; nothing of users can be mounted there."""
_EXPANDED = re.compile(r"\$[$(]")
"""What a cluster reads in a command or a variable: `$(NAME)`, and `$$` for a dollar."""


def all_requests(
    plan: Plan,
    common: names.Common,
    options: Kubernetes,
    shared: Shared,
    archives: Sequence[Archive],
) -> list[Data]:
    """Return everything that a run creates, in this order.

    Raises Unsupported for a program in `/`.
    """
    made = prepared(plan, common, options, shared, archives)
    found = delivery(one for one in made if one["kind"] == "ConfigMap")
    pods = (pod_request(plan, one, common, options, shared, found) for one in plan.everything)
    return [*made, *pods]


def prepared(
    plan: Plan,
    common: names.Common,
    options: Kubernetes,
    shared: Shared,
    archives: Sequence[Archive],
) -> list[Data]:
    """Return what a run creates before its Pods, in this order.

    The Service is first and is removed last, because it says what else a run leaves.
    """
    return [
        service_request(plan, common, options, shared),
        *shared.claim(plan.resources, common, plan.scenario.shared_size),
        *config_maps(plan.resources, archives, common),
    ]


def service_request(plan: Plan, common: names.Common, options: Kubernetes, shared: Shared) -> Data:
    """Return the headless Service, by which the Pods of a run find each other."""
    metadata = common.metadata(names.service(plan.resources))
    if shared.kind == "host-path":
        metadata["annotations"] |= {
            names.HOST_PATH: "true",
            names.NODE: shared.node,
            names.IMAGE: plan.everything[0].image,
        }
        if options.image_pull_secret:
            metadata["annotations"][names.SECRET] = options.image_pull_secret
    selector = {names.RUN: common.labels[names.RUN]}
    # They find each other before they are ready, too.
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def pod_request(
    plan: Plan,
    task: Task,
    common: names.Common,
    options: Kubernetes,
    shared: Shared,
    found: Delivery,
) -> Data:
    """Return the Pod of one task, with its init steps.

    `found`: the ConfigMaps with the programs. Raises Unsupported for a program in `/`.
    """
    volumes = _Volumes(plan, task, shared, found)
    parts = names.containers(task)
    made = {name: _container(name, one, options, volumes) for name, one in parts.items()}
    ours = [*_open(task, options, volumes), *_unpack(plan, task, options, volumes)]
    init = [*ours, *(one for name, one in made.items() if name != names.MAIN)]
    metadata = common.metadata(names.pod(plan.resources, task.name), task=task.name, role=task.role)
    metadata["labels"] |= operator_labels(plan, task)
    metadata["annotations"]["kubectl.kubernetes.io/default-container"] = names.MAIN
    spec: Data = {
        # The supervisor decides what is started again.
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE,
        "hostname": names.dns_label(task.name),
        "subdomain": names.service(plan.resources),
        # So that `worker-0` is a name in every Pod.
        "dnsConfig": {"searches": [_search(plan, common, options)]},
        "automountServiceAccountToken": False,
        # Else every Service of the namespace is in the variables.
        "enableServiceLinks": False,
        "securityContext": pod_security_context(options),
        **({"shareProcessNamespace": True} if options.init else {}),
        **_placed(options, shared),
        **({"initContainers": init} if init else {}),
        "containers": [made[names.MAIN]],
    }
    if volumes.volumes:
        spec["volumes"] = list(volumes.volumes.values())
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _search(plan: Plan, common: names.Common, options: Kubernetes) -> str:
    service = names.service(plan.resources)
    return f"{service}.{common.namespace}.svc.{options.cluster_domain}"


def _placed(options: Kubernetes, shared: Shared) -> Data:
    """Return where the Pods may run, and on whose account."""
    selector = {**options.node_selector, **({HOSTNAME: shared.node} if shared.node else {})}
    tolerations = [_toleration(one) for one in options.tolerations]
    secret = options.image_pull_secret
    found = {
        "nodeSelector": selector,
        "tolerations": tolerations,
        "priorityClassName": options.priority_class,
        "serviceAccountName": options.service_account,
        "imagePullSecrets": [{"name": secret}] if secret else None,
    }
    return {key: value for key, value in found.items() if value}


def _toleration(one: Toleration) -> Data:
    """Return a toleration as a Pod has it."""
    found = {
        "key": one.key,
        "operator": "Exists" if one.tolerates_any_value else "Equal",
        "value": one.value,
        "effect": one.effect,
        "tolerationSeconds": one.toleration_seconds,
    }
    return {key: value for key, value in found.items() if value is not None}


# --- Containers -----------------------------------------------------------------------------------


def _container(name: str, one: Task, options: Kubernetes, volumes: _Volumes) -> Data:
    limits = limits_of(one.cpus, one.memory_limit)
    if one.gpus:
        limits[options.gpu_resource] = str(len(one.gpus))
    return _filled(
        _base(name, one, options),
        one,
        [literal(word) for word in one.command],
        has_entrypoint=one.entrypoint != "none",
        workingDir=home_of(one),
        env=[{"name": key, "value": literal(text)} for key, text in one.env.items()],
        resources=_resources(limits),
        volumeMounts=volumes.mounts_of(name, one),
    )


def _filled(
    container: Data,
    spec: ContainerSettings | None,
    words: Sequence[str],
    *,
    has_entrypoint: bool,
    **fields: object,
) -> Data:
    """Return a container with its command and settings, and those of `fields` that are not empty.

    `spec` is None for a container that is not the scenario's.
    """
    found = {"args" if has_entrypoint else "command": [*words], **fields}
    found["securityContext"] = dict(RESTRICTED)
    for _, setting, value in settings(spec):
        found |= setting.pod(value)
    return container | {key: value for key, value in found.items() if value}


def _base(name: str, one: Task, options: Kubernetes) -> Data:
    return {"name": name, "image": one.image, "imagePullPolicy": options.image_pull_policy}


def limits_of(cores: float | None, size: int | None) -> dict[str, str]:
    """Return the limits of a container, of cores and of bytes of memory, as quantities."""
    limits = {} if cores is None else {"cpu": _cores(cores)}
    return limits if size is None else {**limits, "memory": _bytes(size)}


def _cores(cores: float) -> str:
    """Return cores as a quantity: `2`, `500m`."""
    return str(int(cores)) if cores == int(cores) else f"{max(1, round(cores * 1000))}m"


def _bytes(size: int) -> str:
    """Return bytes as a quantity: `512Mi`."""
    for unit, factor in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def _resources(limits: dict[str, str]) -> Data:
    return {"requests": limits, "limits": limits} if limits else {}


def literal(text: str) -> str:
    """Return a text that a cluster reads as this one: it expands `$(NAME)`, and `$$` to `$`."""
    return text.replace("$", "$$") if _EXPANDED.search(text) else text


def _ours(name: str, task: Task, options: Kubernetes, script: str) -> Data:
    """Return an init container of ours, which runs a script in the task's image.

    It has the limits of the task: some namespaces want every container to have some.
    """
    return _filled(
        _base(name, task, options),
        None,
        ["sh", "-c", literal(script)],
        has_entrypoint=False,
        workingDir="/",
        resources=_resources(limits_of(task.cpus, task.memory_limit)),
    )


def _open(task: Task, options: Kubernetes, volumes: _Volumes) -> Iterator[Data]:
    """Yield what lets every user write to a folder of the node, which the kubelet makes."""
    if volumes.shared.kind == "host-path":
        container = _ours(names.OPEN, task, options, f"chmod 0777 {SHARED}")
        container["securityContext"] |= {"runAsUser": 0, "runAsNonRoot": False}
        container["volumeMounts"] = [volumes.mount("shared", SHARED)]
        yield container


def _unpack(plan: Plan, task: Task, options: Kubernetes, volumes: _Volumes) -> Iterator[Data]:
    """Yield what unpacks the task's archives, if it has some."""
    if wanted := archives_of(plan, task):
        container = _ours(names.UNPACK, task, options, unpack_script(task, wanted))
        container["volumeMounts"] = [
            volumes.mount("disk", _DISK),
            {**volumes.mount("archives", _ARCHIVES), "readOnly": True},
        ]
        yield container


def unpack_script(task: Task, archives: Iterable[str]) -> str:
    """Return the script that unpacks archives: with tar, or Python in an image without it.

    In a working directory of the user's the image may have files, which stay there.
    """
    lines = ["set -eu", "umask 0"]
    if task.source is not None and task.working_dir is not None:
        home = shlex.quote(task.working_dir)
        target = f"{_DISK}/{HOME}"
        copy = f"tar -C {home} -cf - . | tar -C {target} -xpof -"
        lines.append(f"if [ -d {home} ]; then mkdir -p {target} && {copy}; fi")
    unpack = 'cat "$1"/* | tar -xzpof -'
    python = (
        "import sys, tarfile\n"
        # The default of Python 3.14 would change modes.
        "options = {'filter': 'fully_trusted'} if hasattr(tarfile, 'data_filter') else {}\n"
        "tarfile.open(fileobj=sys.stdin.buffer, mode='r|gz').extractall('.', **options)"
    )
    lines += [
        f"cd {_DISK}",
        "unpack() {",
        f"  if command -v tar >/dev/null; then {unpack}",
        f'  else cat "$1"/* | python3 -c {shlex.quote(python)}; fi',
        "}",
        *(f"unpack {_ARCHIVES}/{archive}" for archive in archives),
    ]
    return "\n".join(lines)


# --- Volumes --------------------------------------------------------------------------------------


class _Volumes:
    """The volumes of a Pod, as its containers ask for them."""

    def __init__(self, plan: Plan, task: Task, shared: Shared, found: Delivery) -> None:
        self._plan, self._task, self.shared, self._found = plan, task, shared, found
        self.volumes: dict[str, Data] = {}

    def mounts_of(self, name: str, one: Task) -> list[Data]:
        """Return what a container has mounted."""
        mounts = [self.mount("shared", SHARED)]
        if one.source is not None:
            if home_of(one) == "/":
                raise Unsupported(
                    f"{one.name} has its program in /, which is no folder that a Pod can mount.",
                    "Choose a working_dir below it, such as /job.",
                )
            mounts.append({**self.mount("disk", home_of(one)), "subPath": HOME})
        for number, (target, mount) in enumerate(one.mounts.items()):
            mounts.append(self._user_volume(f"{name}-{number}", target, mount))
        if one.shm_size is not None:
            source = _in_memory(one.shm_size)
            mounts.append(self.mount(names.dns_label(f"shm-{name}"), "/dev/shm", source))
        for path, inside in file_mounts(self._plan, one, name).items():
            mounts.append({**self.mount("disk", path), "subPath": inside})
        return mounts

    def _user_volume(self, name: str, target: str, mount: Mount) -> Data:
        if mount.scratch is not None:
            found = self.mount(
                names.dns_label(f"scratch-{mount.scratch}"), target, {"emptyDir": {}}
            )
            return found if mount.is_writable else {**found, "readOnly": True}
        assert mount.tmpfs is not None, "others are refused: they are of this machine"
        return self.mount(names.dns_label(f"tmpfs-{name}"), target, _in_memory(mount.tmpfs))

    def mount(self, name: str, path: str, source: Mapping[str, Any] | None = None) -> Data:
        """Return the mount of a volume, which is added to those of the Pod."""
        self.volumes[name] = {"name": name, **(source or self._source(name))}
        return {"name": name, "mountPath": path}

    def _source(self, name: str) -> Data:
        if name == "shared":
            return self.shared.volume(self._plan.resources)
        if name == "disk":
            return {"emptyDir": {}}
        sources = [
            {
                "configMap": {
                    "name": config_map,
                    "items": [{"key": KEY, "path": f"{archive}/{number:03}"}],
                }
            }
            for archive in archives_of(self._plan, self._task)
            for number, config_map in enumerate(self._found[archive])
        ]
        return {"projected": {"sources": sources}}


def _in_memory(size: int) -> Data:
    """Return the source of a volume in memory, of so many bytes."""
    return {"emptyDir": {"medium": "Memory", "sizeLimit": _bytes(size)}}


# --- For people -----------------------------------------------------------------------------------


def shown(request: Mapping[str, Any]) -> Data:
    """Return a request as `emulate plan` shows it: with sizes and hashes of archives."""
    if "binaryData" not in request:
        return dict(request)
    return {**request, "binaryData": {k: _about(text) for k, text in request["binaryData"].items()}}


def _about(text: str) -> str:
    content = base64.b64decode(text)
    digest = hashlib.sha256(content).hexdigest()
    return f"<{format_size(len(content))}, sha256 {digest[:16]}>"
