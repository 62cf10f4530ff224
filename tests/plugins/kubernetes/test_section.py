"""Section `kubernetes` of a scenario: its defaults, and what is wrong with a value."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from emulator.plugins.kubernetes.section import Kubernetes, Toleration
from tests.scenario.mistakes import only_problem

NO_EXECUTE = {"key": "a", "effect": "NoExecute"}
TEXT = "name: t\nprogram: {command: [a]}\ncluster: {worker: 1}\n"


def test_every_key_is_read() -> None:
    given = {
        "context": "kind-a b", "namespace": "team-1", "image_pull_policy": "Always",
        "image_pull_secret": "my.login", "registry": "localhost:5000/team/a",
        "node_selector": {"kubernetes.io/arch": "amd64", "pool": ""},
        "tolerations": [{"key": "spot", "effect": "NoExecute", "toleration_seconds": 5}],
        "priority_class": "low", "service_account": "trainer", "storage_class": "fast.ssd",
        "shared": "claim", "run_as": 1000, "init": False,
        "gpu_resource": "nvidia.com/mig-1g.5gb", "cluster_domain": "example.org",
        "start_timeout": "10m", "outage_timeout": "30s",
    }  # fmt: skip
    read = Kubernetes.model_validate(given)
    assert read.model_fields_set == set(Kubernetes.model_fields)
    assert read.start_timeout == 600.0
    stored = Kubernetes.model_validate(read.model_dump(mode="json"))
    assert stored == read


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("context", " ", "kubectl config get-contexts"),
        ("context", "a\nb", "kubectl config get-contexts"),
        ("namespace", "Team", "'Team' is not the name of a namespace"),
        ("namespace", "a.b", "is not the name of a namespace"),
        ("namespace", "a" * 64, "at most 63"),
        ("image_pull_policy", "Sometimes", "'Always', 'IfNotPresent' or 'Never'"),
        ("image_pull_secret", "a_b", "is not the name of an object"),
        ("priority_class", "", "is not the name of an object"),
        ("priority_class", "a." * 126 + "aa", "is not the name of an object"),
        ("context", "a" * 254, "at most 253 characters"),
        ("run_as", 2**31, "less than or equal to 2147483647"),
        ("registry", "https://host/x", "is not a registry, such as localhost:5000/team"),
        ("registry", "host/Team", "is not a registry"),
        ("registry", "host/", "is not a registry"),
        ("registry", "Team/a", "is not a registry"),
        ("node_selector", {"a b": "c"}, "is not the key of a label"),
        ("node_selector", {"/a": "c"}, "is not the key of a label"),
        ("node_selector", {"a": "c d"}, "is not the value of a label"),
        ("shared", "nfs", "'auto', 'claim', 'host-path' or 'none'"),
        ("run_as", 0, "greater than or equal to 1"),
        ("run_as", "1000", "valid integer"),
        ("init", "no", "valid boolean"),
        ("gpu_resource", "gpu", "such as nvidia.com/gpu or nvidia.com/mig-1g.5gb"),
        ("cluster_domain", "cluster_local", "is not a domain, such as cluster.local"),
        ("start_timeout", "0s", "0s leaves no time"),
        ("outage_timeout", "0", "0s leaves no time"),
        ("namespaces", "a", "Extra inputs are not permitted"),
        ("tolerations", [{"key": "a", "operator": "Exists", "value": "b"}], "has no `value`"),
        ("tolerations", [{"value": "b"}], "needs a `key`"),
        ("tolerations", [{"operator": "Equal"}], "needs a `key`"),
        ("tolerations", [{"key": "a", "toleration_seconds": 5}], "needs `effect: NoExecute`"),
        ("tolerations", [{**NO_EXECUTE, "toleration_seconds": -1}], "greater than or equal"),
    ],
)
def test_what_is_wrong_is_said(key: str, value: Any, message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Kubernetes.model_validate({key: value})
    assert message in str(refused.value)


@pytest.mark.parametrize("host", ["Host.Example", "HOST:5000", "localhost", "team"])
def test_only_the_host_of_a_registry_may_have_capitals(host: str) -> None:
    assert Kubernetes.model_validate({"registry": f"{host}/a"}).registry == f"{host}/a"


def test_a_mistake_has_its_line() -> None:
    found = only_problem(f"{TEXT}kubernetes: {{namespace: A}}")
    assert found.startswith("s.yaml:4: kubernetes.namespace: 'A' is not the name")


@pytest.mark.parametrize(
    ("given", "operator"),
    [
        ({}, "Exists"),
        ({"key": "a"}, "Exists"),
        ({"key": "a", "value": "b"}, "Equal"),
        ({"key": "a", "value": ""}, "Equal"),
        ({"key": "a", "operator": "Equal"}, "Equal"),
        ({"key": "a", "operator": "Exists"}, "Exists"),
    ],
)
def test_the_operator_follows_from_the_value(given: Any, operator: str) -> None:
    assert Toleration.model_validate(given).tolerates_any_value == (operator == "Exists")


def test_what_was_removed_says_what_to_do_instead() -> None:
    assert only_problem(f"{TEXT}kubernetes: {{dcgm: gpu-operator/dcgm:9400}}") == (
        "s.yaml:4: kubernetes.dcgm: was removed (leave it out; a program that measures its GPU "
        "reports that as values of its steps)"
    )
