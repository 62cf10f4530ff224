"""What /shared is on clusters of all kinds: a decision without a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from emulator.errors import Unsupported
from emulator.plugins.kubernetes import names
from emulator.plugins.kubernetes.section import Kubernetes
from emulator.plugins.kubernetes.shared import (
    Shared,
    cleaner,
    decide,
    folder_of,
    is_usable,
    node_of,
    shares,
)
from tests.cluster_objects import check

COMMON = names.Common("team", {names.RUN: "run-1"}, {})


def options(**given: Any) -> Kubernetes:
    return Kubernetes.model_validate(given)


def node(name: str, *, ready: str = "True", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "disk": name[-1]}},
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def storage(name: str, provisioner: str, *, default: bool = False) -> dict[str, Any]:
    notes = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {"metadata": {"name": name, "annotations": notes}, "provisioner": provisioner}


ONE, TWO = [node("n1")], [node("n1"), node("n2")]
DISK = storage("disk", "ebs.csi.aws.com", default=True)
FILES = storage("files", "efs.csi.aws.com")
BOTH = storage("files", "efs.csi.aws.com", default=True)
OTHER = storage("other", "storage.example.org")


@pytest.mark.parametrize(
    ("given", "nodes", "classes", "expected"),
    [
        ({}, ONE, [DISK], Shared("claim", "ReadWriteOnce", "disk")),
        ({}, ONE, [DISK, FILES], Shared("claim", "ReadWriteOnce", "disk")),
        ({"storage_class": "files"}, TWO, [DISK, FILES], Shared("claim", storage_class="files")),
        ({"storage_class": "other"}, TWO, [OTHER], Shared("claim", storage_class="other")),
        ({}, TWO, [BOTH], Shared("claim", storage_class="files")),
        # A class that shares is taken where the default one does not.
        ({}, TWO, [DISK, FILES], Shared("claim", storage_class="files")),
        # On one node there is no need to share, and without a class a folder of it is enough.
        ({}, ONE, [], Shared("host-path", node="n1")),
        ({}, [node("n1"), node("n2", unschedulable=True)], [], Shared("host-path", node="n1")),
        ({"node_selector": {"disk": "2"}}, TWO, [DISK], Shared("claim", "ReadWriteOnce", "disk")),
        ({"node_selector": {"disk": "2"}}, TWO, [], Shared("host-path", node="n2")),
        ({"shared": "host-path"}, ONE, [DISK], Shared("host-path", node="n1")),
        ({"shared": "none"}, TWO, [], Shared("none")),
        ({"shared": "none"}, None, None, Shared("none")),
        # What may not be listed is not known.
        ({}, None, None, Shared("claim")),
        ({"storage_class": "fast"}, None, None, Shared("claim", storage_class="fast")),
        ({}, TWO, None, Shared("claim")),
        ({}, ONE, None, Shared("claim")),
        ({}, None, [DISK, FILES], Shared("claim", storage_class="files")),
    ],
)  # fmt: skip
def test_the_decision(given: Any, nodes: Any, classes: Any, expected: Shared) -> None:
    found = decide(options(**given), nodes, classes)
    assert found == replace(expected, note=found.note)
    assert found.kind == "claim" or found.note.startswith("/shared is ")  # less than a claim


@pytest.mark.parametrize(
    ("given", "nodes", "classes", "message"),
    [
        ({}, TWO, [DISK], "any of 2 nodes, and the storage class disk can't be written"),
        ({}, None, [DISK], "several nodes, and the storage class disk can't be written"),
        ({}, TWO, [], "no storage class is known to be shared"),
        ({"storage_class": "disk"}, TWO, [DISK, FILES], "the storage class disk can't be written"),
        ({"storage_class": "dsk"}, TWO, [DISK, FILES], "no storage class dsk. It has disk, files"),
        ({"storage_class": "dsk"}, ONE, [], "no storage class dsk. It has none"),
        ({"shared": "host-path"}, TWO, [], "any of 2 nodes, and a folder of one node"),
        ({"shared": "host-path"}, None, None, "any node, and a folder of one node"),
        ({"shared": "claim"}, TWO, [DISK], "the storage class disk can't be written"),
    ],
)
def test_where_nothing_can_be_shared_it_is_refused(
    given: Any, nodes: Any, classes: Any, message: str
) -> None:
    with pytest.raises(Unsupported) as refused:
        decide(options(**given), nodes, classes)
    assert message in str(refused.value)
    assert "kubernetes." in refused.value.hint


def test_the_newest_of_several_default_classes_is_taken() -> None:
    old, new = DISK, storage("new", "ebs.csi.aws.com", default=True)
    old = {**old, "metadata": {**old["metadata"], "creationTimestamp": "2026-01-01T00:00:00Z"}}
    new = {**new, "metadata": {**new["metadata"], "creationTimestamp": "2026-02-01T00:00:00Z"}}
    for classes in ([old, new], [new, old]):
        assert decide(options(), ONE, classes).storage_class == "new"


@pytest.mark.parametrize(
    ("provisioner", "expected"),
    [
        ("efs.csi.aws.com", True),
        ("rook-ceph.cephfs.csi.ceph.com", True),
        ("cluster.local/nfs-subdir-external-provisioner", True),
        ("rancher.io/local-path", False),
        ("pd.csi.storage.gke.io", False),
        ("storage.example.org", None),
    ],
)
def test_provisioners_that_share(provisioner: str, expected: bool | None) -> None:
    assert shares(storage("any", provisioner)) is expected


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (None, False),
        ({"key": "gpu"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "gpu", "operator": "Equal"}, False),
        ({"key": "gpu", "effect": "NoExecute"}, False),
        ({"key": "gpu", "effect": "NoSchedule"}, True),
        ({"key": "other"}, False),
        ({}, True),
    ],
)
def test_taints_are_tolerated_as_the_scheduler_does(toleration: Any, expected: bool) -> None:
    tolerations = [] if toleration is None else [toleration]
    assert is_usable(node("n1", taints=[TAINT]), options(tolerations=tolerations)) is expected


def test_nodes_on_which_no_pod_can_land() -> None:
    assert is_usable(node("n1"), options())
    assert not is_usable(node("n1", ready="Unknown"), options())
    assert not is_usable(node("n1", unschedulable=True), options())
    assert not is_usable(node("n1"), options(node_selector={"disk": "2"}))
    rather_not = {**TAINT, "effect": "PreferNoSchedule"}
    assert is_usable(node("n1", taints=[rather_not]), options())


def test_a_claim_asks_for_the_class_and_the_size() -> None:
    (claim,) = Shared("claim", "ReadWriteMany", "files").claim("run-1", COMMON)
    check(claim)
    assert claim["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1073741824"}},
        "storageClassName": "files",
    }
    (default,) = Shared("claim").claim("run-1", COMMON, 2**31)
    assert "storageClassName" not in default["spec"]
    assert default["spec"]["resources"] == {"requests": {"storage": "2147483648"}}
    assert Shared("none").claim("run-1", COMMON) == []


def a_service(**notes: str) -> dict[str, Any]:
    annotations = {names.HOST_PATH: "true", names.NODE: "n1", names.IMAGE: "img:1", **notes}
    labels = {names.RUN: "run-1", "app.kubernetes.io/managed-by": "emulator"}
    return {
        "metadata": {
            "name": "run-1", "namespace": "team", "labels": labels, "annotations": annotations,
        }
    }  # fmt: skip


def test_what_a_run_leaves_on_a_node_is_removed_by_a_pod_there() -> None:
    nothing = a_service()
    del nothing["metadata"]["annotations"][names.HOST_PATH]
    assert cleaner(nothing) is None
    pod = cleaner(a_service(**{names.SECRET: "login"}))
    assert pod is not None
    check(pod)
    spec = pod["spec"]
    assert spec["imagePullSecrets"] == [{"name": "login"}]
    without = cleaner(a_service())
    assert without is not None
    assert "imagePullSecrets" not in without["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/hostname": "n1"}
    assert (folder_of(pod), node_of(pod)) == ("/var/tmp/emulator-run-1", "n1")
    assert spec["containers"][0]["command"] == ["rm", "-rf", "--", "/nodes/emulator-run-1"]
    assert pod["metadata"]["labels"][names.RUN] == "run-1"
    volume = Shared("host-path").volume("run-1")["hostPath"]["path"]
    assert volume == spec["volumes"][0]["hostPath"]["path"] + "/emulator-run-1"


@pytest.mark.parametrize("label", ["..", "a/b", "", "A", "run-1/../.."])
def test_only_a_run_id_names_what_is_removed(label: str) -> None:
    service = a_service()
    service["metadata"]["labels"][names.RUN] = label
    assert cleaner(service) is None
