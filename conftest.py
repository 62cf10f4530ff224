"""What holds for every run of a scenario in this repository's tests, whatever it expects.

`pytest scenarios` reads it in the environment of `make demo`, which has what the extra `test`
brings and nothing else: what only `tests/` needs is imported there.
"""

from __future__ import annotations

import os
import signal

import pytest

from emulator.engines import choose
from emulator.results import Result
from tests.ratchet import pytest_sessionfinish, pytest_terminal_summary, pytest_testnodedown
from tests.recount import prints_events
from tests.scheduling import pytest_xdist_make_scheduler, rank
from tests.stricter import STRICTER
from tests.test_recount import agrees
from tests.tiers import mark

__all__ = [
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "pytest_testnodedown",
    "pytest_xdist_make_scheduler",
]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has what it starts in the background ignore Ctrl-C, and all that this starts in turn;
    # tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# readline, which pytest's debugger imports, sets COLUMNS for the processes that are started then:
# tables would be as wide as the terminal of whoever runs the tests.
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")

COMPARED = ("recovery", "synchrony")
"""Themes whose runs `tests/gallery` compares."""


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of each tier, and run first what other tests compare: these then find its
    results, and run nothing again.

    The others follow in the order in which workers take them.
    """
    mark(items)
    items.sort(key=lambda item: (item.path.parent.name not in COMPARED, rank(item)))


FILES = {
    "history.jsonl",
    "junit.xml",
    "logs",
    "plan.json",
    "report.html",
    "report.md",
    "samples.jsonl",
    "scenario.yaml",
    "summary.json",
    "verdicts.json",
}

SHORT = 5.0
"""Seconds; a run that took longer surely has a sample of its tasks' usage."""


@pytest.fixture
def run(run: Result) -> Result:
    """The plugin's `run`, after a look at what every run must be like."""
    summary, engine = run.summary, choose(run.summary["engine"])
    assert engine.find(run.run_id) == []
    engine.close()
    found = {path.name for path in run.folder.iterdir() if path.suffix != ".lock"}
    # A run of a second or two ends before its first sample.
    is_short = summary["duration"] < SHORT
    assert found | ({"samples.jsonl"} if is_short else set()) == FILES
    if prints_events(run.folder):
        agrees(run.folder, summary)
    assert sum(summary["time"].values()) == pytest.approx(summary["duration"], abs=1e-4)
    if run.outcome == "succeeded":
        startup = summary["startup"]
        assert min(startup["all_running"], startup["first_step"]) > 0
        assert 0 < summary["time"]["productive"] < summary["duration"]
    for fault in summary["faults"]:
        if fault["kind"] in ("preempt", "restart") and fault["status"] == "applied":
            restored = fault["restored_after"]
            if restored is None:
                forever = "down: forever" in (run.folder / "scenario.yaml").read_text()
                assert forever or run.outcome == "failed"
                continue
            applied = fault["applied_after"]  # 0: it ended after a notice, before any signal
            assert 0 <= applied < restored <= (fault["first_step_after"] or restored)
    if stricter := STRICTER.get(summary["scenario"]):
        stricter(run)
    return run
