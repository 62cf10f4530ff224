"""Section `kubernetes` of a scenario: how it runs on a cluster (pure).

The ordinary case needs nothing of it. Engines other than `kubernetes` ignore it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from emulator.scenario.addresses import CLUSTER_DOMAIN, is_host, is_label
from emulator.scenario.image import registry_name
from emulator.validation.fields import Duration, Model

if TYPE_CHECKING:
    from emulator.scenario.schema import Scenario

MIB = 2**20
GPU = "nvidia.com/gpu"
SharedKind = Literal["auto", "claim", "host-path", "none"]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]
Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]

_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""A value of a label, and the name in a key of one."""
_LABEL_HINT = "lower-case letters, digits and dashes, at most 63"


def _is_subdomain(text: str) -> bool:
    """Say whether a text can be the name of most objects (RFC 1123)."""
    return len(text) <= 253 and all(map(is_label, text.split(".")))


def _namespace(text: str) -> str:
    if not is_label(text):
        raise ValueError(f"{text!r} is not the name of a namespace: {_LABEL_HINT}")
    return text


def _object(text: str) -> str:
    if not _is_subdomain(text):
        hint = "lower-case letters, digits, dashes and dots"
        raise ValueError(f"{text!r} is not the name of an object: {hint}")
    return text


def _context(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("a context has a name; `kubectl config get-contexts` lists them")
    return text


def is_label_key(text: str) -> bool:
    """Say whether a text can be the key of a label, such as `kubernetes.io/arch`."""
    prefix, slash, name = text.rpartition("/")
    return bool(_WORD.fullmatch(name)) and (not slash or _is_subdomain(prefix))


def is_label_value(text: str) -> bool:
    """Say whether a text can be the value of a label."""
    return not text or bool(_WORD.fullmatch(text))


def _key(text: str) -> str:
    if not is_label_key(text):
        raise ValueError(f"{text!r} is not the key of a label, such as kubernetes.io/arch")
    return text


def _value(text: str) -> str:
    if not is_label_value(text):
        hint = "letters, digits, '-', '_' and '.', at most 63"
        raise ValueError(f"{text!r} is not the value of a label: {hint}")
    return text


def _resource(text: str) -> str:
    if "/" not in text or not is_label_key(text):
        raise ValueError(f"{text!r} is not a resource, such as {GPU} or nvidia.com/mig-1g.5gb")
    return text


def _domain(text: str) -> str:
    if not is_host(text):
        raise ValueError(f"{text!r} is not a domain, such as {CLUSTER_DOMAIN}")
    return text


def _at_once(seconds: float) -> float:
    if seconds <= 0:
        raise ValueError("0s leaves no time; write at least 1s")
    return seconds


ObjectName = Annotated[str, AfterValidator(_object)]
LabelKey = Annotated[str, AfterValidator(_key)]
LabelValue = Annotated[str, AfterValidator(_value)]


class Toleration(Model):
    """A taint of nodes that the Pods tolerate, as in Kubernetes."""

    key: LabelKey | None = Field(None, examples=["spot"])
    """The key of the taint; default: every taint, with the operator Exists."""
    operator: Literal["Exists", "Equal"] | None = None
    """Default: Equal where there is a `value`, else Exists."""
    value: LabelValue | None = Field(None, examples=["true"])
    """The value of the taint, with the operator Equal."""
    effect: Effect | None = None
    """The effect of the taint; default: every effect."""
    toleration_seconds: int | None = Field(strict=True, default=None, ge=0, examples=[60])
    """Seconds for which a Pod stays on a node that gets the taint, with the effect NoExecute;
    default: for ever."""

    @model_validator(mode="after")
    def _consistent(self) -> Toleration:
        if self.tolerates_any_value and self.value is not None:
            raise ValueError("with the operator Exists a toleration has no `value`")
        if not self.tolerates_any_value and self.key is None:
            raise ValueError("with the operator Equal a toleration needs a `key`")
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError("`toleration_seconds` needs `effect: NoExecute`")
        return self

    @property
    def tolerates_any_value(self) -> bool:
        """Whether it tolerates the taint whatever its value is."""
        return self.operator == "Exists" or (self.operator is None and self.value is None)


class Kubernetes(Model):
    """How the tasks run as Pods of a cluster."""

    removed: ClassVar[Mapping[str, str]] = {
        "dcgm": "leave it out; a program that measures its GPU reports that as values of its steps",
        "shared_size": "write `shared_size` at the top of the scenario",
    }

    context: Annotated[str, Field(max_length=253), AfterValidator(_context)] | None = Field(
        None, examples=["kind-dev"]
    )
    """The context of the kubeconfig; default: the current one."""
    namespace: Annotated[str, AfterValidator(_namespace)] | None = Field(None, examples=["team-a"])
    """The namespace of everything that is made, which must exist; default: that of the context."""
    image_pull_policy: PullPolicy = "IfNotPresent"
    """When nodes pull images, as in Kubernetes."""
    image_pull_secret: ObjectName | None = Field(None, examples=["registry-login"])
    """A Secret of the namespace with the registry's login."""
    registry: Annotated[str, Field(max_length=200), AfterValidator(registry_name)] | None = Field(
        None, examples=["localhost:5000/team"]
    )
    """Where the images `cpu`, `gpu`, `pytorch`, ... were pushed; default: the nodes have them."""
    node_selector: Annotated[dict[LabelKey, LabelValue], Field(max_length=50)] = Field(
        {}, examples=[{"kubernetes.io/arch": "amd64"}]
    )
    """Labels that a node must have."""
    tolerations: Annotated[list[Toleration], Field(max_length=50)] = Field(
        [], examples=[[{"key": "spot", "effect": "NoSchedule"}]]
    )
    """Taints of nodes that the Pods tolerate."""
    priority_class: ObjectName | None = Field(None, examples=["high"])
    """The name of the Pods' PriorityClass; default: the cluster's."""
    service_account: ObjectName | None = Field(None, examples=["trainer"])
    """The Pods' service account; default: the namespace's. Its token is mounted in no Pod."""
    storage_class: ObjectName | None = Field(None, examples=["nfs"])
    """The storage class of the shared volume; default: the cluster's."""
    shared: SharedKind = "auto"
    """What /shared is: a claim, a folder of the one node, or none."""
    run_as: int | None = Field(strict=True, default=None, ge=1, le=2**31 - 1, examples=[1000])
    """The user and group id of all programs; default: those of the image."""
    init: bool = Field(strict=True, default=True)
    """Whether PID 1 is not the program, as with Docker: Python as PID 1 ignores SIGTERM."""
    gpu_resource: Annotated[str, AfterValidator(_resource)] = Field(
        GPU, examples=["nvidia.com/mig-1g.5gb"]
    )
    """What a GPU is called, such as nvidia.com/mig-1g.5gb."""
    cluster_domain: Annotated[str, AfterValidator(_domain)] = Field(
        CLUSTER_DOMAIN, examples=["cluster.local"]
    )
    """The domain of the cluster's DNS."""
    start_timeout: Annotated[Duration, AfterValidator(_at_once)] = Field(300.0, examples=["10m"])
    """The time until a Pod runs, in which nodes may become free and images are pulled."""
    outage_timeout: Annotated[Duration, AfterValidator(_at_once)] = Field(120.0, examples=["30s"])
    """For how long the API server may be away in mid-run."""


def options_of(scenario: Scenario | None) -> Kubernetes:
    """Return the section of a scenario, or its defaults."""
    return (scenario and scenario.section(Kubernetes)) or Kubernetes()
