"""Pods of a deployment as Kubernetes wants them: containers, volumes, ConfigMaps, claims (pure).

Source: the reference of the Kubernetes API, Pod v1 and ConfigMap v1.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from emulator.errors import UsageError, shown
from emulator.plugins.kubeflow.manifests.out.deployment import (
    DEFAULT_MODE,
    IMAGES,
    Deployment,
    Group,
    program_files,
)
from emulator.plugins.kubeflow.manifests.out.templates import (
    INDEX,
    Different,
    Template,
    script,
    template,
)
from emulator.plugins.kubeflow.manifests.security import RESTRICTED, pod_security_context
from emulator.scenario.container import ContainerSettings, File, Mount, settings
from emulator.scenario.program import SHARED, WORKDIR
from emulator.validation.units import format_size

CONFIGMAP_BYTES = 900 * 2**10
"""A program in a ConfigMap, at most: etcd takes 1.5 MiB of an object, Kubernetes 1 MiB of data."""
LABEL = 63
"""Characters of a DNS label, such as the name of a pod that others resolve."""
CLAIM = "10Gi"
"""The storage that a claim asks for, which a scenario does not say."""
JOB, ROLE = "app.kubernetes.io/instance", "app.kubernetes.io/component"
"""Labels: the job, and the role."""
_KEY = re.compile(r"[^-._a-zA-Z0-9]+")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")

Data = dict[str, Any]


def kubernetes_object(kind: str, metadata: Data, *, api: str = "v1", **sections: Data) -> Data:
    """Return an object for exports and for the engine; a section that is empty is left out."""
    given = {key: section for key, section in sections.items() if section}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **given}


def headless_service(metadata: Data, selector: Data) -> Data:
    """Return the Service by which the Pods of a job find each other, before they are ready."""
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
    return kubernetes_object("Service", metadata, spec=spec)


@dataclass
class ClusterDefaults:
    """What the pods of a deployment share, as it is collected while they are written."""

    deployment: Deployment
    documents: list[Data] = field(default_factory=list)
    """ConfigMaps and claims."""
    notes: dict[str, None] = field(default_factory=dict)
    """In order, each once."""
    _maps: dict[object, Data] = field(default_factory=dict)
    _claims: set[str] = field(default_factory=set)

    def note(self, text: str) -> None:
        """Add a note, once."""
        self.notes[text] = None

    def metadata(self, name: str) -> Data:
        """Return the metadata of an object."""
        operator = self.deployment.scenario.operator
        named: Data = {"name": dns_label(name)}
        if operator and operator.namespace != "default":
            named["namespace"] = operator.namespace
        return named

    def claim(self, name: str) -> str:
        """Return the name of a claim, and add the claim itself if it is not there yet."""
        name = dns_label(name)
        if name not in self._claims:
            self._claims.add(name)
            self.note(f"each claim asks for {CLAIM}, on a storage that all nodes can write to")
            spec = {
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": CLAIM}},
            }
            claim = kubernetes_object("PersistentVolumeClaim", self.metadata(name), spec=spec)
            self.documents.append(claim)
        return name

    def program(self, source: Path) -> Data | None:
        """Return the volume with a program; None if it is too large for a ConfigMap."""
        if source in self._maps:
            return self._maps[source]
        found = program_files(source)
        files = {part.name: part.path.read_bytes() for part in found}
        size = sum(map(len, files.values())) * 4 // 3 + sum(map(len, files)) * 2
        if size > CONFIGMAP_BYTES:
            self.note(
                f"{source} has {format_size(size)}, which is too much for a ConfigMap "
                f"({format_size(CONFIGMAP_BYTES)}): copy it to {WORKDIR} of the image"
            )
            return None
        number = len([one for one in self._maps if isinstance(one, Path)])
        name = f"{self.deployment.name}-program" + (f"-{number + 1}" if number else "")
        volume = self.configmap(name, files)
        if any(part.path.stat().st_mode & 0o111 for part in found):  # `command: [./train.sh]`
            volume["defaultMode"] = 0o755
        self._maps[source] = volume
        self.note(f"{WORKDIR} is a ConfigMap, which programs can't write to")
        return volume

    def files(self, name: str, files: Mapping[str, File]) -> Data:
        """Return the volume with files by path; those of the same name are the same."""
        if name not in self._maps:
            modes = {
                path: one.permissions for path, one in files.items() if one.mode != DEFAULT_MODE
            }
            contents = {path: one.content for path, one in files.items()}
            self._maps[name] = self.configmap(name, contents, modes)
        return self._maps[name]

    def configmap(
        self, name: str, files: Mapping[str, bytes], modes: Mapping[str, int] | None = None
    ) -> Data:
        """Add a ConfigMap with files by path, some with a mode; return the volume's source."""
        data: dict[str, str] = {}
        binary: dict[str, str] = {}
        items = list[Data]()
        for path, content in files.items():
            key = _key(path, {*data, *binary})
            mode = {"mode": modes[path]} if modes and path in modes else {}
            items.append({"key": key, "path": path, **mode})
            try:
                data[key] = content.decode()
                if "\0" in data[key] or "\r" in data[key]:
                    raise ValueError
            except ValueError:
                data.pop(key, None)
                binary[key] = base64.b64encode(content).decode()
        document = kubernetes_object("ConfigMap", self.metadata(name), data=data, binaryData=binary)
        self.documents.append(document)
        plain = all(one == {"key": one["key"], "path": one["key"]} for one in items)
        return {"name": dns_label(name)} | ({} if plain else {"items": items})


def _key(path: str, taken: set[str]) -> str:
    """Return a key of a ConfigMap for a path, which may have slashes."""
    key = _KEY.sub("_", path.replace("/", "__"))[:240] or "_"
    key = f"_{key}" if key in (".", "..") or key.startswith("..") else key
    while key in taken:
        key += "_"
    return key


def dns_label(name: str) -> str:
    """Return a name for an object, from text that may have other characters. Raises UsageError."""
    label = _NOT_IN_NAMES.sub("-", name.lower()).strip("-")
    if not 0 < len(label) <= LABEL:
        raise UsageError(
            f"{shown(name)} can't be a name in Kubernetes: it has {len(label)} characters of "
            f"{LABEL}.",
            "Give the scenario or the role a shorter name.",
        )
    return label


@dataclass(frozen=True)
class Kind:
    """How pods of some kind of object are written."""

    container: str
    """The name of the container of the program."""
    index: str = ""
    """The field of a pod with its index."""
    makes: frozenset[str] = frozenset()
    """Variables that the operator sets itself."""
    ports: Mapping[str, str] = field(default_factory=dict)
    """By role, the name of the port at which its tasks meet, where it is declared."""


def pod_template(group: Group, cluster: ClusterDefaults, kind: Kind, **spec: Any) -> Data:  # noqa: ANN401
    """Return the pod template of a group; `spec` are further fields of the pod."""
    volumes = _Volumes(cluster, group)
    main = _container(group, kind.container, kind, volumes)
    before = replace(kind, ports={})
    init = [_container(one, one.name, before, volumes) for one in group.init]
    pod: Data = {
        **spec,
        "securityContext": pod_security_context(cluster.deployment.scenario.kubernetes),
        **({"initContainers": init} if init else {}),
        "containers": [main],
    }
    if volumes.volumes:
        pod["volumes"] = volumes.volumes
    return {"spec": pod}


def filled(
    container: Data,
    spec: ContainerSettings | None,
    words: Sequence[str],
    *,
    has_entrypoint: bool,
    **fields: object,
) -> Data:
    """Return a container with its command and settings, and those of `fields` that are not empty.

    For exports and for the engine, restricted in both; `spec` is None for a container that is not
    the scenario's.
    """
    found = {"args" if has_entrypoint else "command": [*words], **fields}
    found["securityContext"] = dict(RESTRICTED)
    for _, setting, value in settings(spec):
        found |= setting.pod(value)
    return container | {key: value for key, value in found.items() if value}


def _container(one: Group, name: str, kind: Kind, volumes: _Volumes) -> Data:
    """Return a container of a pod; add its volumes to those of the pod."""
    cluster, group = volumes.cluster, volumes.pod
    container: Data = {"name": name, "image": one.image}
    if one.image in cluster.deployment.images:
        container["imagePullPolicy"] = "IfNotPresent"
        cluster.note(_about_image(one.image))
    try:
        command = [template(words) for words in zip(*one.commands, strict=True)]
        variables = {name: template(texts) for name, texts in _variables(one, kind.makes).items()}
    except Different:
        raise UsageError(
            f"The commands or variables of {group.name} differ between its tasks in more than "
            "the index, which a pod template can't say.",
            "Let the program read its index, or use --to compose, where each task has its own.",
        ) from None
    computed = {name: text for name, text in variables.items() if text.computes}
    if computed or any(text.computes for text in command):
        words = ["sh", "-c", script(computed, command)]
    else:
        words = [text.text for text in command]
    plain = {name: text for name, text in variables.items() if name not in computed}
    needs_index = bool(computed) or not all(one.is_constant for one in (*command, *plain.values()))
    return filled(
        container,
        one.spec,
        words,
        has_entrypoint=one.has_entrypoint,
        workingDir=one.working_dir,
        env=_env(one, plain, kind, needs_index=needs_index),
        ports=_ports(one, kind),
        resources=_resources(one, cluster),
        volumeMounts=volumes.mounts_of(one),
    )


def _variables(group: Group, makes: frozenset[str]) -> dict[str, list[str]]:
    """Return the values of each variable by task, without those that the operator sets itself."""
    if len({tuple(one) for one in group.env}) > 1:
        raise Different
    return {name: [one[name] for one in group.env] for name in group.env[0] if name not in makes}


def _env(
    group: Group, variables: Mapping[str, Template], kind: Kind, *, needs_index: bool
) -> list[Data]:
    """Return the variables; the index comes first, because the others refer to it."""
    index = {"name": INDEX, "valueFrom": {"fieldRef": {"fieldPath": kind.index}}}
    others = [
        {"name": name, "value": one.text}
        for name, one in variables.items()
        if not (name == INDEX and group.has_index)
    ]
    wanted = group.has_index and (needs_index or INDEX in variables)
    return [*([index] if wanted else []), *others]


def _ports(group: Group, kind: Kind) -> list[Data]:
    named = {group.port: kind.ports[group.name]} if group.name in kind.ports else {}
    numbers = dict.fromkeys([*named, *(port.port for port in group.ports)])
    return [
        {**({"name": named[number]} if number in named else {}), "containerPort": number}
        for number in numbers
    ]


def _about_image(reference: str) -> str:
    if reference in IMAGES.values():
        return (
            f"{reference} is on this machine only: push it to a registry of the cluster, and "
            f"export with --image {reference.partition(':')[0].removeprefix('emulator-')}=REF"
        )
    return f"{reference} is built from a Dockerfile: build it, and push it to a registry"


# --- Limits ---------------------------------------------------------------------------------------


def _resources(group: Group, cluster: ClusterDefaults) -> Data:
    limits: Data = limits_of(group.spec.cpus, group.spec.memory)
    if group.gpus:
        limits["nvidia.com/gpu"] = group.gpus
    if group.spec.processes is not None:
        cluster.note("a limit of processes is a setting of the nodes (podPidsLimit)")
    for _, setting, _ in settings(group.spec):
        if setting.no_pod:
            cluster.note(setting.no_pod)
    return {"limits": limits} if limits else {}


def limits_of(cores: float | None, size: int | None) -> dict[str, str]:
    """Return the limits of a container, of cores and of bytes of memory."""
    limits = {} if cores is None else {"cpu": cpus(cores)}
    return limits if size is None else {**limits, "memory": memory(size)}


def in_memory(size: int) -> Data:
    """Return the source of a volume in memory, of so many bytes."""
    return {"emptyDir": {"medium": "Memory", "sizeLimit": memory(size)}}


def cpus(cores: float) -> str:
    """Return cores as a quantity: `2`, `500m`."""
    return str(int(cores)) if cores == int(cores) else f"{max(1, round(cores * 1000))}m"


def memory(size: int) -> str:
    """Return bytes as a quantity: `512Mi`."""
    for unit, factor in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


# --- Volumes --------------------------------------------------------------------------------------


class _Volumes:
    """The volumes of a pod, as its containers ask for them."""

    def __init__(self, cluster: ClusterDefaults, pod: Group) -> None:
        self.cluster, self.pod = cluster, pod
        self.volumes: list[Data] = []
        self._names: dict[str, str] = {}

    def mounts_of(self, group: Group) -> list[Data]:
        """Return what a container has mounted; add the volumes."""
        mounts: list[Data] = []
        cluster = self.cluster
        if group.source is not None and (program := cluster.program(group.source)) is not None:
            target = group.working_dir or WORKDIR
            mounts.append(
                {"name": self._add("program", {"configMap": program}), "mountPath": target}
            )
        if cluster.deployment.uses_shared:
            claim = cluster.claim(f"{cluster.deployment.name}-shared")
            source = {"persistentVolumeClaim": {"claimName": claim}}
            mounts.append({"name": self._add("shared", source), "mountPath": SHARED})
        for target, mount in group.spec.mounts.items():
            if mount.scratch is not None:  # the containers of a pod share it by its name
                name = self._add(f"scratch-{mount.scratch}", {"emptyDir": {}})
            else:
                name = self._add(target, _volume(target, mount, cluster))
            options = {} if mount.is_writable else {"readOnly": True}
            mounts.append({"name": name, "mountPath": target, **options})
        if (size := group.spec.shm_size) is not None:
            mounts.append({"name": self._add("shm", in_memory(size)), "mountPath": "/dev/shm"})
        return mounts + self._files(group)

    def _files(self, group: Group) -> list[Data]:
        """Return the mounts of small files, each at its path, from a ConfigMap of the container."""
        if not group.spec.files:
            return []
        deployment = self.cluster.deployment
        names = [deployment.name]
        if group.spec.files != deployment.scenario.program.files:  # those of all tasks
            names += [self.pod.name] if group is self.pod else [self.pod.name, group.name]
        files = {path.lstrip("/"): file for path, file in group.spec.files.items()}
        source = self.cluster.files("-".join([*names, "files"]), files)
        name = self._add(f"files-{group.name}", {"configMap": source})
        return [{"name": name, "mountPath": f"/{path}", "subPath": path} for path in files]

    def _add(self, wanted: str, source: Data) -> str:
        """Return the name of a volume, and add it if there is no such volume yet."""
        given = self._names.get(wanted, "")
        if {"name": given, **source} in self.volumes:
            return given
        name = _unique(wanted, [one["name"] for one in self.volumes])
        self._names[wanted] = name
        self.volumes.append({"name": name, **source})
        return name


def _volume(target: str, mount: Mount, cluster: ClusterDefaults) -> Data:
    if mount.tmpfs is not None:
        return in_memory(mount.tmpfs)
    if mount.volume is not None:
        return {"persistentVolumeClaim": {"claimName": cluster.claim(mount.volume)}}
    name = f"{cluster.deployment.name}-{target.strip('/')}"
    claim = cluster.claim(name)
    cluster.note(
        f"{target} is the folder {mount.path} of this machine: copy it to the claim {claim}"
    )
    return {"persistentVolumeClaim": {"claimName": claim}}


def _unique(name: str, taken: Sequence[str]) -> str:
    label = dns_label(name)[:50].strip("-")
    number = 2
    unique = label
    while unique in taken:
        unique = f"{label}-{number}"
        number += 1
    return unique
