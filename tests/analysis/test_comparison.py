"""Runs side by side: what differs between scenarios, a row for each run, and the table."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
import yaml
from rich.console import Console

from emulator.analysis.analyse import Analysis
from emulator.analysis.comparison import IRRELEVANT, Row, differences, rows, written
from emulator.analysis.expectations import Verdict
from emulator.analysis.throughput import Rate, Throughput
from emulator.planning.plan import Plan
from emulator.planning.planner import make_plan
from emulator.report.terminal import print_comparison
from emulator.scenario.loader import parse
from tests.histories import SITE

TEXT = """\
name: base
framework: none
program: {command: [train, --steps, 10]}
cluster: {worker: 2}
faults:
  - {preempt: worker-1, at: {step: 300}, grace: 2s}
"""
RAN = Analysis(
    outcome="succeeded",
    reason="worker-0 finished",
    duration=10.00004,
    tasks={},
    final_step=50,
    steps_per_second=20.0,
    restarts=2,
    lost_steps=10,
    recoveries=[5.0, 7.50001],
    goodput=0.4,
)
OK = [Verdict("outcome", "ok", "succeeded", "succeeded")]
FAILED = [Verdict("outcome", "failed", "succeeded", "failed")]


def plan(*sets: str, variant: str = "", run_id: str = "run-1") -> Plan:
    return make_plan(parse(TEXT, sets=sets), run_id, SITE, variant=variant)


def differing(*sets: str) -> dict[str, list[Any]]:
    """Return how scenarios differ of which each has one change, or none."""
    scenarios = [plan(*filter(None, [one])).scenario for one in sets]
    return differences([one.model_dump(mode="json", exclude=IRRELEVANT) for one in scenarios])


@pytest.mark.parametrize(
    ("sets", "result"),
    [
        (["", ""], {}),
        (["restart.policy=never", ""], {}),  # the default, written or not
        (["description=other words", ""], {}),
        (
            ["restart.policy=never", "restart.policy=on-failure"],
            {"restart.policy": ["never", "on-failure"]},
        ),
        (["cluster.worker=2", "cluster.worker=4", ""], {"cluster.worker.replicas": [2, 4, 2]}),
        (["faults.0.grace=1s", "faults.0.grace=5s"], {"faults.0.grace": ["1s", "5s"]}),
        (
            ["faults.0.at={step: 10}", "faults.0.at=40s"],
            {"faults.0.at.time": [None, "40s"], "faults.0.at.step": [10, None]},
        ),
        (["program.command.2=5", ""], {"program.command.2": ["5", "10"]}),
        (
            ["program.command=[train]", ""],
            {"program.command": [["train"], ["train", "--steps", "10"]]},
        ),
        (["program.env.A=1", ""], {"program.env.A": ["1", None]}),
        (["timeout=5s", ""], {"timeout": ["5s", None]}),
    ],
)
def test_keys_that_differ_are_named_as_set_takes_them(
    sets: list[str], result: dict[str, list[Any]]
) -> None:
    assert differing(*sets) == result


def test_a_fault_of_another_kind_is_shown_whole_and_what_is_not_set_as_such() -> None:
    assert differing("", "faults=[{pause: worker-0, at: 5s, for: 1s}]").keys() == {"faults.0"}
    assert (written(None), written(""), written("a"), written(5)) == ("not set", "''", "a", "5")
    assert written({"at": {"step": 2000}, "no": None}) == "{at: {step: 2000}}"


def test_a_default_is_named_as_such_where_another_has_written_something_else() -> None:
    runs = [plan(), plan("restart.limit=3", "faults.0.warm=true", "cluster.worker=4", "timeout=5s")]
    first, second = rows([(one, RAN, OK) for one in runs])
    assert {key: (first.words(key), second.words(key)) for key in first.differs} == {
        "cluster.worker.replicas": ("2", "4"),
        "restart.limit": ("5 (default)", "3"),
        "faults.0.warm": ("false (default)", "true"),
        "timeout": ("not set", "5s"),
    }


def test_a_fault_that_only_one_has_is_shown_whole() -> None:
    result = differing("", "faults=[]")
    assert result.keys() == {"faults.0"}
    first, second = result["faults.0"]
    assert (first["preempt"], second) == ("worker-1", None)


# --- The table, of which tests/report/expected/comparison.txt shows most ------------------------


def table(*compared: Row, width: int = 140) -> list[str]:
    out = io.StringIO()
    print_comparison(compared, Console(file=out, width=width))
    return [" ".join(line.split()) for line in out.getvalue().splitlines() if line.strip()]


def two(**second: Any) -> tuple[Row, Row]:
    other = plan("seed=2", run_id="run-2"), replace(RAN, **second), FAILED
    one, two = rows([(plan("seed=1"), RAN, OK), other])
    return one, two


def test_no_ratio_to_nothing() -> None:
    first, second = two()
    figures = {**first.figures, "steps_per_second": None, "goodput": 0.0}
    lines = table(replace(first, figures=figures), second)
    assert lines[-1] == "run-2 succeeded failed 50 10 2 7.50s x1.00 40% 20.0 10.0s x1.00"


def named(first: str, second: str, width: int = 140, **changes: Any) -> list[str]:
    """Return the table of two variants with these labels."""
    one, other = two(**changes)
    return table(replace(one, variant=first), replace(other, variant=second), width=width)


@pytest.mark.parametrize("width", [80, 100, 120, 140])
def test_no_word_is_broken_on_any_terminal(width: int) -> None:
    labels = ("restart.policy=never", "restart.policy=on-failure [a]")
    lines = named(*labels, width, goodput=0.8, outcome="interrupted")
    for word in [*labels[1].split(), "succeeded", "interrupted", "restarts", "x2.00"]:
        assert any(word in line.split() for line in lines), word


def test_what_tasks_report_is_a_second_table() -> None:
    told = {
        "loss": {"worker-0": 0.25, "worker-1": 0.5},
        "staleness": {"chief-0": 1.0},
        "examples": {"chief-0": 640.0},
        "accuracy": {"chief-0": 0.93},
    }
    lines = table(*two(values=told, accuracy=0.93, examples_per_second=1280.0))
    assert lines[-4].split() == ["run", "examples/s", "accuracy", "loss", "staleness"]
    assert lines[-2:] == ["run-1", "run-2 1280 0.930 0.25 to 0.5 1"]


# --- Scaling ------------------------------------------------------------------------------------


def scaled(rate: Rate) -> Row:
    """Return the row of a run of two workers, against one worker with 10 steps a second."""
    first = plan("cluster.worker=1", "faults=[]")
    baseline = replace(RAN, throughput=Throughput(Rate(10, 320)))
    run = replace(RAN, throughput=Throughput(rate))
    return rows([(plan("cluster.worker=2"), run, OK)], (first, baseline, OK))[0]


def test_a_baseline_gives_each_run_its_efficiency() -> None:
    row = scaled(Rate(9, 576))
    assert (row.efficiency, row.efficiency_by) == (0.9, "examples")
    lines = table(row)
    assert lines[0].endswith(" took efficiency")
    assert lines[-1].endswith(" 10.0s 0.90")
    # The header stays whole where it is narrow.
    row = replace(scaled(Rate(18, 900)), run_id="mwms-1120180437-5d2e31")
    for width in (100, 110, 120, 130):
        assert any(line.rstrip().endswith("efficiency") for line in table(row, width=width))


def test_a_fault_that_differs_is_shown_as_it_was_written() -> None:
    for fault in (
        "{preempt: worker-1, at: {step: 300}, grace: 2s}",
        "{partition: [[worker-0], [worker-1]], at: 5s, for: 1s}",
        "{preempt: worker-1, at: 5s, loss: silent}",  # what is stored has the grace that it lacks
    ):
        dumped = plan(f"faults=[{fault}]").scenario.model_dump(mode="json")["faults"]
        shown = yaml.safe_load(written(dumped))[0]
        assert shown.keys() == yaml.safe_load(fault).keys(), shown
