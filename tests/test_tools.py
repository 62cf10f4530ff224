"""What runs and measures the tests: scheduler, mutants, clusters, benchmarks."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.bench import BENCHMARKS
from benchmarks.figures import Figure, tables, worse
from scripts.mutate.__main__ import stages
from scripts.mutate.mutants import ROOT, mutants
from tests.scheduling import LANES, TRAININGS, chosen, lane, unit

TRAINING, CLUSTER = "scenarios/a.yaml::a", "tests/plugins/kubernetes/test_x.py::test_a"
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
    assert all((ROOT / place).exists() for place in TRAININGS)


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


# --- The mutants of `scripts/mutate` are code, differ from what they replace, and have tests ------

MODULE = Path("emulator/analysis/throughput.py")


def test_a_mutant_is_other_code() -> None:
    source = (ROOT / MODULE).read_bytes()
    before = ast.dump(ast.parse(source))
    found = mutants(MODULE)
    assert {"comparison", "guard", "constant", "operator"} <= {mutant.kind for mutant in found}
    for mutant in found:
        assert ast.dump(ast.parse(mutant.of(source))) != before, mutant


def test_a_mutant_runs_against_what_is_named_like_its_module_then_its_folder_then_all() -> None:
    assert list(stages(Path("emulator/analysis/traffic.py"))) == [
        ("named", ["tests/analysis/test_traffic.py"]),
        ("folder", ["tests/analysis"]),
        ("quick", ["tests"]),
    ]


# --- How figures of the benchmarks are compared and shown -----------------------------------------

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def test_a_figure_got_worse_if_it_grew_by_more_than_a_tenth() -> None:
    now = {"a": 1.11, "b": 1.09, "c": 0.5, "new": 9.0}
    figures = [Figure(key, key.upper(), value, "s") for key, value in now.items()]
    assert worse({"a": 1.0, "b": 1.0, "c": 1.0}, figures) == ["a (A): 1 -> 1.11 s"]


def test_a_table_says_which_goals_were_reached() -> None:
    figures = [
        {"key": "a", "title": "A", "value": 0.1234, "unit": "s", "goal": 0.15},
        {"key": "b", "title": "B", "value": 2.0, "unit": "ms", "goal": 1.0},
        {"key": "c", "title": "C", "value": 2.0, "unit": "ms", "goal": None},
    ]
    table = {"command": "x", "commit": "c0", "date": "d", "machine": "m", "figures": figures}
    assert tables({"one": table})["one"].splitlines() == [
        "`x` at c0, d; m.",
        "",
        "| | measured | goal | reached |",
        "|---|---|---|---|",
        "| A | 0.123 s | 0.15 | yes |",
        "| B | 2 ms | 1 | **no** |",
        "| C | 2 ms |  |  |",
    ]


def test_every_benchmark_has_its_place_on_the_page() -> None:
    page = PAGE.read_text()
    for name in BENCHMARKS:
        assert f"<!-- {name} -->\n" in page
        assert f"<!-- end of {name} -->\n" in page
