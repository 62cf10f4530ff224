"""The recovery ladder: what one rung is better at than another, under the same preemptions."""

from __future__ import annotations

import pytest

from benchmarks.gallery.recovery_ladder import RUNGS, time_shares
from emulator.pytest_plugin.harness import Emulator
from emulator.results import Result
from tests.gallery.this_session import result_of

pytestmark = [pytest.mark.gallery, pytest.mark.long]


STAY = ("torchft", "parameter-server")
"""Rungs on which the other worker trains on."""


@pytest.fixture
def rungs(emulator: Emulator) -> dict[str, Result]:
    return {name.removeprefix("ladder-"): result_of(emulator, name) for name in RUNGS}


def test_who_saves_loses_less_than_who_does_not(rungs: dict[str, Result]) -> None:
    lost = {name: run.lost_steps for name, run in rungs.items()}
    everything = lost.pop("no-checkpoint")
    assert everything is not None
    assert everything >= 110  # all steps at the first preemption
    assert all(steps is not None and steps < everything for steps in lost.values())
    assert [lost[name] for name in ("notice", *STAY)] == [0, 0, 0]


def test_who_need_not_restart_keeps_training(rungs: dict[str, Result]) -> None:
    faults = {name: run.analysis.faults[0] for name, run in rungs.items()}
    during = {name: (one.rate_during or 0) / (one.rate_before or 1) for name, one in faults.items()}
    kept = {name: time_shares(run.summary)["productive"] for name, run in rungs.items()}
    restart = [name for name in rungs if name not in STAY]
    assert min(during[name] for name in STAY) > 2 * max(during[name] for name in restart)
    assert min(kept[name] for name in STAY) > max(kept[name] for name in restart)
