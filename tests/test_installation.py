"""How the emulator is installed elsewhere: from where this one came, never by its bare name."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from emulator.engines.process import doctor
from emulator.exports import export
from emulator.installation import Checkout, requirement, requirement_here

ROOT = Path(__file__).parent.parent
COMMIT = "2f0c1d"
VCS = {"vcs_info": {"vcs": "git", "commit_id": COMMIT, "requested_revision": "main"}}
FOLDER = {"url": "file:///home/me/emulator", "dir_info": {"editable": True}}
FROM_GIT = f"emulator[test] @ git+https://host/o/emulator.git@{COMMIT}"


@pytest.mark.parametrize(
    ("direct", "origin", "line"),
    [
        ({"url": "https://host/o/emulator.git", **VCS}, None, FROM_GIT),
        (
            {"url": "https://host/o/all.git", "subdirectory": "tools/emulator", **VCS},
            None,
            f"emulator[test] @ git+https://host/o/all.git@{COMMIT}#subdirectory=tools/emulator",
        ),
        (
            {"url": "https://host/emulator.whl", "archive_info": {"hashes": {"sha256": "ab"}}},
            None,
            "emulator[test] @ https://host/emulator.whl#sha256=ab",
        ),
        (
            {"url": "https://host/emulator.whl", "archive_info": {}},
            None,
            "emulator[test] @ https://host/emulator.whl",
        ),
        (FOLDER, "https://host/o/emulator.git", FROM_GIT),
        (FOLDER, "https://me:secret@host/o/emulator.git", FROM_GIT),
        (FOLDER, "https://token@host/o/emulator.git", FROM_GIT),
        (
            FOLDER,
            "git@host:o/emulator.git",
            f"emulator[test] @ git+ssh://git@host/o/emulator.git@{COMMIT}",
        ),
        (
            FOLDER,
            "ssh://git:secret@host:22/o/emulator.git",
            f"emulator[test] @ git+ssh://git@host:22/o/emulator.git@{COMMIT}",
        ),
        # What only this machine has:
        (FOLDER, None, None),
        (FOLDER, "/work/emulator", None),
        (FOLDER, "../emulator", None),
        (FOLDER, "file:///work/emulator", None),
        ({"url": "file:///work/emulator", **VCS}, None, None),
        ({"url": "file:///work/emulator.whl", "archive_info": {"hash": "sha256=ab"}}, None, None),
        ({}, None, None),
    ],
)
def test_where_it_came_from_is_where_others_get_it(
    direct: dict[str, Any], origin: str | None, line: str | None
) -> None:
    checkout = None if origin is None else Checkout(origin, COMMIT)
    assert requirement(direct, checkout) == line
    assert line is None or Requirement(line).extras == {"test"}  # as pip reads it


def test_a_clone_is_asked_for_its_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone = tmp_path / "a clone"

    def git(*arguments: str) -> str:
        settings = ("-c", "user.name=x", "-c", "user.email=x@x")
        command = ["git", "-C", str(clone), *settings, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    class Distribution:
        def read_text(self, name: str) -> str:
            assert name == "direct_url.json"
            return json.dumps({"url": clone.as_uri(), "dir_info": {}})

    monkeypatch.setattr("importlib.metadata.distribution", lambda _: Distribution())
    clone.mkdir()
    assert requirement_here() is None
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "x")
    assert requirement_here() is None
    git("remote", "add", "origin", "https://host/o/emulator.git")
    assert requirement_here() is None  # nobody else has this commit
    git("update-ref", "refs/remotes/origin/main", "HEAD")  # as a push does
    commit = git("rev-parse", "HEAD")
    assert requirement_here() == f"emulator[test] @ git+https://host/o/emulator.git@{commit}"


# --- What people are told -------------------------------------------------------------------------


BARE = re.compile(r"emulator(\[[\w,-]*\])?([=<>~!,;.].*)?")


def bare(line: str) -> bool:
    """Say whether a line installs the emulator by its name alone, which is another project's."""
    told = re.search(r"\b(pip\d?|pipx|uv|poetry|conda)\b.*\b(install|add)\b(?P<what>.*)", line)
    words = re.findall(r"[^\s'\"`]+", told["what"]) if told else []
    return any(BARE.fullmatch(word) and then != "@" for word, then in pairwise([*words, ""]))


@pytest.mark.parametrize(
    ("line", "is_bare"),
    [
        ("pip install emulator", True),
        ("`pip install 'emulator[test]'`, and", True),
        ("- run: python -m pip install -q 'emulator[test]' pytest-timeout", True),
        ('pip install "emulator>=0.1"', True),
        ("Install it: pip install emulator.", True),
        ("pipx install emulator", True),
        ("uv add emulator", True),
        ("pip install '/path/to/emulator[test]'", False),
        ("pip install '.[test]'", False),
        ("pip install 'emulator[test] @ git+https://host/o/emulator'", False),
        ("`emulator` is another project", False),
    ],
)
def test_a_bare_name_is_told_from_a_place(line: str, is_bare: bool) -> None:
    assert bare(line) is is_bare


def told() -> Iterator[Path]:
    """Yield every file that may tell somebody what to install."""
    yield from ROOT.glob("*.md")
    yield from (ROOT / "Makefile", *ROOT.glob("Dockerfile.*"), *ROOT.glob("scripts/*"))
    for folder in ("docs", "images", "emulator"):
        yield from (
            path
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and path.suffix not in (".png", ".pyc", ".gz")
        )


def test_nobody_is_told_to_install_what_others_call_emulator() -> None:
    files = list(told())
    assert ROOT / "images" / "suite" / ".github" / "workflows" / "training.yml" in files
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in files
        for line in path.read_text(encoding="utf-8").splitlines()
        if bare(line)
    ]
    assert wrong == []


def test_libraries_that_are_named_are_those_of_the_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = {line.partition(";")[0] for line in extras["tensorflow"]}
    assert {*doctor.TENSORFLOW.values(), doctor.KERAS} == named
    for library in export.LIBRARIES.values():
        assert any(line.startswith(library) for line in extras["export"])


def test_what_the_ini_file_of_the_suite_asks_for_comes_with_the_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert re.search(r"(?m)^timeout = ", (ROOT / "images" / "suite" / "pytest.ini").read_text())
    names = {re.split(r"[<>=~! ]", line)[0] for line in extras["test"]}
    assert names == {"pytest", "pytest-xdist", "pytest-timeout"}
