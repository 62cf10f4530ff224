"""A run's numbers once more, from its logs: plain Python that imports nothing of the emulator.

What tasks printed is in `logs/`. The history gives what logs lack: when each line was printed (the
engine's stamp), and when a task ended or was started. Everything is counted the
slow way, one step at a time.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any


@dataclass
class Life:
    """What a task printed between a start, or a restore of an earlier step, and the next."""

    restored: int | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Recount:
    """What the logs say."""

    tasks: dict[str, list[Life]]

    def printed(self, task: str) -> list[dict[str, Any]]:
        return [one for life in self.tasks[task] for one in life.steps]

    def everything(self) -> list[dict[str, Any]]:
        return [one for task in self.tasks for one in self.printed(task)]

    def lost(self, task: str) -> int:
        """Count the steps up to where each life was, after what the next one goes on from."""
        lost, reached = 0, None
        for life in self.tasks[task]:
            if reached is not None and (life.restored is not None or life.steps):
                base = life.restored if life.restored is not None else life.steps[0]["step"] - 1
                lost += len(range(base + 1, reached + 1))
                reached = None
            if life.steps:
                reached = life.steps[-1]["step"]
        return lost


def percentile(times: Sequence[tuple[float, float]], share: float) -> float:
    """Return the value that so many of all do not exceed, by nearest rank; each has a number."""
    times = sorted(times)
    ranks = list(accumulate(number for _, number in times))
    return times[bisect_left(ranks, share * ranks[-1] - 1e-6)][0]


def prints_events(folder: Path) -> bool:
    """Say whether tasks print steps as JSON; those read from other output are not counted again."""
    logs = (folder / "logs").glob("*.log")
    return any(told["emulate"] == "step" for log in logs for told in _said(log))


def recount(folder: Path) -> Recount:
    """Read a run's logs, and the stamps and order of their lines."""
    said = {log.stem: iter(list(_said(log))) for log in sorted((folder / "logs").glob("*.log"))}
    tasks: dict[str, list[Life]] = {}
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
                if life.steps and told["step"] < life.steps[-1]["step"]:  # it goes back as it is
                    tasks[task].append(Life(restored=told["step"]))
                elif life.restored is None and not life.steps:
                    life.restored = told["step"]
            continue
        assert told["step"] == event["step"], (told, event)
        if not life.steps or life.steps[-1]["step"] != told["step"]:  # or again, with the accuracy
            life.steps.append(told)
    for task, rest in said.items():
        assert next(rest, None) is None, f"{task} printed what the history lacks"
    return Recount(tasks)


CLOCK_WAS_SET = 0.5
"""Seconds by which the two times of an event differ only where one of the clocks was set."""


def happened(folder: Path) -> list[dict[str, Any]]:
    """Return the events in the order in which they happened, with `at`, seconds since the first.

    That is the engine's stamp where a task did it, or a fault ended, held or healed it, or a save
    was seen; but nothing happens later than it was written, before its task was started, or before
    what it did last, and no fault ends its target before it is triggered. The clock of stamps is
    related to ours by the first event, and again by one of ours after it was set.
    """
    events = list(map(json.loads, (folder / "history.jsonl").read_text().splitlines()))
    began = events[0]["wall"] - events[0]["t"]
    earliest: dict[str, float] = {}
    running: dict[str, float] = {}
    triggered: dict[str | None, float] = {}
    for event in events:
        task, name = event.get("task", ""), event["event"]
        event["at"] = event["t"]
        ends = name == "exit" or (name == "fault" and "exit_code" in event)
        own = name in ("step", "phase", "reaction", "complaint", "exit")
        if name.startswith("checkpoint-"):  # stamped by the witness, and told once it is over
            event["at"] = max(0.0, min(event["wall"] - began, event["t"]))
        elif own or ends or (name == "fault" and event["stage"] in ("reapplied", "healed")):
            least = max(running.get(task, 0.0) if ends else 0.0,
                        triggered.get(event.get("fault") or event.get("id"), 0.0) if ends else 0.0,
                        earliest.get(task, 0.0) if own else 0.0)  # fmt: skip
            event["at"] = max(least, min(event["wall"] - began, event["t"]))
        elif abs(event["wall"] - event["t"] - began) > CLOCK_WAS_SET:
            began = event["wall"] - event["t"]
        if own or name == "start":
            earliest[task] = event["at"]
        if name in ("exit", "running"):
            running[task] = event["at"]
        if event.get("stage") == "triggered":
            triggered[event["id"]] = event["at"]
    return sorted(events, key=lambda event: float(event["at"]))


Span = tuple[float, float]


@dataclass
class Work:
    """What a task, or the job, made; times since the run began."""

    stretches: list[tuple[float, float, float]] = field(default_factory=list)
    """Begin, end, and number of steps."""
    times: list[tuple[float, float]] = field(default_factory=list)
    """From step to step, and of how many of them."""
    told: list[float] = field(default_factory=list)
    """When it was further than before, or began anew."""
    gaps: int = 0
    unknown: list[Span] = field(default_factory=list)
    """When steps may have been made that were not printed."""

    def rate(self) -> float | None:
        """Return its steps per second from the first to the last."""
        made = sum(steps for _, _, steps in self.stretches)
        return made / (self.told[-1] - self.told[0]) if self.stretches else None

    def done_until(self, when: float) -> float:
        """Return how many steps it had made by then."""
        return sum(
            steps * (min(1.0, (when - begin) / (end - begin)) if end > begin else 1.0)
            for begin, end, steps in self.stretches
            if when >= end or when > begin
        )

    def rate_between(self, begin: float, end: float) -> float | None:
        """Return its steps per second in a time, without what is unknown of it."""
        if not self.stretches or not self.told[0] <= begin < end:
            return None
        edges = {begin, end}
        for one in [*self.stretches, *self.unknown]:
            edges |= {edge for edge in one[:2] if begin < edge < end}
        known = sum(
            until - since
            for since, until in pairwise(sorted(edges))
            if any(b <= since and until <= e for b, e, _ in self.stretches)
            or not any(b <= since and until <= e for b, e in self.unknown)
        )
        return (self.done_until(end) - self.done_until(begin)) / known if known > 1e-6 else None


@dataclass
class Lived:
    """A task from a start, or a step back, to its end; places are those in the history."""

    task: str
    begin: int
    running: float | None = None
    end: int = 10**9
    ended: float | None = None
    printed: list[tuple[int, float, int]] = field(default_factory=list)
    """Place, time and step of each."""

    def at(self, place: int) -> int | None:
        """Return how far it was before what is at a place of the history."""
        number = bisect_left(self.printed, place, key=lambda one: one[0])
        return self.printed[number - 1][2] if number and place <= self.end else None


def lives_of(events: list[dict[str, Any]], of: str) -> list[Lived]:
    """Return the lives of all tasks; `of` is what counts as a step."""
    lives: list[Lived] = []
    now: dict[str, Lived] = {}
    last: dict[str, int] = {}  # the real step, where `of` is something else

    def begin(task: str, place: int, at: float, *, back: bool) -> Lived:
        if task in now and now[task].ended is None:
            now[task].end, now[task].ended = place, at
        now[task] = Lived(task, place, at if back else None)
        lives.append(now[task])
        last.pop(task, None)
        return now[task]

    for place, event in enumerate(events):
        task, name, at = event.get("task", ""), event["event"], float(event["at"])
        life = now.get(task)
        if name == "start":
            begin(task, place, at, back=False)
        elif name == "running" and life is not None:
            life.running = at
        elif name == "exit" and life is not None and life.ended is None:
            life.end, life.ended = place, at
        elif name == "phase" and event.get("phase") == "restore" and "step" in event:
            if task in last and event["step"] < last[task]:
                begin(task, place, at, back=True)
        elif name == "step" and of in event and life is not None:
            step = event[of]
            if life.printed and step < life.printed[-1][2]:
                life = begin(task, place, at, back=True)
            if not life.printed or step > life.printed[-1][2]:
                life.printed.append((place, at, step))
            last[task] = event["step"]
    return lives


def made(folder: Path, of: str = "step") -> dict[str, Work]:
    """Return what each task made, and the job, under an empty name."""
    events = happened(folder)
    lives = lives_of(events, of)
    end = max(float(event["at"]) for event in events)
    frozen, away = stood_still(events)
    over_at = next((n for n, event in enumerate(events) if event["event"] == "job"), 10**9)
    work = {name: Work() for name in ("", *(life.task for life in lives))}
    outside = {task for task in work if task.startswith("evaluator-")}
    if all(life.task in outside for life in lives if life.printed):
        outside = set()
    inside = [life for life in lives if life.task not in outside]
    fronts, lost_at = fronts_of(events, inside)
    usual: dict[str, list[tuple[float, int]]] = {}
    prints = [(life, number) for life in lives for number in range(len(life.printed))]
    for life, number in sorted(prints, key=lambda one: one[0].printed[one[1]][0]):
        place, at, step = life.printed[number]
        mine, job, front = work[life.task], work[""], fronts[place]
        still = frozen.get(life.task, [])
        mine.told.append(at)
        awake = not any(one[0] <= at < one[1] for one in still)
        counted = life.task not in outside and place < min(life.end, over_at)
        if not number and life.begin == place:  # it went back: what it was at leads no more
            front = fronts_of(events, [one for one in inside if one.task != life.task])[0][place]
        leads = counted and awake and (front is None or step > front)
        number_before = len(job.stretches)
        if leads:
            job.told.append(at)
        if not number:
            continue
        _, since, before = life.printed[number - 1]
        waits = [one for one in away if since < one[1] <= at]
        overlap = (at - since) - total(left_of((since, at), waits))
        pace = usual.get(life.task, [])
        takes = sum(s for s, _ in pace) / sum(n for _, n in pace) if pace else math.inf
        waited = overlap > 0 and (at - since) - takes * (step - before) >= overlap / 2
        ran = left_of((since, at), [*still, *(waits if waited else [])])
        took = total(ran)
        if not waited:
            usual.setdefault(life.task, []).append((took, step - before))
        new = [(b, e, (step - before) * (e - b) / took) for b, e in ran] if took else []
        new = new or [(at, at, float(step - before))]
        mine.stretches += new
        pace_now = (at - since) / (step - before)
        mine.times.append((pace_now, step - before))
        mine.gaps += 1
        if not counted:
            continue
        left, leaver = lost_at[place]
        beyond = step - max(before, before if front is None else front)
        ours = beyond * took / (step - before)  # seconds of it, the last ones
        for b, e, steps in reversed(new):
            part = max(e - max(ours, 0.0), b)
            ours -= e - b
            if leaver != life.task:
                part = max(part, left)
            if e > part:
                job.stretches.append((part, e, steps * (e - part) / (e - b)))
                job.times.append((pace_now, job.stretches[-1][2]))
            elif e == b and beyond > 0 and (leaver == life.task or e >= left):
                job.stretches.append((e, e, float(beyond)))
                job.times.append((pace_now, beyond))
        if len(job.stretches) > number_before and not leads:
            job.told.append(at)
    for life in lives:
        task = work[life.task]
        if not task.gaps:
            continue
        gap = sum(e - b for b, e, _ in task.stretches) / task.gaps
        over = end if life.ended is None else life.ended
        spans = []
        if life.printed:
            began, last = life.printed[0][1], life.printed[-1][1]
            spans = [(max(life.running or 0.0, began - gap), began), (last, min(over, last + gap))]
        elif life.running is not None:
            spans = [(max(life.running, over - gap), over)]
        task.unknown += spans
        if life.task not in outside:
            work[""].unknown += spans
    return work


def paused_after(events: list[dict[str, Any]]) -> Iterator[dict[str, set[str]]]:
    """Yield, after each event, the pauses of each task; new processes are not paused yet."""
    paused: dict[str, set[str]] = {}
    for event in events:
        task = event.get("task", "")
        if event["event"] in ("exit", "start"):
            paused.pop(task, None)
        elif event["event"] == "fault" and event["kind"] == "pause":
            of = paused.setdefault(task, set())
            (of.add if event["stage"] in ("applied", "reapplied") else of.discard)(event["id"])
        yield paused


def stood_still(events: list[dict[str, Any]]) -> tuple[dict[str, list[Span]], list[Span]]:
    """Return when each task was paused; and when tasks were away, paused or cut off, until back."""
    frozen: dict[str, list[Span]] = {}
    away: list[Span] = []
    since: dict[str, float] = {}
    for event, paused in zip(events, paused_after(events), strict=True):
        name, stage, at = event["event"], event.get("stage"), float(event["at"])
        task = event.get("task", "")
        spans = frozen.setdefault(task, [])
        open_ = bool(spans) and spans[-1][1] == math.inf
        if paused.get(task) and not open_:
            spans.append((at, math.inf))
        elif open_ and not paused.get(task):
            spans[-1] = spans[-1][0], at
        who = event["id"] if name == "fault" else task
        blocks = name == "fault" and event["kind"] in ("pause", "partition")
        if (blocks and stage in ("applied", "reapplied")) or name == "exit":
            since.setdefault(who, at)
        elif ((blocks and stage in ("healed", "failed")) or name == "running") and who in since:
            away.append((since.pop(who), at))
    return frozen, away


def fronts_of(
    events: list[dict[str, Any]], lives: list[Lived]
) -> tuple[list[int | None], list[tuple[float, str]]]:
    """Return, before each event, how far the job is, and when who led it went away, and who."""
    fronts: list[int | None] = []
    lost: list[tuple[float, str]] = []
    fell = (-math.inf, "")
    for place, paused in enumerate(chain([{}], paused_after(events))):
        steps = (life.at(place) for life in lives if not paused.get(life.task))
        front = max((one for one in steps if one is not None), default=None)
        before = fronts[-1] if fronts else None
        if before is not None and (front is None or front < before):
            fell = float(events[place - 1]["at"]), events[place - 1].get("task", "")
        fronts.append(front)
        lost.append(fell)
    return fronts, lost


def left_of(span: Span, others: Sequence[Span]) -> list[Span]:
    """Return the parts of a time in which nothing else was."""
    edges = sorted({*span, *(e for one in others for e in one if span[0] < e < span[1])})
    return [(b, e) for b, e in pairwise(edges) if not any(o[0] <= b and e <= o[1] for o in others)]


def total(spans: Sequence[Span]) -> float:
    """Return the seconds of times that don't overlap."""
    return sum(end - begin for begin, end in spans)


def saves_seen(folder: Path) -> list[float]:
    """Return when saves were over that the witness saw, in seconds of the run."""
    return [float(e["at"]) for e in happened(folder) if e["event"] == "checkpoint-saved"]


def fault_times(folder: Path, fault: str, target: str) -> dict[str, float | None]:
    """Return when a fault that was applied reached what, in seconds of the run; None: never."""
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
    over = events.index(steps[0]) if steps else None
    ends_it = events[applied]["kind"] in ("preempt", "kill", "terminate", "restart", "oom")
    others = [e for e in events[begin:over] if not ends_it or e.get("task") != target]
    failed = [e for e in others if e["event"] == "exit" and e["exit_code"]]
    signs = [e for e in failed if not e["told_to_stop"]]
    signs += [e for e in others if e["event"] == "complaint"]
    signs += [e for e in events[begin:over] if e["event"] == "stall"]
    signs += [e for e in events[begin:over] if (e["event"], e.get("scope")) == ("restart", "job")]
    signs.sort(key=events.index)
    phases = [e for e in events[begin:applied] if e["event"] == "phase"]
    saves = [e for e in phases if (e["phase"], e["state"]) == ("checkpoint", "end")]
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


def _said(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a log that tell of something."""
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith('{"emulate": '):
            yield json.loads(line)
