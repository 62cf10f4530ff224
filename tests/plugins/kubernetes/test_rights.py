"""The smallest Role, as data."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.plugins.kubernetes.rights import (
    PERMISSIONS,
    USES,
    Permission,
    cluster_role,
    lacking,
    permissions,
    reviews,
    role,
    rules,
    why_refused,
)
from emulator.scenario.dump import dump


def test_resources_of_the_same_verbs_are_one_rule_and_so_are_the_verbs_of_one_resource() -> None:
    allowed = [
        Permission("pods", ("get",), "why"),
        Permission("services", ("get",), "why"),
        Permission("pods", ("list",), "why", group="metrics.k8s.io"),
        Permission("events", ("list", "watch"), "why"),
        Permission("nodes", ("list", "watch"), "why"),
    ]
    assert rules(allowed) == [
        {"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["get"]},
        {"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["events", "nodes"], "verbs": ["list", "watch"]},
    ]
    allowed = [
        Permission("nodes", ("get", "patch"), "to cordon"),
        Permission("nodes", ("list", "get"), "to look"),
    ]
    assert rules(allowed) == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch", "list"]}
    ]


def test_the_smallest_role_is_for_a_namespace_and_lets_nobody_see_secrets_or_nodes() -> None:
    smallest = role("team")
    assert smallest["kind"] == "Role"
    assert smallest["metadata"] == {"name": "emulator", "namespace": "team"}
    allowed = {name for rule in smallest["rules"] for name in rule["resources"]}
    assert {"pods", "pods/log", "pods/exec", "services", "configmaps", "events"} <= allowed
    assert allowed.isdisjoint({"secrets", "nodes", "nodes/proxy", "pods/eviction", "*"})
    verbs = {verb for rule in smallest["rules"] for verb in rule["verbs"]}
    assert "*" not in verbs
    assert "deletecollection" not in verbs


def test_the_page_has_the_smallest_role() -> None:
    page = (Path(__file__).parents[3] / "docs" / "kubernetes.md").read_text()
    assert f"```yaml\n{dump(role('training'), short=True)}```" in page


def test_what_is_in_no_namespace_is_only_in_the_cluster_role() -> None:
    everything = tuple(USES)
    in_namespace = {name for rule in role("x", *everything)["rules"] for name in rule["resources"]}
    of_cluster = {name for rule in cluster_role(*everything)["rules"] for name in rule["resources"]}
    assert of_cluster == {"nodes", "nodes/proxy", "storageclasses"}
    assert in_namespace.isdisjoint(of_cluster)
    assert in_namespace | of_cluster == {one.resource for one in PERMISSIONS}


def test_each_verb_is_asked_for_on_its_own() -> None:
    log = Permission("pods/log", ("get",), "why")
    nodes = Permission("nodes", ("list", "patch"), "why", of_cluster=True)
    asked = list(reviews("team", [log, nodes]))
    assert [(one.resource, verb) for one, verb, _ in asked] == [
        ("pods/log", "get"),
        ("nodes", "list"),
        ("nodes", "patch"),
    ]
    attributes = [body["spec"]["resourceAttributes"] for _, _, body in asked]
    assert attributes[0] == {
        "namespace": "team",
        "verb": "get",
        "group": "",
        "resource": "pods",
        "subresource": "log",
    }
    assert attributes[1]["namespace"] == ""


def test_permissions_are_found_by_their_use_and_the_smallest_role_lacks_none_of_a_run() -> None:
    assert lacking(role("team")["rules"], permissions("run", "signals", "notes")) == []
    assert lacking(role("team")["rules"], permissions("eviction")) != []
    assert [one.resource for one in permissions("eviction")] == ["pods/eviction"]
    assert {one.use for one in PERMISSIONS} == set(USES)
    assert all(one.why for one in PERMISSIONS)


def rule(*resources: str, verbs: str = "get", group: str = "", **more: object) -> dict[str, object]:
    return {"apiGroups": [group], "resources": resources, "verbs": [verbs], **more}


PODS, LOG = Permission("pods", ("get", "list"), "why"), Permission("pods/log", ("get",), "why")
ALL = [(PODS, "get"), (PODS, "list"), (LOG, "get")]


@pytest.mark.parametrize(
    ("allowed", "missing"),
    [
        ([], ALL),
        ([rule("*", verbs="*", group="*")], []),
        ([rule("pods", "pods/log", verbs="*")], []),
        ([rule("pods", verbs="*"), rule("*/log")], []),
        ([rule("pods"), rule("pods/log")], [(PODS, "list")]),
        ([rule("pods", verbs="*"), rule("pods/exec")], [(LOG, "get")]),
        ([rule("*", verbs="*", group="apps")], ALL),
        ([rule("*", verbs="*", resourceNames=["one"])], ALL),
    ],
)
def test_what_rules_do_not_allow(
    allowed: list[dict[str, object]], missing: list[tuple[Permission, str]]
) -> None:
    assert lacking(allowed, [PODS, LOG]) == missing


def test_what_is_missing_is_said_at_once() -> None:
    message, hint = why_refused(ALL, "team")
    assert "may not get/list pods, get pods/log in the namespace team" in message
    assert "emulate doctor --engine kubernetes" in hint
    message, hint = why_refused([(LOG, "get")], "team")
    assert "may not get pods/log in" in message
    assert hint.startswith('A Role with the verb "get" for "pods/log" allows it')
