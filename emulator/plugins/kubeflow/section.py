"""Section `operator` of a scenario: the job as Kubeflow's training operator runs it.

The rules are those of its version 1.9.0. They replace what a scenario says in `restart.policy`,
`success`, `rendezvous` and `elastic`.
Source: kubeflow/training-operator v1.9.0, pkg/apis/kubeflow.org/v1 (types and defaults).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from emulator.scenario.addresses import CLUSTER_DOMAIN, Naming
from emulator.scenario.document import KeyPath
from emulator.scenario.frameworks.pytorch import in_conf, shared_address
from emulator.scenario.frameworks.spec import WORKER, FrameworkName, Member, Roles
from emulator.scenario.restart import RestartPolicy
from emulator.validation.fields import Duration, Model, Text
from emulator.validation.similar import closest
from emulator.validation.units import format_duration

if TYPE_CHECKING:
    from emulator.record.timeline import Timeline
    from emulator.scenario.schema import Scenario
    from emulator.supervisor.strategy import Strategy

JobKind = Literal["TFJob", "PyTorchJob"]
CleanPods = Literal["none", "running", "all"]
SuccessPolicy = Literal["default", "all-workers"]
DEFAULT_PORTS: dict[JobKind, int] = {"TFJob": 2222, "PyTorchJob": 23456}
DEFAULT_POLICIES: dict[JobKind, RestartPolicy] = {"TFJob": "never", "PyTorchJob": "on-failure"}
FRAMEWORK_OF: dict[JobKind, FrameworkName] = {"TFJob": "tensorflow", "PyTorchJob": "pytorch"}
LEADERS = ("chief", "master")
TFJOB_ROLES = Roles(names=(*LEADERS, WORKER, "ps", "evaluator"), leaders=LEADERS)
"""It has one role more than TensorFlow, and its evaluator is part of the cluster."""
PREFIX = "training.kubeflow.org/"
"""Of the labels that the operator gives to pods."""
NAME = 63
"""Characters of a pod's name that can also be the name of its service (a DNS label)."""

Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
Count = Annotated[int, Field(strict=True, ge=1)]
# RFC 1035 and RFC 1123, as Kubernetes checks names of services and of namespaces.
JobName = Annotated[
    str, Field(max_length=NAME, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", examples=["mnist"])
]
Namespace = Annotated[
    str, Field(max_length=NAME, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", examples=["team-a"])
]
Error = tuple[KeyPath, str, str]
Metadata = dict[Annotated[str, Field(min_length=1, max_length=317)], str]


class OperatorElastic(Model):
    """`elasticPolicy` of a PyTorchJob; what is left out has the operator's default."""

    min: Count | None = Field(None, examples=[1])
    """The least number of workers; default: all."""
    max: Count | None = Field(None, examples=[4])
    """The most workers; default: all."""
    rdzv_host: Annotated[str, Field(min_length=1, max_length=253)] | None = Field(
        None, examples=["mnist-worker-0"]
    )
    """Where the agents of torchrun meet; default: the service of worker 0."""
    rdzv_port: Port | None = Field(None, examples=[29400])
    """The port of the rendezvous; default: the workers' port."""
    rdzv_backend: Literal["c10d", "etcd", "etcd-v2"] = "c10d"
    """The kind of the rendezvous."""
    rdzv_id: Text | None = Field(None, examples=["mnist"])
    """The id of the rendezvous."""
    rdzv_conf: dict[Text, Text] = Field({}, examples=[{"timeout": 900}])
    """Options of the rendezvous."""
    max_restarts: int | None = Field(strict=True, default=None, ge=0, examples=[3])
    """How often an agent starts its processes again."""
    standalone: bool = Field(strict=True, default=False)
    """Whether PET_STANDALONE is set, with which each task trains alone."""
    nproc_per_node: Count | None = Field(None, examples=[2])
    """Processes of each task."""

    @model_validator(mode="after")
    def _in_order(self) -> OperatorElastic:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min is {self.min}, but max is {self.max}")
        return self


class Operator(Model):
    """The job as Kubeflow's training operator v1.9 runs it."""

    kind: JobKind
    """The kind of the job: a TFJob with `framework: tensorflow`, a PyTorchJob with `framework:
    pytorch`."""
    job: JobName
    """`metadata.name`; the pods and their services are `<job>-<role>-<index>`."""
    namespace: Namespace = "default"
    """The namespace of the job."""
    ports: dict[str, Port] = Field({}, examples=[{"worker": 2222}])
    """The port of a role's tasks; default: 2222 for a TFJob, 23456 for a PyTorchJob."""
    dynamic_worker: bool = Field(strict=True, default=False)
    """`enableDynamicWorker` of a TFJob: the sparse TF_CONFIG."""
    nproc_per_node: Count | Literal["auto", "cpu", "gpu"] = Field("auto", examples=[2])
    """Processes of each task of a PyTorchJob."""
    elastic: OperatorElastic | None = None
    """`elasticPolicy` of a PyTorchJob."""
    restart: dict[str, RestartPolicy] = Field({}, examples=[{"worker": "exit-code"}])
    """The restart policy of a role's tasks; default: `never` for a TFJob, `on-failure` for a
    PyTorchJob."""
    backoff_limit: int | None = Field(strict=True, default=None, ge=0, examples=[3])
    """Restarts of all pods together after which the job fails; default: no limit."""
    active_deadline: Duration | None = Field(None, examples=["1h"])
    """The time from the start of the job after which it fails."""
    clean_pods: CleanPods = "none"
    """Which pods are stopped when the job has ended."""
    success: SuccessPolicy = "default"
    """`successPolicy` of a TFJob: `default` is the chief, or worker 0."""
    ttl_after_finished: Duration | None = Field(None, examples=["1h"])
    """The time after which Kubernetes would delete the job that has ended."""
    labels: Metadata = Field({}, examples=[{"team": "vision"}])
    """Labels of the job itself."""
    annotations: Metadata = Field({}, examples=[{"owner": "me"}])
    """Annotations of the job itself."""

    @property
    def framework(self) -> FrameworkName:
        """The framework of its kind."""
        return FRAMEWORK_OF[self.kind]

    def port_of(self, role: str) -> int:
        """Return the port of a role's tasks."""
        return self.ports.get(role, DEFAULT_PORTS[self.kind])

    def policy_of(self, role: str) -> RestartPolicy:
        """Return the restart policy of a role's tasks."""
        return self.restart.get(role, DEFAULT_POLICIES[self.kind])

    def pod(self, role: str, index: int) -> str:
        """Return the name of a task's pod, and of its service."""
        return f"{self.job}-{role}-{index}"

    # --- What the rest asks of it: see `JobRules` of emulator/scenario/sections.py ----------------

    key: ClassVar[str] = "operator"
    removed: ClassVar[Mapping[str, str]] = {"suspend": "leave it out; the run starts at once"}

    def strategy(self) -> type[Strategy]:
        """Return the class of what follows from the events of a run."""
        from emulator.plugins.kubeflow.operator_job import (
            OperatorJob,  # a scenario alone needs no events
        )

        return OperatorJob

    def conditions(self, timeline: Timeline) -> list[dict[str, Any]]:
        """Return the conditions of the job over time, for the summary."""
        from emulator.plugins.kubeflow.conditions import conditions_of_job

        return conditions_of_job(timeline)

    @property
    def roles(self) -> Roles | None:
        """What the roles of a TFJob mean; of a PyTorchJob, it is as in the framework."""
        return TFJOB_ROLES if self.kind == "TFJob" else None

    def naming(self, roles: Sequence[str]) -> Naming:
        """Return the names of the pods' services: `genClusterSpec`, tensorflow.go of v1.9.0."""
        return Naming(
            f"{self.job}-{{role}}-{{index}}.{self.namespace}.svc",
            tuple((role, self.port_of(role)) for role in roles),
            self.port_of(""),
            self.namespace,
            CLUSTER_DOMAIN,
        )

    def environment(self, member: Member, members: Sequence[Member]) -> Mapping[str, str]:
        """Return the variables that the operator appends to those of the pod's container."""
        make = _tfjob if self.kind == "TFJob" else _pytorchjob
        return make(self, member, members)

    def pod_labels(self, roles: Sequence[str], role: str, index: int) -> Mapping[str, str]:
        """Return the labels of a pod; `roles` are those of the job.

        Source: pkg/controller.v1/common/pod.go, and `IsMasterRole` of both controllers.
        """
        leaders = [leader for leader in LEADERS if leader in roles]
        leads = role in leaders if leaders else (role, index) == (WORKER, 0)
        return {
            f"{PREFIX}job-name": self.job,
            f"{PREFIX}operator-name": f"{self.kind.lower()}-controller",
            f"{PREFIX}replica-type": role,
            f"{PREFIX}replica-index": str(index),
            **({f"{PREFIX}job-role": "master"} if leads else {}),
        }

    def errors(self, scenario: Scenario) -> Iterator[Error]:
        """Yield each mistake: its path, what is wrong, and what to write instead."""
        yield from _check_other_sections(scenario)
        if scenario.framework != self.framework:
            hint = f"write `framework: {self.framework}`"
            message = f"a {self.kind} can't have framework {scenario.framework}"
            yield ("operator", "kind"), message, hint
        for key, kind in ONLY_FOR.items():
            given = getattr(self, key) != Operator.model_fields[key].default
            if given and self.kind != kind:
                yield ("operator", key), f"a {self.kind} has none", f"it is for a {kind}"
        yield from _check_roles(scenario, self)

    def rules(self, roles: Sequence[str]) -> Iterator[str]:
        """Yield what decides the end of the job."""
        policies = ", ".join(f"{role} {self.policy_of(role)}" for role in roles)
        limit = "no limit" if self.backoff_limit is None else f"limit {self.backoff_limit}"
        yield f"{self.kind}: {self.namespace}/{self.job}"
        yield f"restart: {policies}; {limit}"
        if self.active_deadline is not None:
            yield f"deadline: {format_duration(self.active_deadline)}"
        if self.kind == "TFJob":
            yield f"success: {self.success}"
        yield f"pods at the end: {self.clean_pods}"


def operator_of(scenario: Scenario) -> Operator | None:
    """Return the section of a scenario; None if it has none, or another system's."""
    return scenario.section(Operator)


# --- Mistakes: pkg/webhooks/tensorflow and pkg/webhooks/pytorch of v1.9.0 -------------------------

OF_RESTART = ("policy", "scope", "limit")
"""Keys of `restart` for which a job of the operator has its own."""
INSTEAD = {
    ("restart", "policy"): "`operator.restart`, such as `{worker: on-failure}`",
    ("restart", "scope"): "the operator restarts single pods; leave it out",
    ("restart", "limit"): "`operator.backoff_limit`",
    ("success",): "`operator.success`",
    ("rendezvous",): "the variables are those of the operator; leave it out",
    ("elastic",): "`operator.elastic`",
}
ONLY_FOR: dict[str, JobKind] = {
    "dynamic_worker": "TFJob",
    "success": "TFJob",
    "nproc_per_node": "PyTorchJob",
    "elastic": "PyTorchJob",
}
"""Keys that only one kind of job has."""


def _check_other_sections(scenario: Scenario) -> Iterator[Error]:
    given: list[KeyPath] = [("restart", k) for k in OF_RESTART if k in _set(scenario)]
    if "success" in scenario.model_fields_set:
        given.append(("success",))
    given += [(key,) for key in ("rendezvous", "elastic") if getattr(scenario, key) is not None]
    for path in given:
        message = "can't be set beside `operator`, which has its own rule"
        yield path, message, f"instead: {INSTEAD[tuple(map(str, path))]}"


def _set(scenario: Scenario) -> set[str]:
    """Return the keys of `restart` that the scenario has."""
    return scenario.restart.model_fields_set if "restart" in scenario.model_fields_set else set()


def _check_roles(scenario: Scenario, operator: Operator) -> Iterator[Error]:
    roles = list(scenario.cluster)
    for key in ("ports", "restart"):
        for role in getattr(operator, key):
            if role not in scenario.cluster:
                hint = closest(role, roles) or f"roles: {', '.join(roles[:8])}"
                yield ("operator", key, role), "is not a role of the cluster", hint
    for role, spec in scenario.cluster.items():
        if spec.before is not None:
            hint = "leave it out; a pod's own init containers are `init`"
            message = f"a {operator.kind} has no tasks before training"
            yield ("cluster", role, "before"), message, hint
        pod = operator.pod(role, spec.replicas - 1)
        if len(pod) > NAME:
            message = f"the pod {pod} would have a name of {len(pod)} characters"
            yield ("operator", "job"), message, f"{NAME} are the most; write a shorter name"
    if {*LEADERS} <= scenario.cluster.keys():
        message = "a TFJob has either a chief or a master"
        yield ("cluster", "master"), message, "leave one of them out"
    if operator.elastic is not None and WORKER not in scenario.cluster:
        message = "an elastic job needs workers, and the cluster has none"
        yield ("operator", "elastic"), message, "add `worker: 2` to cluster"


# --- Variables, byte for byte those of v1.9.0 -----------------------------------------------------

PS, MASTER = "ps", "master"


def _tfjob(operator: Operator, member: Member, members: Sequence[Member]) -> Mapping[str, str]:
    """Return TF_CONFIG, unless the job is a single replica.

    Source: pkg/controller.v1/tensorflow/tensorflow.go, and `isDistributed` of util.go.
    """
    if len(members) == 1:
        return {}
    task, cluster = {"type": member.role, "index": member.index}, _cluster(members)
    made: dict[str, object] = {"cluster": cluster, "task": task, "environment": "cloud"}
    if operator.dynamic_worker:
        made = {"cluster": _sparse(member, cluster), "task": task}
    # As Go's json.Marshal writes it: no spaces, and struct fields in the order of the type.
    return {"TF_CONFIG": json.dumps(made, separators=(",", ":"))}


def _cluster(members: Sequence[Member]) -> dict[str, list[str]]:
    """Return the addresses of every type in its order, evaluator and master included.

    The operator's is a map, whose keys Go sorts.
    """
    cluster: dict[str, list[str]] = {}
    for member in sorted(members, key=lambda m: (m.role, m.index)):
        cluster.setdefault(member.role, []).append(member.address)
    return cluster


def _sparse(member: Member, cluster: Mapping[str, list[str]]) -> dict[str, object]:
    """Return the cluster of a job with enableDynamicWorker: workers do not know each other.

    A parameter server knows only itself, and keeps its index. Without parameter servers, a worker
    has `null` for them: the missing entry of a Go map.
    """
    workers: dict[str, str] = {}
    servers: list[str] | None = []
    if member.role == PS:
        servers = [member.address]
    elif member.role == WORKER:
        workers = {str(member.index): member.address}
        servers = cluster.get(PS)
    return {"worker": workers, "ps": servers}


def _pytorchjob(operator: Operator, member: Member, members: Sequence[Member]) -> Mapping[str, str]:
    """Return the variables of a PyTorchJob; where it sets one twice, the second.

    RANK is the rank of the pod, also where it runs several processes.
    Source: pkg/controller.v1/pytorch/envvar.go, master.go, elastic.go; pytorch_defaults.go.
    """
    processes = operator.nproc_per_node
    variables = {"PYTHONUNBUFFERED": "1"}
    master = next((other for other in members if other.role == MASTER), None)
    if master is not None:
        rank = member.index + (1 if member.role == WORKER else 0)
        count = len(members) * (processes if isinstance(processes, int) else 1)
        variables |= {
            "MASTER_PORT": str(master.port),
            "PET_MASTER_PORT": str(master.port),
            "MASTER_ADDR": master.bare,
            "PET_MASTER_ADDR": master.bare,
            "WORLD_SIZE": str(count),
            "RANK": str(rank),
            "PET_NODE_RANK": str(rank),
        }
    variables["PET_NPROC_PER_NODE"] = str(processes)
    if operator.elastic is None:
        return {**variables, "PET_NNODES": str(len(members))}
    return {**variables, **_elastic(member, members, operator.elastic)}


def _elastic(
    member: Member, members: Sequence[Member], elastic: OperatorElastic
) -> Mapping[str, str]:
    """Return what elasticPolicy adds, with the operator's defaults."""
    workers = [other for other in members if other.role == WORKER] or list(members)
    wanted = elastic.rdzv_host
    least = elastic.min or elastic.max or len(workers)
    most = elastic.max or elastic.min or len(workers)
    named = (wanted or workers[0].pod).partition(".")[0]
    holder = next((other for other in members if other.pod == named), None)
    # A name that is given remains as it is, unless the engine has no such names.
    host = wanted if wanted and (holder is None or holder.has_name) else (holder or member).bare
    local, said = shared_address(member, members, holder)
    given = {
        "PET_RDZV_ENDPOINT": f"{host}:{elastic.rdzv_port or workers[0].port}",
        "PET_RDZV_BACKEND": elastic.rdzv_backend,
        "PET_NNODES": f"{least}:{most}",
        "PET_MAX_RESTARTS": elastic.max_restarts,
        "PET_NPROC_PER_NODE": elastic.nproc_per_node,
        "PET_RDZV_ID": elastic.rdzv_id,
        "PET_RDZV_CONF": in_conf({**said, **elastic.rdzv_conf}) or None,
        "PET_STANDALONE": "" if elastic.standalone else None,
    }
    return {**{name: str(value) for name, value in given.items() if value is not None}, **local}
