"""Results of scenarios that this session has run already, for claims that compare several runs."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.gallery.runs import read_runs
from emulator.pytest_plugin.harness import Emulator
from emulator.record.reader import Record
from emulator.results import Result, load_result

COLLECTED = time.time()
"""When this module was imported: while tests are collected, before the first one runs."""


def result_of(emulator: Emulator, scenario: str, *, check: bool = True) -> Result:
    """Return the result of a bundled scenario without variants; run it if no test has done so.

    Raises AssertionError if it does not meet its expectations, unless it is not to `check` them.
    """
    for run in read_runs(Path(emulator.out)):
        ended = (run.folder / "summary.json").stat().st_mtime
        if run.name == scenario and ended > COLLECTED:
            result = load_result(Record(run.folder))
            break
    else:
        result = emulator.run(scenario)
    if check:
        result.check()
    return result
