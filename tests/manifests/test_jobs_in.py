"""TFJobs and PyTorchJobs as scenarios: what each field of a manifest becomes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from emulator.manifests.assembly import as_text
from emulator.manifests.spec import Conversion
from emulator.scenario.loader import parse
from emulator.scenario.schema import Scenario
from tests.manifests.test_bad_jobs import (
    PYTORCHJOB,
    TFJOB,
    P,
    T,
    changed,
    converted,
    with_container,
)

MAPS = """\
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {rate: "0.1", app.yaml: "a: 1\\n"}
binaryData: {model: /wA=}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
data: {token: aGVsbG8=}
stringData: {plain: "p${x}"}
"""


def worker(text: str, **options: Any) -> dict[str, Any]:
    """Return what all tasks of a converted job with one role have."""
    scenario = converted(text, **options).scenario
    (role,) = scenario["cluster"].values()
    role = role if isinstance(role, dict) else {"replicas": role}
    job = {key: scenario[key] for key in ("image", "mounts", "shm_size") if key in scenario}
    return {**job, **scenario["program"], **role}


def a_job(container: str, pod: str = "{}") -> str:
    """Return a TFJob with more fields of its container and of its pod, which are YAML."""
    text = with_container(**yaml.safe_load(container))
    for key, value in yaml.safe_load(pod).items():
        text = changed(text, f"{T}.{key}", value)
    return text


def notes(conversion: Conversion) -> list[str]:
    return [str(note) for note in conversion.notes]


def scenario_of(text: str, **options: Any) -> Scenario:
    """Return the scenario of a manifest, validated."""
    return parse(as_text(converted(text, **options).scenario))


# --- The job --------------------------------------------------------------------------------------


NEVER = {"worker": "never"}
OPERATOR = {"kind": "TFJob", "job": "job", "namespace": "default", "restart": NEVER}


def test_the_smallest_tfjob() -> None:
    found = converted(TFJOB)
    assert found.scenario == {
        "name": "job",
        "framework": "tensorflow",
        "operator": OPERATOR,
        "image": "tf:1",
        "program": {"command": ["python", "train.py"], "entrypoint": "none"},
        "cluster": {"worker": 2},
    }
    assert found.notes == ()
    assert scenario_of(TFJOB).cluster["worker"].replicas == 2


def test_the_smallest_pytorchjob() -> None:
    found = converted(PYTORCHJOB).scenario
    assert found["framework"] == "pytorch"
    assert found["operator"]["restart"] == {"master": "on-failure", "worker": "on-failure"}
    assert found["cluster"] == {"master": 1, "worker": 2}
    assert scenario_of(PYTORCHJOB).operator


JOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: job
  labels: {team: a}
  annotations: {x/y: z}
spec:
  runPolicy:
    cleanPodPolicy: All
    backoffLimit: 3
    activeDeadlineSeconds: 60
    ttlSecondsAfterFinished: 0
    suspend: true
    schedulingPolicy: {minAvailable: 2, minResources: {cpu: "1"}}
  successPolicy: AllWorkers
  enableDynamicWorker: true
  tfReplicaSpecs:
    Worker: {replicas: 2, template: {spec: {containers: [{name: tensorflow, image: i}]}}}
status: {conditions: []}
"""


def test_run_policy_and_metadata() -> None:
    found = converted(JOB)
    assert found.scenario["operator"] == {
        **OPERATOR,
        **{"dynamic_worker": True, "backoff_limit": 3, "active_deadline": "60s"},
        **{"clean_pods": "all", "success": "all-workers", "ttl_after_finished": "0s"},
        **{"suspend": True, "labels": {"team": "a"}, "annotations": {"x/y": "z"}},
    }
    assert notes(found) == [
        "spec.runPolicy.schedulingPolicy is ignored: tasks start together, and no queue holds "
        "them back"
    ]


def test_types_are_folded_and_policies_are_by_role() -> None:
    spec = yaml.safe_load(TFJOB)["spec"]["tfReplicaSpecs"]["Worker"]
    text = changed(TFJOB, "spec.tfReplicaSpecs.ps", {**spec, "restartPolicy": "ExitCode"})
    text = changed(text, "spec.tfReplicaSpecs.EVALUATOR", {**spec, "replicas": 1})
    text = changed(text, "spec.tfReplicaSpecs.Master", {**spec, "replicas": 0})
    found = converted(text)
    assert found.scenario["cluster"] == {"worker": 2, "ps": 2, "evaluator": 1}
    policies = {"worker": "never", "ps": "exit-code", "evaluator": "never"}
    assert found.scenario["operator"]["restart"] == policies
    assert notes(found) == [
        "spec.tfReplicaSpecs.Master.replicas is approximated: the type is left out, of which "
        "TF_CONFIG would have an empty list"
    ]


def test_a_long_name_is_cut_for_the_scenario_alone_and_one_to_be_generated_is_a_prefix() -> None:
    name = "a" * 39 + "-" + "b" * 10
    found = converted(changed(TFJOB, "metadata.name", name))
    assert (found.scenario["name"], found.scenario["operator"]["job"]) == ("a" * 39, name)
    text = changed(changed(TFJOB, "metadata.name", None), "metadata.generateName", "train-")
    found = converted(text)
    assert found.scenario["operator"]["job"] == "train"
    assert notes(found) == [
        "metadata.generateName is approximated: the name is this one, without random letters"
    ]


# --- Containers -----------------------------------------------------------------------------------


def test_variables_of_a_pytorchjob_are_in_every_container() -> None:
    data = yaml.safe_load(changed(PYTORCHJOB, "spec.nprocPerNode", "2"))
    template = data["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    del data["spec"]["pytorchReplicaSpecs"]["Master"]
    template["containers"].append({"name": "log", "image": "l", "args": ["$(PET_NNODES)"]})
    template["initContainers"] = [{"name": "init", "image": "i", "args": ["$(PET_NNODES)"]}]
    found = converted(yaml.dump(data))
    role = found.scenario["cluster"]["worker"]
    names = ("PET_NNODES", "PET_NPROC_PER_NODE", "PYTHONUNBUFFERED")
    env = {name: f"${{env.{name}}}" for name in names}
    command = ["${env.PET_NNODES}"]
    assert role["sidecars"] == [{"name": "log", "image": "l", "command": command, "env": env}]
    assert role["init"] == [{"name": "init", "image": "i", "command": ["$(PET_NNODES)"]}]
    assert notes(found) == [
        f"{P}.containers[1] is approximated: it runs beside the task and is stopped with it; "
        "in a cluster the pod waits for its end"
    ]
    assert scenario_of(yaml.dump(data), images={"l": "cpu", "i": "cpu"})


VARIABLES = """\
env:
- {name: RATE, valueFrom: {configMapKeyRef: {name: settings, key: rate}}}
- {name: TOKEN, valueFrom: {secretKeyRef: {name: keys, key: token}}}
- {name: PLAIN, valueFrom: {secretKeyRef: {name: keys, key: plain}}}
- {name: NONE, valueFrom: {secretKeyRef: {name: other, key: x, optional: true}}}
- {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: NS, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: APP, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
- name: INDEX
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['training.kubeflow.org/replica-index']"}}
- {name: CPUS, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
- {name: MIB, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 1Mi}}}
resources: {limits: {cpu: 1500m, memory: 1Gi}}
"""


def test_variables_from_maps_secrets_and_fields() -> None:
    labels = {"labels": {"app": "x"}}
    text = changed(a_job(VARIABLES), T.removesuffix(".spec") + ".metadata", labels)
    found = converted(text + MAPS)
    assert found.scenario["program"]["env"] == {
        **{"RATE": "0.1", "TOKEN": "hello", "PLAIN": "p$${x}", "POD": "${pod}", "NS": "default"},
        **{"IP": "${host}", "APP": "x", "INDEX": "${index}", "CPUS": "2", "MIB": "1024"},
    }
    assert [note.how for note in found.notes] == ["approximated"] * 3
    assert scenario_of(text + MAPS)


def test_images() -> None:
    data = yaml.safe_load(PYTORCHJOB)
    specs = data["spec"]["pytorchReplicaSpecs"]
    specs["Worker"]["template"]["spec"]["initContainers"] = [{"name": "i", "image": "torch:1"}]
    text = yaml.dump(data)  # without an alias now
    found = converted(text, images={"torch:1": "a", "worker": "b"}).scenario
    assert [found["cluster"][role]["image"] for role in ("master", "worker")] == ["a", "b"]
    assert found["cluster"]["worker"]["init"][0]["image"] == "a"
    found = converted(PYTORCHJOB, images={"pytorch": "c"}).scenario
    assert found["image"] == "c"


# --- Volumes --------------------------------------------------------------------------------------


def test_what_another_document_is_ignored_for_is_a_note_that_says_which() -> None:
    text = changed(TFJOB, "metadata.namespace", "team")
    team = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n"
    elsewhere = "it is in the namespace default, and the job in team"
    assert notes(converted(text + MAPS + team)) == [
        f"ConfigMap settings: metadata.namespace is ignored: {elsewhere}",
        f"Secret keys: metadata.namespace is ignored: {elsewhere}",
        "Namespace team: kind is ignored: a Namespace has no meaning on this machine",
    ]


# --- Init containers and side-cars ----------------------------------------------------------------


def test_init_containers_and_side_cars() -> None:
    text = a_job(
        "{}",
        "initContainers:\n"
        "- {name: fetch, image: f, command: [get], workingDir: /w}\n"
        "- {name: proxy, image: p, restartPolicy: Always, args: [x]}\n",
    )
    role = converted(text).scenario["cluster"]["worker"]
    fetch = {"image": "f", "command": ["get"], "entrypoint": "none", "working_dir": "/w"}
    assert role["init"] == [{"name": "fetch", **fetch}]
    assert role["sidecars"] == [{"name": "proxy", "image": "p", "command": ["x"]}]


# --- Where it comes from --------------------------------------------------------------------------


def test_different_roles_have_commands_of_their_own() -> None:
    data = yaml.safe_load(TFJOB)
    container = {"name": "tensorflow", "image": "tf:1", "args": ["serve"], "env": [{"name": "A"}]}
    data["spec"]["tfReplicaSpecs"]["PS"] = {"template": {"spec": {"containers": [container]}}}
    found = converted(yaml.dump(data, sort_keys=False)).scenario
    assert found["program"] == {"command": ["python", "train.py"], "entrypoint": "none"}
    ps = {"replicas": 1, "entrypoint": "image", "command": ["serve"], "env": {"A": ""}}
    assert found["cluster"]["ps"] == ps
    of_worker = data["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    of_worker["args"] = of_worker.pop("command")
    del ps["entrypoint"]  # both are of the image's own
    assert converted(yaml.dump(data, sort_keys=False)).scenario["cluster"]["ps"] == ps


def mounted(**what: Any) -> dict[str, Any]:
    return {"mounts": {"/data": what}}


PROJECTED = """\
projected:
  sources:
  - configMap: {name: settings, items: [{key: rate, path: r}]}
  - secret: {name: keys}
"""


ALL_FILES = {
    "/data/rate": {"text": "0.1", "mode": "0755"},
    "/data/app.yaml": {"text": "a: 1\n", "mode": "0755"},
    "/data/model": {"base64": "/wA=", "mode": "0755"},
}


PARTS = "[{key: rate, path: a/b}, {key: model, path: m, mode: 0400}]"


SHM = {"mountPath": "/dev/shm"}


CLAIM = "persistentVolumeClaim: {claimName: c}"


@pytest.mark.parametrize(
    ("source", "mount", "expected"),
    [
        ("emptyDir: {}", {}, mounted(scratch="v")),
        ("{}", {"readOnly": True}, mounted(scratch="v", writable=False)),
        ("emptyDir: {}", {"subPath": "a/b"}, mounted(scratch="v-a-b-f413cbcd")),
        ("emptyDir: {medium: Memory, sizeLimit: 64Mi}", {}, mounted(tmpfs="64m")),
        ("emptyDir: {medium: Memory}", {}, mounted(scratch="v")),
        ("emptyDir: {medium: Memory, sizeLimit: 2Gi}", SHM, {"shm_size": "2g"}),
        ("emptyDir: {sizeLimit: 0}", SHM, {"shm_size": "1g"}),
        ("emptyDir: {}", SHM, {"shm_size": "1g"}),
        (CLAIM, {}, mounted(volume="pvc-default-c")),
        (f"{CLAIM[:-1]}, readOnly: true}}", {}, mounted(volume="pvc-default-c", writable=False)),
        ("hostPath: {path: /}", {}, mounted(scratch="v")),
        ("nfs: {server: s, path: /}", {}, mounted(volume="pvc-default-v")),
        ("configMap: {name: settings, defaultMode: 0755}", {}, {"files": ALL_FILES}),
        (
            "configMap: {name: settings, defaultMode: 0644}",
            {"subPath": "rate"},
            {"files": {"/data": "0.1"}},
        ),
        (
            f"configMap: {{name: settings, items: {PARTS}}}",
            {},
            {"files": {"/data/a/b": "0.1", "/data/m": {"base64": "/wA=", "mode": "0400"}}},
        ),
        ("configMap: {name: none, optional: true}", {}, {}),
        (
            PROJECTED,
            {},
            {"files": {"/data/plain": "p${x}", "/data/token": "hello", "/data/r": "0.1"}},
        ),
    ],
)
def test_volumes(source: str, mount: dict[str, Any], expected: dict[str, Any]) -> None:
    text = with_container(volumeMounts=[{"name": "v", "mountPath": "/data/", **mount}])
    role = worker(changed(text, f"{T}.volumes", [{"name": "v", **yaml.safe_load(source)}]) + MAPS)
    kinds = ("mounts", "files", "shm_size")
    assert {kind: role[kind] for kind in kinds if kind in role} == expected


def test_limits() -> None:
    text = a_job("""\
resources:
  limits: {cpu: 1500m, memory: 1Gi, nvidia.com/gpu: 2, rdma/hca: 1}
  requests: {cpu: 1, ephemeral-storage: 1Gi}
""")
    found = converted(text)
    limits = found.scenario["cluster"]["worker"]
    assert limits == {"replicas": 2, "cpus": 1.5, "memory": "1g", "gpus": 2}
    unknown = ["limits[rdma/hca]", "requests.ephemeral-storage"]
    assert [note.path.partition("resources.")[2] for note in found.notes] == unknown
