"""The commit of a program, from real repositories."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from emulator.engines.origin import commit_of, origin_of
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


def test_a_run_without_a_program_of_its_own_has_its_machine() -> None:
    found = origin_of(a_plan("{worker: 1}"))
    assert "commit" not in found
    assert {"system", "machine", "python"} <= found.keys()
