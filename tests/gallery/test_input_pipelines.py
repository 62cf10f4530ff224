"""The page of input pipelines: what limits each of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gallery.input_pipelines import (
    CHART,
    POLICIES,
    POSITIONS,
    SCENARIO,
    TEXTS,
    Costs,
    blocks,
    charts,
    costs_of,
)
from benchmarks.gallery.runs import Run
from emulator.runtime.bundled import scenario_path
from emulator.scenario.loader import load


def commands() -> tuple[list[str], list[str]]:
    """Return the commands of the scenario's two roles."""
    scenario = load(scenario_path(Path(SCENARIO)))
    return list(scenario.cluster["ingest"].command or ()), list(scenario.program.command)


def a_run(folder: Path) -> Run:
    ingest, program = commands()
    tasks = [{"name": "ingest-0", "command": ingest}, {"name": "worker-0", "command": program}]
    (folder / "plan.json").write_text(json.dumps({"tasks": tasks}))
    values = {f"times_{name}": {"worker-0": 1.0 + n} for n, name in enumerate(TEXTS)}
    return Run(SCENARIO, "", {"values": values}, folder)


def test_the_costs_of_an_epoch_are_those_of_its_parts() -> None:
    # 8 files to open; 1437 / 8 = 180 records, 3 blocks of 60 each; 15 batches of 96
    costs = costs_of(*commands())
    assert costs.read == pytest.approx(8 * 0.025 + 24 * 0.025)
    assert costs.prepare == pytest.approx(15 * 0.025)
    assert costs.train == pytest.approx(15 * 0.01)
    assert costs.at_once == 8


def test_each_means_removes_one_limit() -> None:
    best = Costs(read=1.0, prepare=0.4, train=0.2, at_once=8).at_best()
    assert best == {
        "plain": pytest.approx(1.6),
        "prefetch": pytest.approx(1.4),  # all but the steps
        "interleave": pytest.approx(0.525),  # an eighth of the reading
        **dict.fromkeys(("map", "repeat", "cache", "autotune"), 0.2),  # now the steps
    }


def counts(scenario: str, **values: float) -> Run:
    return Run(scenario, "", {"values": {k: {"worker-0": v} for k, v in values.items()}}, Path())


def test_the_tables_have_what_was_measured_and_what_limits_it(tmp_path: Path) -> None:
    sharding = {f"{kind}_{p}": n for n, p in enumerate(POLICIES) for kind in ("missing", "doubled")}
    kinds = ("missing", "doubled", "kilobytes")
    position = {f"{kind}_{p}": n for p in POSITIONS for n, kind in enumerate(kinds)}
    runs = [
        a_run(tmp_path),
        counts("input-sharding", **sharding),
        counts("input-position", **position),
    ]
    made = blocks(runs)
    lines = made["speedups"].splitlines()
    assert lines[2] == f"| {TEXTS['plain']} | 1.0 | 1.00 |"
    assert lines[4] == f"| {TEXTS['interleave']} | 2.8 | 3.00 |"
    assert lines[9].startswith(f"| {TEXTS['autotune_by_cores']} | \N{EM DASH} |")
    assert made["policies"].splitlines()[-1] == "| `OFF` | 2 | 2 |"
    assert made["positions"].splitlines()[-1] == f"| {POSITIONS['save']} | 0 | 1 | 2 |"
    assert [len(bar.y) for bar in charts(runs)[CHART].data] == [len(TEXTS)] * 2


def test_without_the_run_it_is_said_what_is_missing() -> None:
    with pytest.raises(LookupError, match=SCENARIO):
        blocks([])
