"""Histories for tests, written by hand: one call an entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emulator.plan import Plan, Site, make_plan
from emulator.record.events import Entry
from emulator.record.history import as_it_happened
from emulator.scenario.reading import parse

BEGAN = 1000.0
SITE = Site("fake", lambda name: (name, 2222), str, list, "/shared")

Told = tuple[float, str, str, dict[str, Any]]
"""Seconds, event, task, data."""


def a_plan(cluster: str, extra: str = "") -> Plan:
    text = f"name: test\nprogram: {{command: [a]}}\ncluster: {cluster}\n{extra}"
    return make_plan(parse(text), "run-1", SITE)


def history(told: Sequence[Told]) -> list[Entry]:
    """Return a history as `Record.happened` has it."""
    return as_it_happened(written(told))


def written(told: Sequence[Told]) -> list[Entry]:
    """Return entries as they are in the file; `late` is what to add to `wall` for the stamp."""
    return [
        Entry(n=n, t=t, wall=BEGAN + t + data.get("late", 0.0), event=event, task=task, data=data)
        for n, (t, event, task, data) in enumerate(told)
    ]


def happened(t: float, event: str, task: str = "", **data: object) -> Told:
    return (t, event, task, dict(data))


def step(t: float, task: str, number: int, **data: object) -> Told:
    return happened(t, "step", task, step=number, **data)


def phase(begin: float, end: float, task: str, name: str, **data: object) -> list[Told]:
    return [
        happened(begin, "phase", task, phase=name, state="begin"),
        happened(end, "phase", task, phase=name, state="end", **data),
    ]


def ended(
    t: float, task: str, code: int, *, told: bool = False, oom: bool = False, late: float = 0.0
) -> Told:
    exited = {"exit_code": code, "told_to_stop": told, "oom_killed": oom}
    return happened(t, "exit", task, **exited, late=late)


def restart(t: float, task: str, scope: str = "task", number: int = 1) -> Told:
    return happened(t, "restart", task, scope=scope, number=number, delay=1.0)


def began_again(t: float, *tasks: str) -> list[Told]:
    starts = [happened(t, "start", task) for task in tasks]
    return [*starts, *(happened(t + 1, "running", task) for task in tasks)]


def fault(t: float, task: str, stage: str, kind: str = "preempt", **data: object) -> Told:
    return happened(t, "fault", task, id="0", kind=kind, stage=stage, **data)


def job(t: float, outcome: str = "succeeded", reason: str = "worker-0 finished") -> Told:
    return happened(t, "job", outcome=outcome, reason=reason)
