"""The emulator from inside a cluster, and what kubectl shows of a run."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.docker import DockerEngine
from emulator.engines.recipes import recipe_tag
from emulator.plugins.kubeflow.manifests.security import obstacles
from emulator.record.reader import Record
from tests.clusters import REQUIRE, ForTest, changes
from tests.conftest import Emulate

pytestmark = pytest.mark.kubernetes

STEPS = 'for n in 1 2 3 4 5; do echo "{\\"emulate\\": \\"step\\", \\"step\\": $n}"; sleep 0.2; done'
RIGHTS = "id -u; grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/self/status"
WAITS = "echo ready; trap 'exit 0' TERM; sleep 600 & wait"


class Kubectl:
    """kubectl as its users call it, in the namespace of the test."""

    def __init__(self, path: str, cluster: ForTest) -> None:
        self._path, self._cluster = path, cluster

    def __call__(self, *words: str) -> str:
        command = [self._path, "-n", self._cluster.namespace, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "-o", "json"))


@pytest.fixture(autouse=True)
def configured(kubernetes_cluster: ForTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a failed test has left is removed as this user, too."""
    monkeypatch.setenv("KUBECONFIG", str(kubernetes_cluster.kubeconfig))


@pytest.fixture
def kubectl(kubernetes_cluster: ForTest) -> Kubectl:
    path = shutil.which("kubectl")
    if path is None:
        assert os.environ.get(REQUIRE) != "1", "kubectl is missing"
        pytest.skip("kubectl is not installed")
    return Kubectl(path, kubernetes_cluster)


def a_scenario(folder: Path, image: str, command: str, more: str = "") -> Path:
    """Write a scenario of two workers whose program is a script next to it."""
    (folder / "code").mkdir()
    (folder / "code" / "train.sh").write_text(f"{command}\n")
    path = folder / "scenario.yaml"
    path.write_text(
        f"name: shell\nframework: none\nimage: {image}\nsuccess: all-workers\n"
        "program: {source: code, command: [sh, train.sh]}\ncluster: {worker: 2}\n" + more
    )
    return path


# --- From inside ----------------------------------------------------------------------------------


@pytest.fixture
def exported(
    emulate: Emulate,
    kubernetes_cluster: ForTest,
    docker_engine: DockerEngine,
    tiny_image: str,
    tmp_path: Path,
) -> Path:
    """The file of a Job that runs a scenario, with the emulator's image on the node."""
    docker_engine.images.ensure("emulator", lambda line: None)
    scenario = a_scenario(
        tmp_path, tiny_image, STEPS, "expect: {outcome: succeeded, final_step: 5}\n"
    )
    _, namespace = kubernetes_cluster.arguments[2:]
    file = tmp_path / "job.yaml"
    done = emulate("export", scenario, "--to", "kubernetes-job", "--set", namespace, "-o", file)
    assert done.returncode == 0, done.stderr
    assert recipe_tag("emulator") in file.read_text()
    return file


def test_the_emulator_runs_as_a_job_and_its_run_is_fetched(
    emulate: Emulate, kubectl: Kubectl, exported: Path, kubernetes_cluster: ForTest
) -> None:
    """All that the head of the file says, in this order."""
    kubectl("apply", "--server-side", "-f", str(exported))
    with kubernetes_cluster.core() as core:
        job = {"label_selector": "job-name=emulate-shell"}
        seen = changes(core.list_namespaced_pod, kubernetes_cluster.namespace, **job)
        phases = (change["object"].status.phase for change in seen)
        phase = next(one for one in phases if one in ("Succeeded", "Failed"))
    said = kubectl("logs", "job/emulate-shell")
    assert phase == "Succeeded", said
    assert "shell: succeeded, verdict ok" in said
    stored = kubectl.json("get", "configmap", "emulate-shell-run")
    with tarfile.open(fileobj=io.BytesIO(b64decode(stored["binaryData"]["run.tar.gz"]))) as tar:
        tar.extractall(emulate.out, filter="data")
    record = Record.find("last", emulate.out)
    assert record.plan.engine == "kubernetes"
    logs = {path.name for path in (record.path / "logs").glob("*.log")}
    assert logs == {"worker-0.log", "worker-1.log"}
    assert emulate("check", "last", "--out", emulate.out).returncode == 0
    assert emulate("report", "last", "--out", emulate.out).returncode == 0
    assert (record.path / "report.html").is_file()
    # Nothing of the run is left, and with the Job goes all that came with it.
    assert kubectl.json("get", "pods,services,configmaps", "-l", "emulator.run")["items"] == []
    kubectl("delete", "--cascade=foreground", "job/emulate-shell")
    kubectl("delete", "--ignore-not-found", "-f", str(exported))
    kubectl("wait", "--for=delete", "--timeout=120s", "configmap/emulate-shell-run")


def test_a_job_that_is_deleted_takes_its_tasks_with_it(
    kubectl: Kubectl, exported: Path, kubernetes_cluster: ForTest
) -> None:
    """Its Pod gets SIGTERM, and the emulator in it removes its run."""
    text = exported.read_text()
    assert "sleep 0.2" not in text  # it is in the archive
    exported.write_text(text.replace("[sh, train.sh]", f"[sh, -c, {json.dumps(WAITS)}]"))
    kubectl("apply", "--server-side", "-f", str(exported))
    with kubernetes_cluster.core() as core:
        tasks = {"label_selector": "emulator.run"}
        seen = changes(core.list_namespaced_pod, kubernetes_cluster.namespace, **tasks)
        assert any(change["object"].status.phase == "Running" for change in seen)
    kubectl("delete", "--cascade=foreground", "job/emulate-shell")
    assert kubectl.json("get", "pods,services,configmaps", "-l", "emulator.run")["items"] == []


# --- From outside ---------------------------------------------------------------------------------


def test_an_exported_scenario_runs_with_the_rights_of_the_level_restricted(
    emulate: Emulate, kubectl: Kubectl, tiny_image: str, tmp_path: Path
) -> None:
    """1.20 enforces no levels, so the Pods are judged as the cluster has them, and from inside."""
    scenario = a_scenario(tmp_path, tiny_image, RIGHTS, "kubernetes: {run_as: 1000}\n")
    file = tmp_path / "exported.yaml"
    done = emulate("export", scenario, "--to", "kubernetes", "-o", file)
    assert done.returncode == 0, done.stderr
    kubectl("create", "--validate=false", "-f", str(file))  # 1.20 has no backoffLimitPerIndex
    kubectl("wait", "--for=condition=complete", "--timeout=120s", "job/shell-worker")
    pods = kubectl.json("get", "pods", "-l", "job-name=shell-worker")["items"]
    assert [obstacles(pod, "restricted") for pod in pods] == [[], []]
    for pod in pods:
        said = kubectl("logs", pod["metadata"]["name"]).split()
        assert said == ["1000", "CapBnd:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2"]


def test_what_kubectl_shows_of_a_run(
    emulate: Emulate, kubectl: Kubectl, kubernetes_cluster: ForTest, tiny_image: str, tmp_path: Path
) -> None:
    scenario = a_scenario(
        tmp_path, tiny_image, WAITS, "restart: never\nkubernetes: {init: false}\n"
    )
    options = [*kubernetes_cluster.arguments, "--run-id", "seen", "--out", str(emulate.out)]
    up = emulate("up", "-d", scenario, *options)
    assert up.returncode == 0, up.stderr
    try:
        wait_until_ready(emulate)
        names = kubectl("get", "pods", "-l", "emulator.run=seen", "-o", "name").split()
        assert names == ["pod/seen-worker-0", "pod/seen-worker-1"]
        one = kubectl("get", "pods", "-l", "emulator.run=seen,emulator.task=worker-1", "-o", "name")
        assert one.split() == ["pod/seen-worker-1"]
        everything = kubectl("get", "pods,services,configmaps,pvc", "-l", "emulator.run", "-o=name")
        kinds = {line.partition("/")[0] for line in everything.split()}
        assert kinds == {"pod", "service", "configmap", "persistentvolumeclaim"}
        described = kubectl("describe", "pod", "seen-worker-0")
        assert "emulator.role=worker" in described
        assert "app.kubernetes.io/managed-by=emulator" in described
        assert str(emulate.out / "seen") in described  # where its record is
        # Of 1.20, and of 1.36.
        assert "Started container main" in described or "Container started" in described
        assert kubectl("logs", "seen-worker-0") == "ready\n"  # main is the default container
        inside = kubectl("exec", "seen-worker-0", "--", "sh", "-c", "getent hosts worker-1")
        pod = kubectl.json("get", "pod", "seen-worker-1")
        assert inside.split()[0] == pod["status"]["podIP"]
        listed = emulate("ps", "--json", "--out", emulate.out)
        assert [(run["run_id"], run["live"]) for run in listed.json] == [("seen", True)]
    finally:
        down = emulate("down", "seen", "--out", emulate.out)
    assert down.returncode == 0, down.stderr
    left = kubectl.json("get", "pods,services,configmaps,pvc", "-l", "emulator.run")["items"]
    assert left == []


def wait_until_ready(emulate: Emulate) -> None:
    """Wait until both tasks have printed their line."""
    process = emulate.start("logs", "-f", "seen", "--out", emulate.out)
    assert process.stdout is not None
    left = {"worker-0", "worker-1"}
    for line in process.stdout:
        left -= {line.split()[0]} if line.endswith("| ready\n") else set()
        if not left:
            return
    raise AssertionError(f"{left} printed nothing")
