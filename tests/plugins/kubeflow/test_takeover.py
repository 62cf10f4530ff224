"""A supervisor of a job of the training operator is killed; another one finishes its run."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.engines.memory import Script
from emulator.record.events import JobEnded, TaskStart
from tests.supervisor.in_memory import SERVES
from tests.supervisor.test_takeover import (
    WAYS,
    World,
    check,
    end_as_it_would_have,
    length_of,
    live_through,
    survive_kills,
    trains,
)

PODS = (
    "framework: tensorflow\ncluster: {chief: 1, worker: 2, ps: 1}\noperator:\n"
    "  {kind: TFJob, job: m, restart: {worker: exit-code, ps: on-failure}, backoff_limit: 9,\n"
    "   active_deadline: 1h}\nfaults:\n"
    "  - {preempt: worker-1, at: 6s, grace: 1s, down: 4s}\n"
    "  - {kill: worker-0, at: 8s}\n  - {kill: ps-0, at: 9s}\n"
    "  - {kill: ps-0, at: {recovery: 2, delay: 2s}}\n",
    {"chief-0": trains(), "*": SERVES},
)


def test_new_pods_after_a_take_over_have_new_disks(tmp_path: Path) -> None:
    extra, scripts = PODS
    for kill in range(1, length_of(tmp_path / "whole", extra, scripts, 0.25) + 1):
        here = World(tmp_path / str(kill), extra, scripts, 0.25)
        check(here, live_through(here, [kill, 0], 0.0))
        assert not any(fresh(here, "ps-0"))
        assert any(fresh(here, "worker-0"))


def fresh(here: World, task: str) -> list[bool]:
    return [e.fresh for e in here.history if isinstance(e, TaskStart) and e.task == task]


def test_a_pod_that_was_taken_away_for_good_fails_the_job_also_after_a_take_over(
    tmp_path: Path,
) -> None:
    extra = (
        "framework: tensorflow\ncluster: {worker: 2}\noperator: {kind: TFJob, job: m}\n"
        "faults: [{preempt: worker-1, at: 2s, grace: 1s, down: 4s}]\n"
    )
    for kill in range(1, 40):
        here = World(tmp_path / str(kill), extra, {"*": Script(exits_at=60)}, 0.25)
        assert live_through(here, [kill, 0], 0.0) == "failed", kill
        (end,) = [entry for entry in here.history if isinstance(entry, JobEnded)]
        assert "worker-1 was taken away with exit code 1" in end.reason


@pytest.mark.slow
@pytest.mark.parametrize(("away", "slow", "twice"), WAYS)
def test_a_kill_between_any_two_effects_is_survived(
    tmp_path: Path, away: float, slow: float, twice: bool
) -> None:
    survive_kills(tmp_path, *PODS, away=away, slow=slow, twice=twice)


@pytest.mark.slow
def test_a_run_that_is_taken_over_at_once_ends_as_it_would_have(tmp_path: Path) -> None:
    end_as_it_would_have(tmp_path, *PODS)
