"""A run's numbers once more, from its logs: plain Python that imports nothing of the emulator.

What tasks printed is in `logs/`. The history gives what logs lack: when each line was printed (the
engine's stamp), and when a task ended or was started. Everything is counted the
slow way, one step at a time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any


@dataclass
class Printed:
    """A step that a task printed, and when: seconds since 1970."""

    step: int
    when: float
    said: dict[str, Any]


@dataclass
class Life:
    """What a task printed between a start and its end."""

    restored: int | None = None
    steps: list[Printed] = field(default_factory=list)


@dataclass
class Recount:
    """What the logs say."""

    tasks: dict[str, list[Life]]
    advances: list[tuple[Printed, Life]]
    """The steps that brought the job further, in the order in which they were printed."""

    @property
    def final_step(self) -> int:
        return max(
            one.step for lives in self.tasks.values() for life in lives for one in life.steps
        )

    def printed(self, task: str) -> list[Printed]:
        return [one for life in self.tasks[task] for one in life.steps]

    def lost(self, task: str) -> int:
        """Count the steps up to where each life was, after what the next one goes on from."""
        lost, reached = 0, None
        for life in self.tasks[task]:
            if reached is not None and (life.restored is not None or life.steps):
                base = life.restored if life.restored is not None else life.steps[0].step - 1
                lost += len(range(base + 1, reached + 1))
                reached = None
            if life.steps:
                reached = life.steps[-1].step
        return lost

    def job_rate(self, of: str = "step") -> float:
        """Return steps (or another count) per second, from the first advance to the last."""
        told = [(one.when, one.said[of]) for one, _ in self.advances if of in one.said]
        return float((told[-1][1] - told[0][1]) / (told[-1][0] - told[0][0]))

    def task_rate(self, task: str) -> float | None:
        """Return all steps that a task did per second of the time from its first to its last."""
        printed = self.printed(task)
        done = sum(life.steps[-1].step - life.steps[0].step for life in self._trained(task))
        return done / (printed[-1].when - printed[0].when) if done else None

    def task_step_times(self, task: str) -> list[float]:
        """Return the seconds that each single step of a task took."""
        return sorted(
            seconds
            for life in self.tasks[task]
            for one, two in pairwise(life.steps)
            for seconds in [(two.when - one.when) / (two.step - one.step)] * (two.step - one.step)
        )

    def job_step_times(self) -> list[float]:
        """Return the seconds of each step of the job, as long as it took who told of it first."""
        times, furthest = [], self.advances[0][0].step
        for now, life in self.advances[1:]:
            if life.steps[0] is not now:
                before = life.steps[life.steps.index(now) - 1]
                pace = (now.when - before.when) / (now.step - before.step)
                times += [pace] * (now.step - furthest)
            furthest = now.step
        return sorted(times)

    def done_until(self, task: str, when: float) -> float:
        """Return how many steps a task had done by then, those of a line evenly over its time."""
        done = 0.0
        for life in self.tasks[task]:
            for one, two in pairwise(life.steps):
                took = two.when - one.when
                share = (when - one.when) / took if took > 0 else float(when >= one.when)
                done += min(1.0, max(0.0, share)) * (two.step - one.step)
        return done

    def _trained(self, task: str) -> Iterator[Life]:
        return (life for life in self.tasks[task] if life.steps)


def percentile(times: Sequence[float], share: float) -> float:
    """Return the value that so many of all do not exceed, by nearest rank."""
    return times[math.ceil(share * len(times)) - 1]


def recount(folder: Path) -> Recount:
    """Read a run's logs, and the stamps and order of their lines."""
    said = {log.stem: iter(list(_said(log))) for log in sorted((folder / "logs").glob("*.log"))}
    tasks: dict[str, list[Life]] = {}
    advances: list[tuple[Printed, Life]] = []
    events = map(json.loads, (folder / "history.jsonl").read_text().splitlines())
    for event in sorted(events, key=lambda event: float(event["wall"])):
        task = event.get("task", "")
        if event["event"] == "start":
            tasks.setdefault(task, []).append(Life())
        if event["event"] not in ("step", "phase"):
            continue
        told = next(said[task])
        assert told["emulate"] == event["event"], (told, event)
        life = tasks[task][-1]
        if told["emulate"] == "phase":
            if told["phase"] == "restore" and "step" in told and life.restored is None:
                life.restored = told["step"] if not life.steps else None
            continue
        assert told["step"] == event["step"], (told, event)
        if life.steps and life.steps[-1].step == told["step"]:
            continue  # told again, with the accuracy
        life.steps.append(Printed(told["step"], event["wall"], told))
        if not advances or told["step"] > advances[-1][0].step:
            advances.append((life.steps[-1], life))
    for task, rest in said.items():
        assert next(rest, None) is None, f"{task} printed what the history lacks"
    return Recount(tasks, advances)


def _said(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a log that tell of something."""
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith('{"emulate": '):
            yield json.loads(line)
