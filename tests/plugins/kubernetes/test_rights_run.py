"""The whole engine with exactly the smallest Role; the API server's audit log is the witness."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from emulator.plugins.kubernetes.rights import permissions, role
from tests.clusters import HERE, ForTest
from tests.conftest import Emulate, own

pytestmark = pytest.mark.kubernetes


class Request(NamedTuple):
    """What somebody asked the API server for."""

    verb: str
    place: str
    """The resource with its subresource and its group."""
    namespace: str


def requests(user: str) -> Iterator[tuple[Request, int]]:
    """Yield what a user asked for, and the status of the answer."""
    # The last one may be half written: other tests use the cluster too.
    for line in HERE.audit_log.read_text().split("\n")[:-1]:
        entry = json.loads(line)
        about = entry.get("objectRef")
        if entry["user"].get("username") == user and about:
            resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
            place = ".".join(filter(None, (resource, about.get("apiGroup"))))
            status = entry.get("responseStatus", {}).get("code", 0)
            yield Request(entry["verb"], place, about.get("namespace", "")), status


SCENARIO = """
name: role
framework: none
image: {image}
program: {{source: program.py, command: [sh, -c, 'echo up; sleep 12']}}
cluster: {{worker: {{replicas: 2, cpus: 0.1, memory: 32m}}}}
success: all-workers
restart: {{policy: on-failure, backoff: 100ms}}
faults:
  - {{preempt: worker-1, at: 2s, grace: 2s, down: 1s}}
  - {{kill: worker-0, at: 3s}}
"""
DONE_WITHOUT = {
    Request("list", "nodes", ""),
    Request("list", "storageclasses.storage.k8s.io", ""),
    Request("get", "nodes/proxy", ""),
}
"""What a run asks for, and does without."""
EVERYWHERE = {"pods", "services", "configmaps", "persistentvolumeclaims"}
"""What `clean` looks for in all namespaces, and where that is forbidden in its own."""
AT_TIMES = {
    *(("get", kind) for kind in EVERYWHERE),
    *(("create", "pods/exec"), ("list", "events"), ("watch", "events")),
}
"""What not every run needs: a look whether a request was performed whose answer was lost, the verb
of newer versions for exec, and what the cluster says of Pods."""


def test_the_smallest_role_is_enough_for_a_run_and_nothing_in_it_is_too_much(
    emulate: Emulate,
    kubernetes_cluster: ForTest,
    kubernetes_user: Callable[..., Path],
    tiny_image: str,
    tmp_path: Path,
) -> None:
    namespace, run_id = kubernetes_cluster.namespace, own("role")
    kubeconfig = kubernetes_user(role(namespace)["rules"])
    user = f"system:serviceaccount:{namespace}:{kubeconfig.stem}"
    (tmp_path / "program.py").write_text("pass\n")
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO.format(image=tiny_image))
    environment = {"KUBECONFIG": str(kubeconfig)}
    done = emulate.up(path, "--engine", "kubernetes", "--run-id", run_id, env=environment)
    assert done.returncode == 0, done.stderr
    cleaned = emulate("clean", "--engine", "kubernetes", "--out", emulate.out, env=environment)
    assert cleaned.returncode == 0, cleaned.stderr

    answered = list(requests(user))
    refused = {request for request, status in answered if status == 403}
    assert refused <= {
        *DONE_WITHOUT,
        Request("list", "pods.metrics.k8s.io", namespace),
        *(Request("list", kind, "") for kind in EVERYWHERE),
    }
    used = {(one.verb, one.place) for one, status in answered if one.namespace and status < 300}
    allowed = {
        (verb, one.place) for one in permissions("run", "signals", "notes") for verb in one.verbs
    }
    assert used <= allowed
    assert allowed - used <= AT_TIMES
