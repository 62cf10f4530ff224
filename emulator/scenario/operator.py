"""Section `operator` of a scenario: the job as Kubeflow's training operator runs it.

The rules are those of its version 1.9.0. They replace what a scenario says in `restart.policy`,
`success`, `rendezvous` and `elastic`.
Source: kubeflow/training-operator v1.9.0, pkg/apis/kubeflow.org/v1 (types and defaults).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from emulator.scenario.frameworks.spec import FrameworkName
from emulator.scenario.restart import RestartPolicy
from emulator.validation.fields import Duration, Model, Text

JobKind = Literal["TFJob", "PyTorchJob"]
CleanPods = Literal["none", "running", "all"]
SuccessPolicy = Literal["default", "all-workers"]
DEFAULT_PORTS: dict[JobKind, int] = {"TFJob": 2222, "PyTorchJob": 23456}
DEFAULT_POLICIES: dict[JobKind, RestartPolicy] = {"TFJob": "never", "PyTorchJob": "on-failure"}
FRAMEWORK_OF: dict[JobKind, FrameworkName] = {"TFJob": "tensorflow", "PyTorchJob": "pytorch"}
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
Metadata = dict[Annotated[str, Field(min_length=1, max_length=317)], str]


class OperatorElastic(Model):
    """`elasticPolicy` of a PyTorchJob; what is left out has the operator's default."""

    min: Count | None = None
    """The least number of workers; default: all."""
    max: Count | None = None
    """The most; default: all."""
    rdzv_host: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Default: the service of worker 0."""
    rdzv_port: Port | None = None
    """Default: the workers' port."""
    rdzv_backend: Literal["c10d", "etcd", "etcd-v2"] = "c10d"
    rdzv_id: Text | None = None
    rdzv_conf: dict[Text, Text] = {}
    max_restarts: int | None = Field(strict=True, default=None, ge=0)
    standalone: bool = Field(strict=True, default=False)
    nproc_per_node: Count | None = None

    @model_validator(mode="after")
    def _in_order(self) -> OperatorElastic:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min is {self.min}, but max is {self.max}")
        return self


class Operator(Model):
    """The job as Kubeflow's training operator v1.9 runs it."""

    kind: JobKind
    job: JobName
    """`metadata.name`; the pods and their services are `<job>-<role>-<index>`."""
    namespace: Namespace = "default"
    ports: dict[str, Port] = {}
    """By role; `port_of` has the default."""
    dynamic_worker: bool = Field(strict=True, default=False)
    """`enableDynamicWorker` of a TFJob: the sparse TF_CONFIG."""
    nproc_per_node: Count | Literal["auto", "cpu", "gpu"] = "auto"
    """Of a PyTorchJob."""
    elastic: OperatorElastic | None = None
    restart: dict[str, RestartPolicy] = {}
    """By role; `policy_of` has the default."""
    backoff_limit: int | None = Field(strict=True, default=None, ge=0)
    """Restarts of all pods together after which the job fails; None: no limit."""
    active_deadline: Duration | None = None
    """Seconds from the start of the job after which it fails."""
    clean_pods: CleanPods = "none"
    """What is stopped when the job has ended."""
    success: SuccessPolicy = "default"
    """`successPolicy` of a TFJob."""
    ttl_after_finished: Duration | None = None
    suspend: bool = Field(strict=True, default=False)
    """The job is made, and its pods are not."""
    labels: Metadata = {}
    """Of the job's own metadata."""
    annotations: Metadata = {}
    quirks: bool = Field(strict=True, default=False)
    """Reproduce the operator's known faults too."""

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
