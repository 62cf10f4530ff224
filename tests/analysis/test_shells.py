"""A signal that ended a shell, and never got to the program below it: what a report says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from emulator.analysis.analyse import analyse
from emulator.analysis.explanation import explain
from emulator.analysis.shells import not_passed_on
from emulator.record.events import Entry, FaultEvent
from tests.histories import began_again, ended, fault, happened, phase, step, timeline

EXTRA = "faults: [{preempt: worker-1, at: 10s, grace: 5s}]"
BEFORE = [*began_again(0, "worker-0", "worker-1"), step(6, "worker-1", 2)]
TRIGGERED = fault(10, "worker-1", "triggered")
HELPS = "Write `exec python3 …` in its script."
NEVER = f"worker-1: SIGTERM ended `a`; `python3` below it never got it. {HELPS}"
BOTH = (
    "worker-1: SIGTERM ended `a`, and with it the task; `python3` below it got the signal too, but "
    f"no time to save. {HELPS}"
)
RAN_ON = (
    "worker-1: `a` ran on after SIGTERM, until SIGKILL; nothing shows that `python3` below it "
    f"got the signal. {HELPS}"
)


def seen(main: str, below: Sequence[str] = ("python3",), **fields: Any) -> Entry:
    """The processes of the task just before a signal that is for its command alone."""
    first = {"pid": 7, "name": main, "main": True, "reached": True, **fields}
    others = [
        {"pid": n, "name": name, "main": False, "reached": False} for n, name in enumerate(below, 8)
    ]
    return happened(
        10.1, "processes", "worker-1", fault="0", moment="signal", processes=[first, *others]
    )


def end(code: int, *, killed: bool = False) -> list[Entry]:
    evidence: dict[str, Any] = {"exit_code": code, "seconds": 1.0, "killed": killed}
    return [fault(15, "worker-1", "applied", **evidence), ended(15, "worker-1", code, fault="0")]


def said(*events: Entry, extra: str = EXTRA) -> Sequence[str]:
    return not_passed_on(timeline([*BEFORE, TRIGGERED, *events], extra=extra))


REACTION = happened(11, "reaction", "worker-1", fault="0", line="saving")


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([seen("bash"), *end(143)], [NEVER]),
        ([seen("bash", handles=False), *end(143)], [NEVER]),
        ([seen("run.sh"), *end(143)], [NEVER]),  # by its first line
        ([seen("bash", ("tee", "python3")), *end(143)], [NEVER]),
        # A program prints other lines until its container has ended.
        ([seen("bash"), REACTION, *end(143)], [NEVER]),
        # It has a trap, which may have passed the signal on.
        ([seen("bash", handles=True), *end(143)], []),
        ([seen("bash"), *end(0)], []),
        ([seen("bash", ()), *end(143)], []),  # it trains itself, or has run `exec`
        ([seen("python3", ("worker",)), *end(143)], []),
        (end(143), []),  # an engine that sees no processes
        ([seen("bash", handles=True), *end(137, killed=True)], [RAN_ON]),
        ([seen("bash", handles=True), REACTION, *end(137, killed=True)], []),
        (
            [seen("bash"), *phase(11, 20, "worker-1", "checkpoint")[:1], *end(137, killed=True)],
            [],
        ),
    ],
)
def test_a_shell_that_keeps_a_signal_for_itself_is_told_of(
    events: Sequence[Entry], words: Sequence[str]
) -> None:
    assert said(*events) == words


def test_it_is_said_of_other_signals_and_of_faults_that_replace_nothing() -> None:
    terminated = EXTRA.replace("preempt", "terminate").replace(", grace: 5s", ", signal: USR1")
    assert said(seen("sh"), *end(138), extra=terminated) == [NEVER.replace("SIGTERM", "SIGUSR1")]
    restarted = EXTRA.replace("preempt", "restart")
    # Whether it has reacted nobody knows.
    assert said(seen("sh"), *end(137, killed=True), extra=restarted) == []


def test_a_shell_that_ends_before_the_program_can_save_is_told_of() -> None:
    extra = EXTRA.replace("grace: 5s", "signals: all")
    assert said(seen("sh"), *end(143), extra=extra) == [BOTH]
    assert said(seen("sh"), REACTION, *end(143), extra=extra) == [BOTH]
    assert said(seen("sh"), *phase(11, 12, "worker-1", "checkpoint"), *end(143), extra=extra) == []
    assert said(seen("sh", handles=True), *end(143), extra=extra) == []
    assert said(seen("sh"), *end(137, killed=True), extra=extra) == []


def test_several_tasks_are_told_of_in_one_warning() -> None:
    extra = "faults: [{preempt: 'worker-*', at: 10s}]"
    events = [*BEFORE]
    for task in ("worker-0", "worker-1"):
        events += [
            replace(one, task=task, **{"id" if isinstance(one, FaultEvent) else "fault": of})  # type: ignore[arg-type]
            for of, one in ((f"0:{task}", one) for one in [TRIGGERED, seen("sh"), *end(143)])
        ]
    record = timeline(sorted(events, key=lambda one: one.t), extra=extra)
    several = NEVER.replace("worker-1:", "worker-0, worker-1:")
    assert several in explain(record, analyse(record), lambda task: ()).warnings
