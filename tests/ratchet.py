"""What the quick tests cost, printed at their end; it fails nothing.

It is CPU time in units of a fixed loop that the same process measures in the same run, so that a
slow or busy machine changes little.
"""

from __future__ import annotations

import time

import pytest
from xdist.workermanage import WorkerController

WHOLE = 3_000
"""A run of fewer tests is not the whole of `make quick`."""


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
    """Tell the work of a worker that had all quick tests."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None and session.config.option.markexpr == "quick" and is_whole(session):
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
            f"work of the quick tests: {sum(told):,.0f} loops (tests/ratchet.py)"
        )
