"""Merging of the steps of a long run: how, how many events remain, and the same numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.analysis.analyse import analyse
from emulator.analysis.invariants import INVARIANTS
from emulator.analysis.throughput import curve
from emulator.engines.memory import Script
from emulator.record import writer
from emulator.record.events import Entry, FaultEvent, Step, fields_of
from emulator.record.history import as_it_happened
from emulator.record.reader import Record
from emulator.record.timeline import Timeline
from emulator.record.writer import Coalescer
from emulator.results import RunCallbacks
from tests.histories import (
    a_plan,
    began_again,
    ended,
    happened,
    history,
    in_time,
    job,
    phase,
    restart,
    step,
)
from tests.report.runs import ran


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of these tests are long after a few steps."""
    monkeypatch.setattr(writer, "FREE", 1)
    monkeypatch.setattr(writer, "EACH", 1000)


@pytest.mark.parametrize(
    ("count", "interval"),
    [(0, 0), (99_999, 0), (100_000, 1), (149_999, 1), (150_000, 2), (250_000, 8), (600_000, 1024)],
)
def test_the_interval_begins_and_doubles_after_so_many_events_as_is_documented(
    monkeypatch: pytest.MonkeyPatch, count: int, interval: float
) -> None:
    monkeypatch.undo()  # as runs have them
    assert Coalescer(count).interval == interval


def written(events: Sequence[Entry]) -> list[Entry]:
    coalescer = Coalescer()
    return [one for entry in history(events) for one in coalescer.add(entry)]


def steps_of(events: Sequence[Entry]) -> list[tuple[float, int, int, int]]:
    return [(e.t, e.first, e.step, e.count) for e in merged(events)]


def merged(events: Sequence[Entry]) -> list[Step]:
    return [entry for entry in written(events) if isinstance(entry, Step)]


def every(
    seconds: float, numbers: Sequence[int], task: str = "a-0", since: float = 0
) -> list[Entry]:
    return [step(round(since + n * seconds, 6), task, number) for n, number in enumerate(numbers)]


def test_steps_within_an_interval_are_one_event_and_the_interval_doubles() -> None:
    events = every(0.25, range(1, 11))
    assert steps_of(events) == [(0, 1, 1, 1), (1, 2, 5, 4), (2, 6, 9, 4)]
    assert fields_of(written(events)[1]) == {"step": 5, "coalesced": {"first": 2, "count": 4}}
    coalescer = Coalescer(999)  # what is written at once counts, and what another event lets go
    for entry in [*events[:2], happened(0.3, "job")]:
        coalescer.add(entry)
    assert coalescer.interval == 2


def test_steps_of_different_tasks_are_not_merged_nor_does_a_phase_of_another_change_them() -> None:
    events = in_time(every(0.5, range(9)) + every(0.5, range(9), "b-0", since=0.1))
    both = [(task, number) for number in (0, 2, 4, 6, 8) for task in ("a-0", "b-0")]
    assert [(e.task, e.step) for e in merged(events)] == both
    events = [*every(0.25, range(1, 4)), happened(0.6, "phase", "b-0"), step(1.1, "a-0", 4)]
    assert [e.count for e in merged(events)] == [1, 3]
    alone = merged([*every(0.5, (1, 2)), happened(0.6, "phase", "a-0")])
    assert [(e.step, e.coalesced) for e in alone] == [(1, None), (2, None)]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([2, 3, 4, 5], [(2, 5, 4)]),
        ([10, 20, 30, 40], [(10, 40, 4)]),
        ([1, 2, 4, 5], [(1, 5, 4)]),  # which was left out is no longer known, but that one was
        ([1, 1, 2, 2], [(1, 2, 2)]),  # reported again: counts once
        ([7, 7, 7, 7], [(7, 7, 1)]),
        ([0, 1, 2, 3], [(0, 0, 1), (1, 3, 3)]),  # again what was written already
        ([3, 4, 2, 3], [(3, 4, 2), (2, 2, 1), (3, 3, 1)]),  # goes back: exact
        ([4, 3, 2, 1], [(4, 4, 1), (3, 3, 1), (2, 2, 1), (1, 1, 1)]),
    ],
)
def test_steps_of_a_merged_event_ascend(
    numbers: Sequence[int], expected: Sequence[tuple[int, int, int]]
) -> None:
    events = [*every(0.25, [0, *numbers]), happened(2, "job")]
    assert [(e.first, e.step, e.count) for e in merged(events)[1:]] == expected


def test_a_step_that_is_left_out_in_a_merged_event_is_seen() -> None:
    steps = every(0.1, [n for n in range(1, 60) if n != 33], "worker-0", since=2)
    short = written([*began_again(0, "worker-0"), *steps, ended(9, "worker-0", 0)])
    replay = Timeline(a_plan("{worker: 1}"), as_it_happened(short))
    look = INVARIANTS["steps_exactly_once"](replay)
    assert look.count == 58
    (sentence,) = look.violations
    assert sentence.startswith("worker-0 omitted 1 steps between ")


def test_a_clock_that_is_set_back_does_not_stop_writing() -> None:
    events = [*every(0.25, range(9)), *[step(3 + n, "a-0", 9 + n, late=-500.0) for n in range(3)]]
    assert sum(e.count for e in merged(events)) == 12


# --- How many -----------------------------------------------------------------------------------


def restless(rng: Random) -> Iterator[float]:
    """Yield the times of steps with as many pauses as there can be."""
    t = 0.0
    while True:
        for _ in range(rng.randint(1, 3)):
            t += 0.001
            yield t
        t += rng.choice([1.0, 2.0, 4.0, 8.0])


@pytest.mark.parametrize(("kind", "most"), [("even", 1), ("restless", 2), ("repeated", 3)])
def test_a_long_run_has_no_more_events_than_documented(
    monkeypatch: pytest.MonkeyPatch, kind: str, most: int
) -> None:
    """FREE + K * EACH with K = log2(1 + S * N * T / EACH), as `Coalescer` says."""
    monkeypatch.setattr(writer, "FREE", 100)
    monkeypatch.setattr(writer, "EACH", 50)
    rng, tasks = Random(7), 3
    pauses = restless(rng)
    coalescer, events, made, t = Coalescer(), 0, 0, 0.0
    while t < 4000:
        t = made / 10 if kind == "even" else next(pauses)
        made += 1
        for task in [*range(tasks)] * (2 if kind == "repeated" else 1):
            entry = Step(t=t, wall=1000 + t, task=f"a-{task}", step=made)
            events += len(coalescer.add(entry))
    bound = 100 + 50 * math.ceil(math.log2(1 + 4000 * most * tasks / 50))
    assert 200 < events <= bound
    assert made * tasks > 3 * events


def test_triggers_and_listeners_have_every_step_as_it_is_printed(tmp_path: Path) -> None:
    text = "name: test\nframework: none\nimage: none\nprogram: {command: [a]}\n"
    text += "cluster: {worker: 2}\nfaults: [{pause: worker-1, at: {step: 37}, for: 1s}]\n"
    lines = [(n / 100, f'{{"emulate": "step", "step": {n}}}') for n in range(1, 101)]
    seen: list[Entry] = []
    calls = RunCallbacks(entry=seen.append)
    result = ran(tmp_path, text, {"*": Script(lines, exits_at=1.5)}, callbacks=calls)
    (triggered,) = (e for e in seen if isinstance(e, FaultEvent) and e.stage == "triggered")
    assert triggered.t == 0.37
    told = [e.step for e in seen if isinstance(e, Step) and e.task == "worker-0"]
    assert told == [*range(1, 101)]
    entries = Record(result.folder).history
    assert [e.n for e in entries] == [*range(len(entries))]
    steps = [e for e in entries if isinstance(e, Step) and e.task == "worker-0"]
    assert sum(e.count for e in steps) == 100
    assert len(steps) < 20
    others = [(e.n, e.event) for e in entries if e.event != "step"]
    assert [(e.n, e.event) for e in seen if e.event != "step"] == others[:-1]  # and the removal


# --- The same numbers ---------------------------------------------------------------------------


def training(rng: Random) -> list[Entry]:
    """Return the history of a job of two workers that fail, hang, save and come back."""
    names = ["worker-0", "worker-1"]
    events = [happened(0, "run"), *began_again(1, *names), happened(2, "all-running")]
    at = dict.fromkeys(names, 3.0)
    number = dict.fromkeys(names, 0)
    together, stride = rng.random() < 0.5, rng.choice([1, 1, 10, 0])
    pace = rng.choice([0.02, 0.1, 0.4])
    for restarts in range(1, rng.randint(2, 5)):
        until = max(at.values()) + rng.uniform(2, 25)
        for name in names:
            while at[name] < until:
                at[name] += pace * rng.uniform(0.8, 1.2)
                number[name] += stride or rng.choice([1, 1, 2, 3])
                events.append(step(at[name], name, number[name]))
                if rng.random() < 0.002:
                    events += phase(at[name], at[name] + 0.2, name, "checkpoint", step=number[name])
                    at[name] += 0.3
                if rng.random() < 0.002:
                    at[name] += rng.uniform(5, 9)  # hangs
        failed, end = rng.choice(names), max(at.values()) + 0.1
        events += [ended(end, failed, 137), restart(end + 0.1, failed, "job", restarts)]
        other = names[1 - names.index(failed)]
        events += [ended(end + 0.5, other, 143, told=True), *began_again(end + 1, *names)]
        saved = rng.randint(0, min(number.values()))
        number = dict.fromkeys(names, saved if together or rng.random() < 0.5 else number[failed])
        at = {name: end + 3 + rng.random() for name in names}
        events += [step(at[name], name, number[name] + 1, accuracy=0.5) for name in names]
        number = {name: last + 1 for name, last in number.items()}
    events += [ended(max(at.values()) + 1, "worker-0", 0), job(max(at.values()) + 1)]
    return in_time(events)


def made(history: Sequence[Entry], task: str) -> int:
    """Return how many steps a task reported, without those that repeat the one before."""
    steps = [entry for entry in history if isinstance(entry, Step) and entry.task == task]
    again = sum(two.first == one.step for one, two in pairwise(steps))
    return sum(entry.count for entry in steps) - again


def short_pauses(history: Sequence[Entry], interval: float) -> Iterator[float]:
    """Yield the seconds of the pauses that merging does not keep."""
    for task in {entry.task for entry in history}:
        steps = [e.t for e in history if isinstance(e, Step) and e.task == task]
        yield from (b - a for a, b in pairwise(steps) if 5 <= b - a < interval)


@pytest.mark.slow
@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), each=st.sampled_from([50, 300, 100_000]))
def test_a_coalesced_history_gives_the_numbers_of_the_whole_one(seed: int, each: int) -> None:
    """Counts, states and verdicts exactly; times to an interval for each failure or short pause."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "FREE", 20)
        patch.setattr(writer, "EACH", each)
        full = history(training(Random(seed)))
        coalescer = Coalescer()
        short = as_it_happened([one for entry in full for one in coalescer.add(entry)])
        interval = coalescer.interval
    plan = a_plan("{worker: 2}")
    whole, thin = Timeline(plan, full), Timeline(plan, short)
    one, two = analyse(whole), analyse(thin)
    tasks = {e.task for e in full if isinstance(e, Step)}
    # A step that is reported again right away counts once; every other is counted.
    assert [made(full, task) for task in tasks] == [made(short, task) for task in tasks]
    for name in ("outcome", "reason", "duration", "tasks", "final_step", "first_step", "accuracy"):
        assert getattr(one, name) == getattr(two, name), name
    for name in ("restarts", "lost_steps", "unrecovered", "recoveries", "all_running"):
        assert getattr(one, name) == getattr(two, name), name
    for name, look in INVARIANTS.items():
        assert bool(look(whole).violations) == bool(look(thin).violations), name
        assert look(whole).count == look(thin).count, name
    slack = (interval + 1) * (1 + one.restarts) + sum(short_pauses(full, interval))
    for cause, seconds in one.time.items():
        assert two.time[cause] == pytest.approx(seconds, abs=slack), cause
    for task in tasks:
        rates = [found.throughput.tasks[task].steps_per_second or 0.0 for found in (one, two)]
        assert rates[1] == pytest.approx(rates[0], rel=0.01), task
    exact, found = (curve(replay, one.duration, bins=10) for replay in (whole, thin))
    assert sum(found.job) * found.width == pytest.approx(sum(exact.job) * exact.width)


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        # A pause of an interval keeps its length; a shorter one is spread over the steps around it.
        (4.9, [(0, 0, 0, 1), (0.9, 1, 9, 9), (4.9, 10, 10, 1), (5, 11, 11, 1)]),
        (3.8, [(0, 0, 0, 1), (3.9, 1, 11, 11)]),
    ],
)
def test_a_pause_is_kept_or_spread(
    monkeypatch: pytest.MonkeyPatch, since: float, expected: Sequence[tuple[float, int, int, int]]
) -> None:
    monkeypatch.setattr(writer, "FREE", -2000)  # 4 s
    events = [*every(0.1, range(10)), *every(0.1, range(10, 12), since=since), happened(9, "job")]
    assert steps_of(events) == expected
