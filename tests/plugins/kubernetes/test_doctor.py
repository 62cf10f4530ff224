"""What a cluster's answers mean for a run, and the answers of a real one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from kubernetes import client as official_client

from emulator.engines.base import Finding
from emulator.plugins.kubernetes.connection import ApiError, ApiServer
from emulator.plugins.kubernetes.doctor import Answers, _kubelet, examine, judge, trial_pod
from emulator.plugins.kubernetes.rights import (
    PERMISSIONS,
    USES,
    cluster_role,
    manifest,
    reviews,
    role,
)
from emulator.plugins.kubernetes.section import Kubernetes
from emulator.scenario.schema import Scenario
from tests.clusters import ForTest
from tests.conftest import Emulate

client: Any = official_client

ALL = [(one, verb, True) for one, verb, _ in reviews("team", PERMISSIONS)]
NONE = [(one, verb, False) for one, verb, _ in ALL]
NODE: dict[str, Any] = {
    "metadata": {"name": "a", "labels": {"kubernetes.io/hostname": "a"}},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {"cpu": "3500m", "memory": "8Gi", "nvidia.com/gpu": "2"},
    },
}
NFS = {"metadata": {"name": "nfs"}, "provisioner": "nfs.csi.k8s.io"}


def answers(**changed: Any) -> Answers:
    usual: dict[str, Any] = {
        "version": "v1.31.2-eks",
        "server": "https://c",
        "context": "work",
        "namespace": "team",
        "there": {"metadata": {"name": "team"}, "status": {"phase": "Active"}},
        "reviews": ALL,
        "nodes": [NODE, NODE],
        "classes": [NFS],
        "quotas": [],
        "kubelet": {"clusterDNS": ["10.0.0.10"], "clusterDomain": "cluster.local"},
        "dns": {"spec": {"clusterIP": "10.0.0.10"}},
        "has_metrics": True,
    }
    return Answers(**(usual | changed))


def judged(found: Answers, **options: Any) -> Mapping[str, Finding]:
    chosen = Kubernetes(**options)
    return {one.what: one for one in judge(found, chosen)}


def test_a_cluster_that_has_all_needs_no_advice() -> None:
    findings = judged(answers())
    assert {one.status for one in findings.values()} == {"ok"}
    assert next(iter(findings)) == "Kubernetes"
    assert findings["nodes"].found == "2 of 2 take Pods of ours: 7 cores, 16.0 GiB"
    assert findings["GPUs: nvidia.com/gpu"].found == "4 on the nodes that take Pods of ours"
    assert findings["shared volume"].found == "a claim, ReadWriteMany, of the class nfs"
    assert not any(one.below for one in findings.values())


def test_what_we_may_not_look_at_is_said_and_is_no_fault_of_the_cluster() -> None:
    findings = judged(
        answers(there=None, nodes=None, classes=None, quotas=None, kubelet=None, dns=None)
    )
    blind = {what for what, one in findings.items() if one.found.startswith("not examined")}
    named = {"namespace team", "nodes", "GPUs: nvidia.com/gpu", "DNS", "quota"}
    assert blind == named
    assert {findings[what].status for what in blind} == {"warning"}


def test_missing_permissions_are_named_with_the_role_that_helps() -> None:
    findings = judged(answers(reviews=NONE))
    assert findings["permissions"].status == "fatal"
    assert "watch" in findings["permissions"].found
    assert "get pods/log" in findings["permissions"].found
    assert "get/create pods/exec" in findings["permissions: signals"].found
    assert yaml.safe_load(findings["permissions"].below) == role("team")
    eviction = findings["permissions: eviction"]
    assert (eviction.status, eviction.found) == ("warning", "we may not: create pods/eviction")
    assert eviction.advice == "For preemptions with `via: eviction`, and drains."
    assert "pods.metrics.k8s.io" in findings["permissions: usage"].found
    some = [(one, verb, (one.resource, verb) != ("pods", "watch")) for one, verb, _ in ALL]
    assert judged(answers(reviews=some))["permissions"].found == "we may not: watch pods"


MIG = {**NODE, "status": {**NODE["status"], "allocatable": {"nvidia.com/mig-1g.5gb": "7"}}}
GOING = {"status": {"phase": "Terminating"}}
QUOTA = {
    "metadata": {"name": "q"},
    "status": {"hard": {"pods": "10", "limits.cpu": "8"}, "used": {"pods": "3"}},
}
CORP = {"clusterDNS": ["10.0.0.10"], "clusterDomain": "corp.example."}
AT = "at https://c (context work)"
NOT_ALLOWED = "The cluster would not get nodes/proxy localhost: address not allowed"
FROM_NODES = "usage of tasks: ok: from the nodes themselves"


def test_a_node_that_does_not_answer_is_not_taken_to_measure() -> None:
    """What the API server said of a node on a loopback address, when it was asked for `configz`."""

    class Server:
        def get(self, path: str) -> Any:
            assert path == "/api/v1/nodes/a/proxy/configz"
            raise ApiError(f"{NOT_ALLOWED}.", status=400)

    server = cast("ApiServer", Server())
    assert _kubelet(server, [NODE], Kubernetes()) == (None, NOT_ALLOWED)
    assert _kubelet(server, None, Kubernetes()) == (None, "")


@pytest.mark.parametrize(
    ("changed", "says", "advice"),
    [
        ({"version": "v1.19.3"}, f"Kubernetes: ok: v1.19.3 {AT}", "It is tested with 1.20 and"),
        ({"version": "v1.20.0"}, f"Kubernetes: ok: v1.20.0 {AT}", ""),
        ({"why_not_there": "no such"}, "namespace team: fatal: no such", "`kubectl create"),
        ({"there": GOING}, "namespace team: fatal: it is being deleted", "Wait until it is gone"),
        ({"refusal": ("Not on Fridays.", "Wait.")}, "a Pod: fatal: Not on Fridays.", "Wait."),
        (
            {"nodes": [MIG]},
            "GPUs: nvidia.com/gpu: missing: no node has any",
            "The nodes have nvidia.com/mig-1g.5gb: set ",
        ),
        ({"kubelet": {}}, "DNS: missing: the nodes know no cluster DNS", "Tasks find each other"),
        (
            {"kubelet": CORP},
            "DNS: warning: the cluster's domain is corp.example",
            "Set kubernetes.cluster_domain: corp.example.",
        ),
        ({"kubelet": None}, "DNS: ok: kube-dns at 10.0.0.10", ""),
        (
            {"kubelet": None, "dns": {}},
            "DNS: warning: kube-system has no Service kube-dns",
            "Tasks find each other by name",
        ),
        ({"reviews": NONE}, "usage of tasks: ok: from metrics.k8s.io: CPU and memory", ""),
        ({"has_metrics": False}, f"{FROM_NODES} (no metrics-server)", ""),
        ({"has_metrics": None}, f"{FROM_NODES} (we may not read metrics.k8s.io)", ""),
        (
            {"has_metrics": False, "kubelet": None, "why_no_kubelet": NOT_ALLOWED},
            f"usage of tasks: warning: the nodes do not answer ({NOT_ALLOWED}), no metrics-server",
            "Those columns stay empty: install metrics-server.",
        ),
        (
            {"has_metrics": False, "reviews": NONE},
            "usage of tasks: warning: nothing measures it for us (no metrics-server)",
            "Those columns stay empty",
        ),
        ({"quotas": [QUOTA]}, "quota q: ok: limits.cpu 0 of 8, pods 3 of 10", ""),
    ],
)
def test_an_answer_is_judged(changed: dict[str, Any], says: str, advice: str) -> None:
    findings = judged(answers(**changed)).values()
    given = {f"{one.what}: {one.status}: {one.found}": one.advice for one in findings}
    assert given[says].startswith(advice)
    assert bool(given[says]) == bool(advice)


def test_settings_of_a_scenario_count() -> None:
    found = judged(answers(nodes=[MIG]), gpu_resource="nvidia.com/mig-1g.5gb")
    assert found["GPUs: nvidia.com/mig-1g.5gb"].found.startswith("7 on")
    shared = judged(answers(classes=[]))["shared volume"]
    assert shared.status == "fatal"
    assert "kubernetes.shared: none" in shared.advice


def a_scenario(**options: Any) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "x",
            "framework": "none",
            "image": "none",
            "program": {"command": ["true"]},
            "cluster": {"worker": {"replicas": 1, "cpus": 0.5, "memory": "64m"}},
            "kubernetes": options,
        }
    )


def test_the_trial_is_like_a_pod_of_the_scenario() -> None:
    options = Kubernetes(run_as=7, priority_class="low", service_account="sa", registry="r:5/t")
    spec = trial_pod(options, a_scenario().cluster["worker"])["spec"]
    (container,) = spec["containers"]
    assert container["resources"]["limits"] == {"cpu": "500m", "memory": "64Mi"}
    assert container["image"].startswith("r:5/t/")
    assert (spec["priorityClassName"], spec["serviceAccountName"]) == ("low", "sa")
    assert spec["securityContext"]["runAsUser"] == 7


def test_the_manifest_has_the_smallest_role_and_what_is_optional() -> None:
    text = manifest("team")
    smallest, more, of_cluster = yaml.safe_load_all(text)
    assert smallest == role("team")
    assert {more["kind"], of_cluster["kind"]} == {"Role", "ClusterRole"}
    assert "# - nodes/proxy: usage of tasks from the nodes, where" in text


# --- A real cluster -------------------------------------------------------------------------------


Examined = Callable[..., Mapping[str, Finding]]


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> Examined:
    """Return what examines the cluster of a kubeconfig."""

    def ask(kubeconfig: Path, **options: Any) -> Mapping[str, Finding]:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        return {one.what: one for one in examine(a_scenario(**options))}

    return ask


@pytest.mark.kubernetes
def test_an_administrator_may_do_all(kubernetes_cluster: ForTest, examined: Examined) -> None:
    namespace = kubernetes_cluster.namespace
    findings = examined(kubernetes_cluster.kubeconfig, namespace=namespace)
    assert findings["Kubernetes"].status == "ok"
    assert findings[f"namespace {namespace}"].status == "ok"
    mine = [one for what, one in findings.items() if what.startswith("permissions")]
    assert len(mine) > 4
    assert {one.status for one in mine} == {"ok"}
    assert findings["a Pod"].status == "ok"
    with kubernetes_cluster.core() as core:
        assert core.list_namespaced_pod(namespace).items == []  # it was a question only


@pytest.mark.kubernetes
def test_the_smallest_role_is_enough_for_what_every_run_needs(
    kubernetes_cluster: ForTest, kubernetes_user: Callable[..., Path], examined: Examined
) -> None:
    findings = examined(kubernetes_user(role(kubernetes_cluster.namespace)["rules"]))
    assert findings["permissions"].status == "ok"
    fine = {what for what, one in findings.items() if one.status == "ok"}
    others = {what for what in fine if what.startswith("permissions: ")}
    assert others == {"permissions: signals", "permissions: notes"}
    assert findings["a Pod"].status == "ok"
    assert findings["nodes"].found.startswith("not examined")
    assert findings["usage of tasks"].status == "warning"


@pytest.mark.kubernetes
def test_all_roles_together_allow_all_checks(
    kubernetes_cluster: ForTest, kubernetes_user: Callable[..., Path], examined: Examined
) -> None:
    user = kubernetes_user(
        role(kubernetes_cluster.namespace, *USES)["rules"],
        cluster_rules=cluster_role(*USES)["rules"],
    )
    findings = examined(user)
    mine = {w: f.status for w, f in findings.items() if w.startswith("permissions")}
    assert set(mine.values()) == {"ok"}
    assert not [what for what, one in findings.items() if one.found.startswith("not examined")]
    assert "from the nodes themselves" in findings["usage of tasks"].found


@pytest.mark.kubernetes
def test_a_quota_that_is_used_up_is_found_before_a_run(
    kubernetes_cluster: ForTest, examined: Examined
) -> None:
    namespace = kubernetes_cluster.namespace
    kubernetes_cluster.limit({"limits.cpu": "250m", "pods": "5"})
    findings = examined(kubernetes_cluster.kubeconfig, namespace=namespace)
    assert findings["quota small"].found == "limits.cpu 0 of 250m, pods 0 of 5"
    assert findings["a Pod"].status == "fatal"
    assert "exceeded quota" in findings["a Pod"].found


@pytest.mark.kubernetes
def test_a_namespace_that_is_not_there(kubernetes_cluster: ForTest, examined: Examined) -> None:
    findings = examined(kubernetes_cluster.kubeconfig, namespace="no-such-one")
    missing = findings["namespace no-such-one"]
    assert (missing.status, missing.found) == ("fatal", "there is no such namespace")
    assert "a Pod" not in findings


@pytest.mark.kubernetes
def test_an_expired_token_is_one_finding(
    kubernetes_user: Callable[..., Path], examined: Examined
) -> None:
    findings = examined(kubernetes_user(seconds=-60))
    assert list(findings) == ["Kubernetes"]
    assert findings["Kubernetes"].status == "missing"
    assert "refused the login" in findings["Kubernetes"].found
    assert "log in again" in findings["Kubernetes"].advice


def test_a_machine_without_a_kubeconfig_is_one_finding(tmp_path: Path, examined: Examined) -> None:
    findings = examined(tmp_path / "none")
    assert list(findings) == ["Kubernetes"]
    assert findings["Kubernetes"].status == "missing"
    assert "No Kubernetes cluster is configured" in findings["Kubernetes"].found


# --- The command ----------------------------------------------------------------------------------


@pytest.mark.kubernetes
def test_somebody_without_a_role_is_told_which_one_helps(
    emulate: Emulate,
    kubernetes_cluster: ForTest,
    kubernetes_user: Callable[..., Path],
    examined: Examined,
) -> None:
    findings = examined(kubernetes_user())
    assert findings["Kubernetes"].status == "ok"
    assert findings["permissions"].status == "fatal"
    assert yaml.safe_load(findings["permissions"].below) == role(kubernetes_cluster.namespace)
    assert "may not create pods" in findings["a Pod"].found
    done = emulate("doctor", "--engine", "kubernetes")
    assert done.returncode == 4, done.stderr  # no run can start
    below = done.stdout[done.stdout.index("apiVersion:") :]
    assert yaml.safe_load(below) == role(kubernetes_cluster.namespace)


@pytest.mark.kubernetes
def test_kubectl_takes_the_roles_as_they_are_printed(
    emulate: Emulate, kubernetes_cluster: ForTest
) -> None:
    namespace = kubernetes_cluster.namespace
    done = emulate("doctor", "--role", *kubernetes_cluster.arguments)
    assert done.returncode == 0, done.stderr
    smallest, more, _ = yaml.safe_load_all(done.stdout)
    with kubernetes_cluster.core() as core:
        roles: Any = client.RbacAuthorizationV1Api(core.api_client)
        for one in (smallest, more):
            roles.create_namespaced_role(namespace, one)
        there = {one.metadata.name for one in roles.list_namespaced_role(namespace).items}
    assert there == {"emulator", "emulator-more"}


def test_a_cluster_that_is_not_there_is_fatal_where_it_was_named(
    emulate: Emulate, tmp_path: Path
) -> None:
    environment = {"KUBECONFIG": str(tmp_path / "none")}
    done = emulate("doctor", "--engine", "kubernetes", "--json", env=environment)
    assert done.returncode == 4
    (finding,) = done.json
    assert finding["status"] == "fatal"
    assert finding["advice"]


def test_what_is_about_one_engine_needs_its_name(emulate: Emulate) -> None:
    done = emulate("doctor", "--set", "kubernetes.namespace=x")
    assert done.returncode == 2
    assert "Add --engine NAME." in done.stderr
