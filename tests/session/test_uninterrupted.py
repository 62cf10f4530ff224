"""Runs that are compared with one without their faults, which is made once."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Emulate, Finished, left

PROGRAM = Path(__file__).parent.parent / "search" / "planted" / "train.py"


def scenario(folder: Path, bug: str = "", **more: Any) -> Path:
    """Write a scenario whose worker is killed between two saves; return it."""
    shutil.copy(PROGRAM, folder)
    command = ["python", "train.py", "--pause=0.05", "--out=${shared}/out"]
    command += ["--bug", bug] if bug else []
    expect = {"loss": 1e-4, "result": "model-*.json"}
    found = {
        **{"name": "planted", "framework": "none", "image": "auto", "cluster": {"worker": 1}},
        "program": {"source": "train.py", "command": command},
        "restart": {"policy": "on-failure", "backoff": "0s"},
        "faults": [{"kill": "worker-0", "at": {"step": 15}}],
        "expect": {"same_as_uninterrupted": expect},
        **more,
    }
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(found))
    return path


def verdicts(done: Finished) -> dict[str, str]:
    return {
        one["expectation"].partition(".")[2]: one["status"]
        for one in done.json["verdicts"]
        if one["expectation"].startswith("same_as_uninterrupted.")
    }


def test_the_run_without_faults_is_made_once_and_its_figures_are_in_each_run(
    emulate: Emulate, tmp_path: Path
) -> None:
    path = scenario(tmp_path)
    done = emulate.up(path, "--engine=process", "--run-id=one").ended(0)
    assert verdicts(done) == {"loss": "ok", "result": "ok"}
    (before,) = (one.name for one in emulate.out.iterdir() if "-uninterrupted-" in one.name)
    assert before in done.stderr
    again = emulate.up(path, "--engine=process", "--run-id=two").ended(0)
    assert before not in again.stderr
    shutil.rmtree(emulate.out / before)
    checked = emulate("check", "two", "--json", "--out", emulate.out).ended(0)
    assert verdicts(checked) == {"loss": "ok", "result": "ok"}
    (tmp_path / "train.py").write_text(PROGRAM.read_text() + "\n")
    assert "-uninterrupted-" in emulate.up(path, "--engine=process").ended(0).stderr


@pytest.mark.parametrize(
    ("bug", "found"),
    [
        ("no-optimizer", {"loss": "failed", "result": "failed"}),
        ("counter", {"loss": "failed", "result": "failed"}),
    ],
)
def test_what_differs_fails(
    bug: str, found: dict[str, str], emulate: Emulate, tmp_path: Path
) -> None:
    done = emulate.up(scenario(tmp_path, bug), "--engine=process")
    assert verdicts(done.ended(int("failed" in found.values()))) == found


def test_a_program_that_fails_without_a_fault_leaves_it_unknown(
    emulate: Emulate, tmp_path: Path
) -> None:
    path = scenario(tmp_path, program={"command": ["python", "-c", "raise SystemExit(3)"]})
    done = emulate.up(path, "--engine=process").ended(1)
    assert verdicts(done) == {"loss": "unknown", "result": "unknown"}


def test_two_that_want_it_make_it_once_and_a_killed_one_is_made_again(
    emulate: Emulate, tmp_path: Path
) -> None:
    path, pipe = scenario(tmp_path), tmp_path / "begun"
    begins = f"import os\nif os.path.exists({str(pipe)!r}):\n    open({str(pipe)!r}, 'w').close()\n"
    (tmp_path / "train.py").write_text(
        PROGRAM.read_text().replace("import json\n", f"import json\n{begins}", 1)
    )
    os.mkfifo(pipe)
    asked = ("up", path, "--engine=process", f"--out={emulate.out}")
    process = emulate.start(*asked, "--run-id=killed")
    pipe.read_bytes()  # until the program has begun
    process.kill()
    process.wait()
    pipe.unlink()
    both = [emulate.start(*asked, f"--run-id={name}") for name in ("first", "second")]
    ends = [process.communicate(timeout=540) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    made = sorted(one.name for one in emulate.out.iterdir() if "-uninterrupted-" in one.name)
    assert len(made) == 2
    assert made[1] == f"{made[0]}-2"
    assert [(one / "summary.json").exists() for one in map(emulate.out.joinpath, made)] == [
        *(False, True)
    ]
    assert [left("process", name) for name in made] == [[], []]
