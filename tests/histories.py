"""Histories for tests: one call for an entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from emulator.planning.context import PlanContext
from emulator.planning.plan import Plan
from emulator.planning.planner import make_plan
from emulator.record.events import Entry, entry_of
from emulator.record.history import as_it_happened
from emulator.record.timeline import Timeline
from emulator.scenario.loader import parse

BEGAN = 1000.0
SITE = PlanContext("fake", lambda name: (name, 2222), str, list, "/shared")

Told = Entry  # the name that other tests import

LEAST: dict[str, dict[str, Any]] = {
    "run": {"run_id": "run-1", "scenario": "test", "engine": "fake", "pid": 1},
    "attached": {"pid": 2, "gap": 1.0},
    "job": {"outcome": "succeeded", "reason": "worker-0 finished"},
    "start": {"fresh": False},
    "running": {"id": "1"},
    "exit": {"exit_code": 0},
    "stop": {"signal": "SIGTERM"},
    "stall": {"seconds": 1.0},
    "phase": {"phase": "eval", "state": "end"},
    "fault": {"id": "0", "kind": "preempt", "stage": "triggered"},
    "removed": {"count": 0},
    "sampling": {"interval": 1.0},
    "error": {"message": "it broke"},
}
"""Required fields of each kind of event, for tests that need no others."""


def an_event(name: str, /, task: str = "", **fields: Any) -> Entry:
    """Return the event of that name; required fields that a test does not give are made up."""
    return entry_of({**LEAST.get(name, {}), **fields, "event": name, "task": task})


def a_plan(cluster: str, extra: str = "") -> Plan:
    text = f"name: test\nprogram: {{command: [a]}}\ncluster: {cluster}\n{extra}"
    return make_plan(parse(text), "run-1", SITE)


def history(events: Sequence[Entry]) -> list[Entry]:
    """Return a history as `Record.in_time_order` has it."""
    return as_it_happened(written(events))


def timeline(events: Sequence[Entry], cluster: str = "{worker: 2}", extra: str = "") -> Timeline:
    """Return the replay of a history."""
    return Timeline(a_plan(cluster, extra), history(events))


def written(events: Sequence[Entry]) -> list[Entry]:
    """Return events with their numbers, as they are in the file."""
    return [replace(entry, n=n) for n, entry in enumerate(events)]


def in_time(events: Iterable[Entry]) -> list[Entry]:
    """Return events in the order of their times."""
    return sorted(events, key=lambda entry: entry.t)


def happened(t: float, event: str, task: str = "", **fields: Any) -> Entry:
    """Return an event; its stamp is `late` seconds after `t` (negative: it was read late)."""
    late = fields.pop("late", 0.0)
    return an_event(event, task, t=t, wall=BEGAN + t + late, **fields)


def step(t: float, task: str, number: int, /, **data: Any) -> Entry:
    return happened(t, "step", task, step=number, **data)


def steps_of(task: str, at: Mapping[float, int]) -> list[Entry]:
    """Return the steps of a task by the times at which it made them."""
    return [step(t, task, number) for t, number in at.items()]


def restored(t: float, task: str, number: int) -> Entry:
    """Return the end of a restore of what a step had saved."""
    return happened(t, "phase", task, phase="restore", state="end", step=number)


def phase(begin: float, end: float, task: str, name: str, **data: Any) -> list[Entry]:
    return [
        happened(begin, "phase", task, phase=name, state="begin"),
        happened(end, "phase", task, phase=name, state="end", **data),
    ]


def ended(
    t: float, task: str, code: int, *, told: bool = False, oom: bool = False, **more: Any
) -> Entry:
    exited = {"exit_code": code, "told_to_stop": told, "oom_killed": oom}
    return happened(t, "exit", task, **exited, **more)


def restart(t: float, task: str, scope: str = "task", number: int = 1) -> Entry:
    return happened(t, "restart", task, scope=scope, number=number, delay=1.0)


def began_again(t: float, *tasks: str) -> list[Entry]:
    starts = [happened(t, "start", task) for task in tasks]
    return [*starts, *(happened(t + 1, "running", task) for task in tasks)]


def fault(t: float, task: str, stage: str, kind: str = "preempt", **data: Any) -> Entry:
    return happened(t, "fault", task, kind=kind, stage=stage, **{"id": "0", **data})


def preempted(t: float, task: str, *, back: float) -> list[Entry]:
    """Return what happens to a task that ends as soon as it is preempted."""
    return [
        fault(t, task, "triggered"),
        ended(t, task, 137, fault="0"),
        fault(t, task, "applied", exit_code=137, seconds=0),
        *began_again(back - 1, task),
        fault(back, task, "healed"),
    ]


def job(t: float, outcome: str = "succeeded", reason: str = "worker-0 finished") -> Entry:
    return happened(t, "job", outcome=outcome, reason=reason)
