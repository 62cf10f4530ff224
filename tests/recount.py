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
    """What a task printed between a start, or a restore of an earlier step, and the next."""

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

    def rate(self, begin: float, end: float, task: str = "") -> float | None:
        """Return the steps per second of a task, or of the job, between two times.

        None where its steps don't reach from one to the other.
        """
        steps = self.printed(task) if task else [one for one, _ in self.advances]
        if not steps or not steps[0].when <= begin < end <= steps[-1].when:
            return None
        done = (
            self.done_until(task, when) if task else self.reached(when) for when in (end, begin)
        )
        return (next(done) - next(done)) / (end - begin)

    def reached(self, when: float) -> float:
        """Return how far the job was, each advance evenly over its time."""
        steps = [one for one, _ in self.advances]
        far = float(steps[0].step)
        for one, two in pairwise(steps):
            took = two.when - one.when
            share = (when - one.when) / took if took > 0 else float(when >= two.when)
            far += min(1.0, max(0.0, share)) * (two.step - one.step)
        return far

    def _trained(self, task: str) -> Iterator[Life]:
        return (life for life in self.tasks[task] if life.steps)


def percentile(times: Sequence[float], share: float) -> float:
    """Return the value that so many of all do not exceed, by nearest rank."""
    return times[math.ceil(share * len(times)) - 1]


def prints_events(folder: Path) -> bool:
    """Say whether tasks print steps as JSON; those read from other output are not counted again."""
    logs = (folder / "logs").glob("*.log")
    return any(told["emulate"] == "step" for log in logs for told in _said(log))


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
            if told["phase"] == "restore" and "step" in told:
                if life.steps and told["step"] < life.steps[-1].step:  # it goes back as it is
                    tasks[task].append(Life(restored=told["step"]))
                elif life.restored is None and not life.steps:
                    life.restored = told["step"]
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


def happened(folder: Path) -> list[dict[str, Any]]:
    """Return the events in the order in which they happened, with `at`, seconds since 1970.

    That is the engine's stamp where a task did it; but nothing happens later than it was written,
    before its task was started, or before what its task did last.
    """
    events = list(map(json.loads, (folder / "history.jsonl").read_text().splitlines()))
    began = events[0]["wall"] - events[0]["t"]
    earliest: dict[str, float] = {}
    running: dict[str, float] = {}
    for event in events:
        task, name = event.get("task", ""), event["event"]
        event["at"] = began + event["t"]
        if name in ("step", "phase", "exit"):
            least = earliest.get(task, began)
            if name == "exit":
                least = max(least, running.get(task, began))
            event["at"] = max(least, min(event["wall"], event["at"]))
            earliest[task] = event["at"]
        elif name == "start":
            earliest[task] = event["at"]
        elif name == "running":
            running[task] = event["at"]
    return sorted(events, key=lambda event: float(event["at"]))


def fault_times(folder: Path, fault: str, target: str) -> dict[str, float | None]:
    """Return when a fault that was applied reached what, in seconds since 1970; None: never."""
    events = happened(folder)
    stages = {e["stage"]: n for n, e in enumerate(events) if e.get("id") == fault and "stage" in e}
    begin, applied = stages["triggered"], stages["applied"]
    again = (
        n
        for n, e in enumerate(events)
        if n > applied and (e["event"], e.get("task")) == ("running", target)
    )
    back = stages.get("healed", next(again, None))
    steps = [] if back is None else [e for e in events[back:] if e["event"] == "step"]
    before = max((e["step"] for e in events[:begin] if e["event"] == "step"), default=-1)
    failed = [
        e
        for e in events[begin:back]
        if e["event"] == "exit" and e["exit_code"] and not e["told_to_stop"] and e["task"] != target
    ]
    signs = [e for e in events[begin:back] if e["event"] == "stall" or e in failed]
    saves = [
        e
        for e in events[begin:applied]
        if (e["event"], e.get("phase"), e.get("state")) == ("phase", "checkpoint", "end")
    ]
    own = [e for e in saves if e["task"] == target]
    found = {
        "triggered": events[begin],
        "applied_after": events[applied],
        "detected_after": next(iter(signs), None),
        "saved_after": next(iter([*own, *saves]), None),
        "restored_after": None if back is None else events[back],
        "first_step_after": next(iter(steps), None),
        "caught_up_after": next((e for e in steps if e["step"] > before), None),
    }
    return {key: None if event is None else float(event["at"]) for key, event in found.items()}


def paid(folder: Path) -> dict[str, float]:
    """Return for how many seconds the machine of each task is paid for.

    That is until the outcome, from each start to the end that no start follows, or that is a
    preemption.
    """
    events = happened(folder)
    over = next(n for n, event in enumerate(events) if event["event"] == "job")
    preemptions = {e["id"] for e in events if (e["event"], e.get("kind")) == ("fault", "preempt")}
    since: dict[str, float] = {}
    ended: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for event in events[:over]:
        task, name, at = event.get("task", ""), event["event"], float(event["at"])
        if name == "start":
            since.setdefault(task, at)
            ended.pop(task, None)
        elif name == "exit" and event.get("fault") in preemptions:
            seconds[task] = seconds.get(task, 0.0) + at - since.pop(task)
        elif name == "exit":
            ended[task] = at
    for task, begin in since.items():
        end = ended.get(task, float(events[over]["at"]))
        seconds[task] = seconds.get(task, 0.0) + end - begin
    return seconds


def _said(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a log that tell of something."""
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith('{"emulate": '):
            yield json.loads(line)
