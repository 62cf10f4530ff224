"""Parts of exports that few scenarios have, and what can't be exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emulator.errors import UsageError
from emulator.manifests.out.pods import CONFIGMAP_BYTES, cpus, dns_label, memory
from emulator.manifests.out.restarts import seconds
from emulator.manifests.out.table import TARGETS
from tests.manifests.out.exporting import documents, exported, given

BARE: dict[str, Any] = {
    "name": "a",
    "image": "tf:2",
    "program": {"command": ["train"]},
    "cluster": {"worker": 2},
}
TORCH = {"framework": "pytorch"}
AUTO = {"kind": "PyTorchJob", "job": "a", "nproc_per_node": "auto"}
VALUES, JOB = ("tfCluster",), ("spec", "template", "spec")
MAIN = (*JOB, "containers", 0)


@pytest.mark.parametrize(
    ("to", "more", "number", "path", "value"),
    [
        ("pytorchjob", {**TORCH, "operator": AUTO}, -1, ("spec", "nprocPerNode"), None),
        (
            "pytorchjob",
            {**TORCH, "elastic": {}},
            -1,
            ("spec", "elasticPolicy"),
            {"minReplicas": 2, "maxReplicas": 2, "rdzvBackend": "c10d"},
        ),
        (
            "pytorchjob",
            {**TORCH, "elastic": {"max_restarts": 0}},
            -1,
            ("spec", "elasticPolicy", "maxRestarts"),
            0,
        ),
        ("tfjob", {"success": "all-workers"}, -1, ("spec", "successPolicy"), "AllWorkers"),
        ("tfjob", {"operator": {"kind": "TFJob", "job": "a"}}, -1, ("spec", "successPolicy"), None),
        ("helm-values", {"program": {"command": []}}, 0, (*VALUES, "service", "command"), None),
        (
            "helm-values",
            {"program": {"command": ["a", "$(b)"], "entrypoint": "none"}},
            0,
            (*VALUES, "service", "command"),
            ["a", "$$(b)"],
        ),
        ("helm-values", {"cluster": {"chief": 1, "worker": {"cpus": 2}}}, 0, (*VALUES, "resources"),
         {"limits": {"cpu": "2"}}),
        ("helm-values", {"image": "h:1/b/c"}, 0, (*VALUES, "image"),
         {"repo": "h:1/b", "name": "c", "dockerTag": "latest"}),
        ("helm-values", {"image": "c"}, 0, (*VALUES, "image"),
         {"name": "c", "dockerTag": "latest"}),
        ("helm-values", {"cluster": {"chief": {"gpus": 1}, "ps": 1}}, 0, (*VALUES, "settings"),
         {"isGpu": True, "nbGpuPerNode": 1, "jobs": {"chief": 1, "ps": 1}}),
        ("kubernetes", {"image": "auto", "cluster": {"worker": {"gpus": 1}}}, -1,
         (*MAIN, "image"), "emulator-gpu:latest"),
        ("kubernetes", {"image": "auto"}, -1, (*MAIN, "image"), "emulator-cpu:latest"),
        ("kubernetes", {"program": {"command": []}}, -1, (*MAIN, "args"), None),
        ("kubernetes", {"program": {"command": ["$EMULATOR_INDEX"]}}, -1, (*MAIN, "env", 0, "name"),
         "EMULATOR_INDEX"),
        ("kubernetes", {"metrics": {"events": "e"}}, -1, (*MAIN, "volumeMounts"),
         [{"name": "shared", "mountPath": "/shared"}]),
        ("kubernetes",
         {"mounts": {path: {"volume": "vo"} for path in ("/a/b", "/a-b", "/a_b", f"/{'x' * 60}")}},
         -1, (*JOB, "volumes"),
         [{"name": name, "persistentVolumeClaim": {"claimName": "vo"}}
          for name in ("a-b", "a-b-2", "a-b-3", "x" * 50)]),
        ("compose", {"operator": {"kind": "TFJob", "job": "a", "restart": {"worker": "always"}}}, 0,
         ("services", "worker-0", "restart"), "always"),
    ],
)  # fmt: skip
def test_a_part_of_an_export(
    to: str, more: dict[str, Any], number: int, path: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    found: Any = documents(exported(given({**BARE, **more}, tmp_path), to, tmp_path))[number]
    for step in path[:-1]:
        found = found[step]
    assert (found.get(path[-1]) if isinstance(found, dict) else found[path[-1]]) == value


@pytest.mark.parametrize(
    ("to", "more", "notes"),
    [
        ("pytorchjob", TORCH, [
            "without a master the operator sets no RANK and MASTER_ADDR: the manifest sets them",
        ]),
        ("pytorchjob", {**TORCH, "elastic": {}}, []),
        ("tfjob", {"cluster": {"worker": 1, "evaluator": 1}}, [
            "the operator's TF_CONFIG has the evaluator in its cluster, the emulator's has not: "
            "ParameterServerStrategy waits for it there for ever",
        ]),
        ("tfjob", {"restart": {"policy": "on-failure", "scope": "job"}}, [
            "backoffLimit counts the restarts of all pods together, restart.limit those of each",
            "the operator restarts pods one by one, not the job (restart.scope: job)",
        ]),
        ("tfjob", {"restart": {"policy": "never", "scope": "task"}}, []),
        ("helm-values", {"program": {"command": []}, "rendezvous": "cluster-config"}, []),
        ("helm-values", {"program": {"command": [], "env": {"A": "${task}", "B": "${port}"}},
                         "rendezvous": "cluster-config"},
         ["the values have no room for A, which not all tasks have the same"]),
        ("compose", {"restart": {"policy": "always"}}, []),
        ("kubernetes", {"operator": {"kind": "TFJob", "job": "a"}},
         ["a Job restarts pods that fail, whatever the restart policies of the operator"]),
    ],
)  # fmt: skip
def test_the_notes_of_an_export(
    to: str, more: dict[str, Any], notes: list[str], tmp_path: Path
) -> None:
    assert list(exported(given({**BARE, **more}, tmp_path), to, tmp_path).notes) == notes


@pytest.mark.parametrize(
    ("to", "more", "images", "error"),
    [
        ("tfjobs", {}, {}, "There is no format tfjobs. Did you mean 'tfjob'? Formats: tfjob, "
         "pytorchjob, trainjob, compose, kubernetes, helm-values, kubernetes-job."),
        ("tfjob", TORCH, {}, "--to tfjob is for framework: tensorflow, and the scenario has "
         "framework: pytorch. Formats for it: pytorchjob, trainjob, compose, kubernetes."),
        ("tfjob", {}, {"x": "y"}, "--image x=...: the scenario has no role and no image x. "
         "Names: worker, tf:2."),
        ("tfjob", {"program": {"command": ["0${index}"]}}, {},
         "The commands or variables of worker differ between its tasks in more than the index, "
         "which a pod template can't say. Let the program read its index, or use --to compose, "
         "where each task has its own."),
    ],
)  # fmt: skip
def test_what_can_not_be_exported(
    to: str, more: dict[str, Any], images: dict[str, str], error: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        exported(given({**BARE, **more}, tmp_path), to, tmp_path, images)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("image", "given_for", "reference"),
    [
        ("tf:2", "worker", "gpu"),
        ("tf:2", "tf:2", "other"),
        ("cpu", "cpu", "other"),
        ("cpu", "emulator-cpu:latest", "other"),
    ],
)
def test_an_image_is_given_for_a_role_or_by_its_name_or_reference(
    image: str, given_for: str, reference: str, tmp_path: Path
) -> None:
    source = given({**BARE, "image": image}, tmp_path)
    written = exported(source, "kubernetes", tmp_path, {given_for: reference})
    container = documents(written)[-1]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == ("emulator-gpu:latest" if reference == "gpu" else reference)
    assert written.notes == ()


@pytest.mark.parametrize("more", [0, 1])
def test_a_program_that_is_too_large_for_a_configmap_is_not_in_it(
    more: int, tmp_path: Path
) -> None:
    (tmp_path / "big").write_bytes(b"x" * (691_196 + more))  # 921,594 or more as base64
    data = {**BARE, "program": {"source": "big", "command": ["train"]}}
    written = exported(given(data, tmp_path), "kubernetes", tmp_path)
    assert CONFIGMAP_BYTES == 921_600
    assert [one["kind"] for one in documents(written)].count("ConfigMap") == 1 - more
    assert written.notes == (
        (f"{tmp_path}/big has 900 KiB, which is too much for a ConfigMap (900 KiB): copy it to "
         "/job of the image",)
        if more
        else ("/job is a ConfigMap, which programs can't write to",)
    )  # fmt: skip


@pytest.mark.parametrize("more", [0, 1])
def test_large_files_are_not_searched_for_variables(more: int, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"EMULATOR_SHARED".ljust(2**20 + more))
    data = {**BARE, "program": {"source": "big", "command": ["train"]}}
    (file,) = documents(exported(given(data, tmp_path), "compose", tmp_path))
    assert ("volumes" in file) == (more == 0)


def test_the_keys_of_a_configmap(tmp_path: Path) -> None:
    files = {
        "/a/b": "1", "/a__b": "2", "/..c": "3", "/d e": "4", "/cr": {"base64": "DQ=="},
        "/nul": {"base64": "AA=="}, f"/{'x' * 300}": "5", "/.f": "6", "/bin": {"base64": "/w=="},
    }  # fmt: skip
    source = given({**BARE, "program": {"command": ["train"], "files": files}}, tmp_path)
    (found,) = [
        one
        for one in documents(exported(source, "kubernetes", tmp_path))
        if one["kind"] == "ConfigMap"
    ]
    assert found["data"] == {
        **{"a__b": "1", "a__b_": "2", "_..c": "3", "d_e": "4", "x" * 240: "5", ".f": "6"},
    }
    assert found["binaryData"] == {"cr": "DQ==", "nul": "AA==", "bin": "/w=="}


def test_names_and_numbers_as_kubernetes_has_them() -> None:
    assert dns_label("-My Job_1-") == "my-job-1"
    assert dns_label("x" * 63) == "x" * 63
    for name, length in (("x" * 64, 64), ("_", 0)):
        with pytest.raises(UsageError, match=rf"it has {length} characters of 63\."):
            dns_label(name)
    assert [cpus(n) for n in (2.0, 0.5, 1.25, 0.0001)] == ["2", "500m", "1250m", "1m"]
    sizes = (2**30, 3 * 2**20, 2**10, 1025)
    assert [memory(n) for n in sizes] == ["1Gi", "3Mi", "1Ki", "1025"]
    assert [seconds(n) for n in (None, 0.0, 0.5, 1.0, 1.5)] == [None, 1, 1, 1, 2]


@pytest.mark.parametrize("operator", [False, True])
@pytest.mark.parametrize(
    ("to", "hosts"),
    [
        ("tfjob", ["a-ps", "a-ps-0", "a-ps-1"]),
        ("pytorchjob", ["a-ps", "a-ps-0", "a-ps-1"]),
        ("kubernetes", ["a-ps", "a-ps-0.a", "a-ps-1.a"]),
        # <TrainJob>-<replicated job>-<job>-<pod>.<TrainJob>, pkg/runtime/framework/plugins/jobset
        ("trainjob", ["a-ps-0-0.a", "a-ps-0-0.a", "a-ps-0-1.a"]),
        ("compose", ["ps", "ps-0", "ps-1"]),
        ("helm-values", ["ps", "ps-0.a.svc.cluster.local", "ps-1.a.svc.cluster.local"]),
    ],
)
def test_the_names_of_helpers_and_tasks(
    to: str, hosts: list[str], operator: bool, tmp_path: Path
) -> None:
    more = {"name": "n", "operator": {"kind": "TFJob", "job": "a"}} if operator else {}
    scenario = given({**BARE, "cluster": {"worker": 1, "ps": 2}, **more}, tmp_path).parse()
    found = [TARGETS[to].host(scenario, "ps", index) for index in (-1, 0, 1)]
    if operator and to in ("tfjob", "pytorchjob", "compose", "helm-values"):
        hosts = [hosts[0], "a-ps-0.default.svc", "a-ps-1.default.svc"]
    assert found == hosts


@pytest.mark.parametrize(
    ("mode", "is_program"), [(0o644, False), (0o641, True), (0o654, True), (0o642, False)]
)
def test_programs_stay_executable(mode: int, is_program: bool, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "a").chmod(mode)
    data = {**BARE, "program": {"source": "a", "command": ["train"]}}
    job = documents(exported(given(data, tmp_path), "tfjob", tmp_path))[-1]
    (volume,) = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["volumes"]
    assert volume["configMap"].get("defaultMode") == (0o755 if is_program else None)
