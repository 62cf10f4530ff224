"""Images that nodes pull from a registry, as they were pushed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.docker import DockerEngine
from emulator.engines.kit.recipes import recipe_tag
from tests.clusters import ForTest, changes
from tests.conftest import Emulate, own

pytestmark = [pytest.mark.kubernetes, pytest.mark.docker]
RUN = own("pulled")


@pytest.fixture
def clean(docker_engine: DockerEngine, registry: str) -> Iterator[None]:
    """Remove what the node has pulled: it is on the engine of this machine."""
    yield
    for one in docker_engine.api.images():
        for name in (*(one["RepoTags"] or []), *(one["RepoDigests"] or [])):
            if registry in name:
                docker_engine.api.remove_image(name, force=True)


@pytest.mark.usefixtures("clean")
def test_nodes_pull_what_was_pushed(
    emulate: Emulate,
    kubernetes_cluster: ForTest,
    registry: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plan has the digest, and Pods run from it although nobody names it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = emulate("build", "network", "--push", f"{registry}/team")
    assert done.returncode == 0, done.stderr
    (tmp_path / "scenario.yaml").write_text(
        "name: pulled\nframework: none\nimage: network\n"
        "program: {command: [sh, -c, echo it runs]}\n"
        "cluster: {worker: {replicas: 2, cpus: 0.1, memory: 32m}}\n"
    )
    done = emulate.up(
        tmp_path / "scenario.yaml",
        *kubernetes_cluster.arguments,
        *("--set", f"kubernetes.registry={registry}/team", "--run-id", RUN),
        env=kubernetes_cluster.environment,
    )
    assert done.returncode == 0, done.stderr
    plan = json.loads((emulate.out / RUN / "plan.json").read_text())
    (image,) = {task["image"] for task in plan["tasks"]}
    assert image.startswith(f"{registry}/team/{recipe_tag('network')}@sha256:")


# --- What tests get from `make kubernetes`, where no test of the engine would miss it -------------


def test_the_data_of_a_claim_go_with_it(kubernetes_cluster: ForTest, tiny_image: str) -> None:
    namespace, claimed = kubernetes_cluster.namespace, {"metadata": {"name": "shared"}}
    size = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    writes = {
        "name": "main",
        "image": tiny_image,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "echo kept > /shared/it"],
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [writes],
        "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}],
        "securityContext": {"runAsUser": 1000, "runAsNonRoot": True},
    }
    with kubernetes_cluster.core() as core:
        core.create_namespaced_persistent_volume_claim(namespace, {**claimed, "spec": size})
        core.create_namespaced_pod(namespace, {"metadata": {"name": "writes"}, "spec": spec})
        pods = (change["object"] for change in changes(core.list_namespaced_pod, namespace))
        phases = (pod.status.phase for pod in pods)
        assert next(one for one in phases if one in ("Succeeded", "Failed")) == "Succeeded"
        claim = core.read_namespaced_persistent_volume_claim("shared", namespace)
        folder = Path(core.read_persistent_volume(claim.spec.volume_name).spec.host_path.path)
        assert (folder / "it").read_text() == "kept\n"
        begin = core.list_persistent_volume().metadata.resource_version
        core.delete_collection_namespaced_pod(namespace, grace_period_seconds=0)
        core.delete_namespaced_persistent_volume_claim("shared", namespace)
        mine = f"metadata.name={claim.spec.volume_name}"
        listing = core.list_persistent_volume
        seen = changes(listing, field_selector=mine, resource_version=begin)
        assert "DELETED" in (change["type"] for change in seen)
    assert not folder.exists()
