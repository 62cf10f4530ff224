"""Parts of exports that few scenarios have, and what can't be exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from emulator.errors import UsageError
from emulator.plugins.kubeflow.manifests.out.deployment import program_files, seconds
from emulator.plugins.kubeflow.manifests.out.export import TARGETS
from emulator.plugins.kubeflow.manifests.out.pods import CONFIGMAP_BYTES, cpus, dns_label, memory
from emulator.plugins.kubeflow.manifests.out.templates import Different, escaped, template
from tests.plugins.kubeflow.manifests.out.exporting import (
    as_manifest,
    documents,
    exported,
    given,
    in_pod,
    said_of,
)

BARE: dict[str, Any] = {
    "name": "a",
    "image": "tf:2",
    "program": {"command": ["train"]},
    "cluster": {"worker": 2},
}
TORCH = {"framework": "pytorch"}
VALUES, JOB = ("tfCluster",), ("spec", "template", "spec")
MAIN = (*JOB, "containers", 0)


@pytest.mark.parametrize(
    ("to", "more", "number", "path", "value"),
    [
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
        ("kubernetes", {"image": "auto", "framework": "jax"}, -1, (*MAIN, "image"),
         "emulator-jax:latest"),
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
    ],
)  # fmt: skip
def test_a_part_of_an_export(
    to: str, more: dict[str, Any], number: int, path: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    source = given({**BARE, **more}, tmp_path)
    assert part_of(documents(exported(source, to, tmp_path))[number], path) == value


def part_of(document: Any, path: tuple[Any, ...]) -> Any:
    """Return what a document has at a path; None if there is nothing."""
    for step in path[:-1]:
        document = document[step]
    return document.get(path[-1]) if isinstance(document, dict) else document[path[-1]]


@pytest.mark.parametrize(
    ("to", "more", "said"),
    [
        ("helm-values", {"program": {"command": []}, "rendezvous": "cluster-config"}, []),
        ("helm-values", {"program": {"command": [], "env": {"A": "${task}", "B": "${port}"}},
                         "rendezvous": "cluster-config"},
         ["the values have no room for A, which not all tasks have the same"]),
        ("compose", {"restart": {"policy": "always"}}, []),
        ("kubernetes", {"program": {"command": ["0${index}"]}},
         "The commands or variables of worker differ between its tasks in more than the index, "
         "which a pod template can't say. Let the program read its index, or use --to compose, "
         "where each task has its own."),
    ],
)  # fmt: skip
def test_the_notes_of_an_export_or_why_there_is_none(
    to: str, more: dict[str, Any], said: list[str] | str, tmp_path: Path
) -> None:
    assert said_of({**BARE, **more}, to, tmp_path) == said


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


@pytest.mark.parametrize(
    ("to", "hosts"),
    [
        ("kubernetes", ["a-ps", "a-ps-0.a", "a-ps-1.a"]),
        # <TrainJob>-<replicated job>-<job>-<pod>.<TrainJob>, pkg/runtime/framework/plugins/jobset
        ("trainjob", ["a-ps-0-0.a", "a-ps-0-0.a", "a-ps-0-1.a"]),
        ("compose", ["ps", "ps-0", "ps-1"]),
        ("helm-values", ["ps", "ps-0.a.svc.cluster.local", "ps-1.a.svc.cluster.local"]),
    ],
)
def test_the_names_of_helpers_and_tasks(to: str, hosts: list[str], tmp_path: Path) -> None:
    scenario = given({**BARE, "cluster": {"worker": 1, "ps": 2}}, tmp_path).parse()
    assert [TARGETS[to].host(scenario, "ps", index) for index in (-1, 0, 1)] == hosts


# --- Texts of tasks as one text of a pod template, which a pod turns back into its own ------------


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("$HOME", "$HOME"),
        ("$(date)", "$$(date)"),
        ("$$", "$$$$"),
        ("$$(x)", "$$$$(x)"),
        ("cost: 5$", "cost: 5$$"),
        ("a$b$(c", "a$b$$(c"),
    ],
)
def test_dollars_stay_what_they_are(text: str, written: str) -> None:
    assert escaped(text) == written
    command, _ = in_pod({"args": [written]}, 0)
    assert command == [text]


PIECES = st.lists(
    st.sampled_from(["$", "$$", "(", "x)", "EMULATOR_INDEX", "é", '"', "0", "-", " "])
)


@hypothesis.given(
    before=PIECES.map("".join), after=PIECES.map("".join), more=st.sampled_from([0, 1, 9])
)
def test_each_pod_has_the_text_of_its_task(before: str, after: str, more: int) -> None:
    texts = [f"{before}x{index + more}y{after}" for index in range(11)]
    made = template(texts)
    if made.computes:
        return  # by a shell: see test_kubernetes
    index = {"name": "EMULATOR_INDEX", "valueFrom": {}}
    for number, text in enumerate(texts):
        command, _ = in_pod({"env": [index], "args": [made.text]}, number)
        assert command == [text]


@pytest.mark.parametrize("texts", [["a1b", "a2c"], ["1", "3"], ["a", "a1"], ["1", "01"]])
def test_texts_that_differ_in_more_than_the_index_have_no_template(texts: list[str]) -> None:
    with pytest.raises(Different):
        template(texts)


# --- Programs and files of an export are in ConfigMaps --------------------------------------------


@pytest.mark.slow
def test_files_of_all_tasks_are_in_one_configmap(tmp_path: Path) -> None:
    """Each file has a mount of its own, and only that counts towards what a manifest may make."""
    files = {f"/srv/{n}.txt": "x" * 20_000 for n in range(30)}
    data = {
        "name": "many",
        "program": {"command": ["true"], "files": files},
        "cluster": {"chief": 1, "worker": 2},
    }
    written = exported(given(data, tmp_path), "tfjob", tmp_path)
    names = [one["metadata"]["name"] for one in documents(written) if one["kind"] == "ConfigMap"]
    assert names == ["many-files"]
    assert (
        as_manifest(written, tmp_path).program.files == given(data, tmp_path).parse().program.files
    )


def test_a_program_that_was_removed_meanwhile_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"The program can't be read: .*/gone can't be read"):
        program_files(tmp_path / "gone")


@pytest.mark.parametrize(
    ("data", "names"),
    [(BARE, "worker, tf:2"), ({**BARE, "image": "auto"}, "worker, cpu, emulator-cpu:latest")],
)
def test_an_image_for_nothing_is_refused(data: Any, names: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        exported(given(data, tmp_path), "kubernetes", tmp_path, images={"x": "y"})
    hint = f"Names: {names}."
    told = f"--image x=...: the scenario has no role and no image x. {hint}"
    assert (str(error.value), error.value.hint) == (told, hint)


# --- A pod of an export has the command and the variables of its task -----------------------------

PS = {
    "name": "train",
    "program": {
        "command": ["python", "t.py", "--rank=${rank}", "--of", "${size.worker}", "it's $(x) $$1"],
        "env": {"WHO": "${task} at ${address}", "PRICE": "5$", "SEED": "$EMULATOR_SEED"},
    },
    "cluster": {
        "chief": 1,
        "worker": 12,
        "ps": {"replicas": 2, "command": ["python", "ps.py", "${index}"]},
    },
}
DDP = {
    "name": "ddp",
    "framework": "pytorch",
    "image": "pytorch",
    "program": {"command": ["python", "ddp.py"]},
    "cluster": {"master": 1, "worker": 3},
}


def containers(document: dict[str, Any]) -> tuple[str, int, dict[str, Any]]:
    """Return the role, the number of pods, and the container of a workload."""
    spec = document["spec"]
    count = spec.get("completions", spec.get("replicas"))
    (container,) = spec["template"]["spec"]["containers"]
    return document["metadata"]["name"].rpartition("-")[2], count, container


def workloads(name: str, data: dict[str, Any], folder: Path) -> dict[str, tuple[int, Any]]:
    found = documents(exported(given(data, folder), name, folder))
    if name == "kubernetes":
        kinds = ("Job", "StatefulSet")
        made = [containers(one) for one in found if one["kind"] in kinds]
    else:
        runtime = next(one for one in found if one["kind"] == "TrainingRuntime")
        jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        made = [
            containers({"metadata": {"name": f"x-{job['name']}"}, "spec": job["template"]["spec"]})
            for job in jobs
        ]
    return {role: (count, container) for role, count, container in made}


def test_workers_that_wait_for_a_chief_need_not_end(tmp_path: Path) -> None:
    """As those of a ParameterServerStrategy: their Job stays when the chief's is complete."""
    notes = exported(given(PS, tmp_path), "kubernetes", tmp_path).notes
    (said,) = [note for note in notes if "need not end" in note]
    assert "-worker need not end: " in said
    assert said.endswith("-chief is complete, whose end is that of the training; delete it then")


@pytest.mark.parametrize("name", ["kubernetes", "trainjob"])
def test_tensorflow(name: str, tmp_path: Path) -> None:
    host = TARGETS[name].host
    scenario = given(PS, tmp_path).parse()
    addresses = {
        role: [f"{host(scenario, role, n)}:2222" for n in range(count)]
        for role, count in (("chief", 1), ("ps", 2), ("worker", 12))
    }
    found = workloads(name, PS, tmp_path)
    counts = {role: count for role, (count, _) in found.items()}
    assert counts == {"chief": 1, "worker": 12, "ps": 2}
    for role, (count, container) in found.items():
        for index in range(count):
            command, env = in_pod(container, index)
            assert json.loads(env["TF_CONFIG"]) == {
                "cluster": addresses,
                "task": {"type": role, "index": index},
                "environment": "cloud",
            }
            assert env["WHO"] == f"{role}-{index} at {addresses[role][index]}"
            prices = (env["PRICE"], env["SEED"], env["EMULATOR_SEED"])
            assert prices == ("5$", "$EMULATOR_SEED", "0")
            rank = index + (role == "worker")
            trains = ["python", "t.py", f"--rank={rank}", "--of", "12", "it's $(x) $$1"]
            assert command == (["python", "ps.py", str(index)] if role == "ps" else trains)


@pytest.mark.parametrize("name", ["kubernetes", "trainjob"])
def test_pytorch(name: str, tmp_path: Path) -> None:
    scenario = given(DDP, tmp_path).parse()
    master = TARGETS[name].host(scenario, "master", 0)
    for role, (count, container) in workloads(name, DDP, tmp_path).items():
        for index in range(count):
            command, env = in_pod(container, index)
            rank = str(index + (role == "worker"))
            assert command == ["python", "ddp.py"]
            assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == (master, "2222")
            assert (env["RANK"], env["PET_NODE_RANK"], env["WORLD_SIZE"]) == (rank, rank, "4")
