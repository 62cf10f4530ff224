"""What a run says for its repetition: commits from real repositories, versions of a real task."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from emulator.engines.kit.origin import commit_of, machine_of, origin_of
from emulator.engines.kit.recipes import recipe_tag
from emulator.engines.memory import MemoryEngine
from emulator.errors import EngineError
from emulator.planning.plan import Plan
from emulator.record.events import RunStarted
from emulator.record.reader import Record
from emulator.runtime.clock import ManualClock
from tests.conftest import Emulate
from tests.histories import a_plan


def git(folder: Path, *command: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *identity, *command], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text("print(1)\n")
    (tmp_path / "other.py").write_text("print(1)\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_the_commit_of_a_program_is_known_with_whether_it_was_changed(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    program = repository / "job" / "train.py"
    (repository / "other.py").write_text("print(2)\n")  # no part of the program
    assert (commit_of(program), commit_of(program.parent)) == (commit, commit)
    program.write_text("print(2)\n")
    assert commit_of(program) == commit_of(program.parent) == f"{commit} with changes"


def test_outside_of_a_repository_there_is_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "train.py").write_text("")
    assert commit_of(tmp_path / "train.py") == ""
    assert commit_of(tmp_path / "nothing" / "train.py") == ""
    monkeypatch.setenv("PATH", "/nowhere")
    assert commit_of(tmp_path / "train.py") == ""


def test_of_what_git_says_the_commit_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "git").touch(0o755)
    for said, code, commit in (
        ("# branch.oid 12ab\n# branch.head main", 0, "12ab"),
        ("# branch.oid 12ab\n1 .M N... a\xff.py", 0, "12ab with changes"),
        ("# branch.oid 12ab", 1, ""),
        ("# branch.oid (initial)", 0, ""),
        ("no status", 0, ""),
    ):
        script = f"#!/bin/sh\necho '{said}'\nexit {code}\n"
        (tmp_path / "git").write_text(script, encoding="latin-1")
        assert commit_of(tmp_path) == commit


def test_a_run_without_a_program_of_its_own_has_its_machine() -> None:
    found = machine_of(a_plan("{worker: 1}"))
    assert "commit" not in found
    assert {"system", "machine", "python"} <= found.keys()


class Knowing(MemoryEngine):
    """An engine that says what it knows of images."""

    def __init__(self, known: Mapping[str, Mapping[str, str]] | None) -> None:
        super().__init__(ManualClock(), {})
        self.known = known

    def software(self, plan: Plan) -> Mapping[str, Mapping[str, str]]:
        if self.known is None:
            raise EngineError("It does not answer.")
        return self.known


def test_what_the_engine_and_the_recipe_know_of_an_image_is_put_together() -> None:
    jax = recipe_tag("jax")
    plan = a_plan(f"{{worker: {{replicas: 2, image: '{jax}'}}, ps: {{replicas: 1, image: 'a:1'}}}}")
    known = {jax: {"id": "sha256:1", "python": "3.11.2"}, "a:1": {"id": "sha256:2"}}
    found = origin_of(plan, Knowing(known), "emulate up x.yaml")
    assert found.machine["command"] == "emulate up x.yaml"
    assert found.software["a:1"] == {"id": "sha256:2"}
    assert found.software[jax].items() >= known[jax].items()
    assert "jax" in found.software[jax]
    # What is not known is left out, and fails no run.
    for engine in (Knowing(None), MemoryEngine(ManualClock(), {})):
        found = origin_of(plan, engine)
        assert "command" not in found.machine
        assert list(found.software) == [jax]


LOOK = """\
name: look
framework: none
image: none
program:
  command: [python, -c, 'import numpy, platform as p; print(p.python_version(), numpy.__version__)']
cluster: {worker: 1}
"""


def test_a_run_has_its_command_and_the_versions_that_a_task_imports(
    emulate: Emulate, tmp_path: Path
) -> None:
    path = tmp_path / "a scenario.yaml"
    path.write_text(LOOK)
    done = emulate.up(path, "--engine", "process", "--set", "seed=7")
    assert done.returncode == 0, done.stderr
    record = Record.find("last", emulate.out)
    (line,) = [one for one in done.stderr.splitlines() if one.startswith("worker-0 | ")]
    first = record.history[0]
    assert isinstance(first, RunStarted)
    assert first.software is not None
    here = first.software[""]
    assert line == f"worker-0 | {here['python']} {here['numpy']}"
    assert first.origin is not None
    assert first.origin["command"] == f"emulate up '{path}' --engine=process --set=seed=7"
