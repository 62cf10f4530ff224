"""Whole sweeps: programs that save wrongly are caught, and their mended versions pass."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import emulator
from emulator.cli.sweep import fault_of
from emulator.errors import UsageError
from emulator.planning.claims import Capacity, Need
from emulator.record.reader import Record
from emulator.search.moments import ALL, Moment
from emulator.search.page import junit, markdown, render
from emulator.search.question import Question
from emulator.search.sweep import Sweep, about, as_measured, side_by_side
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
        ("in-place", "every write of weights.bin", "silently different"),
        ("newest", "every write of a save", "silently different"),
        ("tracker", "every write of *.bin.tmp, each rename of *.bin", "lost work"),
    ],
)
def test_a_program_that_saves_wrongly_is_caught_and_its_mended_version_passes(
    saves: str, at: str, what: str, emulate: Emulate
) -> None:
    code, found = swept(emulate, saves, at, "--max-moments=2", "--run-id=wrong")
    assert (code, found["counts"][what]) == (1, 2), found
    assert {point["last_save"] for point in found["points"]} == {10}
    assert found["left_out"] > 0
    (name,) = found["kept"].values()
    assert name.startswith("kill-before-")
    again = emulate("plan", emulate.out / "wrong" / name, ON_PROCESSES)
    assert "worker-0" in again.ended(0).stdout
    assert "<h1>wrong</h1>" in (emulate.out / "wrong" / "sweep.html").read_text()
    at = "every write of a save, each rename"
    code, found = swept(emulate, saves, at, "--max-moments=2", mended=True)
    assert (code, found["counts"]["passed"]) == (0, 2), found
    assert found["kept"] == {}


@traced
@pytest.mark.parametrize("engine", ["process", pytest.param("docker", marks=pytest.mark.docker)])
@pytest.mark.parametrize(
    ("bug", "words"),
    [
        ("two-files", {"silently different": 1, "lost work": 1}),
        ("newest", {"silently different": 1}),
        ("tracker", {"lost work": 1, "passed": 1}),
        ("no-optimizer", {"silently different": 2}),
        ("data-order", {"silently different": 2}),
        ("counter", {"silently different": 2}),
        ("", {"passed": 2}),
    ],
)
def test_the_command_of_a_program_is_swept_without_a_scenario(
    bug: str,
    words: dict[str, int],
    engine: str,
    emulate: Emulate,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Each bug has the right word, and without a bug each moment passes."""
    if engine == "docker":
        request.getfixturevalue("docker_engine")  # or skip
    shutil.copy(Path(__file__).parent / "planted" / "train.py", tmp_path)
    options = [f"--engine={engine}", f"--out={emulate.out}", "--json", *AT.get(bug, [])]
    command = ["python", "train.py", "--out", "{out}", *(["--bug", bug] if bug else [])]
    most = str(sum(words.values()))
    done = emulate("sweep", *options, "--max-moments", most, "--", *command, cwd=tmp_path)
    assert done.returncode == int(words.keys() != {"passed"}), done.stderr
    counts = {word: count for word, count in done.json["counts"].items() if count}
    assert counts == words, done.stderr
    assert done.json["not_compared"] == []


GRACE = """
import json, os, signal, sys
path, told = os.path.join(sys.argv[1], "model.ckpt"), []
os.makedirs(sys.argv[1], exist_ok=True)
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
begin = json.load(open(path))["step"] if os.path.exists(path) else 0
for step in range(begin + 1, 31):
    print(f"step {step} loss {1 / step}", flush=True)
    if step % 10 == 0 or told:
        with open(path + ".tmp", "w") as file:
            file.write(json.dumps({"step": step}))
        os.replace(path + ".tmp", path)
    if told:
        sys.exit()
"""
"""It saves when it is told to end."""


@traced
def test_a_task_that_is_told_to_end_at_a_moment_still_saves(
    emulate: Emulate, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(GRACE)
    fault = "--fault={preempt: worker-0, grace: 1m}"
    words = ["sweep", ON_PROCESSES, fault, "--result=*.ckpt", f"--out={emulate.out}", "--json"]
    done = emulate(*words, "--", "python", "train.py", "{out}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    points = {one["moment"].partition(" ")[0]: one for one in done.json["points"]}
    assert points.keys() == {"write", "rename"}
    assert {one["resumed_from"] for one in points.values()} == {20}  # whose save it was told in


@traced
def test_a_preemption_as_a_platform_does_it_is_a_fault_of_a_sweep(
    emulate: Emulate, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(GRACE)
    words = ["sweep", ON_PROCESSES, "--max-moments=2", f"--out={emulate.out}", "--json"]
    fault = ["--fault={preempt: worker-0, like: gke}", "--set=speed=60"]
    done = emulate(*words, *fault, "--", "python", "train.py", "{out}", cwd=tmp_path)
    assert (done.returncode, done.json["counts"]["passed"]) == (0, 2), done.stderr
    silent = "--fault={preempt: worker-0, like: ec2-spot}"
    done = emulate(*words, silent, "--", "python", "train.py", "{out}", cwd=tmp_path).ended(2)
    assert "The process engine can't do this: a silent loss of worker-0." in done.stderr
    assert "two runs" not in done.stderr


@traced
def test_files_that_are_to_be_compared_have_to_be_there(emulate: Emulate, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GRACE)
    words = ["sweep", ON_PROCESSES, "--result=*.pt", f"--out={emulate.out}"]
    done = emulate(*words, "--", "python", "train.py", "{out}", cwd=tmp_path).ended(2)
    assert "--result '*.pt' means none of the files that are left: /shared/" in done.stderr
    assert "moments" not in done.stderr


AT = {
    "two-files": ["--at=each truncate of rest.json, every write of weights.json"],
    "newest": ["--at=every write of model-*.json"],
}
"""Where it is not at each call."""


@traced
@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("print('step 1'); raise ValueError('no data')", 1, "ValueError: no data"),
        ("[print('step', n) for n in range(20)]", 2, "made no save that can be told"),
        (
            "[(print('step', n), open(f'{FOLDER}/m.json', 'w').write(str(n))) for n in range(9)]",
            2,
            "such as FOLDER/m.json: all moments would go on from each other's saves.",
        ),
    ],
)
def test_what_can_t_be_swept_is_said_before_the_first_fault(
    command: str, code: int, said: str, emulate: Emulate, tmp_path: Path
) -> None:
    folder = tmp_path / "of-the-user"
    folder.mkdir()
    (tmp_path / "program").mkdir()
    text = f"FOLDER = {str(folder)!r}\n{command}\n"
    (tmp_path / "program" / "train.py").write_text(text)
    words = ["sweep", f"--out={emulate.out}", "--run-id=none", "--", "python", "train.py"]
    done = emulate(*words, cwd=tmp_path / "program").ended(code)
    assert said.replace("FOLDER", str(folder)) in done.stderr
    assert not (emulate.out / "none" / "none-1").exists()


@traced
def test_a_killed_sweep_goes_on_where_it_was(emulate: Emulate) -> None:
    asked = (
        *("sweep", "saves-tracker", KILL, "--at=every write of a save", ON_PROCESSES),
        *(command_of("tracker", mended=True), "--at-once=1", "--max-moments=4"),
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
    assert {"again-twin-1", "again-twin-2"} <= {path.name for path in folder.iterdir()}
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


KILLED = {"kill": "worker-0"}


def question(at: str = "step 10", fault: Any = KILLED, workers: int = 1, **more: Any) -> Question:
    scenario = {"name": "a", "framework": "none", "program": {"command": ["a"]},
                "cluster": {"worker": workers}, "faults": [{"kill": "worker-0", "at": "1s"}],
                **more}  # fmt: skip
    return Question(read(scenario, [Path.cwd()]), fault, at)


def test_the_faults_of_the_scenario_are_left_out() -> None:
    moment = emulator.moments("step 10")[0]
    assert moment == {"step": 10}
    (fault,) = question().variant([{"kill": "worker-0", "at": moment}]).scenario.faults
    assert fault.at is not None
    assert fault.at.step == 10
    assert question().variant([]).scenario.faults == []


def test_without_a_fault_a_task_is_killed_or_all_are_at_once() -> None:
    asked = question(fault=None, workers=3)
    assert asked.tasks == ["worker-0", "worker-1", "worker-2"]

    def faults(moment: Moment) -> list[object]:
        found = asked.at_moment(moment).scenario.faults
        return [one.model_dump(exclude_unset=True, exclude_none=True) for one in found]

    at = {"write": 3, "of": "*.pt"}
    assert faults(Moment("", at, "worker-1")) == [{"kill": "worker-1", "at": at}]
    assert faults(Moment("", {**at, "task": "worker-1"}, ALL)) == [
        {"name": "first", "kill": "worker-1", "at": at},
        {"kill": "worker-0", "at": {"after": "first"}},
        {"kill": "worker-2", "at": {"after": "first"}},
    ]
    assert [str(one["kill"]) for one in faults(Moment("", {"step": 9}, ALL))] == [*asked.tasks]  # type: ignore[index]


def test_what_never_restarts_is_restarted_by_the_sweep() -> None:
    for policy, chosen in (("never", "on-failure"), ("always", "always")):
        asked = question(restart={"policy": policy})
        assert asked.variant([]).scenario.restart.policy == chosen
        assert asked.restarts_by_itself == (policy == "never")


def test_an_estimate_has_no_more_digits_than_it_is_worth() -> None:
    assert [about(seconds) for seconds in (0.4, 12.6, 59, 184.4)] == [
        "0 s",
        "13 s",
        "59 s",
        "3m 04s",
    ]


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


@pytest.mark.parametrize(
    ("count", "cores", "memory", "now"),
    [
        (4, 4.0, 1, 4),
        (4, 1.0, 1, 4),
        (4, 0.6, 1, 7),
        (4, 0.1, 1, 8),
        (4, 0.6, 10, 5),
        (4, 0.6, 90, 1),
        (2, 0.0, 0, 2),
    ],
)
def test_more_runs_are_side_by_side_where_one_leaves_cores_to_others(
    count: int, cores: float, memory: int, now: int
) -> None:
    assert as_measured(count, cores, memory, Capacity(4, 100)) == now


def test_the_page_has_every_moment() -> None:
    from tests.report.test_tables import SWEPT, WHY

    page = render(SWEPT)
    assert WHY in page
    assert "write 5 of /shared/model-*.bin.tmp" in page
    assert "silently different" in page


def test_ci_gets_a_summary_and_a_test_case_for_each_moment() -> None:
    from tests.report.test_tables import SWEPT, WHY

    text = markdown(SWEPT)
    assert text.startswith("## ❌ failed: ")
    assert f"| step 10 | undecided | {WHY} |" in text
    suite = ET.fromstring(junit(SWEPT))[0]
    assert {key: suite.get(key) for key in ("tests", "failures", "errors")} == {
        **{"tests": "2", "failures": "1", "errors": "1"}
    }
    assert [[(one.tag, one.get("type")) for one in case] for case in suite] == [
        [("failure", "silently different")],
        [("error", "undecided")],
    ]
