"""Kubeflow's PyTorchJob (pure, but for the files of `--configmap`).

Source: kubeflow/training-operator v1.9.0, pkg/webhooks/pytorch, pkg/controller.v1/pytorch.
"""

from __future__ import annotations

from typing import Any

from emulator.manifests.fields import Findings
from emulator.manifests.jobs import Job, Spec, convert, recognises
from emulator.manifests.spec import Format
from emulator.scenario.document import KeyPath

_OF_MASTER = (
    "MASTER_PORT", "PET_MASTER_PORT", "MASTER_ADDR", "PET_MASTER_ADDR", "WORLD_SIZE", "RANK",
    "PET_NODE_RANK",
)  # fmt: skip
_OF_ELASTIC = {
    "maxRestarts": "PET_MAX_RESTARTS",
    "rdzvId": "PET_RDZV_ID",
    "rdzvConf": "PET_RDZV_CONF",
    "standalone": "PET_STANDALONE",
}
"""Those of elasticPolicy that depend on one of its fields."""
_ELASTIC: KeyPath = ("spec", "elasticPolicy")


def _variables(spec: Spec) -> frozenset[str]:
    names = ["PYTHONUNBUFFERED", "PET_NNODES", "PET_NPROC_PER_NODE"]
    if "Master" in spec.get("pytorchReplicaSpecs", {}):
        names += _OF_MASTER
    if (elastic := spec.get("elasticPolicy")) is not None:
        names += "PET_RDZV_ENDPOINT", "PET_RDZV_BACKEND"
        names += [name for field, name in _OF_ELASTIC.items() if elastic.get(field)]
    return frozenset(names)


def _operator(findings: Findings, spec: Spec) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if (processes := spec.get("nprocPerNode")) is not None:
        made["nproc_per_node"] = _processes(findings, processes)
    if (elastic := spec.get("elasticPolicy")) is not None:
        made["elastic"] = _elastic(findings, elastic)
        if "Worker" not in spec.get("pytorchReplicaSpecs", {}):
            path = ("spec", "pytorchReplicaSpecs", "Worker")
            findings.mistake(path, "is missing", "an elasticPolicy is about the workers")
        if "nProcPerNode" in elastic and processes is not None:
            message = "must not be used with spec.nprocPerNode"
            findings.mistake((*_ELASTIC, "nProcPerNode"), message, "leave it out")
    return made


def _processes(findings: Findings, text: str) -> int | str | None:
    if text in ("auto", "cpu", "gpu"):
        return text
    # torchrun would refuse it; as a number the operator takes what strconv.Atoi does.
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= 1:
        return int(text)
    hint = "auto, cpu, gpu or a number in quotes"
    findings.mistake(("spec", "nprocPerNode"), f"{text!r} is no number of processes", hint)
    return None


def _elastic(findings: Findings, elastic: Spec) -> dict[str, Any]:
    """Return the section; of the two bounds, one that is left out is the other."""
    least, most = elastic.get("minReplicas"), elastic.get("maxReplicas")
    if least is not None and most is not None and least > most:
        findings.mistake((*_ELASTIC, "minReplicas"), f"{least} is more than maxReplicas, {most}")
    given = {
        "min": most if least is None else least,
        "max": least if most is None else most,
        "rdzv_host": elastic.get("rdzvHost"),
        "rdzv_port": elastic.get("rdzvPort"),
        "rdzv_backend": elastic.get("rdzvBackend"),
        "rdzv_id": elastic.get("rdzvId"),
        "rdzv_conf": {one.get("key", ""): one.get("value", "") for one in elastic["rdzvConf"]}
        if elastic.get("rdzvConf")
        else None,
        "max_restarts": elastic.get("maxRestarts"),
        "standalone": elastic.get("standalone") or None,
        "nproc_per_node": elastic.get("nProcPerNode"),
    }
    return {key: value for key, value in given.items() if value is not None}


_JOB = Job(
    kind="PyTorchJob",
    replica_specs="pytorchReplicaSpecs",
    types=("Master", "Worker"),
    folds_case=False,
    container="pytorch",
    port="pytorchjob-port",
    variables=_variables,
    in_every_container=True,
    operator=_operator,
)
PYTORCHJOB = Format("PyTorchJob", recognises(_JOB), convert(_JOB))
