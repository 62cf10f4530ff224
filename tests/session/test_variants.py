"""Variants in a row: read before the first runs, ended by Ctrl-C or an error, judged as a whole."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from emulator.engines.memory import MemoryEngine, Script
from emulator.errors import EngineLost, UsageError
from emulator.planning.requested import RequestedScenario, RunOptions
from emulator.report.listings import print_runs
from emulator.results import Result, RunCallbacks
from emulator.runtime.clock import ManualClock
from emulator.scenario.given import read_scenario
from emulator.scenario.matrix import variants
from emulator.session.variants import (
    PlannedVariant,
    Sweep,
    compare,
    judge_all,
    plan_all,
    read_all,
    up_all,
)
from tests.report.runs import ran

TEXT = "name: s\nframework: none\nprogram: {command: [a]}\ncluster: {worker: 1}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "s.yaml"
    path.write_text(TEXT)
    return path


def planned(path: Path, *varied: str, run_id: str | None = "x") -> list[PlannedVariant]:
    actual = variants(varied)
    engine, read = MemoryEngine(ManualClock(), {}), read_all(at(path), actual)
    return plan_all(actual, read, engine, RunOptions(out=path.parent / "runs", run_id=run_id))


def at(path: Path, *sets: str) -> RequestedScenario:
    return RequestedScenario(read_scenario(path), path, chosen=sets)


def problems(path: Path, varied: Sequence[str], set_: Sequence[str] = ()) -> list[str]:
    """Return the lines of what reading variants is refused with."""
    with pytest.raises(UsageError) as refused:
        read_all(at(path, *set_), variants(varied))
    return str(refused.value).splitlines()


def ended(tmp_path: Path, exit_code: int = 0) -> Callable[[PlannedVariant], Result]:
    """Return what runs a variant at once, on a manual clock; its tasks exit with a code."""
    scripts = {"*": Script(exits_at=1, exit_code=exit_code)}

    def run(variant: PlannedVariant) -> Result:
        how = {"run_id": variant.folder.name, "variant": variant.options.variant}
        sets = variant.requested.chosen
        return ran(tmp_path / "runs", TEXT, scripts, sets, RunCallbacks(), **how)

    return run


def test_variants_are_numbered_and_have_their_overrides(path: Path) -> None:
    first, second = planned(path, "cluster.worker=1,3")
    assert (first.number, first.options.variant) == (1, "cluster.worker=1")
    assert (second.number, second.options.variant) == (2, "cluster.worker=3")
    assert (first.folder.name, second.options.run_id) == ("x-1", "x-2")
    assert second.requested.scenario.cluster["worker"].replicas == 3
    first, second = planned(path, "seed=1,2", run_id=None)  # they share a new one
    assert first.folder.name.startswith("s-")
    assert first.folder.name.removesuffix("-1") == second.folder.name.removesuffix("-2")


def test_every_problem_has_the_label_of_its_variant_and_one_of_all_has_none(path: Path) -> None:
    varied = ["restart.policy=nevr,always", "timeout=5,3s"]
    assert problems(path, varied, ["seed=x"]) == [
        "restart.policy=nevr timeout=5 (and 1 more): --vary restart.policy=nevr: "
        "restart.policy: 'nevr' is not allowed (did you mean 'never'?)",
        "--set seed=x: seed: 'x' should be a whole number",
        "restart.policy=nevr timeout=5 (and 1 more): --vary timeout=5: "
        "timeout: '5' is not a duration; write '5s'",
    ]
    # Overrides that can't be applied:
    assert problems(path, ["program.command.0=b,c", "faults.0.grace=1s,2s"]) == [
        f"program.command.0=b faults.0.grace={grace} (and 1 more): "
        f"--vary faults.0.grace={grace}: the list has no entry 0."
        for grace in ("1s", "2s")
    ]
    path.write_text(TEXT + "timeout: 5\n")
    whole = f"{path}:5: timeout: '5' is not a duration; write '5s'"
    assert problems(path, ["seed=1,2"]) == [whole]


def test_an_unsupported_variant_is_named_by_its_label(path: Path) -> None:
    with pytest.raises(UsageError, match=r"^cluster\.worker\.gpus=1: .* GPU"):
        planned(path, "cluster.worker.gpus=0,1")


def test_a_taken_folder_is_refused_before_anything_runs(path: Path, tmp_path: Path) -> None:
    ended(tmp_path)(planned(path, "seed=1,2")[1])
    with pytest.raises(UsageError, match=r"^seed=2: There is a run in .*/x-2 already"):
        planned(path, "seed=1,2")


def test_all_are_run_even_if_one_fails_and_keep_their_labels(path: Path, tmp_path: Path) -> None:
    sweep = up_all(planned(path, "seed=1,2"), ended(tmp_path))
    assert [record.plan.variant for record in sweep.records] == ["seed=1", "seed=2"]
    assert [row.differs for row in compare(judge_all(sweep.records))] == [{"seed": 1}, {"seed": 2}]
    summary = sweep.records[1].result("summary.json")
    assert summary is not None
    assert summary["variant"] == "seed=2"
    assert sweep.exit_code == 0
    others = planned(path, "seed=1,2", run_id="y")
    assert up_all(others, ended(tmp_path, 9)).exit_codes == [1, 1]


def test_the_list_of_runs_shows_a_label_as_it_is(path: Path, tmp_path: Path) -> None:
    variant = "program.command=[a]"
    sweep = up_all(planned(path, variant), ended(tmp_path))
    out = io.StringIO()
    print_runs(sweep.records, {}, Console(file=out, width=120))
    assert f"s {variant} " in out.getvalue()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), EngineLost("The engine is gone.")])
def test_what_ends_one_ends_all(path: Path, tmp_path: Path, error: BaseException) -> None:
    begun: list[int] = []

    def run(variant: PlannedVariant) -> Result:
        begun.append(variant.number)
        if variant.number == 2:
            raise error
        return ended(tmp_path)(variant)

    sweep = up_all(planned(path, "seed=1,2,3"), run)
    assert begun == [1, 2]
    assert [record.run_id for record in sweep.records] == ["x-1"]
    assert sweep.failure is (error if isinstance(error, EngineLost) else None)
    assert sweep.exit_code == (4 if sweep.failure else 130)


@pytest.mark.parametrize(
    ("codes", "worst"),
    [([0, 0], 0), ([0, 3], 3), ([3, 1, 0], 1), ([1, 4], 4), ([4, 130], 130), ([0, 130], 130)],
)
def test_the_worst_counts(codes: list[int], worst: int) -> None:
    assert Sweep(exit_codes=codes).exit_code == worst
