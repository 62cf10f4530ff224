"""What tests get from `make kubernetes`, where no test of the engine would miss it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.clusters import ForTest, changes

pytestmark = pytest.mark.kubernetes


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
