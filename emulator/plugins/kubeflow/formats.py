"""What is read of Kubeflow's manifests, and what to write instead of the others."""

from __future__ import annotations

from emulator.plugins.kubeflow import training_jobs
from emulator.plugins.kubeflow.manifests.cluster_json import CLUSTER_JSON
from emulator.plugins.kubeflow.manifests.helm_values import HELM_VALUES
from emulator.scenario.manifests import Manifests

_OF_ANY = "write a scenario: `framework: none`, `cluster: {worker: 2}`, and its command"
_OF_TASKS = (
    "write a scenario with its tasks as roles, such as `cluster: {worker: 2}`, `framework: "
    "pytorch`, and `restart: {policy: on-failure, scope: job}`"
)
_INSTEAD = {
    **dict.fromkeys(("TrainJob", "JobSet", "Job"), _OF_TASKS),
    "MPIJob": "write a scenario: `framework: mpi`, `cluster: {launcher: 1, worker: 2}`",
    "JAXJob": "write a scenario: `framework: jax`, `cluster: {worker: 2}`",
    "RayJob": "write a scenario: `framework: ray`, `cluster: {head: 1, worker: 2}`",
    "RayCluster": "write a scenario: `framework: ray`, `cluster: {head: 1, worker: 2}`",
    **dict.fromkeys(
        ("Pod", "Deployment", "StatefulSet", "ReplicaSet", "LeaderWorkerSet", "XGBoostJob"),
        _OF_ANY,
    ),
}
"""What to write instead of a kind that can't run."""

MANIFESTS = Manifests((*training_jobs.FORMATS, HELM_VALUES, CLUSTER_JSON), _INSTEAD)
