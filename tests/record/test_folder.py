"""Which run a name means."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from emulator.cli.compare import compare
from emulator.cli.report import runs
from emulator.cli.runs import logs
from emulator.errors import RecordError, UsageError
from emulator.record.folder import AmbiguousRun, RunFolder
from emulator.record.lock import acquire, release
from emulator.record.version import FORMAT


def make(out: Path, runs: Sequence[tuple[str, str]]) -> None:
    """Make run folders, oldest first: the id and the name of the scenario of each."""
    for number, (run_id, scenario) in enumerate(runs):
        plan = out / run_id / "plan.json"
        plan.parent.mkdir(parents=True)
        outline = {"run_id": run_id, "engine": "process", "scenario": {"name": scenario}}
        plan.write_text(json.dumps({"format": FORMAT, **outline, "variant": "", "tasks": []}))
        os.utime(plan, (number, number))


RUNS = (
    ("crash-1123070000-00000a", "crash"),
    ("crash-1123080000-00000b", "crash"),
    ("crash-loop-1123090000-00000c", "crash-loop"),
    ("mine", "crash"),
    ("slow-1123100000-00000d", "slow"),
    ("crash-loop", "slow"),
)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder with RUNS."""
    make(tmp_path, RUNS)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("crash", "mine"),  # the latest of the scenario, whatever its id
        ("crash-loop", "crash-loop"),  # an id goes before a scenario
        ("slow", "crash-loop"),
        ("last", "crash-loop"),
        ("crash-1123070000-00000a", "crash-1123070000-00000a"),
        ("crash-11230700", "crash-1123070000-00000a"),
        ("slow-", "slow-1123100000-00000d"),
    ],
)
def test_a_name_means_a_run(out: Path, name: str, meant: str) -> None:
    assert RunFolder.find(name, out).run_id == meant


def test_a_beginning_that_fits_several_lists_them_the_latest_first(out: Path) -> None:
    several = "crash-11 fits several runs: crash-1123080000-00000b, crash-1123070000-00000a\\."
    with pytest.raises(AmbiguousRun, match=several):
        RunFolder.find("crash-11", out)
    # `logs` said that the name is no run, and that the latest run has no such task.
    with pytest.raises(AmbiguousRun, match=several):
        logs(["crash-11", "worker-7"], out=out)
    with pytest.raises(UsageError, match=r"^nothing is no run in .*, and crash-loop has no task"):
        logs(["nothing", "worker-7"], out=out)
    make(out, [(f"a-{number}", "x") for number in range(30)])
    with pytest.raises(AmbiguousRun, match=r"a-29, .*a-22 and 22 more\."):
        RunFolder.find("a-", out)


def test_a_run_whose_plan_is_broken_is_found_by_its_id_alone(out: Path) -> None:
    (out / "mine" / "plan.json").write_text("{")
    assert RunFolder.find("crash", out).run_id == "crash-1123080000-00000b"
    assert RunFolder.find("mine", out).run_id == "mine"
    with pytest.raises(UsageError, match="nothing is no run in"):
        RunFolder.find("nothing", out)
    with pytest.raises(RecordError, match=r"Can't read .*plan.json: No such file or directory\."):
        _ = RunFolder(out / "nothing").outline


def test_a_run_is_not_compared_with_itself(out: Path) -> None:
    with pytest.raises(UsageError, match=r"^last and slow are the same run, crash-loop\."):
        compare(["last", "crash", "slow"], out=out)


def test_a_file_is_no_folder_of_runs(tmp_path: Path) -> None:
    """It was `no such run`, and success."""
    (tmp_path / "f").touch()
    with pytest.raises(UsageError, match="f is no folder of runs: it is a file"):
        runs(out=tmp_path / "f")


def test_what_is_under_way_goes_before_what_is_over(out: Path) -> None:
    first = "crash-1123070000-00000a"
    lock = acquire(out / first)
    try:
        live = {"crash": first, "last": first, "slow": "crash-loop", "mine": "mine"}
        assert {name: RunFolder.find(name, out, live=True).run_id for name in live} == live
        assert RunFolder.find("crash", out).run_id == "mine"
    finally:
        release(lock)
