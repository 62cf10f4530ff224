"""The capacity of engines; the contract suite tests it for all of them."""

from __future__ import annotations

import os
import sys

import psutil
import pytest

from emulator.engines.memory import MemoryEngine
from emulator.engines.process import ProcessEngine
from emulator.runtime.clock import ManualClock


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the cores of a process")
def test_only_the_cores_that_this_process_may_use_count() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert ProcessEngine().capacity().cpus == 1
    finally:
        os.sched_setaffinity(0, before)
    has = ProcessEngine().capacity()
    assert (has.cpus, has.gpus) == (len(before), ())
    assert has.memory == psutil.virtual_memory().total


def test_the_engine_in_memory_has_plenty_and_the_gpus_it_was_made_with() -> None:
    has = MemoryEngine(ManualClock(), gpus=("a", "b")).capacity()
    assert has.cpus >= 1000
    assert has.gpus == ("a", "b")
