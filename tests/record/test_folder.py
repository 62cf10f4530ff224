"""Which run a name means."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from emulator.cli.report import compare, runs
from emulator.cli.runs import logs
from emulator.errors import RecordError, UsageError
from emulator.record.folder import AmbiguousRun, RunFolder
from emulator.record.lock import acquire, release
from emulator.record.reader import Record
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
    other = r"The plan in /.*/mine is none of this version: JSONDecodeError: Expecting"
    with pytest.raises(RecordError, match=other):
        _ = RunFolder(out / "mine").outline
    with pytest.raises(UsageError, match=r"^nothing is no run in"):
        RunFolder.find("nothing", out)
    with pytest.raises(RecordError, match=r"Can't read .*plan.json: No such file or directory\."):
        _ = RunFolder(out / "nothing").outline
    with pytest.raises(RecordError, match=r"Can't read .*plan.json: No such file or directory\."):
        _ = Record(out / "nothing").plan
    assert Record(out / "nothing").history == ()


def test_a_run_is_not_compared_with_itself(out: Path) -> None:
    with pytest.raises(UsageError, match=r"^last and slow are the same run, crash-loop\."):
        compare(["last", "crash", "slow"], out=out)


def test_a_file_is_no_folder_of_runs(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("lines", "removed"),
    [
        ([], False),
        (['{"event": "job"}'], False),
        (['{"event": "removed"}', "x" * (16 * 1024 - 1)], False),
        (['{"event": "removed"}', "x" * (16 * 1024 - 22)], True),
        (['{"event": "removed"}', '{"event": "job"}', '"removed"', "{}", "torn"], True),
    ],
)
def test_a_run_that_has_removed_what_it_made_says_so(
    tmp_path: Path, lines: list[str], removed: bool
) -> None:
    (tmp_path / "history.jsonl").write_text("\n".join(lines))
    assert RunFolder(tmp_path).was_removed is removed


def test_a_renamed_folder_is_no_run_to_change(out: Path) -> None:
    RunFolder(out / "mine").check_name()
    (out / "mine").rename(out / "yours")
    with pytest.raises(UsageError, match=r"^/.*yours holds the record of mine under another name"):
        RunFolder(out / "yours").check_name()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, ""),
        ({"variant": None}, "variant is no text"),
        ({"engine": 3}, "engine is no text"),
        ({"verdict": "fine"}, "'fine' is no verdict"),
        ({"format": 99}, "has format 99"),
    ],
)
def test_a_summary_that_no_run_writes_is_refused(
    tmp_path: Path, changed: dict[str, object], why: str
) -> None:
    assert RunFolder(tmp_path).summary is None
    texts = dict.fromkeys(("scenario", "engine", "outcome"), "a")
    summary = {"format": FORMAT, **texts, "verdict": "ok", **changed}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    if why:
        with pytest.raises(RecordError, match=why):
            _ = RunFolder(tmp_path).summary
    else:
        assert RunFolder(tmp_path).summary == summary
        assert RunFolder(tmp_path).result("summary.json") == summary
        (tmp_path / "summary.json").write_text("{")
        assert RunFolder(tmp_path).result("summary.json") is None


def test_without_a_run_the_last_is_none_and_an_id_goes_before_a_later_scenario(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match=r"^There is no run in .*\."):
        RunFolder.find("last", tmp_path)
    make(tmp_path, [("loop", "a"), ("b", "loop")])
    assert RunFolder.find("loop", tmp_path).run_id == "loop"  # an id, of an older run
    make(tmp_path / "elsewhere", [("one", "x")])
    assert RunFolder.find(str(tmp_path / "elsewhere" / "one"), tmp_path).run_id == "one"
