"""What runs of the gallery show beside each other, and some of them as processes."""

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


def test_a_straggler_slows_synchronous_training_more(emulator: Emulator) -> None:
    ways = ("synchronous", "asynchronous")
    names = [f"{way}{slow}" for way in ways for slow in ("", "-straggler")]
    runs = {name: result_of(emulator, name) for name in names}
    seconds = {
        name: max(value or 0 for value in run.analysis.values["seconds"].values())
        for name, run in runs.items()
    }
    factor = {way: seconds[f"{way}-straggler"] / seconds[way] for way in ways}
    assert factor["synchronous"] > 1.3 * factor["asynchronous"]

    # The updates are the same ones, however long they take: so is their number.
    plain, slow = runs["synchronous"], runs["synchronous-straggler"]
    assert plain.final_step is not None
    assert plain.final_step == slow.final_step
    # Asynchronous training makes more updates, each by fewer examples.
    apart = runs["asynchronous"].final_step
    assert apart is not None
    assert apart > 1.2 * plain.final_step


@pytest.mark.tensorflow
@pytest.mark.usefixtures("host_tensorflow")
@pytest.mark.parametrize("name", ["any-image", "dtensor", "in-graph", "input-position", "mirrored"])
def test_a_scenario_runs_as_processes(emulator: Emulator, name: str) -> None:
    """PyTorch and JAX are in their images only; limits of CPU and network need Docker."""
    emulator.run(name, engine="process").check()
