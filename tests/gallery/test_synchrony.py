"""Synchronous and asynchronous training to the same accuracy, with and without a straggler."""

from __future__ import annotations

import pytest

from emulator.pytest_plugin.harness import Emulator
from tests.gallery.this_session import result_of

pytestmark = [pytest.mark.gallery, pytest.mark.long]


def test_a_straggler_slows_synchronous_training_more(emulator: Emulator) -> None:
    runs = {
        (ways, slow): result_of(emulator, f"{ways}{slow}")
        for ways in ("synchronous", "asynchronous")
        for slow in ("", "-straggler")
    }
    seconds = {
        key: max(value or 0 for value in run.analysis.values["seconds"].values())
        for key, run in runs.items()
    }
    factor = {
        ways: seconds[ways, "-straggler"] / seconds[ways, ""]
        for ways in ("synchronous", "asynchronous")
    }
    assert factor["synchronous"] > 1.3 * factor["asynchronous"]

    # The updates are the same ones, however long they take: so is their number.
    plain, slow = runs["synchronous", ""], runs["synchronous", "-straggler"]
    assert plain.final_step is not None
    assert plain.final_step == slow.final_step
    # Asynchronous training makes more updates, each by fewer examples.
    apart = runs["asynchronous", ""].final_step
    assert apart is not None
    assert apart > 1.2 * plain.final_step
