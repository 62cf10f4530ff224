"""What a job has noticed of a fault, and in what time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from emulator.analysis.analyse import FaultResult
from emulator.analysis.detected import noticed_within
from emulator.analysis.observed import Observed
from emulator.planning.plan import Task
from emulator.record.events import Complaint
from emulator.supervisor.complaints import MOST, Complaints
from tests.histories import a_plan


@pytest.mark.parametrize(
    ("kind", "times", "violations", "undecided"),
    [
        ("hang", {"detected_after": 12.0, "detected_by": "worker-0, which printed: a"}, [], []),
        (
            *("hang", {"detected_after": 92.0, "detected_by": "worker-0, which printed: a"}),
            *(["hang worker-1: 1m 30s, by worker-0, which printed: a"], []),
        ),
        ("hang", {}, ["hang worker-1: nobody in 1m 38s"], []),
        # it was healed, and the job went on
        (
            *("hang", {"restored_after": 30.0, "first_step_after": 32.0}),
            *([], ["hang worker-1: nobody, until it was over after 30.0s"]),
        ),
        # its peers noticed before its end was seen
        ("kill", {"detected_after": 1.5, "detected_by": "worker-0"}, [], []),
    ],
)
def test_a_fault_is_noticed_in_time_or_late_or_was_over_before(
    kind: str, times: dict[str, Any], violations: list[str], undecided: list[str]
) -> None:
    fault = FaultResult("0", kind, "worker-1", "applied", triggered=10.0, applied_after=2.0)
    found = noticed_within(60.0, [replace(fault, **times)], 110.0)
    assert found == Observed("each in 1m 00s", 1, "faults", violations, undecided, found.held)


def test_of_several_the_slowest_is_shown() -> None:
    first = FaultResult("0", "kill", "worker-1", "applied", triggered=1.0, applied_after=0.0)
    faults = [
        replace(first, detected_after=2.0, detected_by="worker-0, which printed: " + "x" * 200),
        replace(first, detected_after=1.0, detected_by="ps-0"),
    ]
    found = noticed_within(60.0, faults, 110.0)
    assert found.held == "2.00s, by worker-0, which printed: " + "x" * 135 + "…"


def test_a_fault_that_did_not_happen_or_changes_a_file_is_not_to_be_noticed() -> None:
    skipped = FaultResult("0", "kill", "worker-1", "skipped")
    changed = FaultResult("1", "checkpoint", "shared", "applied", triggered=1.0, applied_after=0.0)
    assert noticed_within(60.0, [skipped, changed], 110.0).count == 0


# --- What tasks complain of ---------------------------------------------------------------------

TASKS: list[Task] = [*a_plan("{worker: 2, ps: 1}").tasks]
LINES = [
    "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [172.18.0.3]:5555",
    "Timed out waiting 30000ms for recv operation to complete",
    "UNAVAILABLE: failed to connect to all addresses",
    "Task /job:worker/replica:0/task:1 heartbeat",
    "waiting for worker-1:2222",
    "cannot reach worker-1",
    "OSError: [Errno 28] No space left on device",
]


@pytest.mark.parametrize("line", LINES)
def test_a_new_line_about_a_peer_or_a_time_out_is_a_complaint(line: str) -> None:
    seen = Complaints(TASKS)
    seen.after_fault()
    assert seen.on_line("worker-0", f" {line} ") == Complaint(task="worker-0", line=line)
    assert seen.on_line("worker-0", line.replace("5", "6")) is None
    seen.after_fault()
    assert seen.on_line("worker-0", line) is not None


@pytest.mark.parametrize(
    "line",
    [
        "I am worker-0:2222",
        "loss 0.5 time 0.1s",
        "reset the optimizer",
        "my-worker-1 is another name",
        "worker-10 is another task",
    ],
)
def test_what_names_no_peer_and_no_trouble_is_none(line: str) -> None:
    seen = Complaints(TASKS)
    seen.after_fault()
    assert seen.on_line("worker-0", line) is None


@pytest.mark.parametrize("line", LINES)
def test_what_a_task_said_before_the_first_fault_is_usual(line: str) -> None:
    seen = Complaints(TASKS)
    assert seen.on_line("worker-0", line) is None
    seen.after_fault()
    assert seen.on_line("worker-0", line) is None
    assert seen.on_line("ps-0", line) is not None


def test_the_first_complaints_after_a_fault_are_kept() -> None:
    seen = Complaints(TASKS)
    seen.after_fault()
    words = ["deadline", "watchdog", "heartbeat", "unreachable", "unavailable"]
    assert sum(seen.on_line("ps-0", word) is not None for word in words) == MOST
