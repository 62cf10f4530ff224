"""Section `operator`: what it may be given beside, and the roles of its job."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from emulator.errors import ScenarioError
from emulator.scenario.frameworks.table import roles_of
from emulator.scenario.loader import parse
from emulator.scenario.schema import Scenario

TFJOB: dict[str, Any] = {
    "name": "x",
    "program": {"command": ["true"]},
    "cluster": {"worker": 2},
    "operator": {"kind": "TFJob", "job": "mnist"},
}
PYTORCHJOB: dict[str, Any] = {
    **TFJOB,
    "framework": "pytorch",
    "operator": {"kind": "PyTorchJob", "job": "mnist"},
}


def read(base: dict[str, Any], **changes: Any) -> Scenario:
    own = changes.pop("operator", {})
    return parse(yaml.safe_dump({**base, **changes, "operator": {**base["operator"], **own}}))


def test_the_defaults_are_those_of_the_operator() -> None:
    tfjob, pytorchjob = read(TFJOB).operator, read(PYTORCHJOB).operator
    assert tfjob is not None
    assert pytorchjob is not None
    assert (tfjob.policy_of("worker"), tfjob.port_of("worker")) == ("never", 2222)
    assert (pytorchjob.policy_of("worker"), pytorchjob.port_of("worker")) == ("on-failure", 23456)
    assert (tfjob.clean_pods, tfjob.backoff_limit, tfjob.success) == ("none", None, "default")
    assert tfjob.pod("worker", 1) == "mnist-worker-1"


@pytest.mark.parametrize(
    ("base", "changes", "expected"),
    [
        (TFJOB, {"restart": "always"}, "restart.policy: can't be set beside `operator`"),
        (TFJOB, {"restart": {"limit": 3}}, "instead: `operator.backoff_limit`"),
        (TFJOB, {"restart": {"scope": "job"}}, "the operator restarts single pods"),
        (TFJOB, {"success": "auto"}, "success: can't be set beside `operator`"),
        (TFJOB, {"rendezvous": "tf-config"}, "rendezvous: can't be set"),
        (PYTORCHJOB, {"elastic": {"min": 1}}, "instead: `operator.elastic`"),
        (TFJOB, {"framework": "pytorch"}, "a TFJob can't have framework pytorch"),
        (TFJOB, {"operator": {"elastic": {"min": 1}}}, "it is for a PyTorchJob"),
        (TFJOB, {"operator": {"nproc_per_node": 2}}, "operator.nproc_per_node: a TFJob has none"),
        (PYTORCHJOB, {"operator": {"dynamic_worker": True}}, "it is for a TFJob"),
        (PYTORCHJOB, {"operator": {"success": "all-workers"}}, "it is for a TFJob"),
        (TFJOB, {"operator": {"restart": {"workr": "always"}}}, "did you mean 'worker'?"),
        (TFJOB, {"operator": {"ports": {"ps": 2222}}}, "is not a role of the cluster"),
        (TFJOB, {"operator": {"ports": {"worker": 0}}}, "operator.ports.worker"),
        (TFJOB, {"operator": {"job": "Mnist"}}, "operator.job"),
        (TFJOB, {"operator": {"job": "m" * 60}}, "would have a name of 69 characters"),
        (TFJOB, {"cluster": {"worker": 11}, "operator": {"job": "m" * 54}}, "of 64 characters"),
        (
            TFJOB,
            {"operator": {"quirks": []}},
            "operator.quirks: was removed (leave it out; `emulate",
        ),
        (TFJOB, {"cluster": {"chief": 1, "master": 1}}, "either a chief or a master"),
        (TFJOB, {"cluster": {"master": 2}}, "there can be only one master"),
        (
            TFJOB,
            {"cluster": {"worker": 1, "data": {"before": "training"}}},
            "a TFJob has no tasks before training",
        ),
        (
            PYTORCHJOB,
            {"cluster": {"master": 1}, "operator": {"elastic": {}}},
            "an elastic job needs workers",
        ),
        (PYTORCHJOB, {"operator": {"elastic": {"min": 3, "max": 2}}}, "min is 3, but max is 2"),
    ],
)
def test_what_does_not_fit_is_a_mistake(
    base: dict[str, Any], changes: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ScenarioError) as error:
        read(base, **changes)
    assert expected in str(error.value)


def test_a_limit_may_be_reached() -> None:
    assert read(TFJOB, cluster={"worker": 10}, operator={"job": "m" * 54}).operator
    assert read(PYTORCHJOB, operator={"elastic": {"min": 2, "max": 2}}).operator


def test_backoff_and_stall_may_be_set() -> None:
    assert read(TFJOB, restart={"backoff": "2s", "stall": "1m"}).restart.backoff == 2


def test_a_tfjob_may_have_a_master_that_leads() -> None:
    scenario = read(TFJOB, cluster={"master": 1, "ps": 1, "worker": 1, "evaluator": 1})
    roles = roles_of(scenario)
    assert roles.leader([f"{role}-0" for role in scenario.cluster]) == "master-0"
    assert roles.trains("master")
