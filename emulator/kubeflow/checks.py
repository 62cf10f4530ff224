"""Checks of section `operator` against the rest of a scenario (pure).

Source: pkg/webhooks/tensorflow and pkg/webhooks/pytorch of kubeflow/training-operator v1.9.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from emulator.kubeflow.section import NAME, JobKind, Operator
from emulator.scenario.document import KeyPath
from emulator.scenario.frameworks.spec import WORKER
from emulator.scenario.schema import Scenario
from emulator.validation.similar import closest

Error = tuple[KeyPath, str, str]
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


def operator_errors(scenario: Scenario, operator: Operator) -> Iterator[Error]:
    """Yield each mistake: its path, what is wrong, and what to write instead."""
    yield from _of_other_sections(scenario)
    if scenario.framework != operator.framework:
        hint = f"write `framework: {operator.framework}`"
        message = f"a {operator.kind} can't have framework {scenario.framework}"
        yield ("operator", "kind"), message, hint
    for key, kind in ONLY_FOR.items():
        if getattr(operator, key) != Operator.model_fields[key].default and operator.kind != kind:
            yield ("operator", key), f"a {operator.kind} has none", f"it is for a {kind}"
    yield from _of_roles(scenario, operator)


def _of_other_sections(scenario: Scenario) -> Iterator[Error]:
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


def _of_roles(scenario: Scenario, operator: Operator) -> Iterator[Error]:
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
    if {"chief", "master"} <= scenario.cluster.keys():
        message = "a TFJob has either a chief or a master"
        yield ("cluster", "master"), message, "leave one of them out"
    if operator.elastic is not None and WORKER not in scenario.cluster:
        message = "an elastic job needs workers, and the cluster has none"
        yield ("operator", "elastic"), message, "add `worker: 2` to cluster"
