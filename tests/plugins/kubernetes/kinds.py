"""A kind of object that a test adds to those of the API server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from emulator.plugins.kubernetes.connection import ApiServer
from emulator.plugins.kubernetes.watching import Kind, Object, Watcher

KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@contextlib.contextmanager
def added(cluster: ApiServer, plural: str, kind: str, group: str, version: str) -> Iterator[str]:
    """Have a kind within the block; yield where its objects are in the test's namespace."""
    name = f"{plural}.{group}"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    approved = {"api-approved.kubernetes.io": "unapproved, a test of clients"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "annotations": approved},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": version, **served}],
        },
    }
    established = threading.Event()

    def look(kind: Kind, one: Object) -> None:
        for condition in one.get("status", {}).get("conditions") or ():
            if (condition["type"], condition["status"]) == ("Established", "True"):
                established.set()

    cluster.post(KINDS, definition)
    try:
        fields = f"metadata.name={name}"
        watcher = Watcher(cluster, KINDS, "", look, lambda error: None, fields=fields)
        with contextlib.closing(watcher):
            watcher.start()
            assert established.wait(60)
        yield cluster.namespaced(plural, api=f"apis/{group}/{version}")
    finally:
        cluster.delete(f"{KINDS}/{name}")
