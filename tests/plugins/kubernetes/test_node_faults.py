"""Kinds `cordon` and `drain`: what they ask an engine for, and a supervisor that was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.faults.kinds import FAULTS
from emulator.faults.preempt import Preempt
from emulator.faults.spec import Effect
from emulator.plugins.kubernetes.engine import KubernetesEngine
from emulator.plugins.kubernetes.faults import Cordon, Drain
from tests.faults.platforms.test_presets import possible
from tests.faults.test_kinds import Engine, target
from tests.faults.test_signals import ENTRIES, scenario
from tests.supervisor.test_takeover import (
    WAYS,
    end_as_it_would_have,
    survive_kills,
    survives_a_kill,
    trains,
)

WORN = "n1 is cordoned, where a-0, b-0 of this run ran"
EVICTED = tuple(
    Preempt.model_construct(preempt=task, grace=30.0, down=0.0, via="eviction")
    for task in ("a-0", "b-0")
)


@pytest.mark.parametrize(
    ("fault", "effect"),
    [
        (Cordon(cordon="a-0", for_=7.0), Effect(WORN)),
        (Drain(drain="a-0", for_=7.0), Effect(WORN, EVICTED)),
    ],
    ids=["cordon", "drain"],
)
def test_a_fault_of_nodes_asks_its_engine_for_this(fault: Cordon | Drain, effect: Effect) -> None:
    assert FAULTS[fault.kind] is type(fault)
    assert (fault.lasting, fault.is_healed, fault.blocks_job) == (True, True, False)
    engine = Engine()
    assert fault.apply(target(engine)) == effect
    fault.heal(target(engine))
    assert engine.calls == [("cordon", "a-0"), ("uncordon", "a-0")]


def test_a_drain_needs_evictions() -> None:
    assert list(Drain(drain="a-0", for_=7.0).needs()) == [
        ("draining the node of a-0", "nodes"),
        ("evicting a-0", "eviction"),
    ]


def test_whom_a_drain_signals_is_what_it_says_and_else_the_scenario() -> None:
    for more, said, whom in [
        ("", "", None),
        ("signals: all\n", "", "all"),
        ("", ", signals: all", "all"),
        ("signals: all\n", ", signals: main", "main"),
    ]:
        (fault,) = scenario(f"drain: worker-1, at: 4s, for: 5s{said}", more).faults
        assert isinstance(fault, Drain)
        assert fault.signals == whom


@pytest.mark.parametrize("entry", [*ENTRIES, "drain: worker-1, at: 4s, for: 5s"])
def test_a_cluster_can_signal_no_more_than_the_command(entry: str) -> None:
    for more, lacks in (("", set()), ("signals: all\n", {"signal-all"})):
        (fault,) = scenario(entry, more).faults
        assert {need for _, need in fault.needs()} - KubernetesEngine.capabilities == lacks


def test_which_presets_a_cluster_can_do() -> None:
    assert possible(KubernetesEngine) >= {"plain", "gke", "kubernetes", "sagemaker-spot"}
    assert not possible(KubernetesEngine) & {"gce-spot", "slurm-preempt", "power-loss"}


@pytest.mark.parametrize(
    "fault", ["cordon: worker-1, for: 2s", "drain: worker-1, grace: 1s, for: 2s"]
)
def test_a_fault_of_nodes_survives_a_kill_and_happens_once(tmp_path: Path, fault: str) -> None:
    survives_a_kill(tmp_path, fault)


EXTRA, SCRIPTS = (
    "cluster: {worker: 3}\nsuccess: all-workers\nfaults:\n"
    "  - {drain: worker-2, at: 3s, grace: 2s, for: 4s}\n"
    "  - {cordon: worker-1, at: 12s, for: 2s}\n"
    "  - {preempt: worker-1, at: {recovery: 0}, grace: 1s, down: 1s, via: eviction}\n",
    {"worker-2": lambda n: trains(on_sigterm=None), "*": lambda n: trains()},
)


@pytest.mark.slow
@pytest.mark.parametrize(("away", "slow", "twice"), WAYS)
def test_nodes_are_as_they_were_after_a_kill_between_any_two_effects(
    tmp_path: Path, away: float, slow: float, twice: bool
) -> None:
    survive_kills(tmp_path, EXTRA, SCRIPTS, away=away, slow=slow, twice=twice)


def test_a_run_with_faults_of_nodes_that_is_taken_over_at_once_ends_as_it_would_have(
    tmp_path: Path,
) -> None:
    end_as_it_would_have(tmp_path, EXTRA, SCRIPTS)
