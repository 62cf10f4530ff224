"""Suites of users, made by tests and run by a pytest of their own."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from emulator.engines import choose
from tests.engines.docker.listeners import instead_of_docker

Write = Callable[..., Path]

FOREIGN = ("anyio", "hypothesispytest", "platformdirs")
"""Plugins of our environment that no suite of a user needs."""

STEPS = """\
for n in 1 2 3 4 5; do echo '{"emulate": "step", "step": '$n'}'; done
"""
"""A training of five steps, in no time."""

FOREVER = STEPS + "while :; do sleep 1; done\n"
"""The same, that ends only when it is ended."""


def left(runs: Path, engine: str = "process") -> int:
    """Count what the runs in a folder have left, asked of the engine itself."""
    folders = [plan.parent for plan in runs.glob("*/plan.json")]
    assert folders, f"there is no run in {runs}"
    with contextlib.closing(choose(engine)) as asked:
        return sum(len(asked.find(folder.name)) for folder in folders)


def run_without_docker(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run a suite where no Docker engine is configured."""
    return pytester.run(*instead_of_docker(), sys.executable, "-mpytest", *arguments)


@pytest.fixture(autouse=True)
def _a_suite_of_its_own(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of our own suite do not apply to those that it runs."""
    monkeypatch.setenv("EMULATOR_ENGINE", "process")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)  # leases lie below the suite's own HOME
    # Nor do its plugins: to import these takes as long as all else that a small suite does.
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(f"-p no:{name}" for name in FOREIGN))
    (pytester.path / "scenarios").mkdir()
    pytester.makeini("[pytest]\nemulator_scenarios = scenarios\nfilterwarnings = error\n")


@pytest.fixture
def scenario(pytester: pytest.Pytester) -> Write:
    """Write a scenario: of one worker, a shell, unless the keys differ."""

    def write(name: str = "quick", shell: str = STEPS, **keys: Any) -> Path:
        whole: Mapping[str, Any] = {
            "name": name,
            "framework": "none",
            "image": "none",
            "program": {"command": ["sh", "-c", shell]},
            "cluster": {"worker": 1},
            **keys,
        }
        path = pytester.path / "scenarios" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(whole, indent=2))
        return path

    return write
