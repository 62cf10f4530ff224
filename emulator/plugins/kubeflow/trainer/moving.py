"""A TFJob of the training operator as a TrainJob of Trainer v2, for a cluster (pure).

Trainer has no runtime for TensorFlow and makes no TF_CONFIG. So each replica type becomes a
replicated job of a TrainingRuntime, whose pods are those of the TFJob; `moved_pods.py` has them.
Source: kubeflow/training-operator v1.9.0, pkg/controller.v1; kubeflow/trainer v2.3.0, pkg/runtime
and pkg/webhooks; kubernetes-sigs/jobset v0.12.0, pkg/controllers; Kubernetes 1.34, Job v1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from emulator.errors import ScenarioError, shown
from emulator.plugins.kubeflow.kinds import JOBS, MOVED, OBJECTS
from emulator.plugins.kubeflow.manifests.fields import Findings, Reader, refuse
from emulator.plugins.kubeflow.section import LEADERS
from emulator.plugins.kubeflow.trainer.fields import TRAINER
from emulator.plugins.kubeflow.trainer.jobset import NODE, STEP
from emulator.plugins.kubeflow.trainer.moved_pods import (
    CLUSTER_KEY,
    Losses,
    Replicas,
    TFJob,
    pod_template,
)
from emulator.scenario.addresses import LABEL, is_label
from emulator.scenario.document import KeyPath
from emulator.scenario.frameworks.spec import WORKER
from emulator.scenario.manifests import Document, Moved
from emulator.validation.similar import closest

Data = dict[str, Any]
_TFJOB = JOBS["TFJob"]
SPECS: KeyPath = ("spec", _TFJOB.replica_specs)
POLICY: KeyPath = ("spec", "runPolicy")
PERMANENT: Data = {"operator": "In", "values": [*range(1, 128)]}
"""Exit codes at which a Job fails that restarts its pods after signals alone."""
UNLIMITED = 2**31 - 1
"""The backoffLimit of a Job that restarts for ever: without one, 6 is the limit."""
RANDOM = "-xxxxx"
"""As many characters as a Job adds to the name of a pod."""
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
"""A controller that Trainer knows too."""


def moved(document: Document, others: Sequence[Document]) -> Moved:
    """Return the objects that do what a TFJob does; `others` are those of its file.

    Raises ScenarioError with all mistakes of the TFJob.
    """
    return _Move(document).result(others)


class _Move:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._findings = Findings(document)
        data = Reader(OBJECTS, MOVED).read(self._findings, "TFJob")
        refuse([self._findings])
        self._spec: Data = data["spec"]
        self._run: Data = self._spec.get("runPolicy", {})
        self._metadata: Data = data["metadata"]
        self._losses = Losses(document)
        self._job = TFJob(
            self._name(),
            self._metadata.get("namespace", "default"),
            tuple(self._replicas()),
            is_dynamic=self._spec.get("enableDynamicWorker", False),
        )
        self._check_names()
        refuse([self._findings])

    def result(self, others: Sequence[Document]) -> Moved:
        """Return the objects in the order in which a cluster takes them, and what is lost."""
        made = [*self._cluster(), self._runtime(), self._train_job()]
        self._note_ends()
        self._note_restarts()
        own = {(one["kind"], one["metadata"]["name"]) for one in made}
        taken = [
            one.problem(("metadata", "name"), "is the name of an object that is made", "rename it")
            for one in others
            if isinstance(one.data, dict)
            and (str(one.get("kind")), str(one.get("metadata", "name"))) in own
        ]
        if taken:
            raise ScenarioError(taken)
        beside = [one.data for one in others if isinstance(one.data, dict)]
        return Moved([*beside, *made], tuple(self._losses.all()))

    # --- What is given --------------------------------------------------------------------------

    def _name(self) -> str:
        name, path = self._metadata.get("name"), ("metadata", "name")
        if not name and (prefix := self._metadata.get("generateName")):
            name, path = prefix.rstrip("-"), ("metadata", "generateName")
            text = "the TrainJob has one name, of which those of its hosts are made"
            self._losses.add(path, text)
        if not name:
            self._findings.mistake(path, "is missing")
        elif not is_label(name) or not name[0].isalpha():
            hint = "lower-case letters, digits and dashes, with a letter first"
            self._findings.mistake(path, f"{shown(name)!r} is not the name of a job", hint)
        return str(name or "x")

    def _replicas(self) -> list[Replicas]:
        known = {one.lower(): one for one in _TFJOB.types}
        made: list[Replicas] = []
        for key, spec in self._spec.get(_TFJOB.replica_specs, {}).items():
            path, role = (*SPECS, key), key.lower()
            pod = spec.get("template", {}).get("spec", {})
            names = [one["name"] for one in pod.get("containers", [])]
            before = [one["name"] for one in pod.get("initContainers", [])]
            if role not in known:
                hint = closest(key, _TFJOB.types) or f"known: {', '.join(_TFJOB.types)}"
                self._findings.mistake(path, "a TFJob has no such replica type", hint)
            elif role in [one.role for one in made]:
                self._findings.mistake(path, "is there twice, in another case")
            elif _TFJOB.container not in names:
                at = (*path, "template", "spec", "containers")
                self._findings.mistake(at, f"has no container named {_TFJOB.container}")
            elif NODE in names:
                at = (*path, "template", "spec", "containers", names.index(NODE), "name")
                hint = f"give it another name: {_TFJOB.container} becomes {NODE}"
                self._findings.mistake(at, f"a container is named {NODE} already", hint)
            elif NODE in before:
                at = (*path, "template", "spec", "initContainers", before.index(NODE), "name")
                hint = f"give it another name: {_TFJOB.container} becomes {NODE}"
                self._findings.mistake(at, f"a container is named {NODE} already", hint)
            elif not (count := spec.get("replicas", 1)):
                self._losses.add((*path, "replicas"), "a replicated job of no pods is left out")
            else:
                made.append(Replicas(role, spec, path, count))
        if not made and not self._findings.mistakes:
            self._findings.mistake(SPECS, "has no replicas")
        return made

    def _check_names(self) -> None:
        """Add a mistake if a pod's name, which JobSet checks, is too long."""
        for one in self._job.replicas:
            pod = self._job.host(one.role, one.count - 1).partition(".")[0] + RANDOM
            if len(pod) > LABEL:
                message = f"the pod {pod} would have a name of {len(pod)} characters"
                hint = f"{LABEL} are the most; write a shorter name"
                self._findings.mistake(("metadata", "name"), message, hint)
                return

    @property
    def _leaders(self) -> list[Replicas]:
        return [one for one in self._job.replicas if one.role in LEADERS]

    @property
    def _workers(self) -> list[Replicas]:
        return [one for one in self._job.replicas if one.role == WORKER]

    @property
    def _trainer(self) -> Replicas:
        """The replica type of which a TrainJob says the number: that which one scales."""
        return [*self._workers, *self._leaders, *self._job.replicas][0]

    @property
    def _deciding(self) -> list[Replicas]:
        """The replica types with which the job succeeds; none: it never does."""
        return self._leaders or self._workers

    # --- Objects --------------------------------------------------------------------------------

    def _object(self, kind: str, name: str, *, api: str = TRAINER, **sections: Any) -> Data:  # noqa: ANN401
        metadata: Data = {"name": name}
        if "namespace" in self._metadata:
            metadata["namespace"] = self._metadata["namespace"]
        return {"apiVersion": api, "kind": kind, "metadata": metadata, **sections}

    def _cluster(self) -> list[Data]:
        """Return the ConfigMap with the addresses of all tasks, if their pods need one."""
        if not self._job.has_config or self._job.is_dynamic:
            return []
        lines = ",\n".join(
            f"  {json.dumps(role)}: {json.dumps(addresses)}"
            for role, addresses in self._job.addresses().items()
        )
        text = "numNodes of the TrainJob, and as many addresses in the ConfigMap: change both"
        self._losses.add((*self._trainer.path, "replicas"), text)
        text = f"{{\n{lines}\n}}"
        return [self._object("ConfigMap", self._job.configmap, api="v1", data={CLUSTER_KEY: text})]

    def _runtime(self) -> Data:
        job_set: Data = {"replicatedJobs": [self._replicated(one) for one in self._job.replicas]}
        if self._deciding and len(self._job.replicas) > len(self._deciding):
            names = [one.role for one in self._deciding]
            job_set["successPolicy"] = {"operator": "All", "targetReplicatedJobs": names}
        if (seconds := self._run.get("ttlSecondsAfterFinished")) is not None:
            job_set["ttlSecondsAfterFinished"] = seconds
            path = (*POLICY, "ttlSecondsAfterFinished")
            self._losses.add(path, "the pods are deleted then, and the TrainJob itself stays")
        # With a number of its own, though the TrainJob says it: else Trainer passes over
        # `resourcesPerNode` of a TrainJob.
        spec = {"mlPolicy": {"numNodes": self._trainer.count}, "template": {"spec": job_set}}
        return self._object("TrainingRuntime", self._job.name, spec=spec)

    def _train_job(self) -> Data:
        reference = {
            "apiGroup": TRAINER.partition("/")[0],
            "kind": "TrainingRuntime",
            "name": self._job.name,
        }
        spec: Data = {"runtimeRef": reference, "trainer": {"numNodes": self._trainer.count}}
        if self._run.get("suspend"):
            spec["suspend"] = True
        if (seconds := self._run.get("activeDeadlineSeconds")) is not None:
            spec["activeDeadlineSeconds"] = max(1, seconds)
            path = (*POLICY, "activeDeadlineSeconds")
            self._losses.add(path, "Trainer knows it from 2.2 on, and earlier ones ignore it")
        if self._run.get("managedBy") == MULTIKUEUE:
            spec["managedBy"] = MULTIKUEUE
        if self._run.get("schedulingPolicy"):
            text = "left out: a gang of Trainer is podGroupPolicy of the TrainingRuntime"
            self._losses.add((*POLICY, "schedulingPolicy"), text)
        made = self._object("TrainJob", self._job.name, spec=spec)
        for key in ("labels", "annotations"):
            given = {k: v for k, v in self._metadata.get(key, {}).items() if k != APPLIED}
            if given:
                made["metadata"][key] = given
        for key in ("ownerReferences", "finalizers"):
            if self._metadata.get(key):
                self._losses.add(("metadata", key), "left out: it is of the TFJob")
        return made

    def _replicated(self, one: Replicas) -> Data:
        """Return the replicated job of a replica type."""
        is_trainer = one is self._trainer
        labels = {"metadata": {"labels": {STEP: "trainer"}}} if is_trainer else {}
        spec: Data = {
            "parallelism": one.count,
            "completions": one.count,
            "completionMode": "Indexed",
            "backoffLimit": self._limit(one),
            # As the operator does: a successor that meets its predecessor is refused by the others.
            "podReplacementPolicy": "Failed",
        }
        if one.restart == "ExitCode":
            codes = {"containerName": NODE, **PERMANENT}
            spec["podFailurePolicy"] = {"rules": [{"action": "FailJob", "onExitCodes": codes}]}
        if self._is_first_enough and one.role == WORKER and one.count > 1:
            spec["successPolicy"] = {"rules": [{"succeededIndexes": "0"}]}
        template = pod_template(self._job, one, self._losses)
        template["spec"]["restartPolicy"] = _in_pod(one)
        template = {**labels, "spec": {**spec, "template": template}}
        return {"name": one.role, "replicas": 1, "template": template}

    @property
    def _is_first_enough(self) -> bool:
        """Whether the job succeeds with worker 0."""
        return not self._leaders and not self._spec.get("successPolicy")

    def _limit(self, one: Replicas) -> int:
        if one.restart == "Never":
            return 0
        return int(self._run.get("backoffLimit", UNLIMITED))

    # --- What is lost ---------------------------------------------------------------------------

    def _note_ends(self) -> None:
        """Note what ends differently."""
        roles = [one.role for one in self._job.replicas if one not in self._deciding]
        clean, path = self._run.get("cleanPodPolicy") or "None", (*POLICY, "cleanPodPolicy")
        if clean == "None":
            also = f" ({', '.join(roles)}, if the job succeeded)" if roles else ""
            text = f"None, the default: pods that still run at the end are deleted{also}"
            self._losses.add(path, text)
        elif clean == "All":
            text = "pods that have ended stay with their logs until the TrainJob is deleted"
            self._losses.add(path, text)
        if not self._deciding:
            text = "a TFJob without chief and workers never succeeds; it does once all pods have"
            self._losses.add(SPECS, text)
        if self._is_first_enough and self._workers and self._workers[0].count > 1:
            text = "worker 0 decides, by successPolicy of its Job, which stops the other workers"
            self._losses.add(("spec", "successPolicy"), text)
        if self._job.is_dynamic:
            text = (
                "TF_CONFIG is the sparse one, and a worker that failed for good fails the job; the "
                "number of workers can't change while it runs"
            )
            self._losses.add(("spec", "enableDynamicWorker"), text)

    def _note_restarts(self) -> None:
        restarted = [one for one in self._job.replicas if one.restart != "Never"]
        of_codes = [one for one in restarted if one.restart == "ExitCode"]
        path = (*POLICY, "backoffLimit")
        if "backoffLimit" in self._run and len(restarted) > 1:
            self._losses.add(path, "each replica type counts its own restarts, not all together")
        if "backoffLimit" in self._run and of_codes:
            self._losses.add(
                path, "new pods after an exit code count too: the operator forgot them"
            )
        for one in self._job.replicas:
            at = (*one.path, "restartPolicy")
            match one.restart:
                case "Always":
                    text = (
                        "OnFailure, as a Job has no Always: what ended with 0 is not started again"
                    )
                    self._losses.add(at, text)
                case "ExitCode":
                    text = (
                        "a Job makes a new pod after 10 s, 20 s and so on up to 10 min, not at once"
                    )
                    self._losses.add(at, text)
                case "Never":
                    text = "a pod that is deleted or preempted fails the job, as one that failed"
                    self._losses.add(at, text)


def _in_pod(one: Replicas) -> str:
    """Return the restart policy of the pods."""
    return "Never" if one.restart in ("Never", "ExitCode") else "OnFailure"
