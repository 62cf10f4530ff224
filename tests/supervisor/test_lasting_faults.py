"""Lasting faults are desired state: of all that are in force, on whatever process the task has.

Each test looks at what the tasks did, which is what the record has to say.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from emulator.engines.base import Inbox
from emulator.engines.memory import MemoryEngine, Script, Scripts
from emulator.errors import EngineError, NotRunning
from emulator.planning.requested import RunOptions
from emulator.record.reader import Record
from emulator.record.timeline import Timeline
from emulator.report.event_text import describe
from emulator.results import Result
from emulator.runtime.clock import ManualClock, Threads
from emulator.session.ready import make_ready
from emulator.supervisor.engine_calls import EngineCalls
from tests.asked import asked
from tests.supervisor.in_memory import BASE, Job, Late, run_on, stages, times, trains

ENDINGS = {
    "preempt": "{preempt: worker-1, at: 10s, grace: 5s, down: 2s}",
    "restart": "{restart: worker-1, at: 10s, grace: 5s}",
    "kill": "{kill: worker-1, at: 10s}",
}


def run(
    folder: Path, faults: str, kind: type[MemoryEngine] = MemoryEngine, *, cpus: float | None = None
) -> tuple[Result, MemoryEngine, Timeline]:
    """Run a chief for 80 seconds, and two workers for longer."""
    engine = kind(ManualClock(), {"chief-0": trains(80), "*": trains(200)})
    worker = f"{{replicas: 2, cpus: {cpus}}}" if cpus else "2"
    extra = f"cluster: {{chief: 1, worker: {worker}}}\nrestart: on-failure\nfaults: [{faults}]\n"
    result = run_on(engine, folder, extra)
    record = Record(result.folder)
    return result, engine, Timeline(record.plan, record.in_time_order)


def steps(timeline: Timeline, task: str = "worker-1") -> list[float]:
    """Return when a task made its steps."""
    return [step.t for one in timeline.tasks[task].incarnations for step in one.steps]


def within(times: list[float], since: float, until: float) -> list[float]:
    return [t for t in times if since < t < until]


def paused(timeline: Timeline, task: str = "worker-1") -> list[tuple[float, float]]:
    return [(s.begin, s.end) for s in timeline.states() if (s.task, s.name) == (task, "paused")]


def verdict(result: Result, name: str) -> tuple[str, str]:
    (found,) = [one for one in result.verdicts if one.expectation == name]
    return found.status, found.actual


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_replaces_a_paused_task_is_paused_as_well(tmp_path: Path, ending: str) -> None:
    result, _, timeline = run(tmp_path, f"{{pause: worker-1, at: 5s, for: 60s}}, {ENDINGS[ending]}")
    assert within(steps(timeline), 5, 65) == []
    assert within(steps(timeline), 65, 80) != []
    (again,) = timeline.faults["0"].reapplied
    assert (again.task, describe(again)) == ("worker-1", "fault 0: worker-1 is frozen again")
    (first, second) = paused(timeline)
    assert first[0] == 5
    assert second == (again.t, 65)
    assert verdict(result, "no_step_while_paused") == ("ok", "1 of 1 pauses")


def test_a_paused_task_takes_no_notice_and_is_killed_after_its_grace(tmp_path: Path) -> None:
    _, _, timeline = run(tmp_path, f"{{pause: worker-1, at: 5s, for: 60s}}, {ENDINGS['preempt']}")
    applied = timeline.faults["1"].stages["applied"]
    assert (applied.t, applied.exit_code, applied.killed) == (15, 128 + signal.SIGKILL, True)


@pytest.mark.parametrize(
    ("first", "second", "free"),
    [((5, 60), (10, 10), 65), ((5, 10), (10, 30), 40), ((5, 10), (5, 10), 15)],
)
def test_a_task_is_paused_until_the_last_of_its_pauses_is_over(
    tmp_path: Path, first: tuple[int, int], second: tuple[int, int], free: int
) -> None:
    entries = [f"{{pause: worker-1, at: {at}s, for: {long}s}}" for at, long in (first, second)]
    result, _, timeline = run(tmp_path, ", ".join(entries))
    assert within(steps(timeline), 5, free) == []
    assert within(steps(timeline), free, free + 5) != []
    assert verdict(result, "no_step_while_paused") == ("ok", "2 of 2 pauses")


@pytest.mark.parametrize("own", [None, 0.4])
def test_of_two_throttles_the_lower_counts_and_the_end_of_one_leaves_the_other(
    tmp_path: Path, own: float | None
) -> None:
    _, engine, _ = run(
        tmp_path,
        "{throttle: worker-1, cpus: 0.3, at: 5s, for: 60s},"
        "{throttle: worker-1, cpus: 0.2, at: 10s, for: 10s},"
        "{throttle: worker-1, cpus: 0.9, at: 30s, for: 5s}",
        cpus=own,
    )
    assert [cpus for _, cpus in engine.cpus] == [0.3, 0.2, 0.3, 0.3, 0.3, own]


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_replaces_a_throttled_task_is_throttled_as_well(tmp_path: Path, ending: str) -> None:
    _, engine, timeline = run(
        tmp_path, f"{{throttle: worker-1, cpus: 0.5, at: 5s, for: 60s}}, {ENDINGS[ending]}"
    )
    assert engine.cpus == [("worker-1", 0.5), ("worker-1", 0.5), ("worker-1", None)]
    assert len(timeline.faults["0"].reapplied) == 1


def test_a_heal_while_the_task_is_away_leaves_its_replacement_alone(tmp_path: Path) -> None:
    result, engine, timeline = run(
        tmp_path,
        "{throttle: worker-1, cpus: 0.5, at: 5s, for: 8s}, {pause: worker-1, at: 5s, for: 8s},"
        "{preempt: worker-1, at: 10s, grace: 1s, down: 5s}",
    )
    assert result.end.outcome == "succeeded"
    assert [timeline.faults[n].stage for n in "012"] == ["healed"] * 3
    assert engine.cpus == [("worker-1", 0.5), ("worker-1", None)]
    assert timeline.faults["0"].reapplied == timeline.faults["1"].reapplied == []
    assert within(steps(timeline), 16, 20) != []


class _Busy(MemoryEngine):
    """It takes five seconds to freeze a task; a call that waits for that is noticed."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock, {"*": trains(200)})
        self.meanwhile, self.waits = list[Callable[[], None]](), threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.waits.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def pause(self, task: str) -> None:
        super().pause(task)
        for call in self.meanwhile:
            call()
            assert self.waits.wait(300)
        self._clock._now += 5


def test_a_heal_while_a_start_applies_the_fault_again_is_made_and_stamped_after_that(
    tmp_path: Path,
) -> None:
    engine, inbox, threads = _Busy(ManualClock()), Inbox(), Threads()
    text = f"{BASE}cluster: {{worker: 2}}\nfaults: [{{pause: worker-1, at: 5s, for: 60s}}]\n"
    plan, folder = make_ready(asked(text), engine, RunOptions(out=tmp_path, run_id="run"))
    calls = EngineCalls(plan, engine, inbox, threads, engine._clock)
    calls._held_locks["worker-1"] = cast("threading.Lock", engine)
    (fault,) = plan.faults
    engine.prepare(plan, folder, inbox)
    calls.perform("inject", fault)
    assert isinstance(inbox.get().error, NotRunning)
    engine.meanwhile = [lambda: calls.perform("heal", fault)]
    calls.start(plan.tasks[1])
    walls = {one.operation: one.wall for one in (inbox.get(), inbox.get())}
    threads.close()
    assert walls == dict.fromkeys(["start", "heal"], engine._clock.wall())
    running = engine._running("worker-1")
    assert running is not None
    assert not running.frozen


def test_a_job_recovers_from_a_pause_when_that_is_over_and_not_when_the_task_runs_again(
    tmp_path: Path,
) -> None:
    _, _, timeline = run(
        tmp_path,
        f"{{name: long, pause: worker-1, at: 5s, for: 60s}}, {ENDINGS['kill']},"
        "{kill: worker-0, at: {recovery: long}}",
    )
    assert timeline.faults["2"].triggered == 65


def test_a_fault_that_a_start_applies_before_its_own_call_is_applied_once(tmp_path: Path) -> None:
    fails = Script(exits_at=5, exit_code=1)
    scripts: Scripts = {"worker-0": trains(40), "*": lambda n: fails if n == 1 else trains(40)}
    extra = "cluster: {worker: 2}\nrestart: {policy: on-failure, backoff: 1s}\n"
    extra += "faults: [{pause: worker-1, at: 4s, for: 20s}]\n"
    engine = MemoryEngine(ManualClock(), scripts)
    job = Job(tmp_path, BASE + extra, engine)
    assert job.begin(workers=Late(engine._clock, "inject", 3)) == "succeeded"
    assert times(job.history, "start", "worker-1") == [0, 6]
    assert stages(job.history) == [("triggered", 4), ("applied", 7), ("healed", 27)]


class RefusesAgain(MemoryEngine):
    """Pauses a task once."""

    def pause(self, task: str) -> None:
        super().pause(task)
        if self.signals:
            raise EngineError("The kernel has had enough.")


def test_a_fault_that_can_not_be_applied_again_has_failed(tmp_path: Path) -> None:
    result, _, timeline = run(
        tmp_path, f"{{pause: worker-1, at: 5s, for: 60s}}, {ENDINGS['kill']}", RefusesAgain
    )
    fault = timeline.faults["0"]
    assert fault.stage == "failed"
    assert fault.reason == "worker-1 started again, and The kernel has had enough."
    assert within(steps(timeline), 15, 40) != []  # it was let go
    assert result.exit_code == 3


class Ineffective(MemoryEngine):
    """Says that it pauses, and does not."""

    def pause(self, task: str) -> None:
        pass


def test_a_step_while_the_record_says_paused_is_told(tmp_path: Path) -> None:
    result, _, _ = run(tmp_path, "{pause: worker-1, at: 5s, for: 10s}", Ineffective)
    assert verdict(result, "no_step_while_paused") == (
        "failed",
        "worker-1 made 5 steps between 8.0 and 12.0 s, while fault 0 had paused it",
    )
    assert result.exit_code == 1
