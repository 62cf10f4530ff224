"""What each event makes of a fault in each stage."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pytest

from emulator.engines.base import Exited
from emulator.errors import EngineError, NotRunning
from emulator.faults.preempt import Terminate
from emulator.faults.schedule import PlannedFault
from emulator.faults.spec import Effect
from emulator.supervisor.engine_calls import Called, Preparing
from emulator.supervisor.fault_stages import (
    STAGES,
    ActiveFault,
    At,
    JobOver,
    Since,
    Situation,
    Write,
    next_stage,
)
from tests.histories import a_plan

KINDS = {
    "preempt": "preempt: worker-0, at: 5s, grace: 3s, down: 4s",
    "terminate": "terminate: worker-0, at: 5s",
    "kill": "kill: worker-0, at: 5s",
    "oom": "oom: worker-0, at: 5s",
    "pause": "pause: worker-0, at: 5s, for: 6s",
    "partition": "partition: [[worker-0], [worker-1]], at: 5s, for: forever",
    "after": "kill: worker-0, at: {after: 0, delay: 2s}",
    "step": "kill: worker-0, at: {step: 9}",
    "recovery": "kill: worker-0, at: {recovery: 0, delay: 2s}",
    "torn": "checkpoint: torn, at: 5s",
    "killed-writing": "kill: worker-0, at: {write: 3, of: '*.pt'}",
    "paused-writing": "pause: worker-0, for: 6s, at: {rename: 1, task: worker-1}",
    "told-writing": "preempt: worker-0, notice: 9s, at: {write: 3}",
    "hang": "hang: worker-0, at: 5s, for: 6s",
    "one-of-many": "random: {kill: worker-0}, every: 5s, max: 1, at: {write: 3, task: worker-1}",
}
ENTRIES = "".join(f"  - {{{entry}}}\n" for entry in KINDS.values())
FAULTS = dict(zip(KINDS, a_plan("{worker: 2}", f"faults:\n{ENTRIES}").faults, strict=True))
NOW = Situation(time=20.0, wall=120.0, target="running", asked_at=110.0)
NO, GONE = EngineError("No."), NotRunning("Gone.")
PARTS = Effect("n1 is cordoned", (Terminate(terminate="worker-1"),))
EVENTS = {
    "began": Since(7.0),
    "makes": Preparing("b"),
    "equipped": Called("equip"),
    "not equipped": Called("equip", error=NO),
    "told": Called("announce"),
    "found": Called("find", effect=Effect(changed={"aims": []})),
    "not found": Called("find", error=NO),
    "injected": Called("inject"),
    "injected with parts": Called("inject", effect=PARTS),
    "refused": Called("inject", error=NO),
    "not killed": Called("kill", error=NO),
    "had ended": Called("inject", error=GONE),
    "healed": Called("heal", wall=119.0),
    "not healed": Called("heal", error=GONE),
    "started": Called("start", "worker-0", held={FAULTS["pause"].id: None}, wall=7.0),
    "not started": Called("start", "worker-0", held={FAULTS["pause"].id: NO}),
    "caught": Called("watch", effect=Effect("worker-0 was about to")),
    "not watched": Called("watch", error=NO),
    "ended": Exited("worker-0", 119.0, 137),
    "job over": JobOver({"worker-0": 3}),
}
CASES = """
pause planned, began -> waiting: due at 12
step planned, began -> waiting:
after waiting, began -> planned: due at 9
after planned, due -> terminating: triggered; inject
pause waiting, due -> active: triggered; inject
kill waiting, due -> terminating: triggered; inject
preempt waiting, due -> terminating: triggered; inject; grace over at 23
preempt waiting, due, kill_slack=60 -> terminating: triggered; inject; grace over at 83
kill waiting, due, target='starting' -> waiting:
kill waiting, due, target='down' -> over: triggered; skipped worker-0 was not running
kill waiting, due, target='gone' -> over: triggered; skipped worker-0 was not running
kill waiting, job over, is_due=True -> over: skipped the job ended before worker-0 ran
step waiting, job over -> over: skipped the job ended before its trigger fired: no task reached \
step 9, the last step was 3
step planned, job over -> over: skipped the job ended before its trigger fired: its tasks had not \
all been running
recovery planned, job over -> over: skipped the job ended before its trigger fired: it was due \
2.00s after fault 0 was followed by a step

killed-writing planned, began -> waiting: watch
killed-writing waiting, watched again -> waiting: watch
killed-writing waiting, watched again, is_due=True -> waiting:
killed-writing waiting, resumed -> waiting: watch
kill waiting, resumed -> waiting:
killed-writing waiting, caught -> terminating: triggered worker-0 was about to; inject
killed-writing waiting, caught, target='down' -> over: triggered; skipped worker-0 was not \
running; let go
killed-writing waiting, not watched -> over: failed No.; let go
killed-writing waiting, job over -> over: failed the job ended, and its target made no write of \
*.pt number 3; let go
killed-writing terminating, injected -> terminating: let go
paused-writing waiting, caught -> active: triggered worker-0 was about to; inject
paused-writing active, injected -> active: applied; time over at 26; let go
paused-writing active, refused -> over: failed No.; heal; let go
told-writing waiting, caught -> announced: announced; announce; due at 29
told-writing announced, told -> announced: let go
told-writing announced, due, announced_at=11 -> terminating: triggered; inject; grace over at 50
one-of-many waiting, caught, target='down' -> over: triggered; skipped worker-0 was not running; \
let go
paused-writing waiting, job over -> over: failed the job ended, and worker-1 made no rename \
number 1; let go

partition waiting, due, is_equipped=False -> preparing: equip
partition waiting, due, is_equipped=False, making='' -> preparing:
partition waiting, due, is_equipped=False, making='a' -> preparing: preparing a
partition preparing, makes -> preparing: preparing b
partition preparing, equipped -> active: triggered; inject
partition preparing, not equipped -> over: failed No.
partition preparing, time over -> over: skipped it was healed before it was injected
partition preparing, job over -> over: skipped the job ended before the engine was ready

pause active, injected -> active: applied; time over at 26
torn waiting, due -> active: triggered; find
torn active, found -> active: found {'aims': []}; inject
torn active, found, found={} -> active: inject
torn active, resumed, found={} -> active: find
torn active, not found -> over: failed No.
torn active, injected -> over: applied
torn active, refused -> over: failed No.
torn active, job over, injecting=True -> active:
pause active, injected, applied_at=12 -> active: time over at 18
pause active, injected, healing=True -> active: applied; heal
pause active, refused -> over: failed No.; heal
pause active, had ended -> over: skipped worker-0 was not running any more; heal
partition active, injected -> active: applied
partition active, refused -> over: failed No.; heal
partition active, injected with parts -> active: 5:worker-1; applied n1 is cordoned
partition active, injected with parts, job_is_over=True -> active: applied n1 is cordoned
pause active, time over, applied_at=12 -> active: heal
pause active, time over, healing=True -> active:
pause active, job over, injecting=True -> active:
pause active, healed, applied_at=12 -> over: healed @119
pause active, not healed, applied_at=12 -> over: failed Gone.
pause active, started, applied_at=12 -> active: reapplied @7
pause active, started -> active:
pause active, not started -> over: failed worker-0 started again, and No.; heal
pause active, ended, applied_at=12 -> active:
hang active, ended, applied_at=12 -> active: heal
hang active, ended -> active:
hang active, ended, applied_at=12, healing=True -> active:
pause active, resumed -> active: inject
pause active, resumed, applied_at=12 -> active: restore; time over at 18

preempt terminating, grace over -> terminating: kill
preempt terminating, grace over, injecting=True -> terminating:
preempt terminating, injected, injecting=True -> terminating:
preempt terminating, injected, injecting=True, grace_is_over=True -> terminating: kill
preempt terminating, not killed -> over: failed No.
preempt down, grace over -> down:
kill terminating, refused -> over: failed No.
terminate terminating, given up -> over: failed the job ended before the task did
kill terminating, given up -> terminating:
preempt terminating, given up, killed_at=118 -> terminating:
terminate terminating, job over -> terminating:
preempt terminating, job over, applied_at=12 -> over:
kill terminating, resumed -> terminating: inject
kill terminating, resumed, target='gone' -> over: skipped worker-0 was not running
preempt terminating, resumed -> terminating: grace over at 13
preempt terminating, resumed, kill_slack=60 -> terminating: \
grace over at 73; inject

preempt terminating, exit 0 115 -> down: applied 0 5.0 False @115; time over at 19
preempt terminating, exit 137 115, killed_at=118 -> down: applied 137 5.0 False @115; \
time over at 19
preempt terminating, exit 137 119, killed_at=118 -> down: applied 137 9.0 True @119; \
time over at 23
preempt terminating, exit 137 115, kill_slack=60 -> down: applied 137 5.0 True @115; \
time over at 19
preempt terminating, exit 0 121 -> down: applied 0 10.0 False @121; time over at 24
preempt terminating, exit 1 109 -> over: skipped worker-0 had ended before, with exit code 1
preempt terminating, exit 0 115, asked_at=1e9 -> over: skipped worker-0 had ended before, \
with exit code 0
terminate terminating, exit 1 115 -> over: applied 1 5.0 False @115
kill terminating, exit 137 115 -> over: applied 137 5.0 True @115
kill terminating, exit 0 115 -> over: failed worker-0 ended otherwise, with 0
kill terminating, exit 143 115, effect='was deleted', is_milder=True -> over: applied 143 5.0 \
False was deleted @115
kill terminating, exit 137 115, effect='was deleted', is_milder=True -> over: applied 137 5.0 True \
was deleted @115
kill terminating, exit 0 115, effect='was deleted', is_milder=True -> over: failed worker-0 ended \
otherwise, with 0: was deleted
oom terminating, exit 137 115 -> over: failed worker-0 ended otherwise, with 137

preempt down, time over, target='down' -> down: start
preempt down, time over, target='gone' -> down:
preempt down, time over, target='down', healing=True -> down:
preempt down, runs, applied_at=12 -> over: healed
preempt down, resumed, applied_at=12 -> down: time over at 16
preempt down, job over, applied_at=12 -> over:
"""


def in_words(action: object) -> str:
    match action:
        case Write(stage=stage, data=data, wall=wall):
            at = [] if wall is None else [f"@{wall:g}"]
            return " ".join([stage, *(f"{one}" for one in data.values() if one is not None), *at])
        case At(when=when, event=event):
            return f"{event} at {when:g}"
    return str(getattr(action, "id", action))


def assert_follows(case: str, faults: Mapping[str, PlannedFault]) -> None:
    given, _, expected = case.partition(" -> ")
    place, name, *more = given.split(", ")
    kind, stage = place.split()
    values = {
        key: ast.literal_eval(value) for key, _, value in (one.partition("=") for one in more)
    }
    own = {key: values.pop(key) for key in {one.name for one in fields(ActiveFault)} & {*values}}
    fault: Any = ActiveFault(faults[kind], triggered_at=10.0, **{"stage": stage, **own})
    event: Any = EVENTS.get(name, name)
    if name.startswith("exit"):
        _, code, wall = name.split()
        event = Exited("worker-0", float(wall), int(code))
    one, actions = next_stage(fault, event, replace(NOW, **values))
    found = "; ".join(map(in_words, actions))
    assert f"{one.stage}: {found}".strip() == expected


@pytest.mark.parametrize("case", [line for line in CASES.splitlines() if line])
def test_what_an_event_makes_of_a_fault(case: str) -> None:
    assert_follows(case, FAULTS)


def test_a_kill_that_became_milder_says_so_at_the_exit() -> None:
    answer = Called("inject", effect=Effect("its Pod was deleted", is_milder=True))
    fault = ActiveFault(FAULTS["kill"], "terminating", triggered_at=10.0, injecting=True)
    asked, _ = next_stage(fault, answer, NOW)
    _, (applied, *_) = next_stage(asked, Exited("worker-0", 115.0, 143), NOW)
    assert isinstance(applied, Write)
    assert (applied.data["killed"], applied.data["effect"]) == (False, "its Pod was deleted")


def test_nothing_but_steps_and_starts_of_its_target_matters_once_it_is_over() -> None:
    assert {*STAGES["over"]} == {"runs", "stepped"}
    one, _ = next_stage(ActiveFault(FAULTS["kill"], "over"), "runs", NOW)
    assert not one.restored  # it had no effect
    one, _ = next_stage(ActiveFault(FAULTS["kill"], "over", applied_at=12.0), "runs", NOW)
    one, _ = next_stage(one, "stepped", NOW)
    assert (one.restored, one.recovered_at) == (True, 20.0)
