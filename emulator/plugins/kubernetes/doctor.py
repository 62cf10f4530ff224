"""Checks of a cluster for `emulate doctor`: answers are collected first, then judged (pure)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, get_args

from emulator.engines.base import Finding
from emulator.errors import EngineError, Unsupported
from emulator.plugins.kubernetes.connection import CONNECT_TIMEOUT, ApiError, ApiServer
from emulator.plugins.kubernetes.names import MAIN
from emulator.plugins.kubernetes.nodes import capacity_of
from emulator.plugins.kubernetes.pod_objects import limits_of
from emulator.plugins.kubernetes.readings import METRICS
from emulator.plugins.kubernetes.rights import PERMISSIONS, USES, Permission, Use, reviewed, role
from emulator.plugins.kubernetes.section import Kubernetes, options_of
from emulator.plugins.kubernetes.security import RESTRICTED, pod_security_context
from emulator.plugins.kubernetes.shared import decide, is_usable
from emulator.scenario.dump import dump
from emulator.validation.units import format_size

if TYPE_CHECKING:
    from emulator.scenario.container import ContainerBase
    from emulator.scenario.schema import Scenario

Data = Mapping[str, Any]

TESTED = (1, 20)
"""The oldest version that is tested."""
FORBIDDEN = "not examined: we may not look"
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


@dataclass(frozen=True)
class Answers:
    """What a cluster says of itself; None: we may not look."""

    version: str
    server: str
    context: str
    namespace: str
    there: Data | None = None
    """The namespace."""
    why_not_there: str = ""
    """Why it can't be used."""
    reviews: Sequence[tuple[Permission, str, bool]] = ()
    """Each permission and verb, and whether we have it."""
    nodes: Sequence[Data] | None = None
    classes: Sequence[Data] | None = None
    quotas: Sequence[Data] | None = None
    kubelet: Data | None = None
    """The configuration of one node's agent."""
    why_no_kubelet: str = ""
    """Why that node does not answer; empty where none was asked."""
    dns: Data | None = None
    """The Service of the cluster's DNS; empty: there is none."""
    has_metrics: bool | None = None
    refusal: tuple[str, str] = field(default=("", ""))
    """Why a Pod of ours would be refused, and what to try."""


# --- Collecting -----------------------------------------------------------------------------------


def examine(scenario: Scenario | None = None) -> Iterator[Finding]:
    """Yield findings on the cluster, which comes first, and on what a run needs of it.

    Its settings, limits and GPUs are those of the scenario.
    """
    options = options_of(scenario)
    role = next(iter(scenario.cluster.values())) if scenario else None
    patience = {"outage_timeout": CONNECT_TIMEOUT}
    try:
        cluster = ApiServer.open(options.model_copy(update=patience))
        with contextlib.closing(cluster):
            answers = collect(cluster, options, trial_pod(options, role))
    except EngineError as error:
        yield Finding("Kubernetes", "missing", error.message, error.hint)
        return
    yield from judge(answers, options)


def collect(cluster: ApiServer, options: Kubernetes, trial: Data) -> Answers:
    """Ask the cluster everything; `trial` is a Pod that it is asked about, and does not make.

    Raises EngineError where it does not answer, or not us.
    """
    version = cluster.server_version
    there = _allowed(lambda: cluster.get(f"/api/v1/namespaces/{cluster.namespace}"))
    why = "there is no such namespace" if there == {} else ""
    nodes = _listed(cluster, "/api/v1/nodes")
    kubelet, why_no_kubelet = _kubelet(cluster, nodes, options)
    return Answers(
        version,
        cluster.server,
        cluster.context,
        cluster.namespace,
        there,
        why,
        reviewed(cluster, PERMISSIONS),
        nodes,
        _listed(cluster, "/apis/storage.k8s.io/v1/storageclasses"),
        _listed(cluster, cluster.namespaced("resourcequotas")),
        kubelet,
        why_no_kubelet,
        _allowed(lambda: cluster.get("/api/v1/namespaces/kube-system/services/kube-dns")),
        _has_metrics(cluster),
        ("", "") if why else _refusal(cluster, trial),
    )


def _allowed(ask: Callable[[], Data]) -> Data | None:
    """Return an answer; empty where nothing is there, None where we may not look."""
    try:
        return ask()
    except ApiError as error:
        if error.status == HTTPStatus.FORBIDDEN:
            return None
        if error.status == HTTPStatus.NOT_FOUND:
            return {}
        raise


def _listed(cluster: ApiServer, path: str) -> Sequence[Data] | None:
    answer = _allowed(lambda: cluster.get(path))
    return None if answer is None else list(answer.get("items") or ())


def _kubelet(
    cluster: ApiServer, nodes: Sequence[Data] | None, options: Kubernetes
) -> tuple[Data | None, str]:
    """Return the configuration of a node's agent; None where no node tells us, and why."""
    for node in (one for one in nodes or () if is_usable(one, options)):
        try:
            path = f"/api/v1/nodes/{node['metadata']['name']}/proxy/configz"
            return cluster.get(path).get("kubeletconfig"), ""
        except EngineError as error:
            return None, error.message.rstrip(".")
    return None, ""


def _has_metrics(cluster: ApiServer) -> bool | None:
    try:
        cluster.get(f"{METRICS}/namespaces/{cluster.namespace}/pods", limit=1)
    except ApiError as error:
        return None if error.status == HTTPStatus.FORBIDDEN else False
    return True


def _refusal(cluster: ApiServer, trial: Data) -> tuple[str, str]:
    try:
        cluster.post(cluster.namespaced("pods"), trial, dryRun="All")
    except ApiError as error:
        return error.message, error.hint
    return "", ""


def trial_pod(options: Kubernetes, role: ContainerBase | None = None) -> Data:
    """Return a Pod like those of a run, with the limits of a role (pure)."""
    limits = {} if role is None else limits_of(role.cpus, role.memory)
    container: dict[str, Any] = {
        "name": MAIN,
        "image": f"{options.registry}/emulator-cpu" if options.registry else "emulator-cpu",
        "command": ["true"],
        "securityContext": dict(RESTRICTED),
    }
    if limits:
        container["resources"] = {"requests": limits, "limits": limits}
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": pod_security_context(options),
        "containers": [container],
        **({"priorityClassName": options.priority_class} if options.priority_class else {}),
        **({"serviceAccountName": options.service_account} if options.service_account else {}),
    }
    metadata = {"generateName": "emulator-doctor-"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


# --- Judging --------------------------------------------------------------------------------------


def judge(answers: Answers, options: Kubernetes) -> Iterator[Finding]:
    """Yield what follows from the answers (pure): `fatal` is what no run can start with.

    That no node takes Pods now is not: an autoscaler may bring one.
    """
    yield _check_version(answers)
    yield _check_namespace(answers)
    yield from _check_permissions(answers)
    if not answers.why_not_there:
        yield _check_trial(answers)
    yield _check_nodes(answers, options)
    yield _check_gpus(answers, options)
    yield _check_shared(answers, options)
    yield _check_dns(answers, options)
    yield _check_usage(answers)
    yield from _check_quotas(answers)


def _check_version(answers: Answers) -> Finding:
    found = f"{answers.version} at {answers.server} (context {answers.context})"
    number = _VERSION.match(answers.version)
    if number and (int(number[1]), int(number[2])) < TESTED:
        tested = ".".join(map(str, TESTED))
        return Finding("Kubernetes", "ok", found, f"It is tested with {tested} and later.")
    return Finding("Kubernetes", "ok", found)


def _check_namespace(answers: Answers) -> Finding:
    what = f"namespace {answers.namespace}"
    if answers.why_not_there:
        advice = (
            f"`kubectl create namespace {answers.namespace}` makes it; "
            "--set kubernetes.namespace=NAME names another one."
        )
        return Finding(what, "fatal", answers.why_not_there, advice)
    if answers.there is None:
        return Finding(what, "warning", FORBIDDEN)
    if (answers.there.get("status") or {}).get("phase") == "Terminating":
        advice = "Wait until it is gone and make it again, or name another one."
        return Finding(what, "fatal", "it is being deleted", advice)
    return Finding(what, "ok", "it is there")


def _check_permissions(answers: Answers) -> Iterator[Finding]:
    """Yield a finding for each use; that of a run has the Role if something is missing."""
    lacking: dict[Use, dict[Permission, list[str]]] = {}
    for permission, verb, allowed in answers.reviews:
        if not allowed:
            verbs = lacking.setdefault(permission.use, {}).setdefault(permission, [])
            verbs.append(verb)
    asked = {permission.use for permission, _, _ in answers.reviews}
    for use in (one for one in get_args(Use) if one in asked):
        missing = [f"{'/'.join(verbs)} {one.place}" for one, verbs in lacking.get(use, {}).items()]
        what = "permissions" if use == "run" else f"permissions: {use}"
        if not missing:
            yield Finding(what, "ok", USES[use])
        elif use == "run":
            advice = "Ask for the Role below: `--role` prints it with all that is optional."
            found = f"we may not: {', '.join(missing)}"
            yield Finding(what, "fatal", found, advice, dump(role(answers.namespace), short=True))
        else:
            yield Finding(what, "warning", f"we may not: {', '.join(missing)}", f"For {USES[use]}.")


def _check_trial(answers: Answers) -> Finding:
    message, hint = answers.refusal
    if message:
        return Finding("a Pod", "fatal", message, hint)
    return Finding("a Pod", "ok", "the cluster would take one like ours")


def _check_nodes(answers: Answers, options: Kubernetes) -> Finding:
    if answers.nodes is None:
        return Finding("nodes", "warning", FORBIDDEN)
    usable = [one for one in answers.nodes if is_usable(one, options)]
    there = capacity_of(usable, options.gpu_resource)
    found = (
        f"{len(usable)} of {len(answers.nodes)} take Pods of ours: {there.cpus:g} cores, "
        f"{format_size(there.memory)}"
    )
    if usable:
        return Finding("nodes", "ok", found)
    advice = "See `kubectl describe nodes`: tolerations and node_selector of the scenario count."
    return Finding("nodes", "missing", found, advice)


def _check_gpus(answers: Answers, options: Kubernetes) -> Finding:
    what = f"GPUs: {options.gpu_resource}"
    if answers.nodes is None:
        return Finding(what, "warning", FORBIDDEN)
    usable = [one for one in answers.nodes if is_usable(one, options)]
    if count := len(capacity_of(usable, options.gpu_resource).gpus):
        return Finding(what, "ok", f"{count} on the nodes that take Pods of ours")
    others = sorted({name for one in answers.nodes for name in _gpu_resources(one)})
    advice = (
        f"The nodes have {', '.join(others)}: set kubernetes.gpu_resource."
        if others
        else "Not needed: `image: auto` takes the CPU image."
    )
    return Finding(what, "missing", "no node has any", advice)


def _gpu_resources(node: Data) -> Iterator[str]:
    there = (node.get("status") or {}).get("allocatable") or {}
    yield from (name for name, count in there.items() if "nvidia.com/" in name and count != "0")


def _check_shared(answers: Answers, options: Kubernetes) -> Finding:
    try:
        shared = decide(options, answers.nodes, answers.classes)
    except Unsupported as error:
        return Finding("shared volume", "fatal", error.message, error.hint)
    if shared.kind == "claim":
        found = f"a claim, {shared.mode}, of the class {shared.storage_class or '(default)'}"
        return Finding("shared volume", "ok", found, shared.note)
    return Finding("shared volume", "warning", shared.note)


def _check_dns(answers: Answers, options: Kubernetes) -> Finding:
    domain = options.cluster_domain
    if answers.kubelet is not None:
        servers = answers.kubelet.get("clusterDNS") or ()
        actual = str(answers.kubelet.get("clusterDomain") or domain).rstrip(".")
        if not servers:
            return Finding("DNS", "missing", "the nodes know no cluster DNS", _NO_DNS)
        if actual != domain:
            advice = f"Set kubernetes.cluster_domain: {actual}."
            return Finding("DNS", "warning", f"the cluster's domain is {actual}", advice)
        return Finding("DNS", "ok", f"{', '.join(servers)}, domain {domain}")
    if answers.dns is None:
        return Finding("DNS", "warning", FORBIDDEN)
    if not answers.dns:
        return Finding("DNS", "warning", "kube-system has no Service kube-dns", _NO_DNS)
    return Finding("DNS", "ok", f"kube-dns at {answers.dns['spec'].get('clusterIP')}")


_NO_DNS = "Tasks find each other by name: install CoreDNS, or another DNS of the cluster."


def _check_usage(answers: Answers) -> Finding:
    asks_nodes = any(
        allowed for one, _, allowed in answers.reviews if one.resource == "nodes/proxy"
    )
    if answers.has_metrics:
        return Finding("usage of tasks", "ok", "from metrics.k8s.io: CPU and memory")
    why = "we may not read metrics.k8s.io" if answers.has_metrics is None else "no metrics-server"
    if asks_nodes and answers.why_no_kubelet:
        found = f"the nodes do not answer ({answers.why_no_kubelet}), {why}"
        advice = "Those columns stay empty: install metrics-server."
        return Finding("usage of tasks", "warning", found, advice)
    if asks_nodes:
        return Finding("usage of tasks", "ok", f"from the nodes themselves ({why})")
    advice = "Those columns stay empty: install metrics-server, or get the Role for it."
    return Finding("usage of tasks", "warning", f"nothing measures it for us ({why})", advice)


def _check_quotas(answers: Answers) -> Iterator[Finding]:
    if answers.quotas is None:
        yield Finding("quota", "warning", FORBIDDEN)
        return
    for quota in answers.quotas:
        yield Finding(f"quota {quota['metadata']['name']}", "ok", _left(quota.get("status") or {}))
    if not answers.quotas:
        yield Finding("quota", "ok", "none")


def _left(status: Data) -> str:
    hard, used = status.get("hard") or {}, status.get("used") or {}
    parts: Iterable[str] = (
        f"{name} {used.get(name, '0')} of {most}" for name, most in sorted(hard.items())
    )
    return ", ".join(parts) or "nothing is limited"
