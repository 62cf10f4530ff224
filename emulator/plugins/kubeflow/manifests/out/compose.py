"""A scenario as a Compose file: a service for each task (pure).

Its tasks find each other by the names that they have here, so their variables are the same. An init
step is a service that ends before its task.
Source: https://github.com/compose-spec/compose-spec/blob/main/spec.md
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from emulator.plugins.kubeflow.manifests.out.deployment import (
    DEFAULT_MODE,
    Deployment,
    Draft,
    ExportFormat,
    Group,
    limit,
    program_files,
)
from emulator.scenario.addresses import aliases, naming
from emulator.scenario.container import Mount, settings
from emulator.scenario.program import SHARED, WORKDIR
from emulator.scenario.schema import Dockerfile, Scenario

_OURS = "shared"
"""The volume that all tasks share."""

Data = dict[str, Any]


def host(scenario: Scenario, role: str, index: int) -> str:
    """Return the name of a task on the network, which is the same as here."""
    if index < 0:
        return role
    named = naming(scenario)
    return named.place(role, index).host if named else f"{role}-{index}"


def _compose(deployment: Deployment) -> Draft:
    scenario = deployment.scenario
    file = _File(deployment)
    for group in deployment.groups:
        for index in range(group.replicas):
            file.add(group, index)
    document: Data = {"services": file.services}
    for key in ("volumes", "configs"):
        if found := getattr(file, key):
            document[key] = found
    if not scenario.network.internet:
        document["networks"] = {"default": {"internal": True}}
    if scenario.timeout is not None:
        file.notes["Compose has no time limit (timeout)"] = None
    if file.configs:
        file.notes["files need Docker Compose 2.23.1 or later (configs with content)"] = None
    return Draft([document], tuple(file.notes), _usage(deployment))


def _usage(deployment: Deployment) -> tuple[str, ...]:
    """Return the commands that run the file to the end of the job, and remove what it made."""
    training = deployment.training
    tasks = [f"{one.name}-{n}" for one in training for n in range(one.replicas)]
    before = deployment.before or any(one.init for one in training)
    run: tuple[str, ...] = ("docker-compose -f FILE up",)
    if deployment.helpers or before or deployment.roles.endless(tasks):
        # With --abort-on-container-exit, the end of the first container would be that of all.
        wait = f"docker wait $(docker-compose -f FILE ps -aq {' '.join(_deciding(deployment))})"
        run = ("docker-compose -f FILE up --detach", wait, "docker-compose -f FILE logs")
    # Compose neither makes nor removes a volume that others have too.
    named = sorted({one for group in deployment.groups for one in _named_volumes(group)})
    made = tuple(f"docker volume create {name}" for name in named)
    return (*made, *run, "docker-compose -f FILE down --volumes")


def _deciding(deployment: Deployment) -> list[str]:
    """Return the services whose end is that of the job: the leader, else all that end."""
    if deployment.leader.name in deployment.roles.leaders:
        return [f"{deployment.leader.name}-0"]
    return [f"{one.name}-{n}" for one in deployment.deciding for n in range(one.replicas)]


def _named_volumes(group: Group) -> list[str]:
    """Return the volumes of the engine that a group's containers mount."""
    mounts = [mount for one in (group, *group.init) for mount in one.spec.mounts.values()]
    return [mount.volume for mount in mounts if mount.volume is not None]


class _File:
    """The services of a file, and what they share, as they are added."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self.services: Data = {}
        self.volumes: dict[str, Data] = {_OURS: {}} if deployment.uses_shared else {}
        self.configs: dict[str, Data] = {}
        self.notes: dict[str, None] = {}

    def add(self, group: Group, index: int) -> None:
        """Add a task: its init steps, and itself."""
        scenario = self._deployment.scenario
        name = group.name if group.is_helper else f"{group.name}-{index}"
        waits = _order(group, self._deployment)
        for step in group.init:
            service = f"{name}-{step.name}"
            self.services[service] = self._service(service, name, index, step, waits)
            waits = {**waits, service: {"condition": "service_completed_successfully"}}
        if group.init:
            self.notes["init steps run once, not before each replacement of a task"] = None
        own = self._service(name, name, index, group, waits)
        if not group.is_helper:
            own |= _restart(scenario, group, self.notes)
            own |= _names(scenario, group.name, index)
        self.services[name] = own

    def _service(self, name: str, task: str, index: int, group: Group, waits: Data) -> Data:
        """Return a service: the same container as here, as far as Compose can say it."""
        deployment, spec = self._deployment, group.spec
        service: Data = {"image": group.image, "hostname": name, "init": True}
        if isinstance(image := deployment.images.get(group.image), Dockerfile):
            service["build"] = _build(image, deployment)
        words = [_escaped(word) for word in group.commands[index]]
        if words and group.has_entrypoint:
            service["command"] = words
        elif words:  # an entry point alone: what the image would add to it is left out
            service["entrypoint"] = words
        if group.env[index]:
            service["environment"] = {k: _escaped(text) for k, text in group.env[index].items()}
        if group.working_dir is not None:
            service["working_dir"] = group.working_dir
        if group.source is not None:
            self.notes[f"{group.working_dir} is read-only; here tasks have copies of their own"] = (
                None
            )
        if volumes := self._volumes(task, group):
            service["volumes"] = volumes
        if tmpfs := [
            f"{target}:size={mount.tmpfs}"
            for target, mount in spec.mounts.items()
            if mount.tmpfs is not None
        ]:
            service["tmpfs"] = tmpfs
        if configs := self._configs(task, group):
            service["configs"] = configs
        limits = {
            "cpus": spec.cpus,
            "mem_limit": spec.memory,
            "pids_limit": spec.processes,
            **{key: setting.compose(value) for key, setting, value in settings(spec)},
        }
        service |= {key: value for key, value in limits.items() if value is not None}
        if group.gpus:
            device = {"driver": "nvidia", "count": group.gpus, "capabilities": ["gpu"]}
            service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
        if group.ports:
            service["ports"] = [
                f"127.0.0.1:{port.host_port or ''}:{port.port}" for port in group.ports
            ]
        if waits:
            service["depends_on"] = waits
        # As the emulator's own containers.
        return {**service, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]}

    def _volumes(self, task: str, group: Group) -> list[Data]:
        """Return what is mounted, in the long form, which takes any path."""
        deployment = self._deployment
        found: list[Data] = []
        if group.source is not None:
            target = group.working_dir or WORKDIR
            if not group.source.is_dir():
                target += f"/{program_files(group.source)[0].name}"
            found.append(self._bound(group.source, target, writable=False))
        if deployment.uses_shared:
            found.append({"type": "volume", "source": _OURS, "target": SHARED})
        for target, mount in group.spec.mounts.items():
            if mount.path is not None:
                found.append(self._bound(mount.path, target, writable=mount.is_writable))
            elif mount.tmpfs is None:
                found.append(self._volume(task, target, mount))
        return found

    def _bound(self, path: Path, target: str, *, writable: bool) -> Data:
        place = self._deployment.path(path)
        self.notes[f"{place} is mounted: take it along with this file"] = None
        return _bind(place, target, writable=writable)

    def _volume(self, task: str, target: str, mount: Mount) -> Data:
        """Return the mount of a named volume, or of an empty one that a task's containers share."""
        if mount.volume is not None:
            # The emulator and Compose have the same volume, which outlives what either makes.
            self.volumes[mount.volume] = {"name": mount.volume, "external": True}
        name = mount.volume or f"{task}-{mount.scratch}"
        self.volumes.setdefault(name, {})
        volume: Data = {"type": "volume", "source": name, "target": target}
        return volume if mount.is_writable else {**volume, "read_only": True}

    def _configs(self, task: str, group: Group) -> list[Data]:
        """Return the small files of a container; all tasks of a role have the same."""
        found = []
        for number, (path, file) in enumerate(group.spec.files.items()):
            name = f"{task.rpartition('-')[0] or task}-{group.name}-{number}"
            try:
                self.configs[name] = {"content": _escaped(file.content.decode())}
            except UnicodeDecodeError:
                self.notes[f"{path} has bytes that a Compose file can't have: mount it"] = None
                continue
            entry: Data = {"source": name, "target": path}
            found.append(entry | ({"mode": file.permissions} if file.mode != DEFAULT_MODE else {}))
        return found


def _names(scenario: Scenario, role: str, index: int) -> Data:
    """Return the names of a task on the network, where they are not that of its service."""
    if (named := naming(scenario)) is None:
        return {}
    place = named.place(role, index)
    return {
        "hostname": place.pod,
        "networks": {"default": {"aliases": list(aliases(place.host))}},
    }


def _escaped(text: str) -> str:
    """Return a text in which Compose replaces nothing."""
    return text.replace("$", "$$")


def _build(image: Dockerfile, deployment: Deployment) -> Data:
    """Return how an image is built; the Dockerfile is named from its context."""
    context = image.context or image.dockerfile.parent
    file = os.path.relpath(image.dockerfile, context)
    build: Data = {"context": deployment.path(context), "dockerfile": file}
    return build | ({"args": dict(image.args)} if image.args else {})


def _bind(source: str, target: str, *, writable: bool) -> Data:
    bind: Data = {"type": "bind", "source": _escaped(source), "target": target}
    return bind if writable else {**bind, "read_only": True}


def _restart(scenario: Scenario, group: Group, notes: dict[str, None]) -> Data:
    """Return the restart policy that comes closest; one that ends before training has its own."""
    policy = scenario.policy_of(group.name)
    if policy == "never":
        return {}
    if policy == "always" and not group.is_before:
        return {"restart": "always"}
    if policy == "exit-code":
        notes["Compose restarts tasks whatever their exit code (restart.policy: exit-code)"] = None
    if scenario.restart.scope == "job" and not scenario.operator:
        notes["Compose restarts tasks one by one, not the job (restart.scope: job)"] = None
    return {"restart": f"on-failure:{limit(scenario)}" if not scenario.operator else "on-failure"}


def _order(group: Group, deployment: Deployment) -> Data:
    """Return what a service waits for: helpers first, then the tasks before training."""
    if group.is_helper:
        return {}
    waits: Data = {one.name: {"condition": "service_started"} for one in deployment.helpers}
    if not group.is_before:
        for one in deployment.before:
            for index in range(one.replicas):
                waits[f"{one.name}-{index}"] = {"condition": "service_completed_successfully"}
    return waits


COMPOSE = ExportFormat(
    name="compose",
    about="a Compose file, which docker-compose runs on any machine",
    draft=_compose,
    host=host,
)
