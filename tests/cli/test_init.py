"""What `emulate init` writes; where it can't, a sentence, and nothing half-written is left."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.cli.setup import init
from emulator.engines.docker import DockerEngine
from emulator.errors import EmulatorError, UsageError
from emulator.runtime.bundled import ROOT
from tests.cli.typed import refusal, typed
from tests.conftest import Emulate


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all kinds of things; the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("afile").write_text("mine")
    Path("dangling").symlink_to("nowhere")
    Path("loop").symlink_to("loop")
    return tmp_path


def contents(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("tests", [False, True])
@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("afile", "Not a directory"),
        ("afile/x", "Not a directory"),
        ("new/../afile", "Not a directory"),
        ("dangling", "Not a directory"),
        ("loop", "Not a directory"),
        ("n" * 300, "File name too long"),
        ("new/" + "n" * 300, "File name too long"),
        ("/proc/x", "No such file or directory"),
        ("/proc/self/fdinfo", "No such file or directory"),
    ],
)
def test_a_folder_that_can_not_be(here: Path, target: str, says: str, tests: bool) -> None:
    before = contents(here)
    with pytest.raises(UsageError) as refused:
        init(Path(target), tests=tests)
    first = ".github/workflows/training.yml" if tests else "scenario.yaml"
    assert str(refused.value) == f"Can't write {target}/{first}: {says}. Choose another folder."
    assert contents(here) == before
    assert (here / "afile").read_text() == "mine"


def test_a_disk_that_gets_full_meanwhile(here: Path, small_files: None) -> None:
    before = contents(here)
    with pytest.raises(EmulatorError) as failed:
        init(Path("new/er"))
    assert str(failed.value).startswith("Can't write new/er/train.py: File too large. Make room")
    assert failed.value.exit_code == 4
    assert contents(here) == before


def test_a_link_is_not_followed(here: Path) -> None:
    os.symlink("nowhere", "scenario.yaml")
    with pytest.raises(UsageError, match=r"scenario\.yaml is there already"):
        init(Path())
    init(Path(), force=True)
    assert not Path("nowhere").exists()
    assert Path("scenario.yaml").is_file()
    assert not Path("scenario.yaml").is_symlink()


def test_a_scenario_that_can_be_planned_and_overwrites_nothing(tmp_path: Path) -> None:
    typed("init", tmp_path / "new").ended()
    typed("plan", tmp_path / "new" / "scenario.yaml", "--engine", "process").ended()
    assert "is there already" in refusal("init", tmp_path / "new")
    typed("init", tmp_path / "new", "--force").ended()


SUITE = {
    ".github/workflows/training.yml",
    "pytest.ini",
    "requirements-emulator.txt",
    "scenarios/preemption.yaml",
    "scenarios/training.yaml",
    "tests/test_training.py",
    "train.py",
}


def test_a_suite_whole_or_not_at_all(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    assert f"now try: pytest {mine}" in typed("init", "--tests", mine).ended().stderr
    assert {str(p.relative_to(mine)) for p in mine.rglob("*") if p.is_file()} == SUITE
    for name in ("training", "preemption"):
        typed("plan", mine / "scenarios" / f"{name}.yaml", "--engine", "process").ended()
    (other / "tests").mkdir(parents=True)
    (other / "tests" / "test_training.py").write_text("mine\n")
    line = refusal("init", "--tests", other)
    assert f"{other}/tests/test_training.py is there already" in line
    assert [p.name for p in other.rglob("*")] == ["tests", "test_training.py"]
    typed("init", "--tests", other, "--force").ended()
    assert (other / "tests" / "test_training.py").read_text() != "mine\n"


# --- Of each framework ----------------------------------------------------------------------------

FRAMEWORKS = {"tensorflow": "tensorflow", "pytorch": "torch", "jax": "jax", "none": ""}
"""What there is a starter for, and the module that its program imports."""
ALONE = 'exec env -i "$(command -v python)" train.py --steps 20'
"""Runs a program with an empty environment."""


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_starter_of_each_framework_can_be_planned(tmp_path: Path, framework: str) -> None:
    typed("init", "--framework", framework, tmp_path / "mine").ended()
    done = typed("plan", tmp_path / "mine", "--engine", "process").ended()
    assert done.stdout.startswith("mine on the process engine\n")
    text = (tmp_path / "mine" / "scenario.yaml").read_text()
    assert f"\nframework: {framework} " in text


def test_of_what_there_is_no_starter(tmp_path: Path) -> None:
    said = refusal("init", "--tests", "--framework", "jax", tmp_path)
    assert said == "--tests is for TensorFlow. Leave --framework out."
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_program_runs_alone_where_its_framework_is_installed(
    tmp_path: Path, framework: str
) -> None:
    if (module := FRAMEWORKS[framework]) and importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed here")
    program = ROOT / "images" / "starters" / framework / "train.py"
    done = subprocess.run(
        [sys.executable, program, "--steps", "20"],
        cwd=tmp_path, env={}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert '"step": 20, "loss": ' in done.stdout
    assert "learned y = " in done.stdout


def test_the_starter_without_a_framework_runs_as_it_is(tmp_path: Path, emulate: Emulate) -> None:
    typed("init", "--framework", "none", tmp_path / "mine").ended()
    done = emulate.up(tmp_path / "mine" / "scenario.yaml", "--engine", "process")
    assert done.returncode == 0, done.stderr


@pytest.mark.docker
@pytest.mark.parametrize(
    ("framework", "command"), [("pytorch", ""), ("jax", ""), ("pytorch", ALONE), ("jax", ALONE)]
)
def test_a_starter_runs_in_its_image_and_there_alone_too(
    tmp_path: Path, emulate: Emulate, docker_engine: DockerEngine, framework: str, command: str
) -> None:
    typed("init", "--framework", framework, tmp_path / "mine").ended()
    words = ["sh", "-c", command] if command else ["python", "train.py", "--steps", "20"]
    sets = ["expect.final_step=20", f"program.command={json.dumps(words)}"]
    sets += ["cluster.worker=1"] if command else []
    options = [word for one in sets for word in ("--set", one)]
    done = emulate.up(tmp_path / "mine" / "scenario.yaml", "--engine", "docker", *options)
    assert done.returncode == 0, done.stderr
