"""A supervisor is killed between any two effects; another one finishes its run."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.base import Inbox
from emulator.engines.memory import MemoryEngine, Script
from emulator.faults.held import Pause
from emulator.faults.kinds import FAULTS
from emulator.record import writer
from emulator.record.events import (
    Attached,
    Entry,
    FaultEvent,
    HelperEvent,
    JobEnded,
    Step,
    fields_of,
)
from emulator.record.reader import Record
from emulator.results import RunCallbacks, load_result
from emulator.runtime import plugins
from emulator.runtime.clock import ManualClock
from emulator.scenario.schema import EVENTS
from emulator.validation import patterns
from tests.supervisor.in_memory import (
    BASE,
    DEAF,
    SERVES,
    Everything,
    Job,
    scalars,
    stages,
    step,
    times,
)

BEGAN = ManualClock.BEGAN
WALL = 1_700_000_000.0
"""The same time in seconds since 1970."""


class Killed(BaseException):
    """kill -9: nothing catches it."""


class Fuse:
    """Kills once so many things have happened: events written, engine calls begun and done.

    Or, with `entry`, when the event of that number is written.
    """

    def __init__(self, length: float = 0, *, entry: int = -1) -> None:
        self.left, self.last = length, entry

    def burn(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed

    def around(self, call: Callable[..., object], *args: object) -> None:
        self.burn()
        call(*args)
        self.burn()

    def entry(self, entry: Entry) -> None:
        if entry.n == self.last:
            raise Killed
        self.burn()


@dataclass
class Workers:
    """Make calls for as long as the supervisor lives, after so many seconds of the clock."""

    clock: ManualClock
    fuse: Fuse
    slow: float
    alive: bool = True

    def submit(self, call: Callable[..., object], /, *args: object) -> None:
        if self.slow:
            self.clock.call_at(self.clock.now() + self.slow, lambda: self._make(call, *args))
        else:
            self._make(call, *args)

    aside = submit

    def close(self) -> None:
        self.alive = False

    def _make(self, call: Callable[..., object], *args: object) -> None:
        if self.alive:
            self.fuse.around(call, *args)


class World(Job):
    """What a kill leaves as it is; an engine call takes so many seconds."""

    def __init__(
        self, out: Path, extra: str, scripts: Mapping[str, Any], slow: float = 0.0, **own: Any
    ) -> None:
        """`own`: of an engine that does everything."""
        kind: Any = Everything if own else MemoryEngine
        nodes = ("n1", "n2") if "drain:" in extra or "cordon:" in extra else ()
        base = BASE.replace("framework: none\n", "") if "framework:" in extra else BASE
        super().__init__(out, base + extra, kind(ManualClock(), scripts, nodes=nodes, **own))
        self.slow = slow

    def start(self, fuse: Fuse) -> str:
        return self.begin(RunCallbacks(entry=fuse.entry), Workers(self.clock, fuse, self.slow))

    def succeed(self, fuse: Fuse) -> str:
        return self.take_over(RunCallbacks(entry=fuse.entry), Workers(self.clock, fuse, self.slow))

    def dies(self, fuse: Fuse) -> None:
        """Begin the run, and leave it as it is when the supervisor is killed."""
        with contextlib.suppress(Killed):
            self.start(fuse)

    def pass_time(self, seconds: float) -> None:
        """Pass time without a supervisor."""
        self.clock.next_event(Inbox(), self.clock.now() + seconds)


@cache
def trains(until: int = 40, first: int = 0, **kwargs: Any) -> Script:
    lines = [(float(n - first), step(n)) for n in range(first + 1, until + 1, 2)]
    return Script(lines, exits_at=float(until - first) + 0.5, **kwargs)


def fails_once(at: float, then: Script, **kwargs: Any) -> Callable[[int], Script]:
    lines = [(float(n), step(n)) for n in range(1, int(at) + 1)]
    return lambda n: Script(lines, exits_at=at + 0.5, exit_code=1, **kwargs) if n == 1 else then


CASES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "a preemption with grace and down, and one for ever": (
        "cluster: {worker: 3}\nfaults:\n"
        "  - {preempt: worker-1, at: 5s, grace: 4s, down: 6s, address: same}\n"
        "  - {preempt: worker-2, at: 8s, grace: 2s, down: forever}\n"
        "  - {preempt: worker-1, at: {recovery: 0}, grace: 1s, down: 1s}\n",
        {"worker-0": trains(), "worker-1": Script(exits_at=None, on_sigterm=2), "worker-2": DEAF},
    ),
    "a loss of power, and one for ever": (
        "cluster: {worker: 3}\nfaults:\n"
        "  - {preempt: worker-1, at: 5s, loss: silent, down: 6s, address: same}\n"
        "  - {preempt: worker-2, at: 8s, loss: silent, down: forever}\n",
        {"worker-0": trains(), "*": DEAF},
    ),
    "what lasts": (
        "cluster: {worker: {replicas: 3, cpus: 2}}\nnetwork: {delay: 1ms}\nfaults:\n"
        "  - {pause: worker-1, at: 3s, for: 6s}\n"
        "  - {throttle: worker-0, at: 4s, for: 6s, cpus: 0.5}\n"
        "  - {partition: [[worker-0], [worker-1, worker-2]], at: 5s, for: 7s}\n"
        "  - {shape: worker-2, loss: 5%, at: 6s, for: forever}\n",
        {"worker-0": trains(), "*": SERVES},
    ),
    "restarts of tasks, with a backoff": (
        "cluster: {worker: 2, ps: 1}\nrestart: {policy: on-failure, backoff: 3s}\nfaults:\n"
        "  - {kill: ps-0, at: 4s}\n"
        "  - {oom: ps-0, at: {recovery: 0, delay: 2s}}\n"
        "  - {terminate: ps-0, at: {after: 1, delay: 9s}}\n",
        {"worker-0": fails_once(7, trains(first=5)), "*": SERVES},
    ),
    "a gang that restarts while one is away": (
        "cluster: {worker: 3}\nrestart: {policy: on-failure, scope: job, backoff: 2s}\nfaults:\n"
        "  - {preempt: worker-1, at: 6s, grace: 1s, down: 4s}\n",
        {
            "worker-0": fails_once(8, trains(first=5)),
            "worker-1": SERVES,
            "worker-2": Script(exits_at=None, on_sigterm=6),
        },
    ),
    "a rolling restart": (
        "cluster: {worker: 3}\nsuccess: all-workers\n"
        "faults: [{restart: 'worker-*', at: 3s, grace: 2s}]\n",
        {"worker-1": lambda n: trains(on_sigterm=None), "*": lambda n: trains(20 + n)},
    ),
    "workers that outlive the job": (
        "cluster: {worker: 2, evaluator: 1}\n"
        "faults: [{pause: evaluator-0, at: 2s, for: forever}, {kill: worker-1, at: 1h}]\n",
        {"worker-0": trains(4), "worker-1": trains(8), "*": SERVES},
    ),
    "tasks before training, one of which is preempted and one fails": (
        "cluster: {ingest: {replicas: 3, before: training}, worker: 2}\n"
        "restart: {policy: on-failure, scope: job, backoff: 2s}\nfaults:\n"
        "  - {preempt: ingest-1, at: 3s, grace: 1s, down: 4s}\n"
        "  - {preempt: worker-1, at: {after: 0}, grace: 1s, down: 3s}\n",
        {
            "ingest-0": Script(exits_at=4.0),
            "ingest-1": Script(exits_at=5.0, on_sigterm=None),
            "ingest-2": lambda n: Script(exits_at=3.5, exit_code=int(n == 1)),
            "worker-0": fails_once(7, trains(first=5)),
            "worker-1": SERVES,
        },
    ),
    "helpers": (
        "cluster: {worker: 1}\nhelpers:\n  board: {command: [board], ports: [6006]}\n"
        "  sink: {command: [sink]}\n  deaf: {command: [deaf]}\n",
        {
            "worker-0": trains(6),
            "sink": Script(lines=[(1.0, "oh no")], exits_at=3, exit_code=3),
            "deaf": DEAF,
            "*": SERVES,
        },
    ),
}


def check(here: World, outcome: str, away: float = 0.0) -> None:
    """What must hold of every run, however often its supervisor was killed."""
    history = here.history
    assert outcome == "succeeded"
    assert [entry.n for entry in history] == list(range(len(history)))
    assert all(one.t <= other.t for one, other in pairwise(history))
    assert [e.event for e in history].count("job") == 1
    # After so long a time the job may be over before all of its tasks have been seen to run.
    assert [e.event for e in history].count("all-running") in ((0, 1) if away > 40 else (1,))
    if here.plan.before_training:
        last = max(e.n for e in history if e.event == "exit" and e.task.startswith("ingest"))
        assert min(e.n for e in history if e.event == "start" and e.task in TRAINING) > last
        assert [e.event for e in history].count("training") == 1
    reached_by = Counter((e.id, e.stage) for e in history if isinstance(e, FaultEvent))
    assert set(reached_by.values()) <= {1}, reached_by
    for fault in here.plan.faults:
        reached = {stage for number, stage in reached_by if number == fault.id} - {"found"}
        assert reached in SETTLED[fault.kind], (fault.id, reached)
    lives = dict.fromkeys((task.name for task in here.plan.tasks), "")
    preempted = {fault.id for fault in here.plan.faults if fault.kind == "preempt"}
    gone = set()
    for entry in history:
        if entry.event == "exit" and fields_of(entry).get("fault") in preempted:
            gone.add(entry.task)
        elif entry.event == "running":
            gone.discard(entry.task)
        if entry.event == "start" and entry.task in gone:
            assert fields_of(entry)["fresh"], f"{entry.task}: a replacement on the old disk"
        if entry.event in ("running", "exit"):
            before = lives[entry.task]
            assert before != entry.event, f"{entry.task}: {entry.event} twice"
            lives[entry.task] = entry.event
    assert set(lives.values()) <= {"exit"}
    ends = [e.task for e in history if isinstance(e, HelperEvent) and e.stage == "ended"]
    assert sorted(ends) == sorted(helper.name for helper in here.plan.helpers)
    for task, running in here.engine._tasks().items():
        assert not running.frozen, task
    assert not here.engine.links or here.engine.links[-1] == here.plan.links
    limits = dict(here.engine.cpus)
    assert all(limit == here.plan.task(task).cpus for task, limit in limits.items())


TRAINING = ("worker-0", "worker-1")
GONE: set[str] = {"triggered", "applied"}
NEVER: set[str] = {"skipped"}
ENDED: list[set[str]] = [GONE, NEVER, {"triggered", "skipped"}, {"triggered", "failed"}]
SETTLED = {
    **dict.fromkeys(FAULTS, ENDED),
    "preempt": [*ENDED, GONE | {"healed"}],
    "restart": [*ENDED, GONE | {"healed"}],
    **{kind: [GONE | {"healed"}, *ENDED[1:]] for kind in FAULTS if FAULTS[kind].lasting},
}
"""How a fault may end: what took effect and lasts is healed."""


WAYS = [(0.0, 0.25, False), (2.5, 0.0, False), (100.0, 0.25, False), (1.0, 0.0, True)]
"""For how long nobody supervises the run, how long calls take, and whether it dies twice."""


def length_of(folder: Path, extra: str, scripts: Mapping[str, Any], slow: float) -> int:
    """Return how many things happen in a run whose supervisor is not killed."""
    here, fuse = World(folder, extra, scripts, slow), Fuse()
    check(here, here.start(fuse))
    return -int(fuse.left)


@pytest.mark.slow
@pytest.mark.parametrize(("away", "slow", "twice"), WAYS)
@pytest.mark.parametrize("case", CASES)
def test_a_kill_between_any_two_effects_is_survived(
    tmp_path: Path, case: str, away: float, slow: float, twice: bool
) -> None:
    survive_kills(tmp_path, *CASES[case], away=away, slow=slow, twice=twice)


def survive_kills(
    tmp_path: Path,
    extra: str,
    scripts: Mapping[str, Any],
    *,
    away: float,
    slow: float,
    twice: bool,
) -> None:
    for kill in range(1, length_of(tmp_path / "whole", extra, scripts, slow) + 1):
        here = World(tmp_path / str(kill), extra, scripts, slow)
        try:
            fuses = [kill, kill % 11 + 1, 0] if twice else [kill, 0]
            check(here, live_through(here, fuses, away), away)
        except (Exception, Killed) as error:
            last = "\n".join(
                f"{e.n} {e.t} {e.event} {e.task} {fields_of(e)}"
                for e in here.history
                if e.event != "step"
            )
            raise AssertionError(f"killed at {kill}:\n{last}") from error


KINDS = {
    "preempt": "preempt: worker-1, grace: 1s, down: 2s",
    "kill": "kill: worker-1",
    "terminate": "terminate: worker-1",
    "restart": "restart: worker-1, grace: 1s",
    "oom": "oom: worker-1",
    "pause": "pause: worker-1, for: 2s",
    "throttle": "throttle: worker-1, cpus: 0.5, for: 2s",
    "partition": "partition: [[worker-0], [worker-1]], for: 2s",
    "shape": "shape: worker-1, loss: 5%, for: 2s",
    "checkpoint": "checkpoint: torn",
    "disk": "disk: readonly, on: worker-1, for: 2s",
    "disk: full": "disk: full, for: forever",
    "visibility": "visibility: late, by: 1s, seen_by: worker-1, for: 2s",
    "hang": "hang: worker-1, for: 2s",
    "checkpoint: bitflip": "checkpoint: bitflip",
    "checkpoint: missing": "checkpoint: missing",
    "checkpoint: stale": "checkpoint: stale",
    "checkpoint: empty-newer": "checkpoint: empty-newer",
    "checkpoint: zeroed": "checkpoint: zeroed, newest: 2",
}
SAVED = {"model-1.pt": b"older", "model-2.pt": b"\x00" * 9}


class Noting(Fuse):
    """Notes when what is written of a fault."""

    def __init__(self) -> None:
        super().__init__()
        self.when: list[int] = []

    def entry(self, entry: Entry) -> None:
        super().entry(entry)
        if isinstance(entry, FaultEvent):
            self.when.append(-int(self.left))


def test_every_kind_of_fault_has_a_case_here() -> None:
    assert {case.partition(":")[0] for case in KINDS} == FAULTS.keys() - {*plugins.names("faults")}


@pytest.mark.parametrize("fault", KINDS.values(), ids=[*KINDS])
def test_a_fault_of_any_kind_survives_a_kill_and_happens_once(tmp_path: Path, fault: str) -> None:
    survives_a_kill(tmp_path, fault)


def survives_a_kill(tmp_path: Path, fault: str) -> None:
    """Check that a fault at 3 s happens once, wherever the supervisor is killed."""
    extra = f"cluster: {{worker: 2}}\nrestart: on-failure\nfaults: [{{{fault}, at: 3s}}]\n"

    def world(name: str) -> World:
        shared = tmp_path / name / "shared"
        shared.mkdir(parents=True)
        for file, content in SAVED.items():
            (shared / file).write_bytes(content)
        scripts = {"worker-0": trains(12), "*": lambda n: SERVES}
        return World(tmp_path / name, extra, scripts, shared=shared)

    def left(name: str, here: World) -> object:
        """Return the files, and what the record says of them."""
        files = {one.name: one.read_bytes() for one in (tmp_path / name / "shared").iterdir()}
        said = {
            key: value
            for one in here.history
            if isinstance(one, FaultEvent) and one.stage == "applied"
            for key, value in (one.changed or {}).items()
        }
        return files, {key: value for key, value in said.items() if key not in VARIES}

    whole, fuse = world("whole"), Noting()
    check(whole, whole.start(fuse))
    expected = left("whole", whole)
    assert (expected[0] == SAVED) == ("checkpoint" not in fault)  # type: ignore[index]
    assert ("0", "applied") in {(e.id, e.stage) for e in whole.history if isinstance(e, FaultEvent)}
    for kill in range(fuse.when[0] - 2, fuse.when[-1] + 4):
        here = world(str(kill))
        engine: Any = here.engine
        try:
            check(here, live_through(here, [kill, 0], 0.0))
            assert left(str(kill), here) == expected
            assert {since for _, asked in engine.asked if (since := asked.get("since"))} <= {WALL}
        except (Exception, Killed) as error:
            last = "\n".join(f"{e.n} {e.t} {e.event} {e.task} {fields_of(e)}" for e in here.history)
            raise AssertionError(f"killed at {kill}:\n{last}") from error


VARIES = {"inode", "written", "at"}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_run_that_is_taken_over_at_once_ends_as_it_would_have(tmp_path: Path, case: str) -> None:
    end_as_it_would_have(tmp_path, *CASES[case])


def end_as_it_would_have(tmp_path: Path, extra: str, scripts: Mapping[str, Any]) -> None:
    whole = World(tmp_path / "whole", extra, scripts)
    check(whole, whole.start(Fuse()))
    undisturbed, expected = whole.history, what_counts(whole)
    first = next(entry.n for entry in undisturbed if entry.event == "prepared")
    for last in range(first, len(undisturbed)):
        here = World(tmp_path / str(last), extra, scripts)
        here.dies(Fuse(entry=last))
        check(here, here.succeed(Fuse()))
        history, where = here.history, f"killed after {undisturbed[last]}"
        for kept, before in zip(history[: last + 1], undisturbed, strict=False):
            assert (kept.event, kept.task, kept.t) == (before.event, before.task, before.t)
        assert [e.n for e in history if e.event == "attached"] == [last + 1]
        assert what_counts(here) == expected, where


ONCE = {"exit", "restart", "job", "before-training", "training", "all-running"}


def what_counts(here: World) -> object:
    """Return how a job and its helpers have ended, and what became of its faults."""
    (end,) = [(e.outcome, e.reason, e.task) for e in here.history if isinstance(e, JobEnded)]
    faults: dict[str, list[str]] = {}
    for entry in here.history:
        if isinstance(entry, FaultEvent):
            faults.setdefault(entry.id, []).append(entry.stage)
    ends = [
        e for e in here.history if isinstance(e, HelperEvent) and e.stage in ("ended", "failed")
    ]
    helpers = Counter((e.task, e.stage, e.exit_code) for e in ends)
    return end, faults, helpers, Counter((e.event, e.task) for e in here.history if e.event in ONCE)


def live_through(here: World, fuses: list[int], away: float) -> str:
    """Supervise as often as it takes; each time something is torn by the kill."""
    supervise = World.start
    for fuse in fuses:
        try:
            return supervise(here, Fuse(fuse))
        except Killed:
            with (here.folder / "history.jsonl").open("ab") as history:
                history.write(b'{"n": 99, "t"')
            here.pass_time(away)
            supervise = World.succeed
    raise AssertionError("the last one is not killed")


def test_a_failed_task_has_the_same_last_words_after_a_take_over(tmp_path: Path) -> None:
    trace = ["Traceback (most recent call last):", '  File "a.py", line 1', "ValueError: no"]
    output = [*trace, *(f"noise {n}" for n in range(50))]
    lines = [(1 + number / 10, line) for number, line in enumerate(output)]

    def words(last: int) -> Mapping[str, Sequence[str]]:
        scripts = {"*": Script(lines=lines, exits_at=20.0, exit_code=1)}
        here = World(tmp_path / str(last), "cluster: {worker: 1}\n", scripts)
        here.dies(Fuse(entry=last))
        assert last < 0 or here.succeed(Fuse()) == "failed"
        return load_result(Record(here.folder)).last_words

    without = words(-1)
    assert without["worker-0"][:4] == ["ValueError: no", "noise 0", "noise 1", "…"]
    assert without["worker-0"][-1] == "noise 49"
    for last in range(8):
        assert words(last) == without


def test_a_successor_knows_the_output_as_its_predecessor_did(tmp_path: Path) -> None:
    """Which epoch it is, where a program counts steps anew in each; and its last words."""
    lines = [(1.0, "Epoch 2/2"), (2.0, "5/10 [==>] - loss: 0.5"), (9.0, "6/10 [==>] - loss: 0.4")]
    scripts = {"*": Script(lines, exits_at=10, exit_code=1)}
    here = World(tmp_path, "cluster: {worker: 1}\n", scripts)
    here.dies(Fuse(9))
    assert fields_of(here.history[-1])["step"] == 15
    here.pass_time(3.0)
    assert here.succeed(Fuse()) == "failed"
    (again,) = [entry for entry in here.history if isinstance(entry, Attached)]
    assert again.gap == pytest.approx(again.t - here.history[again.n - 1].t, abs=1e-6)
    assert [fields_of(e)["step"] for e in here.history if e.event == "step"] == [15, 16]


@pytest.mark.parametrize("length", range(4, 70, 3))
def test_buffered_steps_are_read_again_from_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """See `Coalescer`: every step is reported once, by one event or another."""
    monkeypatch.setattr(writer, "FREE", 2)
    lines = [(n / 10, step(n)) for n in range(1, 31)]
    here = World(tmp_path, "cluster: {worker: 2}\n", {"*": Script(lines, exits_at=3.05)})
    here.dies(Fuse(length))
    here.pass_time(0.35)
    assert here.succeed(Fuse()) == "succeeded"
    steps = [entry for entry in here.history if isinstance(entry, Step)]
    assert len(steps) < 30
    for worker in ("worker-0", "worker-1"):
        own = [entry for entry in steps if entry.task == worker]
        assert [own[0].first, own[-1].step, sum(e.count for e in own)] == [1, 30, 30]
        assert all(two.first == one.step + 1 for one, two in pairwise(own))
    assert [entry.n for entry in here.history] == list(range(len(here.history)))


@pytest.mark.parametrize("length", range(8, 60))
def test_steps_that_were_drawn_are_reported_once_although_the_line_is_read_again(
    tmp_path: Path, length: int
) -> None:
    """What was read of an unfinished line is not in the logs; what is resumed from are lines."""
    lines, drawings = [], []
    for epoch in (1, 2, 3):
        began = 2.0 * epoch
        lines.append((began, f"Epoch {epoch}/3"))
        bars = [f"\r{n:2}/10 [==>..] - ETA: 1s - loss: 0.5" for n in range(1, 11)]
        drawings += [(began + n / 10, bar) for n, bar in enumerate(bars, 1)]
        end = f"\r10/10 [====] - 1s - loss: 0.{epoch} - accuracy: 0.9"
        lines.append((began + 1.5, "".join(bars) + end))
    here = World(
        tmp_path, "cluster: {worker: 1}\n", {"*": Script(lines, drawings=drawings, exits_at=9)}
    )
    here.dies(Fuse(length))
    assert here.succeed(Fuse()) == "succeeded"
    steps = [entry for entry in here.history if isinstance(entry, Step)]
    numbers = [one.step for one in steps]
    assert numbers == sorted(numbers)  # no step is lost or done again
    assert {10, 20, 30} <= {*numbers}
    ends = [one.values for one in steps if one.values]
    assert [values["loss"] for values in ends][-1] == 0.3
    assert [entry.n for entry in here.history] == list(range(len(here.history)))


@pytest.mark.parametrize(
    ("limit", "last", "outcome", "event", "when"),
    [
        ("restart: {policy: on-failure, stall: 10s, limit: 0}", "step", "failed", "stall", 14.0),
        ("timeout: 20s", "step", "timeout", "job", 20.0),
        ("timeout: 20s", "all-running", "timeout", "job", 20.0),
    ],
)
def test_a_successor_notices_a_job_that_hangs(
    tmp_path: Path, limit: str, last: str, outcome: str, event: str, when: float
) -> None:
    hangs = Script([(1.0, step(1))], exits_at=None)
    here = World(tmp_path, f"cluster: {{worker: 1}}\n{limit}\n", {"*": hangs})
    here.dies(Fuse(8 if last == "step" else 7))
    assert here.history[-1].event == last
    here.pass_time(3.0)
    assert here.succeed(Fuse()) == outcome
    assert times(here.history, event) == [when]


def dies_at(here: World, when: float, supervise: Callable[..., str] = World.start) -> None:
    """Supervise the run; the supervisor is killed at a time of it."""
    fuse = Fuse(1000)
    here.clock.call_at(BEGAN + when, lambda: setattr(fuse, "left", 1))
    with contextlib.suppress(Killed):
        supervise(here, fuse)


def test_a_successor_expects_no_step_of_a_task_that_never_made_one(tmp_path: Path) -> None:
    scripts = {"worker-0": Script([(1.0, step(1))], exits_at=None), "*": Script(exits_at=None)}
    extra = "cluster: {worker: 2}\nrestart: {policy: on-failure, stall: 10s, limit: 0}\n"
    here = World(tmp_path, extra, scripts)
    dies_at(here, 5)
    assert here.succeed(Fuse()) == "failed"
    assert {one.task for one in here.history if one.event == "stall"} == {"worker-0"}


def test_a_successor_does_without_a_pattern_that_took_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "TIMEOUT", 0.05)
    slow = ["(?P<step>(?:9|99)*)x$", "(?:9|99)*x$"]
    lines = [(second, "9" * 1000 + "x!") for second in (1.0, 2.0, 6.0)] + [(7.0, "9x")]
    extra = (
        f"cluster: {{worker: 2}}\nmetrics: {{steps: '{slow[0]}'}}\n"
        f"faults: [{{pause: worker-0, at: {{log: '{slow[1]}'}}, for: 1s}}]\n"
    )
    here = World(tmp_path, extra, {"*": Script(lines, exits_at=8)})
    dies_at(here, 4.0)
    assert here.succeed(Fuse()) == "succeeded"
    events = [(e.event, e.t) for e in here.history if e.event in ("slow-pattern", "step", "fault")]
    assert events == [("slow-pattern", 1), ("slow-pattern", 1), ("fault", 8)]


def test_a_successor_restarts_a_job_once_all_its_tasks_have_ended(tmp_path: Path) -> None:
    extra = "cluster: {worker: 2}\nrestart: {policy: on-failure, scope: job}\n"
    slow = Script([(5.0, step(1))], exits_at=None, on_sigterm=6)
    here = World(tmp_path, extra, {"worker-0": fails_once(3, trains(9)), "worker-1": slow})
    dies_at(here, 4.0)
    assert here.history[-1].event == "step"
    assert here.succeed(Fuse()) == "succeeded"
    assert times(here.history, "start") == [0.0, 0.0, 9.5, 9.5]


def test_a_successor_notes_that_a_fault_is_healed_whose_target_was_back(tmp_path: Path) -> None:
    extra = "cluster: {worker: 2}\nfaults: [{preempt: worker-1, at: 2s, grace: 0, down: 3s}]\n"
    here = World(tmp_path, extra, {"worker-0": trains(10), "*": SERVES})
    here.dies(Fuse(entry=14))
    assert times(here.history[14:], "running", "worker-1") == [5]
    here.pass_time(1.0)
    assert here.succeed(Fuse()) == "succeeded"
    assert stages(here.history)[-1] == ("healed", 6)


def test_a_successor_restarts_a_gang_of_which_the_last_is_still_to_end(tmp_path: Path) -> None:
    """It does so at once: of the backoff it knows nothing."""
    extra, scripts = CASES["a gang that restarts while one is away"]
    here = World(tmp_path, extra, scripts)
    here.dies(Fuse(entry=21))
    assert here.history[-1].event == "restart"
    here.pass_time(1.0)
    check(here, here.succeed(Fuse()))
    assert times(here.history, "restart") == [8.5]
    assert times(here.history, "start", "worker-2") == [0, 15.5]


def test_a_successor_asks_where_the_ports_are_of_what_has_any_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, published = [], MemoryEngine.published

    def asking(engine: MemoryEngine, task: str) -> Mapping[int, str]:
        asked.append(task)
        return published(engine, task)

    monkeypatch.setattr(MemoryEngine, "published", asking)
    extra, scripts = CASES["helpers"]
    extra += "  brief: {command: [a], ports: [80]}\n"
    here = World(tmp_path, extra, {"brief": Script(exits_at=1.0), **scripts})
    dies_at(here, 2.0)
    known = here.asks(5.0, lambda control: dict(control.ports))
    check(here, here.succeed(Fuse()))
    assert known.result() == {("board", 6006): "127.0.0.1:6006"}
    assert asked == ["board", "brief", "board"]


def test_a_delay_and_a_duration_continue_without_a_supervisor(tmp_path: Path) -> None:
    extra = (
        "cluster: {worker: 2}\nfaults:\n"
        "  - {pause: worker-1, at: 2s, for: 20s}\n"
        "  - {kill: worker-1, at: {after: 0, delay: 10s}}\n"
        "  - {partition: [[worker-0], [worker-1]], at: 4s, for: 10s}\n"
        "  - {throttle: worker-0, cpus: 0.5, at: 3s, for: 9s}\n"
        "  - {throttle: worker-0, cpus: 0.2, at: 4s, for: 1s}\nrestart: on-failure\n"
    )
    here = World(tmp_path, extra, {"worker-0": trains(), "*": SERVES})
    dies_at(here, 7.0)
    here.pass_time(2.0)
    there = len(here.engine.links)
    here.succeed(Fuse())
    for fault, stage in {"1": ("triggered", 12), "0": ("healed", 22), "2": ("healed", 14)}.items():
        assert stage in stages(here.history, fault)
    # A throttle in force is made once more by the successor, and one that is over is not.
    assert [cpus for _, cpus in here.engine.cpus] == [0.5, 0.2, 0.5, 0.5, None]
    # The successor's engine is given links that it did not make itself, and then of their end.
    assert [len(links) for links in here.engine.links[there:]] == [2, 0]
    assert here.engine.links[-1] == ()


def test_the_time_of_a_fault_counts_from_when_its_tasks_ran_at_first(tmp_path: Path) -> None:
    extra = (
        "cluster: {ingest: {replicas: 2, before: training}, worker: 1}\nfaults:\n"
        "  - {pause: ingest-0, at: 5s, for: 1s}\n  - {pause: worker-0, at: 6s, for: 1s}\n"
    )
    scripts = {"ingest-0": Script(exits_at=9), "ingest-1": Script(exits_at=3), "*": trains(20)}
    here = World(tmp_path, extra, scripts)
    dies_at(here, 3.0)
    dies_at(here, 11.0, World.succeed)
    assert here.succeed(Fuse()) == "succeeded"
    assert stages(here.history, "0") == [("triggered", 5), ("applied", 5), ("healed", 6)]
    assert stages(here.history, "1") == [("triggered", 15), ("applied", 15), ("healed", 16)]


def test_a_successor_that_heals_a_pause_leaves_the_network_alone(tmp_path: Path) -> None:
    here = World(tmp_path, *CASES["workers that outlive the job"], 0.25)
    dies_at(here, 4.8)
    assert "healed" not in dict(stages(here.history))
    check(here, here.succeed(Fuse()))
    assert here.engine.links == []


def test_a_manual_fault_is_known_to_the_successor(tmp_path: Path) -> None:
    here = World(tmp_path, "cluster: {worker: 2}\n", {"worker-0": trains(20), "*": SERVES})
    paused = Pause.model_validate({"pause": "worker-1", "for": "forever"})
    here.asks(3.0, lambda control: control.inject(paused))
    dies_at(here, 5.0)
    here.asks(8.0, lambda control: control.inject(paused))
    here.asks(9.0, lambda control: control.heal("manual-1"))
    assert here.succeed(Fuse()) == "succeeded"
    assert ("healed", 9) in stages(here.history, "manual-1")
    assert ("healed", 20.5) in stages(here.history, "manual-2")


@pytest.mark.parametrize("free", [100_000, 3])
def test_steps_that_a_helper_reads_are_neither_lost_nor_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    """Also where most steps are merged, and wait before they are written."""
    monkeypatch.setattr(writer, "FREE", free)
    monkeypatch.setattr(writer, "EACH", 1)

    def line(task: str, n: int) -> str:
        return scalars(task, n, WALL + n, WALL + 0.5, loss=0.5)

    printed = [(0.0, "serves")] + [
        (n + 0.25, line(f"worker-{task}", n)) for n in range(1, 9) for task in (0, 1)
    ]
    scripts = {
        "worker-0": Script(exits_at=8.1),
        EVENTS: Script(lines=printed, exits_at=None, on_sigterm=0.5),
        "*": SERVES,
    }
    extra = "cluster: {worker: 2}\nmetrics: {events: logs}\n"
    for kill in range(1, length_of(tmp_path / "whole", extra, scripts, 0.0) + 1):
        here = World(tmp_path / str(kill), extra, scripts)
        check(here, live_through(here, [kill, 0], 0.0))
        entries = [entry for entry in here.history if isinstance(entry, Step)]
        for task in ("worker-0", "worker-1"):
            own = [entry for entry in entries if entry.task == task]
            assert [entry.wall for entry in own] == [WALL + entry.step for entry in own], kill
            assert [entry.first for entry in own[1:]] == [entry.step + 1 for entry in own[:-1]]
            assert sum(entry.count for entry in own) == 8, kill
