"""Suites of users, made by tests and run by a pytest of their own."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from emulator.engines import choose
from tests.engines.docker.listeners import instead_of_docker
from tests.session.conftest import STEPS, shell

FOREIGN = ("anyio", "hypothesispytest", "platformdirs")
"""Plugins of our environment that no suite of a user needs."""


class Suite:
    """A suite of a user: its files, and sessions of it."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.runs = self.path / "runs"

    def scenario(self, name: str = "quick", script: str = STEPS, **keys: Any) -> Path:
        """Write a scenario: of one worker, a shell, unless the keys differ."""
        path = self.path / "scenarios" / f"{name}.yaml"
        path.write_text(json.dumps(shell(script, **{"name": name, **keys}), indent=2))
        return path

    def run(self, *arguments: str | Path, apart: bool = False, **outcomes: int) -> pytest.RunResult:
        """Run a session and see that it has these outcomes.

        It runs `apart`, in a process of its own, if it has workers or that makes a difference.
        """
        apart = apart or "-n" in arguments
        run = self.pytester.runpytest_subprocess if apart else self.pytester.runpytest_inprocess
        done = run(*arguments)
        if outcomes:
            done.assert_outcomes(**outcomes)
        return done

    def test(
        self, text: str, *arguments: str | Path, apart: bool = False, **outcomes: int
    ) -> pytest.RunResult:
        """Do the same with tests of this text, which imports pytest."""
        tests = self.pytester.makepyfile("import pytest\n" + dedent(text))
        return self.run(tests, *arguments, apart=apart, **outcomes)

    def run_without_docker(self, *arguments: str) -> pytest.RunResult:
        """Run a session where no Docker engine is configured."""
        prefix = instead_of_docker()
        return self.pytester.run(*prefix, sys.executable, "-mpytest", *arguments)

    def left(self, engine: str = "process") -> int:
        """Count what its runs have left, asked of the engine itself."""
        folders = [plan.parent for plan in self.runs.glob("*/plan.json")]
        assert folders, f"there is no run in {self.runs}"
        with contextlib.closing(choose(engine)) as asked:
            return sum(len(asked.find(folder.name)) for folder in folders)


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """Settings of our own suite do not apply to those that it runs."""
    monkeypatch.setenv("EMULATOR_ENGINE", "process")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)  # leases lie below the suite's own HOME
    # Nor do its plugins: to import these takes as long as all else that a small suite does.
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(f"-p no:{name}" for name in FOREIGN))
    (pytester.path / "scenarios").mkdir()
    pytester.makeini("[pytest]\nemulator_scenarios = scenarios\nfilterwarnings = error\n")
    return Suite(pytester)
