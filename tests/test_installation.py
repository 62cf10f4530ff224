"""How the emulator is installed elsewhere: from where this one came, never by its bare name."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from emulator.cli.setup import requirement_here
from emulator.engines.process import doctor

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
COMMIT = "2f0c1d"
VCS = {"vcs_info": {"vcs": "git", "commit_id": COMMIT, "requested_revision": "main"}}
FOLDER = {"dir_info": {"editable": True}}
FROM_GIT = f"training-emulator[test] @ git+https://host/o/emulator.git@{COMMIT}"


@pytest.mark.parametrize(
    ("direct", "line"),
    [
        ({"url": "https://host/o/emulator.git", **VCS}, FROM_GIT),
        (
            {"url": "ssh://git@host:22/o/emulator.git", **VCS},
            f"training-emulator[test] @ git+ssh://git@host:22/o/emulator.git@{COMMIT}",
        ),
        (
            {"url": "https://host/emulator.whl", "archive_info": {"hash": "sha256=ab"}},
            "training-emulator[test] @ https://host/emulator.whl",
        ),
        # What only this machine has:
        ({"url": "file:///home/me/emulator", **FOLDER}, None),
        ({"url": "https://host/o/emulator.git", **FOLDER}, None),
        ({"url": "file:///work/emulator", **VCS}, None),
        ({"url": "file:///work/emulator.whl", "archive_info": {"hash": "sha256=ab"}}, None),
        ({}, None),
        (None, None),  # it was not installed
    ],
)
def test_where_it_came_from_is_where_others_get_it(
    direct: dict[str, Any] | None, line: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Distribution:
        def __init__(self, name: str) -> None:
            if direct is None:
                raise PackageNotFoundError(name)

        def read_text(self, name: str) -> str:
            assert name == "direct_url.json"
            return json.dumps(direct)

    monkeypatch.setattr("importlib.metadata.distribution", Distribution)
    assert requirement_here() == line
    assert line is None or Requirement(line).extras == {"test"}  # as pip reads it


# --- The versions of a checkout ------------------------------------------------------------------

CONSTRAINTS = (ROOT / "constraints.txt").read_text()


def test_constraints_are_names_and_versions_alone() -> None:
    lines = [line for line in CONSTRAINTS.splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[\w.]+", line)] == []


@pytest.mark.parametrize("of", ["pyproject.toml", "cpu", "gpu", "pytorch", "jax"])
def test_all_that_is_required_has_a_version_that_is_allowed(of: str) -> None:
    """`make constraints` was forgotten otherwise."""
    if of == "pyproject.toml":
        lines = [*PROJECT["dependencies"], *EXTRAS["dev"], *EXTRAS["tensorflow"]]
        for extra in Requirement(EXTRAS["dev"][0]).extras:
            lines += EXTRAS[extra]
    else:
        text = (ROOT / "images" / "requirements" / f"{of}.txt").read_text()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
    versions = dict(line.split("==") for line in CONSTRAINTS.splitlines() if "==" in line)
    for required in map(Requirement, lines):
        name = canonicalize_name(required.name)
        if name != "training-emulator" and (not required.marker or required.marker.evaluate()):
            assert required.specifier.contains(versions[name], prereleases=True), name


# --- What people are told -------------------------------------------------------------------------


BARE = re.compile(r"(training-)?emulator(\[[\w,-]*\])?([=<>~!,;.].*)?")


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
        ("uv tool install training-emulator", True),
        ("pip install '/path/to/emulator[test]'", False),
        ("pip install '.[test]'", False),
        ("pip install 'training-emulator[test] @ git+https://host/o/emulator'", False),
        ("`emulator` is another project", False),
    ],
)
def test_a_bare_name_is_told_from_a_place(line: str, is_bare: bool) -> None:
    assert bare(line) is is_bare


def told() -> Iterator[Path]:
    """Yield every file that may tell somebody what to install."""
    yield from (*ROOT.glob("*.md"), ROOT / "Makefile", *ROOT.glob("Dockerfile.*"))
    yield from filter(Path.is_file, ROOT.glob("scripts/*"))
    for folder in ("docs", "images", "emulator"):
        for path in filter(Path.is_file, (ROOT / folder).rglob("*")):
            if path.suffix not in (".png", ".pyc", ".gz"):
                yield path


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


def test_what_the_suite_asks_for_is_of_the_extras() -> None:
    named = {line.partition(";")[0] for line in EXTRAS["tensorflow"]}
    assert {*doctor.TENSORFLOW.values(), doctor.KERAS} == named
    assert re.search(r"(?m)^timeout = ", (ROOT / "images" / "suite" / "pytest.ini").read_text())
    names = {re.split(r"[<>=~! ]", line)[0] for line in EXTRAS["test"]}
    assert names == {"pytest", "pytest-xdist", "pytest-timeout"}


# --- In the environment of `make demo` ------------------------------------------------------------


def brought(requirements: list[str]) -> set[str]:
    """Return the distributions that requirements bring, by their normalized names."""
    found: set[tuple[str, str]] = set()
    waiting = list(map(Requirement, requirements))
    while waiting:
        one = waiting.pop()
        for extra in ("", *one.extras):
            if (key := (canonicalize_name(one.name), extra)) in found:
                continue
            found.add(key)
            with contextlib.suppress(PackageNotFoundError):  # not for this platform
                waiting += [
                    needed
                    for needed in map(Requirement, distribution(one.name).requires or ())
                    if needed.marker is None or needed.marker.evaluate({"extra": extra})
                ]
    return {name for name, _ in found}


WITHOUT = """\
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import pytest
plugins = [w for name in ("emulator.pytest_plugin.plugin", "xdist", "pytest_timeout")
           for w in ("-p", name)]
sys.exit(pytest.main([*plugins, "--collect-only", "-q", "scenarios/strategies/quickstart.yaml"]))
"""


def test_scenarios_are_tests_where_only_the_extra_test_is_installed() -> None:
    """As after `make demo`, without what `make test` installs."""
    here = brought([*PROJECT["dependencies"], *EXTRAS["test"]])
    missing = {
        module
        for module, owners in packages_distributions().items()
        if not {*map(canonicalize_name, owners)} & {*here, "training-emulator", "pip"}
    }
    assert {"hypothesis", "playwright", "kubernetes"} <= missing
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(missing=missing)],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "1 test collected" in done.stdout
