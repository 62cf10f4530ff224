from __future__ import annotations

import pytest

from tests.scheduling import LANES, chosen, lane, unit

TRAINING, CLUSTER = "scenarios/a.yaml::a", "tests/engines/kubernetes/test_x.py::test_a"
OTHERS = ["tests/cli/test_cli.py::test_a", "tests/cli/test_cli.py::test_b"]


@pytest.mark.parametrize(
    ("nodeid", "its_lane"),
    [
        (TRAINING, "training"),
        ("tests/test_scenarios.py::test_a[mwms]", "training"),
        (CLUSTER, "kubernetes"),
        ("tests/engines/test_contract.py::test_a[kubernetes]", "kubernetes"),
        ("tests/engines/test_contract.py::test_a[docker]", ""),
        (OTHERS[0], ""),
    ],
)
def test_a_test_is_of_the_lane_of_its_place(nodeid: str, its_lane: str) -> None:
    assert lane(nodeid) == its_lane


def test_only_tests_that_share_something_stay_together() -> None:
    assert unit(OTHERS[0]) == OTHERS[0]
    assert unit("tests/report/test_browser.py::test_a") == "tests/report/test_browser.py"
    assert unit(TRAINING) == TRAINING


def test_a_worker_takes_the_first_that_waits_or_the_first_of_its_lane() -> None:
    assert chosen([TRAINING, CLUSTER, *OTHERS], {}, "gw0") == TRAINING
    held = {"gw0": {"training"}, "gw1": {""}}
    assert chosen([TRAINING, CLUSTER, *OTHERS], held, "gw2") == TRAINING
    held = {"gw0": {"kubernetes"}, "gw1": set()}
    assert chosen([TRAINING, CLUSTER, *OTHERS], held, "gw0") == CLUSTER
    assert chosen([TRAINING, *OTHERS], held, "gw0") == TRAINING
    assert chosen(OTHERS, held, "gw0") == OTHERS[0]


def test_a_full_lane_leaves_the_other_workers_to_other_tests_as_long_as_there_are_any() -> None:
    held = {f"gw{n}": {"training"} for n in range(LANES["training"])}
    assert chosen([TRAINING, CLUSTER, *OTHERS], held, "gw8") == CLUSTER
    assert chosen([TRAINING, *OTHERS], held, "gw8") == OTHERS[0]
    assert chosen([TRAINING], held, "gw8") == TRAINING
