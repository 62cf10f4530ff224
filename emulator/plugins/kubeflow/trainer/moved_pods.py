"""Pods of a TFJob as those of a JobSet: TF_CONFIG, names, ports and labels (pure).

TF_CONFIG is a variable that Kubernetes puts together, `$(NAME)`, from the addresses in a ConfigMap
and the index of the pod. So it needs nothing of the image, and commands stay as they are.
Source: kubeflow/training-operator v1.9.0, pkg/controller.v1/tensorflow/tensorflow.go and
pkg/controller.v1/common/pod.go; Kubernetes 1.34, pkg/kubelet/kubelet_pods.go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.plugins.kubeflow.kinds import JOBS
from emulator.plugins.kubeflow.manifests.fields import path_of_any_type
from emulator.plugins.kubeflow.section import DEFAULT_PORTS, PREFIX
from emulator.plugins.kubeflow.trainer.jobset import INDEX, NODE, index_reference
from emulator.scenario.document import KeyPath
from emulator.scenario.frameworks.spec import WORKER
from emulator.scenario.manifests import Document

Data = dict[str, Any]
_TFJOB = JOBS["TFJob"]
CONTAINER = _TFJOB.container
PS = "ps"
CONFIG = "TF_CONFIG"
CLUSTER, CLUSTER_KEY = "TF_CLUSTER", "cluster"
"""The variable with the addresses of all tasks, and its key in the ConfigMap."""
INDEX_NAME = "JOB_COMPLETION_INDEX"
"""A Job sets it too, but behind those that are there, which could not refer to it."""
MAIN_ANNOTATION = "kubectl.kubernetes.io/default-container"
OF_SET = ("hostname", "subdomain")
"""Fields of a pod that are the JobSet's."""


@dataclass(frozen=True)
class Replicas:
    """A replica type."""

    role: str
    """Its name in lower case."""
    spec: Mapping[str, Any]
    path: KeyPath
    count: int

    @property
    def port(self) -> int:
        """The port at which its pods meet the others."""
        return _TFJOB.port_of(self.template["spec"]) or DEFAULT_PORTS["TFJob"]

    @property
    def restart(self) -> str:
        """Its restart policy."""
        return self.spec.get("restartPolicy") or "Never"

    @property
    def template(self) -> Mapping[str, Any]:
        """Its pod template."""
        template: Mapping[str, Any] = self.spec["template"]
        return template


@dataclass(frozen=True)
class TFJob:
    """What the pods depend on."""

    name: str
    namespace: str
    replicas: Sequence[Replicas]
    is_dynamic: bool
    """Whether it has enableDynamicWorker: the sparse TF_CONFIG."""

    @property
    def has_config(self) -> bool:
        """Whether the operator sets TF_CONFIG: not for a single pod."""
        return sum(one.count for one in self.replicas) != 1

    @property
    def configmap(self) -> str:
        """The name of the ConfigMap with the addresses."""
        return f"{self.name}-cluster"

    def host(self, role: str, index: int | str) -> str:
        """Return the name of a pod below the JobSet's service."""
        return f"{self.name}-{role}-0-{index}.{self.name}"

    def addresses(self) -> dict[str, list[str]]:
        """Return all addresses by role, in the order that TF_CONFIG has."""
        return {
            one.role: [f"{self.host(one.role, index)}:{one.port}" for index in range(one.count)]
            for one in sorted(self.replicas, key=lambda one: one.role)
        }


@dataclass
class Losses:
    """What a TrainJob does differently, each with its place in the TFJob."""

    document: Document
    _found: dict[tuple[KeyPath, str], list[KeyPath]] = field(default_factory=dict)

    def add(self, path: KeyPath, text: str) -> None:
        """Add one; the same of several replica types is one, at the first of them."""
        self._found.setdefault((path_of_any_type(path), text), []).append(path)

    def all(self) -> Iterator[str]:
        """Yield them in the order in which they were found."""
        for (anywhere, text), paths in self._found.items():
            path = self.document.written(paths[0] if len(paths) == 1 else anywhere)
            yield f"{self.document.place(paths[0])}: {path}: {text}"


def pod_template(job: TFJob, one: Replicas, losses: Losses) -> Data:
    """Return the pod template of a replica type in the JobSet, without its restart policy."""
    return _Pods(job, one, losses).template()


class _Pods:
    def __init__(self, job: TFJob, one: Replicas, losses: Losses) -> None:
        self._job, self._one, self._losses = job, one, losses
        self._path: KeyPath = (*one.path, "template", "spec")
        some = "|".join(other.role for other in job.replicas)
        domain = rf"\.{re.escape(job.namespace)}(?:\.svc(?:\.[-a-z0-9.]*[a-z0-9])?)?"
        self._name = re.compile(
            rf"(?<![\w.-]){re.escape(job.name)}-({some})-(\d+)({domain})?(?![\w-])"
        )

    def template(self) -> Data:
        """Return the whole."""
        given = self._one.template
        pod: Data = {}
        for key, value in given["spec"].items():
            if key in OF_SET:
                self._losses.add((*self._path, key), "left out: names are those of the JobSet")
            elif key in ("containers", "initContainers"):
                pod[key] = [self._container(key, n, item) for n, item in enumerate(value)]
            else:
                pod[key] = _renamed(value)
        metadata = self._metadata(given.get("metadata", {}), pod)
        return {**({"metadata": metadata} if metadata else {}), "spec": pod}

    def _metadata(self, given: Mapping[str, Any], pod: Data) -> Data:
        labels, annotations = dict(given.get("labels", {})), dict(given.get("annotations", {}))
        if PREFIX in json.dumps(pod, default=str):  # a rule of scheduling, or a variable
            labels |= {
                f"{PREFIX}job-name": self._job.name,
                f"{PREFIX}operator-name": "tfjob-controller",
                f"{PREFIX}replica-type": self._one.role,
            }
            self._losses.add(
                self._path,
                f"names labels of the operator, which pods get here ({PREFIX}job-role not)",
            )
        if annotations.get(MAIN_ANNOTATION) == CONTAINER:
            annotations[MAIN_ANNOTATION] = NODE
        both = {"labels": labels, "annotations": annotations}
        return {key: value for key, value in both.items() if value}

    # --- Containers -----------------------------------------------------------------------------

    def _container(self, section: str, number: int, given: Mapping[str, Any]) -> Data:
        path = (*self._path, section, number)
        made: Data = {key: _renamed(value) for key, value in given.items()}
        is_main = section == "containers" and given["name"] == CONTAINER
        if is_main:
            made["name"] = NODE
        for key in ("command", "args"):
            if key in made:
                words = enumerate(made[key])
                made[key] = [self._with_hosts(word, (*path, key, n)) for n, word in words]
        env = [self._variable(one, (*path, "env", n)) for n, one in enumerate(made.get("env", []))]
        if is_main and self._job.has_config:
            env = [*self._without_own(env, path), *self._config()]
            made["ports"] = self._ports(made.get("ports", []))
        return {**made, "env": env} if env else made

    def _variable(self, given: Data, path: KeyPath) -> Data:
        reference = given.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        if reference == "metadata.name":
            pod = self._job.host(self._one.role, "<index>").partition(".")[0]
            self._losses.add((*path, "valueFrom"), f"the pod is {pod}-<random>")
        if "value" in given:
            return {**given, "value": self._with_hosts(given["value"], (*path, "value"))}
        return given

    def _with_hosts(self, text: str, path: KeyPath) -> str:
        """Return a text with the names that the JobSet's service has instead of the operator's."""
        counts = {one.role: one.count for one in self._job.replicas}

        def other(found: re.Match[str]) -> str:
            if int(found[2]) >= counts[found[1]]:
                return found[0]
            host = self._job.host(found[1], found[2])
            # With a domain or a port it is a host; the bare name may be a part of anything.
            if not found[3] and text[found.end() : found.end() + 1] != ":":
                self._losses.add(path, f"{found[0]} is left as it is; that pod's host is {host}")
                return found[0]
            self._losses.add(path, f"{found[0]} becomes {host}")
            return host

        return self._name.sub(other, text)

    def _without_own(self, env: Sequence[Data], path: KeyPath) -> Iterator[Data]:
        """Yield the variables but for those that are set here, which come last."""
        for number, one in enumerate(env):
            if one["name"] in (CONFIG, CLUSTER, INDEX_NAME):
                text = f"{one['name']} is left out: it is set from the names of the JobSet"
                self._losses.add((*path, "env", number), text)
            else:
                yield one

    def _ports(self, given: Sequence[Data]) -> list[Data]:
        """Return the ports with the one at which tasks meet, as the operator adds it."""
        number = self._one.port
        same = [one for one in given if one["containerPort"] == number]
        named = {"name": _TFJOB.port, "containerPort": number}
        if not same:
            return [*given, named]
        return [{**named, **one} if one in same[:1] else one for one in given]

    def _config(self) -> list[Data]:
        """Return the variables that make TF_CONFIG."""
        index = {"name": INDEX_NAME, **index_reference()}
        if self._job.is_dynamic:
            return [index, {"name": CONFIG, "value": self._sparse()}]
        key = {"name": self._job.configmap, "key": CLUSTER_KEY}
        cluster = {"name": CLUSTER, "valueFrom": {"configMapKeyRef": key}}
        text = f'{{"cluster":$({CLUSTER}),{self._task},"environment":"cloud"}}'
        return [index, cluster, {"name": CONFIG, "value": text}]

    @property
    def _task(self) -> str:
        return f'"task":{{"type":"{self._one.role}","index":$({INDEX_NAME})}}'

    def _sparse(self) -> str:
        """Return the TF_CONFIG of a job with enableDynamicWorker: workers know no other."""
        index = f"$({INDEX_NAME})"
        own = f"{self._job.host(self._one.role, index)}:{self._one.port}"
        workers: Data = {}
        servers: list[str] | None = []
        if self._one.role == PS:
            servers = [own]
        elif self._one.role == WORKER:
            workers, servers = {index: own}, self._job.addresses().get(PS)
        cluster = json.dumps({"worker": workers, "ps": servers}, separators=(",", ":"))
        return f'{{"cluster":{cluster},{self._task}}}'


def _renamed(value: Any) -> Any:  # noqa: ANN401  JSON
    """Return a part of a pod with the fields and the container that are called otherwise."""
    match value:
        case list():
            return [_renamed(one) for one in value]
        case {"containerName": name, **rest} if name == CONTAINER:
            return {"containerName": NODE, **_renamed(rest)}
        case dict():
            return {key: _renamed(one) for key, one in value.items()}
        case str() if value == f"metadata.labels['{PREFIX}replica-index']":
            return f"metadata.annotations['{INDEX}']"
    return value
