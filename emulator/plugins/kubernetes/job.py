"""A scenario as a Job that runs the emulator in the cluster itself (pure, but for reading files).

`emulate export SCENARIO --to kubernetes-job` writes it: a service account with the smallest Role,
the scenario and its programs in ConfigMaps, and a Job of the image `emulator`. A laptop may go away
meanwhile. `inside.py` is what the Job runs.
"""

from __future__ import annotations

import base64
import gzip
import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from emulator.engines.containers import add_part
from emulator.errors import UsageError
from emulator.plugins.kubeflow.manifests.out.export import IN_CLUSTER, Written, head, text_of
from emulator.plugins.kubeflow.manifests.out.pods import JOB, kubernetes_object
from emulator.plugins.kubeflow.manifests.security import RESTRICTED, pod_security_context
from emulator.plugins.kubernetes import role
from emulator.plugins.kubernetes.archives import MOST_BYTES, PART_BYTES
from emulator.plugins.kubernetes.inside import (
    ARCHIVE,
    JOB_NAME,
    JOB_UID,
    MOUNTED,
    RUN_FILE,
    SCENARIO_FILE,
    WORK,
    results_name,
)
from emulator.plugins.kubernetes.requests import toleration
from emulator.scenario.assembly import as_text, with_paths
from emulator.scenario.image import Dockerfile
from emulator.scenario.kubernetes import Kubernetes
from emulator.scenario.program import EXCLUDED, Part, parts
from emulator.scenario.schema import Scenario
from emulator.validation.units import format_size

IMAGE = "emulator"
"""Its name in `--image`, and of its recipe."""
USER = 65532
"""Nobody in particular: the user of most images that have no root."""
GRACE = 120
"""Seconds that the emulator has to remove what its run made when the Job is deleted."""

Data = dict[str, Any]


def export(
    scenario: Scenario,
    data: Mapping[str, Any],
    *,
    folder: Path,
    images: Mapping[str, str],
    file: str = "FILE",
) -> Written:
    """Return the file of a Job that runs a scenario.

    `data` is what the scenario's own file says, with paths relative to `folder`; `images` may have
    the reference of the emulator's image; `file` is the name of what is written, for its head.
    Raises UsageError if the scenario has what can't be taken along.
    """
    image = _image(scenario, images)
    _refuse_builds(scenario)
    packed = _Packed(folder)
    own = {**data, "kubernetes": _without_context(data.get("kubernetes"))}
    text = as_text(with_paths({k: v for k, v in own.items() if v}, packed.add))
    named = job_name(scenario)
    namespace = scenario.kubernetes.namespace or "default"
    maps = _config_maps(scenario, named, namespace, text, packed.chunks())
    documents = [
        *_account(scenario, named, namespace),
        *maps,
        _job(scenario, named, namespace, image, [one["metadata"]["name"] for one in maps]),
    ]
    notes = tuple(_notes(scenario, image, namespace))
    return Written(_head(named, namespace, scenario, notes, file) + text_of(documents), notes)


def job_name(scenario: Scenario) -> str:
    """Return the name of the Job, and the beginning of the names of what it needs."""
    return f"emulate-{scenario.name}"  # a host name, so short that much can follow it


def _image(scenario: Scenario, given: Mapping[str, str]) -> str:
    """Return the reference of the emulator's image."""
    if others := given.keys() - {IMAGE}:
        raise UsageError(
            f"--image {min(others)}=... is not for {IN_CLUSTER}: it has the scenario as it is.",
            "Set the image in it, such as --set image=REGISTRY/NAME:TAG.",
        )
    from emulator.engines.recipes import reference

    return given.get(IMAGE) or reference(IMAGE, lambda: (), scenario.kubernetes.registry)


def _refuse_builds(scenario: Scenario) -> None:
    if any(isinstance(one, Dockerfile) for one in scenario.images):
        raise UsageError(
            "A Job in a cluster can't build an image, and the scenario has a Dockerfile.",
            "Build it, push it to a registry, and name that: --set image=REGISTRY/NAME:TAG.",
        )


def _without_context(section: object) -> object:
    """Return the section `kubernetes` without the context: inside a cluster there is none."""
    if not isinstance(section, Mapping):
        return section
    return {key: value for key, value in section.items() if key != "context"}


def _notes(scenario: Scenario, image: str, namespace: str) -> list[str]:
    notes = []
    if "/" not in image:
        notes.append(
            f"{image} is on this machine only: `emulate build {IMAGE} --push REGISTRY`, and export "
            f"with --set kubernetes.registry=REGISTRY, or with --image {IMAGE}=REF"
        )
    if scenario.kubernetes.namespace is None:
        notes.append(
            f"the namespace is {namespace}; another one: --set kubernetes.namespace=NAMESPACE"
        )
    notes.append("it can create the Role only for those who have these permissions themselves")
    return notes


# --- The scenario and its programs ----------------------------------------------------------------


class _Packed:
    """The files of a scenario, as an archive with the paths that the scenario gets there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[Path, str] = {}
        self._parts: dict[str, Part] = {}

    def add(self, path: str) -> str:
        """Add the file or folder at a path of the scenario; return its path in the archive."""
        source = (self._folder / Path(path).expanduser()).resolve()
        if source not in self._places:
            home = f"files/{len(self._places) + 1}"
            try:
                found = parts(source)
            except ValueError as error:
                raise UsageError(f"It can't be taken along: {error}.") from None
            self._parts |= {f"{home}/{part.name}": part for part in found}
            self._places[source] = home if source.is_dir() else f"{home}/{source.name}"
        return self._places[source]

    def archive(self) -> bytes:
        """Return the files as a tar, compressed; the same files give the same bytes.

        Raises UsageError if it is too large for a cluster's database.
        """
        buffer = io.BytesIO()
        with (
            gzip.GzipFile(fileobj=buffer, mode="wb", filename="", mtime=0) as compressed,
            tarfile.open(fileobj=compressed, mode="w") as tar,
        ):
            for name, part in self._parts.items():
                add_part(tar, part, name.removesuffix(f"/{part.name}"))
        size = len(buffer.getvalue())
        if size > MOST_BYTES:
            raise UsageError(
                f"The programs have {format_size(size)} when compressed; ConfigMaps take "
                f"{format_size(MOST_BYTES)} of them.",
                f"Put large files into the image. Folders that are never taken along: "
                f"{', '.join(EXCLUDED)}.",
            )
        return buffer.getvalue()

    def chunks(self) -> list[bytes]:
        """Return the archive in pieces, one for each ConfigMap."""
        whole = self.archive() if self._parts else b""
        return [whole[at : at + PART_BYTES] for at in range(0, len(whole), PART_BYTES)]


# --- The objects ----------------------------------------------------------------------------------


def _metadata(scenario: Scenario, name: str, namespace: str) -> Data:
    labels = {JOB: job_name(scenario), "app.kubernetes.io/managed-by": "emulator"}
    return {"name": name, "namespace": namespace, "labels": labels}


def _account(scenario: Scenario, name: str, namespace: str) -> list[Data]:
    """Return the service account, with the smallest Role for what the scenario does.

    What its creator may not do can't be given to it either: usage, which a run can do without, has
    a Role of its own, and only faults of nodes need one of the whole cluster.
    """
    metadata = _metadata(scenario, name, namespace)
    subject = role.service_account(name, namespace)
    allowed = [
        role.role(namespace, "run", "signals", "notes", "eviction", name=name),
        role.role(namespace, "usage", name=f"{name}-usage"),
    ]
    if any(capability == "nodes" for fault in scenario.faults for _, capability in fault.needs()):
        allowed.append(role.cluster_role("nodes", name=f"{namespace}-{name}"))
    documents = [kubernetes_object("ServiceAccount", metadata)]
    for one in allowed:
        labels = {"labels": metadata["labels"]}
        one["metadata"] |= labels
        documents += [one, role.binding(one, subject)]
    return documents


def _config_maps(
    scenario: Scenario, name: str, namespace: str, text: str, chunks: Sequence[bytes]
) -> list[Data]:
    """Return the scenario as it can be read, and changed, and its programs."""
    metadata = _metadata(scenario, f"{name}-scenario", namespace)
    maps = [kubernetes_object("ConfigMap", metadata, data={SCENARIO_FILE: text})]
    for number, chunk in enumerate(chunks):
        metadata = _metadata(scenario, f"{name}-files-{number:02}", namespace)
        data = {f"{ARCHIVE}.{number:02}": base64.b64encode(chunk).decode()}
        maps.append(kubernetes_object("ConfigMap", metadata, binaryData=data))
    return maps


def _job(scenario: Scenario, name: str, namespace: str, image: str, maps: Sequence[str]) -> Data:
    metadata = _metadata(scenario, name, namespace)
    options = scenario.kubernetes
    pod: Data = {
        "restartPolicy": "Never",
        "serviceAccountName": name,
        "terminationGracePeriodSeconds": GRACE,
        "securityContext": pod_security_context(Kubernetes(run_as=USER)),
        "containers": [_container(name, image, options.image_pull_policy)],
        "volumes": [
            {
                "name": "scenario",
                "projected": {"sources": [{"configMap": {"name": one}} for one in maps]},
            },
            {"name": "work", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    if options.image_pull_secret:
        pod["imagePullSecrets"] = [{"name": options.image_pull_secret}]
    if options.tolerations:
        pod["tolerations"] = [toleration(one) for one in options.tolerations]
    if options.priority_class:
        pod["priorityClassName"] = options.priority_class
    spec = {
        # Not again: the exit code is the verdict, and a second run would be another one.
        "backoffLimit": 0,
        "template": {
            "metadata": {
                "labels": metadata["labels"],
                # What would be lost with it is the run.
                "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
            },
            "spec": pod,
        },
    }
    return kubernetes_object("Job", metadata, api="batch/v1", spec=spec)


def _container(name: str, image: str, pull_policy: str) -> Data:
    uid = {"fieldRef": {"fieldPath": "metadata.labels['controller-uid']"}}
    return {
        "name": "emulate",
        "image": image,
        "imagePullPolicy": pull_policy,
        "command": ["python", "-m", "emulator.plugins.kubernetes.inside"],
        "args": ["emulate", "up", SCENARIO_FILE, "--engine", "kubernetes"],
        "workingDir": WORK,
        "env": [{"name": JOB_NAME, "value": name}, {"name": JOB_UID, "valueFrom": uid}],
        "resources": {
            "requests": {"cpu": "250m", "memory": "512Mi"},
            "limits": {"cpu": "2", "memory": "2Gi"},
        },
        "securityContext": {**RESTRICTED, "readOnlyRootFilesystem": True},
        "volumeMounts": [
            {"name": "scenario", "mountPath": MOUNTED, "readOnly": True},
            {"name": "work", "mountPath": WORK},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


# --- The head -------------------------------------------------------------------------------------


def _head(name: str, namespace: str, scenario: Scenario, notes: Sequence[str], file: str) -> str:
    """Return the comments at the head of the file: how it is used, and what is to be known."""
    kubectl = f"kubectl -n {namespace}"
    stored = "{.binaryData." + RUN_FILE.replace(".", r"\.") + "}"
    usage = (
        f"kubectl apply --server-side -f {file}",
        f"{kubectl} logs -f job/{name}     # once its Pod runs",
        f"{kubectl} get configmap {results_name(name)} -o jsonpath='{stored}' "
        "| base64 -d | tar -xzC runs",
        "emulate report last",
        # The Job first: the emulator in it needs its Role until it has removed what the run made.
        f"{kubectl} delete --cascade=foreground job/{name} && "
        f"kubectl delete --ignore-not-found -f {file}",
    )
    about = "a Job that runs the emulator in a cluster"
    return head(scenario, IN_CLUSTER, about, usage, notes=notes)
