"""The supervisor on the memory engine: hours of training in milliseconds."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import emulator
from emulator.engines.base import REST
from emulator.engines.memory import MemoryEngine, Script, Scripts
from emulator.errors import EngineError, Unsupported
from emulator.record.events import Entry, OutputLeftOut, SlowPattern, Step
from emulator.record.reader import Record
from emulator.record.writer import RunWriter
from emulator.report.event_text import describe
from emulator.results import RunCallbacks
from emulator.runtime import clock as clocks
from emulator.runtime.clock import ManualClock
from emulator.supervisor.control import Interrupted
from emulator.supervisor.supervisor import STOP_GRACE
from emulator.validation import patterns
from tests.histories import a_plan, an_event
from tests.supervisor.in_memory import (
    BASE,
    DEAF,
    SERVES,
    faults,
    history,
    inbox_of,
    run,
    run_on,
    stages,
    starts,
    step,
    times,
    trains,
)


def fails_once(then: Script, code: int = 1) -> Callable[[int], Script]:
    return lambda start: Script(exits_at=2.0, exit_code=code) if start == 1 else then


def test_a_job_runs_from_start_to_verdict(tmp_path: Path) -> None:
    worker = Script(lines=[(1, step(1)), (2, step(2)), (3, step(3))], exits_at=4)
    result, _ = run(
        tmp_path,
        "cluster: {chief: 1, ps: 1}\nexpect: {final_step: 3}",
        {"chief-0": worker, "ps-*": SERVES},
    )
    assert [(e.event, e.task) for e in history(result)] == [
        ("run", ""),
        ("prepared", ""),
        ("start", "chief-0"),
        ("start", "ps-0"),
        ("running", "chief-0"),
        ("running", "ps-0"),
        ("all-running", ""),
        ("step", "chief-0"),
        ("step", "chief-0"),
        ("step", "chief-0"),
        ("exit", "chief-0"),
        ("job", ""),
        ("stop", "ps-0"),
        ("exit", "ps-0"),
        ("removed", ""),
    ]
    assert result.exit_code == 0
    assert result.summary["throughput"]["steps_per_second"] == 1.0
    assert result.summary["tasks"]["ps-0"]["state"] == "stopped"
    assert result.summary["startup"] == {"network": 0, "all_running": 0, "first_step": 1}
    assert result.summary["duration"] == 4


def test_the_record_is_complete_and_numbered(tmp_path: Path) -> None:
    result, _ = run(tmp_path, "cluster: {worker: 1}", {"*": Script(lines=[(0, "hello")])})
    record = Record.open(result.folder)
    assert [entry.n for entry in record.history] == list(range(len(record.history)))
    assert record.log("worker-0") == ["hello"]
    (running,) = (entry for entry in record.history if entry.event == "running")
    assert [line.wall for line in record.printed(["worker-0"])] == [running.wall]
    assert record.result("summary.json") == result.summary
    assert (result.folder / "scenario.yaml").read_text() == BASE + "cluster: {worker: 1}"
    assert not record.live


def test_a_failed_task_fails_the_job_and_leaves_its_last_words(tmp_path: Path) -> None:
    words = [(0.1 * n, f"line {n}") for n in range(30)]
    result, _ = run(
        tmp_path,
        "cluster: {worker: 2}",
        {"worker-1": Script(words, exits_at=5, exit_code=3), "*": SERVES},
    )
    assert result.end.outcome == "failed"
    assert result.end.reason == "worker-1 failed with exit code 3"
    assert result.last_words == {"worker-1": [f"line {n}" for n in range(18, 30)]}
    assert result.exit_code == 1


def test_restarts_wait_twice_as_long_each_time(tmp_path: Path) -> None:
    def script(start: int) -> Script:
        return Script(exits_at=1, exit_code=0 if start == 4 else 1)

    extra = "cluster: {worker: 1}\nrestart: {policy: on-failure, backoff: 2s}"
    result, _ = run(tmp_path, extra, {"*": script})
    # each runs 1 s, then 2, 4 and 8 s of waiting
    assert times(history(result), "start") == [0, 3, 8, 17]
    assert result.summary["tasks"]["worker-0"]["restarts"] == 3
    assert result.exit_code == 0


NO_TORCH = "ModuleNotFoundError: No module named 'torch'"
IMPORTS = [
    (1.0, "Traceback (most recent call last):"),
    (1.0, '  File "/job/train.py", line 1, in <module>'),
    (1.0, NO_TORCH),
]
LACKS = Script(IMPORTS, exits_at=1.1, exit_code=1)


@pytest.mark.parametrize("scope", ["task", "job"])
def test_what_dies_at_once_of_what_cannot_heal_is_not_started_again(
    tmp_path: Path, scope: str
) -> None:
    extra = f"cluster: {{worker: 2}}\nrestart: {{policy: on-failure, scope: {scope}}}"
    result, _ = run(tmp_path, extra, {"worker-1": LACKS, "*": SERVES})
    assert starts(result) == [("worker-0", 0), ("worker-1", 0)]
    assert (
        result.end.reason == f"worker-1 failed with exit code 1, and no restart heals: {NO_TORCH}"
    )


@pytest.mark.parametrize(
    ("extra", "first"),
    [
        ("", Script(exits_at=2, exit_code=1)),  # what it dies of is that of its second life
        ("faults: [{pause: worker-0, at: 0.5s, for: 9s}]", LACKS),
        ("faults: [{kill: worker-1, at: 0.5s}]", LACKS),
    ],
)
def test_what_may_heal_is_started_again(tmp_path: Path, extra: str, first: Script) -> None:
    rules = "restart: {policy: on-failure, limit: 2}"
    result, _ = run(
        tmp_path,
        f"cluster: {{worker: 2}}\n{rules}\n{extra}",
        {"worker-1": lambda start: first if start == 1 else LACKS, "*": SERVES},
    )
    assert [task for task, _ in starts(result)].count("worker-1") > 1


def test_a_gang_restarts_together_after_all_have_ended(tmp_path: Path) -> None:
    slow = Script(exits_at=5, on_sigterm=3)
    result, _ = run(
        tmp_path,
        "cluster: {worker: 2}\nrestart: {policy: on-failure, scope: job, backoff: 1s}",
        {"worker-1": fails_once(Script(exits_at=5)), "worker-0": slow},
    )
    # worker-1 fails at 2 s, worker-0 needs 3 s to leave, then a second of backoff
    assert starts(result) == [("worker-0", 0), ("worker-1", 0), ("worker-0", 6), ("worker-1", 6)]
    assert result.end.outcome == "succeeded"
    assert result.summary["restarts"] == 1


def test_a_gang_member_that_is_deaf_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    result, engine = run(
        tmp_path,
        "cluster: {worker: 2}\nrestart: {policy: on-failure, scope: job}",
        {
            "worker-1": fails_once(Script(exits_at=5)),
            "worker-0": lambda n: Script(exits_at=5 if n > 1 else None, on_sigterm=None),
        },
    )
    assert engine.signals[:2] == [("worker-0", signal.SIGTERM), ("worker-0", signal.SIGKILL)]
    assert times(history(result), "exit", "worker-0")[0] == 2 + STOP_GRACE
    assert result.end.outcome == "succeeded"


@pytest.mark.parametrize(
    ("presses", "on_sigterm", "signals", "ends", "rest"),
    [
        ({1}, 4, [signal.SIGTERM], 5, REST),
        # A second one kills at once; nor is any output waited for.
        ({1, 2}, None, [signal.SIGTERM, signal.SIGKILL], 2, 0),
    ],
)
def test_an_interrupt_stops_gracefully_and_a_second_one_kills(
    tmp_path: Path,
    presses: set[int],
    on_sigterm: float | None,
    signals: list[int],
    ends: float,
    rest: float,
) -> None:
    script = Script([(1, step(1)), (2, step(2))], exits_at=None, on_sigterm=on_sigterm)
    engine = MemoryEngine(ManualClock(), {"*": script})

    def entry(entry: Entry) -> None:
        if isinstance(entry, Step) and entry.step in presses:
            inbox_of(engine).put(Interrupted(signal.SIGINT))

    result = run_on(engine, tmp_path, "cluster: {worker: 1}", callbacks=RunCallbacks(entry=entry))
    assert (result.end.outcome, result.exit_code) == ("interrupted", 130)
    assert engine.signals == [("worker-0", number) for number in signals]
    assert times(history(result), "exit") == [ends]
    assert inbox_of(engine).rest == rest


def test_what_was_not_read_is_in_the_history_and_a_warning_of_the_report(tmp_path: Path) -> None:
    engine = MemoryEngine(ManualClock(), {"*": Script(exits_at=None, on_sigterm=4)})

    def left_out(entry: Entry) -> None:
        if entry.event == "job":
            assert inbox_of(engine).rest == REST
            inbox_of(engine).put(OutputLeftOut(task="worker-0", size=5 * 2**20))
            inbox_of(engine).put(OutputLeftOut(task="worker-0"))

    extra = "cluster: {worker: 1}\ntimeout: 1m\nexpect: {outcome: timeout, steps: none}"
    result = run_on(engine, tmp_path, extra, callbacks=RunCallbacks(entry=left_out))
    why = (
        "worker-0's output was not read: the run was over, and it had more than is read after that."
    )
    assert result.summary["warnings"] == [
        f"{size} of {why} Its last lines are in the log." for size in ("5 MiB", "An unknown amount")
    ]


SLOW = "(?P<step>(?:9|99|999)*)x$"
NINES = "9" * 1000 + "x!"


def test_a_pattern_that_takes_too_long_is_given_up_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "TIMEOUT", 0.05)
    worker = Script(lines=[(1, NINES), (2, NINES), (3, "9x"), (4, "global 3")], exits_at=5)
    extra = (
        f"cluster: {{worker: 2}}\nmetrics: {{steps: ['{SLOW}', 'global (?P<step>\\d+)']}}\n"
        "faults: [{pause: worker-0, at: {log: '(9|99)*x$'}, for: 1s}]"
    )
    result, _ = run(tmp_path, extra, {"*": worker})
    given_up = [e for e in history(result) if isinstance(e, SlowPattern)]
    assert [(e.t, e.task, e.pattern) for e in given_up] == [
        (1, "worker-0", SLOW),
        (1, "worker-0", "(9|99)*x$"),
    ]
    steps = [e for e in history(result) if isinstance(e, Step)]
    assert [(e.task, e.step) for e in steps] == [("worker-0", 3), ("worker-1", 3)]
    why = "took too long for a line of worker-0: it is not used any more in this run."
    said = [f"The pattern `{one}` {why}" for one in (SLOW, "(9|99)*x$")]
    assert result.summary["warnings"][-2:] == said
    assert describe(given_up[0]) == f"warning: {said[0]}"
    assert result.analysis.faults[0].status == "skipped"


def test_a_task_that_cannot_start_ends_the_run_and_nothing_is_left(tmp_path: Path) -> None:
    engine = MemoryEngine(ManualClock(), {"*": SERVES}, fails_to_start=["worker-1"])
    with pytest.raises(EngineError, match="worker-1 can't start"):
        run_on(engine, tmp_path, "cluster: {worker: 3}", run_id="bad")
    assert engine.find() == []
    summary = Record(tmp_path / "bad").result("summary.json")
    assert summary is not None
    assert summary["outcome"] == "error"
    assert summary["verdict"] == "unknown"


# --- Stalls -------------------------------------------------------------------------------------


def test_a_job_that_steps_in_time_is_left_alone(tmp_path: Path) -> None:
    lines = [(29.0 * n, step(n)) for n in range(1, 6)]
    result, engine = run(
        tmp_path,
        "cluster: {worker: 1}\nrestart: {policy: on-failure, stall: 30s}",
        {"*": Script(lines, exits_at=150)},
    )
    assert (result.end.outcome, engine.signals) == ("succeeded", [])


TELLS = Script([(n + 0.5, step(10)) for n in range(40)], exits_at=None)
"""It says again and again that it has read the checkpoint of step 10."""


@pytest.mark.parametrize(
    ("cluster", "other"),
    [
        ("{chief: 1, evaluator: 1}", {"evaluator-0": TELLS}),
        ("{chief: 1, evaluator: 1}", {"evaluator-0": trains(40)}),
        ("{chief: 1, worker: 1}", {}),
    ],
)
def test_a_job_hangs_although_some_step_is_reported(
    tmp_path: Path, cluster: str, other: dict[str, Script]
) -> None:
    """The chief hangs, and an evaluator reports steps; or it says itself that it is alive."""
    heart = [] if other else [(n + 0.6, step(3)) for n in range(3, 40)]
    hangs = Script([(1, step(1)), (2, step(2)), (3, step(3)), *heart], exits_at=None)
    scripts: Scripts = {
        "chief-0": lambda start: hangs if start == 1 else trains(9, since=3),
        **other,
    }
    extra = f"cluster: {cluster}\ntimeout: 60s\nrestart: {{policy: on-failure, stall: 10s}}"
    result, _ = run(tmp_path, extra, {**scripts, "worker-*": SERVES})
    stalls = [(e.task, e.t) for e in history(result) if e.event == "stall"]
    assert (result.end.outcome, stalls) == ("succeeded", [("chief-0", 13)])


def test_a_task_that_goes_on_from_where_it_was_does_not_hang(tmp_path: Path) -> None:
    """Its first step is the one that it had reported last; the next one comes in time."""
    first = Script([(1, step(1)), (2, step(2))], exits_at=3, exit_code=1)
    again = Script([(9, step(2)), (18, step(3))], exits_at=19)
    result, engine = run(
        tmp_path,
        "cluster: {worker: 1}\nrestart: {policy: on-failure, stall: 10s}",
        {"*": lambda start: first if start == 1 else again},
    )
    assert (result.end.outcome, engine.signals) == ("succeeded", [])


# --- Faults -------------------------------------------------------------------------------------


def test_a_preempted_task_is_noticed_gone_and_back_in_time(tmp_path: Path) -> None:
    result, engine = run(
        tmp_path,
        "cluster: {worker: 2}\n"
        "faults: [{preempt: worker-1, at: 10s, grace: 5s, down: 7s}]\n"
        "expect: {max_lost_steps: 0, recovers_within: 20s}",
        {"worker-0": trains(60), "worker-1": Script(exits_at=None, on_sigterm=2)},
    )
    # it used 2 of its 5 seconds
    assert stages(history(result)) == [("triggered", 10), ("applied", 12), ("healed", 19)]
    assert {e.task for e in faults(history(result))} == {"worker-1"}
    (fault,) = result.analysis.faults
    assert (fault.status, fault.applied_after) == ("applied", 2)
    assert (fault.exit_code, fault.killed) == (143, False)
    assert (fault.restored_after, fault.first_step_after, fault.caught_up_after) == (9, 10, 10)
    assert result.summary["tasks"]["worker-1"]["restarts"] == 0  # a replacement is no failure
    assert result.exit_code == 0
    assert ("worker-1", signal.SIGKILL) not in engine.signals[:-1]


def test_a_gang_restarts_without_the_preempted_one_which_joins_when_its_node_is_back(
    tmp_path: Path,
) -> None:
    result, _ = run(
        tmp_path,
        "cluster: {worker: 2}\nrestart: {policy: on-failure, scope: job, backoff: 1s}\n"
        "faults: [{preempt: worker-1, at: {step: 20}, grace: 0, down: 10s}]\n"
        "expect: {max_restarts: 1, max_lost_steps: 6}",
        {
            # worker 0 notices a second later that its peer is gone, as a collective does
            "worker-0": lambda n: (
                trains(60, since=15) if n > 1 else replace(trains(20), exit_code=1)
            ),
            "worker-1": DEAF,
        },
    )
    assert starts(result) == [("worker-0", 0), ("worker-1", 0), ("worker-0", 22), ("worker-1", 30)]
    assert result.analysis.lost_steps == 5
    assert result.exit_code == 0, result.verdicts


def test_a_pause_that_outlives_the_job_is_healed(tmp_path: Path) -> None:
    result, engine = run(
        tmp_path,
        "cluster: {worker: 1, chief: 1}\nfaults: [{pause: worker-0, at: 1s, for: 1h}]",
        {"chief-0": Script(exits_at=5), "worker-0": SERVES},
    )
    assert stages(history(result))[-1] == ("healed", 5)
    assert engine.signals == [("worker-0", signal.SIGTERM)]


def test_a_throttled_task_gets_its_own_limit_back_and_the_rates_are_reported(
    tmp_path: Path,
) -> None:
    """Ten steps a second, two while it is throttled, ten again."""
    times = [n / 10 for n in range(1, 101)]
    times += [10 + n / 2 for n in range(1, 21)]
    times += [20 + n / 10 for n in range(1, 101)]
    lines = [(t, step(n + 1)) for n, t in enumerate(times)]
    extra = (
        "cluster: {worker: {cpus: 2}}\n"
        "faults: [{throttle: worker-0, at: 10s, for: 10s, cpus: 0.2}]\n"
        "expect: {throughput: {during: {max: 0.25}, after: {min: 0.9}}}"
    )
    result, engine = run(tmp_path, extra, {"*": Script(lines, exits_at=31)})
    assert engine.cpus == [("worker-0", 0.2), ("worker-0", 2.0)]
    (fault,) = result.analysis.faults
    assert fault.rate_before == pytest.approx(10, rel=0.02)
    assert fault.rate_during == pytest.approx(2, rel=0.02)
    assert fault.rate_after == pytest.approx(10, rel=0.02)
    assert result.exit_code == 0
    strict, _ = run(tmp_path / "2", extra.replace("0.25", "0.1"), {"*": Script(lines, exits_at=31)})
    assert strict.exit_code == 1


@pytest.mark.parametrize(
    ("trigger", "when"),
    [
        ("7s", 7),
        ("{step: 5}", 5),
        ("{step: 5, task: 'worker-*'}", 5),
        ("{log: 'saving to .+/model'}", 8),
        ("{phase: checkpoint}", 9),
    ],
)
def test_every_trigger_fires_once(tmp_path: Path, trigger: str, when: float) -> None:
    phase = '{"emulate": "phase", "phase": "checkpoint", "state": "begin"}'
    lines = [(float(n), step(n)) for n in range(1, 7)]
    lines += [(8.0, "saving to /shared/model"), (9.0, phase), (10.0, phase)]
    result, _ = run(
        tmp_path,
        f"cluster: {{worker: 1, ps: 1}}\nfaults: [{{pause: ps-0, at: {trigger}, for: 1s}}]",
        {"worker-0": Script(lines, exits_at=20), "ps-0": SERVES},
    )
    assert stages(history(result)) == [("triggered", when), ("applied", when), ("healed", when + 1)]


def test_a_fault_that_did_not_happen_leaves_the_verdict_unknown(tmp_path: Path) -> None:
    result, _ = run(
        tmp_path,
        "cluster: {worker: 1, ps: 1}\nfaults:\n"
        "  - {kill: ps-0, at: {step: 99}}\n"
        "  - {kill: ps-0, at: 5s}\n"
        "  - {pause: ps-0, at: 6s, for: 1s}\n",
        {"worker-0": Script(exits_at=20), "ps-0": Script(exits_at=2)},
    )
    never = "the job ended before its trigger fired: no task reached step 99, no step was reported"
    assert [(fault.status, fault.reason) for fault in result.analysis.faults] == [
        ("skipped", never),
        ("skipped", "ps-0 was not running"),
        ("skipped", "ps-0 was not running"),
    ]
    assert result.exit_code == 3


def test_a_run_gets_only_the_gpus_that_it_is_given(tmp_path: Path) -> None:
    engine = MemoryEngine(ManualClock(), gpus=("a", "b", "c", "d"))

    def handed_out(number: str, gpus: list[str] | None) -> list[tuple[str, ...]]:
        cluster = "cluster: {worker: {replicas: 2, gpus: 1}}"
        result = run_on(engine, tmp_path, cluster, run_id=number, gpus=gpus)
        return [task.gpus for task in Record(result.folder).plan.tasks]

    assert handed_out("all", None) == [("a",), ("b",)]
    assert handed_out("some", ["c", "b"]) == [("c",), ("b",)]
    with pytest.raises(Unsupported, match="only 0 of 1 are left"):
        handed_out("too-few", ["a"])
    with pytest.raises(Unsupported, match=r"engine has none\."):
        handed_out("none", [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all", "some"]


def test_the_way_from_up_to_the_start_of_a_task_is_short(tmp_path: Path) -> None:
    """`emulate up` calls `run.up`; the worker's call of `_start` stands for a thread of its own."""
    ways: list[list[str]] = []
    # Not by a word in their path: a checkout may be in a folder of any name.
    package, of_clock = Path(emulator.__file__).parent, Path(clocks.__file__)

    class Engine(MemoryEngine):
        def start(self, task: Any, *, same_address: bool = False) -> str:
            frames = [(Path(f.filename), f.name) for f in traceback.extract_stack()]
            ours = [name for path, name in frames if package in path.parents and path != of_clock]
            ways.append(ours)
            return super().start(task, same_address=same_address)

    run_on(Engine(ManualClock()), tmp_path, "cluster: {worker: 1}")
    assert ways == [["up", "run", "_begin_tasks", "start_task", "start", "_start"]]


@pytest.mark.parametrize(
    ("fault", "hurried"),
    [
        ("{pause: worker-1, at: 2.5s, for: 1s}", ""),
        ("{pause: worker-1, at: {step: 3}, for: 1s}", "123"),
        ("{pause: worker-1, at: {log: 'step.: 4'}, for: 1s}", "1234"),
        ("{pause: worker-1, at: {phase: eval}, for: 1s}", "123456"),  # never
        ("{kill: worker-1, at: {step: 2}}, {pause: worker-0, at: {after: 0}, for: 1s}", "12"),
        (
            "{kill: worker-1, at: 1.5s, name: a},"
            " {pause: worker-0, at: {recovery: a, delay: 1s}, for: 1s}",
            "1234",
        ),
    ],
)
def test_lines_are_hurried_while_one_may_trigger_a_fault(
    tmp_path: Path, fault: str, hurried: str
) -> None:
    worker = Script(lines=[(n, step(n)) for n in range(1, 7)], exits_at=8)
    later = Script(lines=[(2.2, "ready")], exits_at=None)
    engine = MemoryEngine(ManualClock(), {"worker-0": worker, "worker-1": later})
    seen: list[str] = []

    def look(lines: Sequence[tuple[str, str]]) -> None:
        seen.extend(text[-2] for _, text in lines if inbox_of(engine).hurried and "step" in text)

    extra = f"cluster: {{worker: 2}}\nfaults: [{fault}]"
    extra += "\nrestart: {policy: on-failure, backoff: 0.5s}"
    result = run_on(engine, tmp_path, extra, callbacks=RunCallbacks(lines=look))
    assert result.outcome == "succeeded"
    assert "".join(seen) == hurried


@pytest.mark.parametrize("hurried", [True, False])
def test_lines_are_hurried_for_a_subscriber_and_around_the_run(
    tmp_path: Path, hurried: bool
) -> None:
    engine = MemoryEngine(ManualClock(), {"worker-0": Script(lines=[(1, "a")], exits_at=2)})
    seen = {}

    def look(event: Entry) -> None:
        if engine._inbox is not None:
            seen[event.event] = engine._inbox.hurried

    callbacks = RunCallbacks(entry=look, hurried=hurried)
    run_on(engine, tmp_path, "cluster: {worker: 1}", callbacks=callbacks)
    assert seen["all-running"]
    assert seen["exit"] is hurried
    assert inbox_of(engine).hurried  # the job has ended


def test_a_fault_at_a_step_does_not_strike_while_data_is_prepared(tmp_path: Path) -> None:
    """TRL's bars, as drawn: the faults came at 25 of 600 examples, and the run had 600 steps."""

    def bar(title: str, done: int, total: int, unit: str) -> str:
        return f"\r{title} 50%|█████     | {done}/{total} [00:01<00:01, 9.5{unit}/s]"

    prepared = [bar("Adding EOS to train dataset:", 100 * n, 600, " examples") for n in range(1, 7)]
    trained = [bar("", n, 60, "it") for n in range(1, 61)]
    drawings = [(n / 10, one) for n, one in enumerate([*prepared, *trained], 1)]
    lines = [(0.65, "".join(prepared)), (7.0, "".join(trained))]
    result, _ = run(
        tmp_path,
        "cluster: {worker: 1}\nexpect: {final_step: 60}\nfaults:\n"
        "  - {pause: worker-0, at: {step: 25}, for: 0.01s}\n",
        {"*": Script(lines, drawings=drawings, exits_at=8)},
    )
    assert result.exit_code == 0
    assert dict(stages(history(result)))["triggered"] == pytest.approx(3.1)
    assert result.final_step == 60
    assert result.summary["step_sources"] == {
        "used": [{"source": "a bar without a title (60)", "tasks": ["worker-0"]}],
        "seen": [{"source": "the bar `Adding EOS to train dataset` (600)", "tasks": ["worker-0"]}],
    }


def test_what_a_bar_has_drawn_triggers_a_fault_within_the_epoch(tmp_path: Path) -> None:
    drawings = [(n / 10, f"\r{n:2}/20 [==>.] - ETA: 1s - loss: 0.5") for n in range(1, 20)]
    lines = [
        (0.0, "Epoch 1/1"),
        (3.0, "\r19/20 [==>.]\r20/20 [====] - 2s - loss: 0.1 - accuracy: 0.9"),
    ]
    worker = Script(lines, drawings=drawings, exits_at=4)
    result, _ = run(
        tmp_path,
        "cluster: {worker: 1}\nexpect: {final_step: 20, accuracy: 0.9}\nfaults:\n"
        "  - {pause: worker-0, at: {step: 12}, for: 0.01s}\n"
        "  - {pause: worker-0, at: {log: 'ETA|20/20'}, for: 0.01s}\n",
        {"*": worker},
    )
    assert result.exit_code == 0
    assert dict(stages(history(result)))["triggered"] == pytest.approx(1.2)
    # a line is one once it is finished
    assert dict(stages(history(result), "1"))["triggered"] == pytest.approx(3.0)
    steps = [(e.step, e.values) for e in history(result) if isinstance(e, Step)]
    assert [number for number, _ in steps] == [*range(1, 20), 20]
    assert [values for _, values in steps if values] == [{"loss": 0.1, "accuracy": 0.9}]
    stored = (result.folder / "logs" / "worker-0.log").read_bytes().decode()
    assert stored == "".join(f"{text}\n" for _, text in lines)


def test_in_a_batch_output_and_steps_wait_for_another_event_or_its_end(tmp_path: Path) -> None:
    told: list[str] = []
    callbacks = RunCallbacks(
        entry=lambda entry: told.append(entry.event),
        lines=lambda lines: told.append(" ".join(text for _, text in lines)),
    )
    record = RunWriter(tmp_path / "run-1", a_plan("{worker: 1}"), "", ManualClock())

    def after(line: str, *events: str, shown: bool = True) -> list[str]:
        """Return what is told when a task has printed a line and these events have happened."""
        told.clear()
        record.log("worker-0", line, shown=shown)
        for event in events:
            record.write(an_event(event, "worker-0", **{"step": 1} if event == "step" else {}))
        return list(told)

    with record.telling(callbacks):
        assert after("a", "step", "phase") == ["a", "step", "phase"]
        assert after("b", shown=False) == []
        with record.batch():
            assert after("c", "step", "phase") == []
            assert after("d", "stall") == ["c d", "step", "phase", "stall"]
            assert after("e", "step") == []
        assert told == ["e", "step"]
        assert after("f") == ["f"]
    record.close()
    assert Record(record.path).log("worker-0") == list("abcdef")
