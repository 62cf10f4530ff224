"""A scenario as the values of a Helm chart with a map of jobs (pure).

The chart makes pods of one image, which get CLUSTER_CONFIG and POD_NAME. Its values have little
room: the numbers of tasks, the image, the port, GPUs of the workers, one command.
"""

from __future__ import annotations

from typing import Any

from emulator.plugins.kubeflow.manifests.out.deployment import (
    Deployment,
    Draft,
    ExportFormat,
    Group,
)
from emulator.plugins.kubeflow.manifests.out.pods import limits_of
from emulator.plugins.kubeflow.manifests.out.templates import escaped
from emulator.scenario.addresses import naming
from emulator.scenario.schema import Scenario

PORT = 8080

Data = dict[str, Any]


def host(scenario: Scenario, role: str, index: int) -> str:
    """Return the name that the chart gives to a task."""
    if index < 0:
        return role
    if (named := naming(scenario)) is not None:
        return named.place(role, index).host
    return f"{role}-{index}.{scenario.name}.svc.cluster.local"


def _helm_values(deployment: Deployment) -> Draft:
    scenario = deployment.scenario
    training = deployment.training
    worker = next((one for one in training if one.name == "worker"), training[0])
    notes: dict[str, None] = {}
    settings: Data = {
        "isGpu": worker.gpus > 0,
        **({"nbGpuPerNode": worker.gpus} if worker.gpus else {}),
        "jobs": {one.name: one.replicas for one in training},
    }
    service: Data = {"internalPort": worker.port}
    if (command := _common([one.commands for one in training])) is None:
        notes["the values have one command for all tasks, and here they differ"] = None
    elif command and not worker.has_entrypoint:
        service["command"] = [escaped(word) for word in command]
    elif command:
        notes["the image's entry point must run the command: the chart has none for it"] = None
    values: Data = {
        "fullnameOverride": deployment.name,
        "tfCluster": {
            "settings": settings,
            "service": service,
            "image": _image(training, notes),
            **_env(training, notes),
            **_resources(worker, training, notes),
        },
    }
    _note_others(deployment, notes)
    if scenario.kubernetes.run_as is not None:
        notes["the values have no user (kubernetes.run_as)"] = None
    if scenario.rendezvous != "cluster-config":
        notes["the chart sets CLUSTER_CONFIG and POD_NAME, and no TF_CONFIG"] = None
    return Draft([values], tuple(notes), (f"helm install {deployment.name} CHART -f FILE",))


def _common(commands: list[tuple[tuple[str, ...], ...]]) -> tuple[str, ...] | None:
    """Return the command of all tasks; None if they have different ones."""
    found = {words for one in commands for words in one}
    return found.pop() if len(found) == 1 else None


def _image(training: tuple[Group, ...], notes: dict[str, None]) -> Data:
    """Return the image of all tasks; a name and a tag make a reference, also with a digest."""
    reference = training[0].image
    if any(one.image != reference for one in training):
        notes[f"the values have one image for all tasks: {reference}"] = None
    name, colon, tag = reference.rpartition(":")
    if not colon or "/" in tag:
        name, tag = reference, "latest"
    repository, _, last = name.rpartition("/")
    return {**({"repo": repository} if repository else {}), "name": last, "dockerTag": tag}


def _env(training: tuple[Group, ...], notes: dict[str, None]) -> Data:
    """Return the variables that all tasks have with the same value."""
    env = {}
    every = [variables for one in training for variables in one.env]
    meeting = frozenset[str]().union(*(one.meeting for one in training))
    for name in dict.fromkeys(name for variables in every for name in variables):
        values = {variables.get(name) for variables in every}
        value = values.pop()
        if name in meeting or name == "EMULATOR_SHARED":
            continue
        if values or value is None:
            notes[f"the values have no room for {name}, which not all tasks have the same"] = None
        else:
            env[name] = escaped(value)
    return {"env": env} if env else {}


def _resources(worker: Group, training: tuple[Group, ...], notes: dict[str, None]) -> Data:
    limits = limits_of(worker.spec.cpus, worker.spec.memory)
    own = {(one.spec.cpus, one.spec.memory) for one in training}
    if len(own) > 1:
        notes["the values have one limit for all tasks: that of the workers"] = None
    return {"resources": {"limits": limits}} if limits else {}


def _note_others(deployment: Deployment, notes: dict[str, None]) -> None:
    """Note what the chart has no values for."""
    if any(one.source is not None or one.spec.files for one in deployment.training):
        notes["the image must have the program, which the values can't carry"] = None
    if deployment.uses_shared or any(one.spec.mounts for one in deployment.training):
        notes["the values have no volumes"] = None
    if any(one.init for one in deployment.training):
        notes["the values have no init steps"] = None
    for one in (*deployment.before, *deployment.helpers):
        notes[f"{one.name} is not part of the chart"] = None


HELM_VALUES = ExportFormat(
    name="helm-values",
    about="values of a Helm chart with a map of jobs",
    draft=_helm_values,
    host=host,
    port=PORT,
    frameworks=("tensorflow",),
)
