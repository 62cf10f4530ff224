"""Kubeflow's TFJob (pure, but for the files of `--configmap`).

Source: kubeflow/training-operator v1.9.0, pkg/webhooks/tensorflow, pkg/controller.v1/tensorflow.
"""

from __future__ import annotations

from typing import Any

from emulator.manifests.fields import Findings
from emulator.manifests.jobs import Job, Spec, convert, recognises
from emulator.manifests.spec import Format

_LEADERS = ("chief", "master")


def _variables(spec: Spec) -> frozenset[str]:
    """Return TF_CONFIG, unless the job is a single replica."""
    specs = spec.get("tfReplicaSpecs", {}).values()
    replicas = sum(one.get("replicas", 1) for one in specs)
    return frozenset() if replicas == 1 else frozenset({"TF_CONFIG"})


def _operator(findings: Findings, spec: Spec) -> dict[str, Any]:
    leaders = [key for key in spec.get("tfReplicaSpecs", {}) if key.lower() in _LEADERS]
    if len(leaders) > 1:
        path = ("spec", "tfReplicaSpecs", leaders[1])
        findings.mistake(path, f"there is {leaders[0]} already", "a TFJob has one of them")
    return {"dynamic_worker": True} if spec.get("enableDynamicWorker") else {}


_JOB = Job(
    kind="TFJob",
    replica_specs="tfReplicaSpecs",
    types=("PS", "Worker", "Chief", "Master", "Evaluator"),
    folds_case=True,
    container="tensorflow",
    port="tfjob-port",
    variables=_variables,
    in_every_container=False,
    operator=_operator,
)
TFJOB = Format("TFJob", recognises(_JOB), convert(_JOB))
