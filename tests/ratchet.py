"""What the suite may cost: lines of each folder of tests, and the work of `make quick`.

Both may become smaller at any time, and larger only by an edit of this file, for a reason that its
commit says. Work is CPU time in units of a fixed loop that the same process measures in the same
run, so that a slow or busy machine changes little.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from xdist.workermanage import WorkerController

LINES: Mapping[str, int] = {
    "engines": 17_170,
    "supervisor": 5_400,
    "": 4_820,
    "scenario": 4_520,
    "analysis": 4_230,
    "report": 3_750,
    "metrics": 2_680,
    "kubeflow": 4_960,
    "record": 2_530,
    "cli": 2_600,
    "faults": 2_130,
    "manifests": 2_050,
    "pytest_plugin": 1_680,
    "platforms": 1_520,
    "exports": 1_320,
    "gallery": 1_310,
    "ui": 1_510,
    "planning": 1_050,
    "api": 970,
    "broker": 910,
    "validation": 790,
    "runtime": 760,
    "session": 690,
    "docs": 540,
    "search": 500,
    "programs": 270,
    "contrib": 220,
}
"""Lines of Python at most, by folder of `tests/`; "" has the files beside the folders."""

WORK = 9_000
"""Loops that the quick tests may take together, workers' starts and collection included.

They took 4,400, and 7,000 beside the build of an image. The rest is for machines that differ more.
"""
WHOLE = 3_000
"""A run of fewer tests is not the whole of `make quick`."""


def lines(tests: Path) -> dict[str, int]:
    """Return the lines of Python of each folder of tests."""
    found: dict[str, int] = {}
    for path in tests.rglob("*.py"):
        folder, *rest = path.relative_to(tests).parts
        name = folder if rest else ""
        found[name] = found.get(name, 0) + len(path.read_bytes().splitlines())
    return found


def loop() -> float:
    """Return the CPU seconds of a fixed piece of work: the least of three tries."""

    def once() -> float:
        began = time.process_time()
        words: dict[str, int] = {}
        for number in range(200_000):
            word = f"{number % 997}"
            words[word] = words.get(word, 0) + 1
        return time.process_time() - began

    return min(once() for _ in range(3))


# --- Hooks: each worker tells its work, and whoever started them adds it up -----------------------

_TOLD = pytest.StashKey[list[float]]()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController) -> None:
    """Take what a worker told."""
    if (work := getattr(node, "workeroutput", {}).get("work")) is not None:
        node.config.stash.setdefault(_TOLD, []).append(work)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the work of a worker that had all quick tests; fail a run that took too much."""
    config = session.config
    output = getattr(config, "workeroutput", None)
    told: list[float] = config.stash.get(_TOLD, [])
    if output is None and sum(told) > WORK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    elif output is not None and config.option.markexpr == "quick" and is_whole(session):
        output["work"] = time.process_time() / loop()


def is_whole(session: pytest.Session) -> bool:
    """Return whether a run has all quick tests, and not those of some file."""
    return session.testscollected >= WHOLE


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what a run of all quick tests took."""
    if told := config.stash.get(_TOLD, []):
        terminalreporter.write_line(
            f"work of the quick tests: {sum(told):,.0f} of at most {WORK:,.0f} loops"
            " (tests/ratchet.py)"
        )
