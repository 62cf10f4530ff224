"""Events in words."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.report.event_text import describe
from tests.histories import an_event


@pytest.mark.parametrize(
    ("event", "fields", "words"),
    [
        ("step", {"step": 1}, ""),
        ("phase", {}, ""),
        ("step-source", {"source": "a bar", "counts": True}, "steps of w-0 are read from a bar"),
        ("step-source", {"source": "a bar", "counts": False}, ""),
        ("step-source", {"source": "a bar", "counts": True, "retracts": True},
         "steps of w-0 are read from a bar; the steps before were something else"),
        ("before-training", {}, "all tasks before training are running"),
        ("training", {}, "the tasks before training have succeeded; starting the others"),
        ("attached", {"gap": 2.0}, "taken over after 2.00s without an emulator"),
        ("exit", {"exit_code": 3}, "w-0 ended with exit code 3"),
        ("exit", {"exit_code": 3, "told_to_stop": True}, ""),
        ("exit", {"exit_code": 137, "oom_killed": True, "reason": "OOMKilled"},
         "w-0 ended with exit code 137 (out of memory)"),
        ("restart", {"scope": "task", "number": 2, "delay": 1.0},
         "restarting w-0 in 1.00s (number 2)"),
        ("restart", {"scope": "job", "number": 1, "delay": 4.0},
         "restarting every task in 4.00s (number 1)"),
        ("suspension", {"suspended": True},
         "the job is suspended: it has no pods until `emulate resume`"),
        ("suspension", {"suspended": False}, "the job is resumed"),
        ("stop", {"signal": "SIGKILL"}, "w-0 did not exit: SIGKILL"),
        ("stop", {"signal": "SIGTERM"}, ""),
        ("refused", {"operation": "a signal", "reason": "no"},
         "the engine refused a signal for w-0: no"),
        ("stall", {"seconds": 60.0}, "w-0 made no step for 1m 00s: SIGKILL"),
        ("port", {"port": 80, "address": "a:81"}, "port 80 of w-0 is at a:81"),
        ("sidecar", {"name": "p", "reason": "no image"},
         "side-car p of w-0 can't be started, which does not end the task: no image"),
        ("sidecar", {"name": "p", "exit_code": 0},
         "side-car p of w-0 ended by itself with exit code 0"),
        ("engine-note", {"reason": "Started"}, ""),
        ("engine-note", {"reason": "Odd", "message": "hm"}, "the cluster: w-0: Odd: hm"),
        ("helper", {"stage": "starting"}, ""),
        ("helper", {"stage": "failed", "reason": "why"},
         "helper w-0 failed, which does not decide the job: why"),
        ("helper", {"stage": "ended", "exit_code": 0},
         "helper w-0 ended by itself with exit code 0"),
        ("helper", {"stage": "ended", "exit_code": 1, "told_to_stop": True}, ""),
        ("helper", {"stage": "ended", "exit_code": 1, "last_words": ["a", "b"]},
         "helper w-0 ended by itself with exit code 1, which does not decide the job; its last "
         "output: a; b"),
        ("helper", {"stage": "stopping", "signal": "SIGTERM"}, ""),
        ("helper", {"stage": "stopping", "signal": "SIGKILL"}, "helper w-0 did not exit: SIGKILL"),
        ("fault", {"stage": "planned"}, ""),
        ("fault", {"stage": "preparing", "reason": "a save"}, "fault 0: waiting: a save"),
        ("fault", {"target": "a | b"}, "fault 0: preempt a | b"),
        ("fault", {"stage": "applied", "silent": True, "exit_code": 137},
         "fault 0: w-0 has lost power (exit code 137)"),
        ("fault", {"stage": "applied", "exit_code": 143, "effect": "cordoned"},
         "fault 0: w-0 has exited (by itself, exit code 143); cordoned"),
        ("fault", {"stage": "applied", "exit_code": 137, "killed": True},
         "fault 0: w-0 has exited (killed, exit code 137)"),
        ("fault", {"stage": "applied", "kind": "pause", "effect": "e"},
         "fault 0: w-0 is frozen; e"),
        ("fault", {"stage": "reapplied", "kind": "pause"}, "fault 0: w-0 is frozen again"),
        ("fault", {"stage": "healed", "kind": "pause"}, "fault 0: w-0 is back"),
        ("fault", {"stage": "skipped", "reason": "gone"}, "fault 0: skipped: gone"),
        ("fault", {"stage": "failed"}, "fault 0: failed: "),
        ("prepared", {}, ""),
    ],
)  # fmt: skip
def test_every_kind_of_event_has_its_words_or_none(
    event: str, fields: dict[str, Any], words: str
) -> None:
    assert describe(an_event(event, "w-0", **fields)) == words
