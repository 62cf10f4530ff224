"""What kubectl shows of a run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import REQUIRE, ForTest
from tests.conftest import Emulate

pytestmark = pytest.mark.kubernetes

RIGHTS = ("grep", "-E", "^(CapBnd|NoNewPrivs|Seccomp):", "/proc/self/status")
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
        rights = kubectl("exec", "seen-worker-0", "--", *RIGHTS).split()
        assert rights == ["CapBnd:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2"]
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
