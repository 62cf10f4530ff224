"""Faults of a cluster, on the memory engine with nodes: eviction, cordon, drain, and notes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emulator.engines.base import Exited
from emulator.engines.memory import MemoryEngine, Script, Scripts
from emulator.engines.requirements import require
from emulator.errors import EngineError, Unsupported
from emulator.record.events import EngineNote, Entry, FaultEvent
from emulator.record.reader import Record
from emulator.report.event_text import describe
from emulator.results import Result
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from tests.supervisor import in_memory
from tests.supervisor.in_memory import BASE, DEAF, SERVES, faults, restarts, run_on, stages, trains

CHIEF = trains(40)
SCRIPTS: Scripts = {"worker-0": CHIEF, "*": SERVES}
TWO = "cluster: {worker: 2}\n"


class Engine(MemoryEngine):
    """Remembers when which nodes were cordoned."""

    def __init__(self, clock: ManualClock, scripts: Any, **kwargs: Any) -> None:
        super().__init__(clock, scripts, **kwargs)
        self.changes: list[tuple[float, tuple[str, ...]]] = []

    def cordon(self, task: str) -> Any:
        found = super().cordon(task)
        self.changes.append((self._clock.now() - ManualClock.BEGAN, tuple(self.cordoned)))
        return found

    def uncordon(self, task: str) -> None:
        super().uncordon(task)
        self.changes.append((self._clock.now() - ManualClock.BEGAN, tuple(self.cordoned)))


def run(
    folder: Path,
    extra: str,
    kind: type[Engine] = Engine,
    *,
    scripts: Scripts = SCRIPTS,
    cluster: str = "cluster: {worker: 3}\n",
    **kwargs: Any,
) -> tuple[list[Entry], Engine, Result]:
    """Three workers on two nodes: 0 and 2 on the first, 1 on the second."""
    engine = kind(ManualClock(), scripts, **{"nodes": ("n1", "n2"), **kwargs})
    result = run_on(engine, folder, cluster + extra)
    return in_memory.history(result), engine, result


def applied(history: list[Entry], fault: str = "0") -> FaultEvent:
    (found,) = [one for one in faults(history, fault) if one.stage == "applied"]
    return found


def sent(engine: Engine, task: str) -> list[int]:
    return [number for one, number in engine.signals if one == task]


# --- An engine that ends the grace period itself ------------------------------------------------


def test_the_engine_kills_after_the_grace_and_the_evidence_says_so(tmp_path: Path) -> None:
    history, engine, result = run(
        tmp_path,
        "faults: [{preempt: worker-1, at: 5s, grace: 3s, down: 2s, via: eviction}]",
        scripts={"worker-0": CHIEF, "worker-1": DEAF, "*": SERVES},
    )
    assert stages(history) == [("triggered", 5), ("applied", 8), ("healed", 10)]
    event = applied(history)
    assert (event.exit_code, event.killed, event.seconds) == (137, True, 3)
    assert event.effect == "worker-1 was evicted with 3 s"
    # No SIGKILL of ours, which would be one too many; the last two are at the end of the job.
    assert sent(engine, "worker-1") == [15, 15, 9]
    assert restarts(history) == [("worker-1", 10, True)]
    (fault,) = result.analysis.faults
    assert (fault.status, fault.killed, fault.effect) == ("applied", True, event.effect)


def test_a_deletion_asks_no_budget_and_a_target_that_ends_in_its_grace_was_not_killed(
    tmp_path: Path,
) -> None:
    for via in ("", ", via: delete"):
        extra = f"faults: [{{preempt: worker-1, at: 5s, grace: 3s, down: 2s{via}}}]"
        history, _, _ = run(tmp_path, extra, budget=["worker-1"])
        event = applied(history)
        assert (event.t, event.exit_code, event.killed) == (5, 143, False)
        assert event.effect == "worker-1 was deleted with 3 s"
        assert stages(history)[-1][0] == "healed"


def test_a_target_that_the_engine_does_not_end_is_killed_at_last(tmp_path: Path) -> None:
    """As on a node that is lost: the run does not wait for it for ever."""

    class Lost(Engine):
        def preempt(self, task: str, grace: float, via: object) -> str:
            return "asked"

    extra = "faults: [{preempt: worker-1, at: 5s, grace: 3s}]"
    scripts = {"worker-0": Script(exits_at=100.0), "*": SERVES}
    history, engine, _ = run(tmp_path, extra, Lost, scripts=scripts)
    event = applied(history)
    assert (event.t, event.exit_code, event.killed) == (5 + 3 + engine.kill_slack, 137, True)
    assert event.effect == "asked"


def test_what_a_budget_forbids_did_not_happen_and_was_not_survived(tmp_path: Path) -> None:
    history, _, result = run(
        tmp_path,
        "faults: [{preempt: worker-1, at: 5s, via: eviction}]\nexpect: {max_lost_steps: 10}",
        budget=["worker-1"],
    )
    assert stages(history) == [("triggered", 5), ("failed", 5)]
    assert faults(history)[-1].reason == "A disruption budget forbids to evict worker-1."
    verdicts = {one.expectation: one.status for one in result.verdicts}
    assert (verdicts["faults"], verdicts["max_lost_steps"]) == ("unknown", "unknown")
    assert result.exit_code == 3


# --- Nodes --------------------------------------------------------------------------------------


def test_a_cordoned_node_takes_no_task_until_it_is_healed(tmp_path: Path) -> None:
    history, engine, _ = run(
        tmp_path,
        "faults: [{cordon: worker-1, at: 5s, for: 10s}, {preempt: worker-1, at: 6s, down: 1s}]",
    )
    assert stages(history) == [("triggered", 5), ("applied", 5), ("healed", 15)]
    assert applied(history).effect == ("n2 is cordoned, where worker-1 of this run ran")
    assert engine.changes[:2] == [(5, ("n2",)), (15, ())]
    assert stages(history, "1")[-1] == ("healed", 7)
    assert [describe(one) for one in faults(history)] == [
        "fault 0: cordon worker-1",
        "fault 0: the node of worker-1 takes no new tasks; n2 is cordoned, where worker-1 of this "
        "run ran",
        "fault 0: the node of worker-1 takes tasks again",
    ]


def test_a_drain_evicts_all_our_tasks_of_the_node_each_by_a_fault_of_its_own(
    tmp_path: Path,
) -> None:
    history, engine, result = run(
        tmp_path,
        "faults: [{name: upkeep, drain: worker-2, at: 5s, for: 20s, grace: 4s},"
        " {kill: worker-1, at: {after: upkeep, delay: 2s}}]\n"
        "restart: on-failure",
        scripts={"worker-0": CHIEF, "worker-2": DEAF, "*": SERVES},
    )
    assert stages(history) == [("triggered", 5), ("applied", 5), ("healed", 25)]
    for task, gone in {"worker-0": 5, "worker-2": 9}.items():
        begun = [("planned", 5), ("triggered", 5)]
        assert stages(history, f"0:{task}") == [*begun, ("applied", gone), ("healed", gone)]
    assert applied(history, "0:worker-2").effect == "worker-2 was evicted with 4 s"
    assert stages(history, "1")[0] == ("triggered", 11)  # when all of the drain has taken effect
    assert restarts(history)[:2] == [("worker-0", 5, True), ("worker-2", 9, True)]
    assert engine.changes == [(5, ("n1",)), (25, ())]
    assert [(one.id, one.kind, one.status) for one in result.analysis.faults] == [
        ("0", "drain", "applied"),
        ("1", "kill", "applied"),
        ("0:worker-0", "preempt", "applied"),
        ("0:worker-2", "preempt", "applied"),
    ]
    assert result.analysis.tasks["worker-2"].restarts == 0


def test_a_node_is_uncordoned_also_when_the_job_fails(tmp_path: Path) -> None:
    history, engine, result = run(
        tmp_path,
        "faults: [{drain: worker-2, at: 5s, for: forever}, {cordon: worker-1, at: 6s, for: 1h}]",
        scripts={"worker-1": Script(exits_at=8.0, exit_code=1), "*": SERVES},
    )
    assert result.end.outcome == "failed"
    assert engine.changes[-1] == (8, ())
    assert stages(history)[-1] == stages(history, "1")[-1] == ("healed", 8)


def test_a_fault_that_the_job_s_end_overtakes_is_healed_once_it_has_happened(
    tmp_path: Path,
) -> None:
    """A heal before it would undo nothing, and nobody would come back."""

    class Slow(Engine):
        def cordon(self, task: str) -> Any:
            found = super().cordon(task)
            ended = Exited("worker-0", self._clock.wall(), 1)
            in_memory.inbox_of(self).put(ended)  # before our answer
            return found

    extra = "faults: [{drain: worker-1, at: 5s, for: 1h}]"
    history, engine, result = run(tmp_path, extra, Slow, scripts={"*": SERVES}, cluster=TWO)
    assert result.end.outcome == "failed"
    assert stages(history) == [("triggered", 5), ("applied", 5), ("healed", 5)]
    assert engine.changes == [(5, ("n2",)), (5, ())]
    assert stages(history, "0:worker-1") == []  # the job was over: nothing is evicted any more


def test_another_s_cordon_is_left_alone(tmp_path: Path) -> None:
    class Cordoned(Engine):
        def cordon(self, task: str) -> Any:
            raise EngineError("The node n2 is cordoned already.")

    extra = "faults: [{drain: worker-1, at: 5s, for: 1s}]"
    history, engine, _ = run(tmp_path, extra, Cordoned, cluster=TWO)
    assert stages(history) == [("triggered", 5), ("failed", 5)]
    assert engine.changes == []


# --- What is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("preempt: worker-1, via: eviction", "preempting worker-1 by eviction"),
        ("preempt: worker-1, via: delete", "preempting worker-1 by deletion"),
        ("drain: worker-1, for: 1s", "draining the node of worker-1; evicting worker-1"),
        ("cordon: worker-1, for: 1s", "cordoning the node of worker-1"),
    ],
)
def test_an_engine_without_nodes_refuses_them(fault: str, what: str) -> None:
    text = f"{BASE}cluster: {{worker: 2}}\nfaults: [{{{fault}, at: 1s}}]"
    require(parse(text), MemoryEngine(ManualClock(), nodes=("n1",)))
    with pytest.raises(Unsupported, match=what):
        require(parse(text), MemoryEngine(ManualClock()))


# --- What the engine says -----------------------------------------------------------------------


def test_what_the_engine_says_is_in_the_history_and_changes_nothing(tmp_path: Path) -> None:
    class Talking(Engine):
        def preempt(self, task: str, grace: float, via: Any) -> str:
            message = "Stopping container main"
            stamp = self._clock.wall() - 0.4
            note = EngineNote(task=task, reason="Killing", message=message, stamp=stamp)
            in_memory.inbox_of(self).put(note)
            in_memory.inbox_of(self).put(EngineNote(reason="NodeNotSchedulable"))
            return super().preempt(task, grace, via)

    extra = "faults: [{preempt: worker-1, at: 5s, down: 1s}]"
    _, _, result = run(tmp_path, extra, Talking, cluster=TWO, nodes=("n1",))
    record = Record(result.folder)
    notes = [one for one in record.history if isinstance(one, EngineNote)]
    assert [(one.task, one.t, one.reason, one.message) for one in notes] == [
        ("worker-1", 5, "Killing", "Stopping container main"),
        ("", 5, "NodeNotSchedulable", ""),
    ]
    assert notes[0].stamp == pytest.approx(notes[0].wall - 0.4)
    assert [describe(one) for one in notes] == [
        "the cluster: worker-1: Killing: Stopping container main",
        "the cluster: NodeNotSchedulable",
    ]
    assert [one.t for one in record.in_time_order] == sorted(one.t for one in record.history)
    (fault,) = result.analysis.faults
    assert fault.notes == ["Killing: Stopping container main"]
