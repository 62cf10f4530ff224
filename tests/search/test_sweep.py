"""Whole sweeps: programs that save wrongly are caught, and their mended versions pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import emulator
from emulator.cli.sweep import fault_of
from emulator.errors import UsageError
from emulator.planning.claims import Capacity, Need
from emulator.record.reader import Record
from emulator.search.page import render
from emulator.search.sweep import WORST, Question, Sweep, side_by_side
from emulator.session.launch import read
from tests.conftest import Emulate, left, wait_for_line
from tests.engines.test_calls import MAY_TRACE

KILL = "--fault={kill: worker-0}"
ON_PROCESSES = "--engine=process"
traced = pytest.mark.skipif(
    not MAY_TRACE, reason="this machine does not let a user trace what others have started"
)


def command_of(saves: str, *, mended: bool) -> str:
    words = ["python", "saves.py", "--saves", saves, *(["--mended"] if mended else [])]
    return f"--set=program.command=[{', '.join(words)}]"


def swept(emulate: Emulate, saves: str, at: str, *more: str, mended: bool = False) -> Any:
    """Return what a sweep says, and its exit code."""
    sweep = f"saves-{saves}", KILL, f"--at={at}", command_of(saves, mended=mended)
    done = emulate("sweep", *sweep, ON_PROCESSES, f"--out={emulate.out}", "--json", *more)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.json


@traced
@pytest.mark.parametrize(
    ("saves", "at", "what"),
    [
        ("in-place", "every write of weights.bin", "wrong"),
        ("newest", "every write of a save", "wrong"),
        ("tracker", "every write of *.bin.tmp, each rename of *.bin", "lost"),
    ],
)
def test_a_program_that_saves_wrongly_is_caught_and_its_mended_version_passes(
    saves: str, at: str, what: str, emulate: Emulate
) -> None:
    code, found = swept(emulate, saves, at, "--most=2", "--run-id=wrong")
    assert (code, found["counts"][what]) == (1, 2), found
    assert {point["last_save"] for point in found["points"]} == {10}
    assert found["left_out"] > 0
    worst = emulate("up", emulate.out / "wrong" / WORST, f"--out={emulate.out}", ON_PROCESSES)
    worst.ended(1)  # it expects what was not met
    assert "<h1>wrong</h1>" in (emulate.out / "wrong" / "sweep.html").read_text()
    at = "every write of a save, each rename"
    code, found = swept(emulate, saves, at, "--most=2", mended=True)
    assert (code, found["counts"]["right"]) == (0, 2), found
    assert found["worst"] is None


@traced
def test_a_killed_sweep_goes_on_where_it_was(emulate: Emulate) -> None:
    asked = (
        *("sweep", "saves-tracker", KILL, "--at=every write of a save", ON_PROCESSES),
        *(command_of("tracker", mended=True), "--at-once=1", "--most=4"),
        *(f"--out={emulate.out}", "--run-id=again", "--json"),
    )
    process = emulate.start(*asked)
    wait_for_line(process, "2 of 4")
    process.kill()
    process.wait()
    folder = emulate.out / "again"
    ended = {path.parent.name for path in folder.glob("*/summary.json")}
    assert {"again-1", "again-2"} <= ended
    state = (folder / "sweep.json").read_text()
    done = emulate(*asked)
    assert done.returncode == 0, done.stderr
    assert (folder / "sweep.json").read_text() == state
    runs = [point["run"] for point in done.json["points"]]
    assert runs[:2] == ["again-1", "again-2"]
    assert [left("process", name) for name in (*runs, *ended)] == [[]] * (len(runs) + len(ended))
    for run in runs:
        assert Record(folder / run).result("summary.json") is not None
    other = emulate(*asked[:3], "--at=every fsync of a save", *asked[4:])
    assert other.ended(2).stderr.endswith("its at differs. Choose another --run-id.\n"), (
        other.stderr
    )


@traced
def test_a_sweep_of_a_job_that_never_saves_twice_says_so(tmp_path: Path) -> None:
    scenario = {
        **{"name": "none", "image": "none", "framework": "none", "cluster": {"worker": 1}},
        "program": {"command": ["python3", "-c", "print('nothing')"]},
    }
    with pytest.raises(UsageError, match="worker-0 made no save that can be told"):
        emulator.sweep(
            scenario,
            fault={"kill": "worker-0"},
            at="every write of a save",
            engine="process",
            out=tmp_path,
        )


# --- Without a run --------------------------------------------------------------------------------


def question(at: str = "step 10", fault: Any = None) -> Question:
    scenario = {"name": "a", "framework": "none", "program": {"command": ["a"]},
                "cluster": {"worker": 1}, "faults": [{"kill": "worker-0", "at": "1s"}]}  # fmt: skip
    return Question(read(scenario, [Path.cwd()]), fault or {"kill": "worker-0"}, at)


def test_the_faults_of_the_scenario_are_left_out() -> None:
    moment = emulator.moments("step 10")[0]
    assert moment == {"step": 10}
    (fault,) = question().variant([{"kill": "worker-0", "at": moment}]).scenario.faults
    assert fault.at is not None
    assert fault.at.step == 10
    assert question().variant([]).scenario.faults == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("kill", "is no fault"),
        ("[", "is no YAML"),
        ("{}", "is no fault"),
        ("{kill: worker-0, at: 5s}", "has no `at`"),
    ],
)
def test_what_is_no_fault_is_refused(fault: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fault_of(fault)


def test_a_mistake_is_found_before_anything_starts(tmp_path: Path) -> None:
    for wrong in (question("soon"), question(fault={"kil": "worker-0"}), question("every save")):
        with pytest.raises(UsageError):
            Sweep.open(wrong, "process", tmp_path / "a").perform()
        assert not (tmp_path / "a").exists()
    with pytest.raises(UsageError, match="known only when one was recorded"):
        emulator.moments("every write of a save")


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is in use already"):
        Sweep.open(question(), "process", tmp_path)
    (tmp_path / "sweep.json").write_text("[")
    with pytest.raises(UsageError, match="can't be read"):
        Sweep.open(question(), "process", tmp_path)
    (tmp_path / "sweep.json").write_text(json.dumps({"at": "step 11"}))
    with pytest.raises(UsageError, match="There is another sweep"):
        Sweep.open(question(), "process", tmp_path)


@pytest.mark.parametrize(
    ("need", "tasks", "count"),
    [
        (Need(0, 0, 0), 1, 4),
        (Need(0, 0, 0), 2, 2),
        (Need(0, 0, 0), 9, 1),
        (Need(0.5, 0, 0), 2, 8),
        (Need(0.5, 3, 0), 2, 3),
        (Need(8, 0, 0), 2, 1),
        (Need(0.5, 0, 1), 1, 1),
    ],
)
def test_as_many_runs_are_side_by_side_as_the_machine_has_room_for(
    need: Need, tasks: int, count: int
) -> None:
    assert side_by_side(need, tasks, Capacity(4, 10)) == count


def test_the_page_has_every_moment() -> None:
    from tests.report.test_tables import SWEPT, WHY

    page = render(SWEPT)
    assert WHY in page
    assert "write 5 of /shared/model-*.bin.tmp" in page
    assert "silently wrong" in page
