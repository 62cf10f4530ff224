#!/usr/bin/env python3
"""How big the record of a long run is, and how long it takes to read and to judge it.

    python benchmarks/long_run.py --hours 24 --tasks 25 --rate 10

Synchronous training on a cluster is told to the real run folder, on a clock that jumps: steps of
every worker, a sample of every task each second, a checkpoint every five minutes, and a preempted
worker every three, which the others wait for; every tenth time the whole job starts again from its
checkpoint. Reading and judging are given as ratios to `json.loads` of all the same lines.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TypeVar

from emulator.analysis.throughput import curve
from emulator.engines.base import Inbox
from emulator.faults.schedule import PlannedFault
from emulator.metrics.catalog import Usage
from emulator.planning.context import PlanContext
from emulator.planning.plan import Plan
from emulator.planning.planner import make_plan
from emulator.record.events import (
    AllRunning,
    FaultEvent,
    JobEnded,
    Phase,
    Prepared,
    Restart,
    RunStarted,
    Step,
    TaskExit,
    TaskRunning,
    TaskStart,
)
from emulator.record.reader import Record
from emulator.record.writer import RunWriter
from emulator.results import judge
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse

SCENARIO = """\
name: long
framework: none
program: {{command: [train]}}
cluster: {{worker: {tasks}}}
restart: {{policy: on-failure, scope: job, limit: 1000}}
faults:
  - random: {{preempt: "worker-*", grace: 2s, down: 10s}}
    every: 3m
    jitter: 1m
    seed: 7
    max: {faults}
expect: {{max_lost_steps: 10000, steps_exactly_once: true, single_chief: true}}
"""
CHECKPOINT = 300.0
BEGAN = 1_700_000_000.0
SITE = PlanContext("memory", lambda name: (name, 2222), str, list, "/shared")


@dataclass
class Story:
    """A training, as it is told to its run folder."""

    plan: Plan
    record: RunWriter
    clock: ManualClock
    rate: float
    rng: Random = field(default_factory=lambda: Random(7))
    step: int = 0
    told: int = 0
    """Step events."""
    saved: int = 0
    sampled: float = 0.0

    def tell(self, until: float) -> None:
        """Tell of a run with all its faults."""
        names, began = [task.name for task in self.plan.tasks], self.clock.now()
        self.record.write(RunStarted(run_id="long", scenario="long", engine="memory", pid=1))
        self.record.write(Prepared())
        self._start(names)
        self.record.write(AllRunning())
        for number, fault in enumerate(self.plan.faults):
            if (at := fault.trigger.time) is not None and at < until - 60:
                self._train(max(began + at, self.clock.now()))
                self._preempt(fault, whole=number % 10 == 9)
        self._train(began + until)
        for name in names:
            self.record.write(TaskExit(task=name, exit_code=0))
        self.record.write(JobEnded(task=names[0], outcome="succeeded", reason="it finished"))

    def _train(self, until: float) -> None:
        while self.clock.now() < until:
            self._pass(self.rng.uniform(0.8, 1.2) / self.rate)
            self.step += 1
            for task in self.plan.tasks:
                wall = self.clock.wall() - self.rng.uniform(0, 0.001)
                self.record.write(
                    Step(task=task.name, step=self.step, values={"loss": 0.4321}), wall=wall
                )
            self.told += len(self.plan.tasks)
            if self.clock.now() // CHECKPOINT > (self.clock.now() - 1 / self.rate) // CHECKPOINT:
                self._save()

    def _save(self) -> None:
        first = self.plan.tasks[0].name
        self.record.write(Phase(task=first, phase="checkpoint", state="begin"))
        self._pass(2)
        saved = {"step": self.step}
        self.record.write(Phase(task=first, phase="checkpoint", state="end", values=saved))
        self.saved = self.step

    def _preempt(self, fault: PlannedFault, *, whole: bool) -> None:
        task = fault.target
        struck = FaultEvent(task=task, id=fault.id, kind=fault.kind, target=task, stage="triggered")
        self.record.write(struck)
        self._pass(2)
        self.record.write(TaskExit(task=task, exit_code=137, fault=fault.id))
        self.record.write(replace(struck, stage="applied", exit_code=137, killed=True))
        others = [other.name for other in self.plan.tasks if other.name != task]
        if whole:
            self.record.write(TaskExit(task=others[0], exit_code=1))
            self.record.write(Restart(task=others[0], scope="job", number=1, delay=1.0))
            for name in others[1:]:
                self.record.write(TaskExit(task=name, exit_code=137, told_to_stop=True))
            self._start(others)
        self._pass(10)
        self._start([task])
        self.record.write(replace(struck, stage="healed"))
        self._pass(5)
        self.step = self.saved if whole else self.step

    def _start(self, names: list[str]) -> None:
        for name in names:
            self.record.write(TaskStart(task=name, fresh=False))
        self._pass(1)
        for name in names:
            self.record.write(TaskRunning(task=name, id="1"))
        self._pass(1)

    def _pass(self, seconds: float) -> None:
        """Let time pass, and take a sample in each second of it."""
        self.clock.next_event(Inbox(), self.clock.now() + seconds)
        while self.sampled + 1 <= self.clock.now():
            self.sampled += 1
            n = int(self.sampled)
            use = Usage(
                0.9 * n, 500_000_000 + n, 0.1 * n, 10**6 * n, 10**6 * n, 0, n, 20, 1.0, 10**9
            )
            wall = BEGAN + self.sampled
            self.record.sample(self.sampled, wall, {task.name: use for task in self.plan.tasks})


T = TypeVar("T")


def timed(what: str, do: Callable[[], T], reference: float | None = None) -> tuple[T, float]:
    """Do it, say how long it took; return what came of it and the seconds."""
    since = time.perf_counter()
    done = do()
    took = time.perf_counter() - since
    ratio = "" if reference is None else f"  x{took / reference:.2f}"
    print(f"{what:44} {took:7.2f} s{ratio}", flush=True)
    return done, took


def main() -> None:
    """Tell, read, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--tasks", type=int, default=25)
    parser.add_argument("--rate", type=float, default=10.0, help="steps a second")
    options = parser.parse_args()
    seconds = options.hours * 3600
    text = SCENARIO.format(tasks=options.tasks, faults=max(1, int(seconds / 180)))
    plan, clock = make_plan(parse(text), "long", SITE), ManualClock(wall=BEGAN)
    with tempfile.TemporaryDirectory() as out:
        folder = RunWriter(Path(out) / "long", plan, text, clock)
        story = Story(plan, folder, clock, options.rate)
        timed("telling it (not part of the figures)", lambda: story.tell(seconds))
        folder.close()
        paths = [folder.path / name for name in ("history.jsonl", "samples.jsonl")]
        for path in paths:
            lines = sum(1 for _ in path.open("rb"))
            print(f"{path.name:44} {path.stat().st_size / 1e6:7.1f} MB, {lines} lines")
        print(f"{'steps that were told':44} {story.told:10}")
        (_, reference) = timed(
            "json.loads of all lines",
            lambda: [json.loads(line) for path in paths for line in path.open("rb")],
        )
        record = Record(folder.path)
        _, history = timed("Record.history", lambda: record.in_time_order, reference)
        _, samples = timed("Record.samples", lambda: record.samples, reference)
        record.plan  # noqa: B018  (read once, so that judging does not count it)
        (analysis, _, summary), judging = timed("judge", lambda: judge(record), reference)
        timed("curve", lambda: curve(record.timeline, analysis.duration), reference)
        whole = history + samples + judging
        print(f"{'in all':44} {whole:7.2f} s  x{whole / reference:.2f}")
        told = {key: summary[key] for key in ("verdict", "steps", "goodput", "restarts")}
        print(
            told, len(summary["faults"]), "faults", f"{len(json.dumps(summary))} bytes of summary"
        )


if __name__ == "__main__":
    main()
