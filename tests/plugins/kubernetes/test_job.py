"""The emulator as a Job of a cluster: the file, and what its container does before and after."""

from __future__ import annotations

import base64
import io
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.errors import EngineError, UsageError
from emulator.plugins.kubeflow.manifests.out.export import Written
from emulator.plugins.kubeflow.manifests.security import obstacles
from emulator.plugins.kubernetes import inside, job
from emulator.plugins.kubernetes.role import role
from emulator.runtime.bundled import scenario_path
from emulator.scenario.dump import dump
from emulator.scenario.given import Given, load, read_scenario
from emulator.scenario.loader import overridden
from emulator.scenario.schema import Scenario
from tests.plugins.kubeflow.manifests.validation import check

IMAGE = {"emulator": "registry.invalid/emulator:1"}
SCENARIO = """
name: train
program: {source: code, command: [python, train.py]}
cluster:
  worker: 2
  evaluator: {replicas: 1, source: evaluate.py, command: [python, evaluate.py]}
faults: [{trace: ../spot.csv}]
kubernetes: {context: laptop, namespace: team}
"""


@pytest.fixture
def given(tmp_path: Path) -> Given:
    """A scenario with a folder, a file, and a trace of faults outside of its own folder."""
    home = tmp_path / "home"
    (home / "code" / "lib").mkdir(parents=True)
    (home / "code" / "train.py").write_text("print('train')\n")
    (home / "code" / "lib" / "run.sh").write_text("#!/bin/sh\n")
    (home / "code" / "lib" / "run.sh").chmod(0o755)
    (home / "code" / "lib" / "empty").mkdir()
    (home / "evaluate.py").write_text("print('evaluate')\n")
    (tmp_path / "spot.csv").write_text("time,target,down\n1,worker-1,2\n")
    (home / "scenario.yaml").write_text(SCENARIO)
    return read_scenario(home / "scenario.yaml")


def export(
    given: Given, *sets: str, images: Mapping[str, str] = IMAGE
) -> tuple[Written, list[dict[str, Any]]]:
    written = job.export(
        given.parse(sets),
        overridden(given.text, str(given.path), sets),
        folder=given.folder,
        images=images,
    )
    return written, list(yaml.safe_load_all(written.text))


def mounted(documents: list[dict[str, Any]], folder: Path) -> Path:
    """Write the volume of the Job's Pod as a kubelet does; return its folder."""
    maps = {one["metadata"]["name"]: one for one in documents if one["kind"] == "ConfigMap"}
    pod = documents[-1]["spec"]["template"]["spec"]
    folder.mkdir()
    for source in pod["volumes"][0]["projected"]["sources"]:
        one = maps[source["configMap"]["name"]]
        for name, text in one.get("data", {}).items():
            (folder / name).write_text(text)
        for name, text in one.get("binaryData", {}).items():
            (folder / name).write_bytes(base64.b64decode(text))
    return folder


def arrived(documents: list[dict[str, Any]], folder: Path) -> Scenario:
    """Return the scenario as the Job's container has it."""
    (folder / "work").mkdir()
    inside.unpack(mounted(documents, folder / "mounted"), folder / "work")
    return load(folder / "work" / "scenario.yaml")


def without_places(scenario: Scenario) -> dict[str, Any]:
    """Return what a scenario says, but for the places of its programs and of its cluster."""
    data = scenario.model_dump()
    for one in (data["program"], *data["cluster"].values()):
        del one["source"]
    del data["kubernetes"]
    return data


# --- The file -------------------------------------------------------------------------------------


def test_every_object_is_valid_restricted_and_the_same_each_time(given: Given) -> None:
    written, documents = export(given)
    assert export(given) == (written, documents)
    assert obstacles(documents[-1]["spec"]["template"], "restricted") == []
    for one in documents:
        check(one)
        assert one["metadata"]["namespace"] == "team"
        assert one["metadata"]["labels"]["app.kubernetes.io/instance"] == "emulate-train"
    kinds = [one["kind"] for one in documents]
    assert kinds[0] == "ServiceAccount"
    assert kinds[-1] == "Job"
    assert written.text.startswith("# Written by `emulate export train --to kubernetes-job`")
    assert "kubectl -n team logs -f job/emulate-train" in written.text


def test_the_scenario_arrives_with_its_files(given: Given, tmp_path: Path) -> None:
    _, documents = export(given)
    there, here = arrived(documents, tmp_path), given.parse()
    assert there.faults == here.faults
    assert there.kubernetes.context is None
    assert there.kubernetes.namespace == "team"
    code, evaluation = there.program.source, there.cluster["evaluator"].source
    assert code is not None
    assert evaluation is not None
    assert (code / "train.py").read_text() == "print('train')\n"
    assert (code / "lib" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (code / "lib" / "empty").is_dir()
    assert evaluation.name == "evaluate.py"
    assert evaluation.read_text() == "print('evaluate')\n"
    assert without_places(there) == without_places(here)


@pytest.mark.parametrize("name", ["mwms-preemption", "elastic-torchrun", "spot-trace"])
def test_scenarios_of_ours_arrive(name: str, tmp_path: Path) -> None:
    given = read_scenario(scenario_path(Path(name)))
    _, documents = export(given)
    assert without_places(arrived(documents, tmp_path)) == without_places(given.parse())


def test_a_large_program_is_cut_and_put_together(
    given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "PART_BYTES", 100)
    _, documents = export(given)
    names = [one["metadata"]["name"] for one in documents if one["kind"] == "ConfigMap"]
    assert names[:3] == [f"emulate-train-{end}" for end in ("scenario", "files-00", "files-01")]
    assert arrived(documents, tmp_path).program.source


def test_the_role_is_that_of_a_run_and_of_its_faults_and_no_more(given: Given) -> None:
    _, documents = export(given)
    rules = [rule for one in documents if one["kind"] == "Role" for rule in one["rules"]]
    allowed = {
        (resource, verb)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert ("pods", "create") in allowed
    assert ("secrets", "get") not in allowed
    assert not [one for one in documents if one["kind"].startswith("ClusterRole")]
    bindings = [one for one in documents if one["kind"] == "RoleBinding"]
    assert {one["subjects"][0]["name"] for one in bindings} == {"emulate-train"}
    assert {one["roleRef"]["name"] for one in bindings} == {
        one["metadata"]["name"] for one in documents if one["kind"] == "Role"
    }
    # A fault of a node needs one of the whole cluster.
    _, documents = export(given, "faults=[{drain: worker-1, at: 5s, for: 5s}]")
    (one,) = [one for one in documents if one["kind"] == "ClusterRole"]
    assert one["metadata"]["name"] == "team-emulate-train"  # it is of no namespace
    assert one["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]}
    ]
    assert "ClusterRoleBinding" in [one["kind"] for one in documents]


def test_the_image_is_in_the_registry_of_the_scenario(given: Given) -> None:
    _, documents = export(given, "kubernetes.registry=localhost:5000/team", images={})
    (container,) = documents[-1]["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("localhost:5000/team/emulator-emulator:")


def test_the_longest_name_leaves_room(given: Given) -> None:
    name = "a" * 40
    _, documents = export(given, f"name={name}")
    names = [one["metadata"]["name"] for one in documents]
    assert max(map(len, names)) <= 63
    assert len(documents[-1]["metadata"]["name"]) <= 63 - len("-xxxxx")  # of its Pod


def test_what_the_scenario_says_of_the_cluster_is_for_the_job_too(given: Given) -> None:
    sets = (
        "kubernetes.image_pull_secret=login",
        "kubernetes.priority_class=high",
        "kubernetes.image_pull_policy=Always",
        "kubernetes.tolerations=[{key: spot, value: 'yes', effect: NoSchedule}]",
    )
    _, documents = export(given, *sets)
    pod = documents[-1]["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "login"}]
    assert pod["priorityClassName"] == "high"
    assert pod["containers"][0]["imagePullPolicy"] == "Always"
    assert pod["containers"][0]["image"] == IMAGE["emulator"]
    assert pod["tolerations"] == [
        {"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
    ]
    check(documents[-1])


@pytest.mark.parametrize(
    ("sets", "images", "message"),
    [
        ((), {"cpu": "x:1"}, "--image cpu=... is not for kubernetes-job"),
        (("image={dockerfile: Dockerfile}",), IMAGE, "can't build an image"),
        (("cluster.evaluator.image={dockerfile: Dockerfile}",), IMAGE, "can't build an image"),
    ],
)
def test_refusals(
    given: Given, sets: tuple[str, ...], images: Mapping[str, str], message: str
) -> None:
    (given.folder / "Dockerfile").write_text("FROM scratch\n")
    with pytest.raises(UsageError, match=message):
        export(given, *sets, images=images)


def test_a_program_that_no_cluster_takes(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "MOST_BYTES", 10)
    with pytest.raises(UsageError, match="when compressed; ConfigMaps take 10 B"):
        export(given)


def test_the_page_has_the_smallest_role() -> None:
    page = (Path(__file__).parents[3] / "docs" / "kubernetes.md").read_text()
    assert f"```yaml\n{dump(role('training'), short=True)}```" in page


# --- What its container does ----------------------------------------------------------------------


def a_run(folder: Path, **files: bytes) -> Path:
    run = folder / "runs" / "one"
    (run / "logs").mkdir(parents=True)
    for name, content in {"plan.json": b"{}", "report.html": b"<html>", **files}.items():
        (run / name).write_bytes(content)
    return run


def names_in(content: bytes) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        return set(tar.getnames())


def test_a_run_is_stored_without_its_page_if_there_is_one(tmp_path: Path) -> None:
    assert inside.keep(tmp_path / "runs", {}) == "emulate: there is no run to store"
    run = a_run(tmp_path, **{"logs/worker-0.log": b"hello\n"})
    content, left_out = inside.packed(run)
    assert names_in(content) == {"one/plan.json", "one/logs", "one/logs/worker-0.log"}
    assert left_out == frozenset()


def test_a_run_that_is_too_large_is_stored_without_logs_and_then_without_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = bytes(range(256)) * 4
    run = a_run(tmp_path, **{"logs/a.log": noise, "samples.jsonl": noise[::-1]})
    sizes = [len(inside._archive(run, inside.NEVER | one)) for one in inside.LEFT_OUT]
    assert sizes == sorted(sizes, reverse=True)
    for size, expected in zip(sizes, inside.LEFT_OUT, strict=True):
        monkeypatch.setattr(inside, "MOST_BYTES", size)
        assert inside.packed(run)[1] == expected
    monkeypatch.setattr(inside, "MOST_BYTES", 10)
    with pytest.raises(EngineError, match="even without logs and samples"):
        inside.packed(run)


def test_what_is_stored_belongs_to_the_job_and_replaces_only_what_one_of_its_name_stored() -> None:
    body = inside.config_map("emulate-train", "1-2", b"content")
    check(body)
    assert body["metadata"]["ownerReferences"][0]["uid"] == "1-2"
    assert base64.b64decode(body["binaryData"]["run.tar.gz"]) == b"content"
    metadata = {**body["metadata"], "uid": "3-4"}
    earlier = [{**metadata["ownerReferences"][0], "uid": "0-1"}]
    found = {"metadata": {**metadata, "ownerReferences": earlier}}
    assert inside.replacing(found, body) == {"preconditions": {"uid": "3-4"}}
    other = [{**earlier[0], "name": "another"}]
    for owners in (None, other, [{**earlier[0], "kind": "Deployment"}]):
        found = {"metadata": {**metadata, "ownerReferences": owners}}
        with pytest.raises(EngineError, match="emulate-train-run, which no Job emulate-train made"):
            inside.replacing(found, body)


def running(script: str, folder: Path) -> subprocess.Popen[str]:
    code = (
        "import sys; from pathlib import Path; from emulator.plugins.kubernetes.inside import run; "
        f"sys.exit(run(['sh', '-c', {script!r}], Path({str(folder)!r})))"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_gets_the_signals_and_its_code_is_ours(
    number: signal.Signals, tmp_path: Path
) -> None:
    trap = f"trap 'exit 7' {number.name.removeprefix('SIG')}"
    with running(f"{trap}; echo ready; sleep 60 & wait", tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(60) == 7


def test_a_command_that_a_signal_ends_has_the_code_of_a_shell(tmp_path: Path) -> None:
    with running("kill -9 $$", tmp_path) as process:
        assert process.wait(60) == 128 + signal.SIGKILL
