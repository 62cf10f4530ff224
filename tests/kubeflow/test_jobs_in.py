"""TFJobs and PyTorchJobs as scenarios: what each field of a manifest becomes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from emulator.manifests.assembly import as_text
from emulator.scenario.loader import parse
from emulator.scenario.schema import Scenario
from tests.kubeflow.test_bad_jobs import (
    PYTORCHJOB,
    TFJOB,
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


def scenario_of(text: str, **options: Any) -> Scenario:
    """Return the scenario of a manifest, validated."""
    return parse(as_text(converted(text, **options).scenario))


# --- The job --------------------------------------------------------------------------------------


def test_the_smallest_tfjob() -> None:
    found = converted(TFJOB)
    operator = {"kind": "TFJob", "job": "job", "namespace": "default"}
    assert found.scenario == {
        "name": "job",
        "framework": "tensorflow",
        "operator": {**operator, "restart": {"worker": "never"}},
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


def test_a_long_name_is_cut_for_the_scenario_alone() -> None:
    name = "a" * 39 + "-" + "b" * 10
    found = converted(changed(TFJOB, "metadata.name", name))
    assert (found.scenario["name"], found.scenario["operator"]["job"]) == ("a" * 39, name)


# --- Containers -----------------------------------------------------------------------------------


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
