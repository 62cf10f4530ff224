"""Why a run is not ok, as its page begins with it."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.memory import Script
from emulator.record.events import TaskExit
from emulator.report import page
from emulator.report.event_text import event_lines
from emulator.report.page import Failure, failure_of, how_it_ended, last_traceback
from emulator.report.terminal import story
from emulator.validation.units import format_duration
from tests.histories import Told, an_event, began_again, ended, happened, job, restart, step
from tests.histories import preempted as preemption
from tests.report.runs import BASE, facts_of, preempted, ran

TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    main()",
    "ValueError: shapes do not match",
]
CHAINED = [
    *TRACEBACK,
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    *TRACEBACK[:-1],
    "RuntimeError: step 3 failed",
]


def why(*what: Any, **how: Any) -> Failure:
    """Return why a run is not ok, by its facts."""
    found = failure_of(facts_of(*what, **how))
    assert found is not None
    return found


def test_only_a_run_that_is_not_ok_has_it() -> None:
    ok = facts_of(preempted())
    ok.summary["verdict"] = "ok"  # type: ignore[index]
    assert failure_of(ok) is None
    assert 'id="failure"' not in page.render(ok)
    assert failure_of(facts_of(preempted()[:8], running=True)) is None
    assert why(preempted()[:8]).headline == "The emulator was killed before the job ended."


def test_what_was_not_met_is_said_of_a_job_that_succeeded() -> None:
    found = why(preempted(), extra="expect: {final_step: 40, accuracy: 0.9}\n")
    assert found.headline == "The job succeeded, but did not meet all expectations."
    assert found.ended == []
    (step_, accuracy) = found.unmet
    assert step_.text == "final_step: expected at least 40, got 32"
    assert step_.why.startswith("The program ended by itself: worker-0 finished.")
    assert accuracy.text.startswith("accuracy: expected at least 0.900; not known: ")
    assert found.briefly == [step_.why, accuracy.why, "worker-1 ended with exit code 1 at 20.0s."]


@pytest.mark.parametrize(
    ("exit_fields", "text"),
    [
        ({"exit_code": 1}, "1: an error of the program"),
        ({"exit_code": 7}, "7"),
        ({"exit_code": 137}, "137: ended by SIGKILL"),
        ({"exit_code": 137, "oom_killed": True}, "137: ended by SIGKILL, out of memory"),
        ({"exit_code": 137, "reason": "Evicted"}, "137: ended by SIGKILL, Evicted"),
        ({"exit_code": 255}, "255"),
        ({"exit_code": 128}, "128"),
        ({"exit_code": 129}, "129: ended by SIGHUP"),
        ({"exit_code": 2, "reason": "Error"}, "2: Error"),
        ({"exit_code": 1, "oom_killed": True, "reason": "OOMKilled"}, "1: OOMKilled"),
        ({"exit_code": 127}, "127: the command was not found"),
    ],
)
def test_an_exit_code_is_explained(exit_fields: dict[str, object], text: str) -> None:
    end = an_event("exit", "worker-0", **exit_fields)
    assert isinstance(end, TaskExit)
    assert how_it_ended(end) == text


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", *TRACEBACK], TRACEBACK),
        ([*TRACEBACK, "restarted", *TRACEBACK, "bye"], [*TRACEBACK, "bye"]),
        (["a", *CHAINED], CHAINED),
    ],
)
def test_the_last_traceback_is_shown_with_those_that_led_to_it(
    lines: list[str], kept: list[str]
) -> None:
    assert last_traceback(lines) == kept


NEVER, ONCE = "not restarted (policy on-failure)", "restarted once with all tasks"


def failing(tasks: int, *restarts: tuple[float, str]) -> Failure:
    """Return why a job failed of which worker-0 was restarted, then all workers failed."""
    names = [f"worker-{n}" for n in range(tasks)]
    events = [happened(0, "run"), *began_again(0, *names), step(2, "worker-0", 5)]
    for t, scope in restarts:
        events += [ended(t, "worker-0", 1), restart(t, "worker-0", scope)]
        events += began_again(t + 0.5, "worker-0")
    events += [ended(10 + n, name, 1) for n, name in enumerate(names)]
    events += [happened(20, "job", "worker-0", outcome="failed", reason="worker-0 failed")]
    return why(events, f"{{worker: {tasks}}}", "restart: {policy: on-failure, limit: 2}\n")


@pytest.mark.parametrize(
    ("tasks", "others"),
    [
        (5, ""),
        (6, "worker-5"),
        (8, "worker-5, worker-6, worker-7"),
        (9, "worker-5 .. worker-8 (4)"),
    ],
)
def test_of_many_tasks_that_failed_five_are_listed_and_the_others_named(
    tasks: int, others: str
) -> None:
    how = ("1: an error of the program", "10.0s", "5", NEVER)
    later = [(f"worker-{n}", how[0], f"{10 + n:.1f}s", "none", NEVER) for n in range(1, 5)]
    found = failing(tasks)
    assert found.headline == "The job failed: worker-0 failed."
    assert [astuple(one) for one in found.ended] == [("worker-0", *how), *later]
    assert (found.others, found.task, found.words, found.unmet) == (others, "", (), [])


@pytest.mark.parametrize(
    ("restarts", "tried", "other"),
    [
        ([(3, "task")], "restarted once alone", NEVER),
        ([(3, "task"), (6, "task")], "restarted 2 times alone; the limit is 2", NEVER),
        ([(3, "job")], ONCE, ONCE),
        ([(3, "job"), (6, "task")], "restarted 2 times; the limit is 2", ONCE),
    ],
)
def test_restarts_of_a_task_are_counted_up_to_their_limit(
    restarts: list[tuple[float, str]], tried: str, other: str
) -> None:
    assert [one.tried for one in failing(2, *restarts).ended] == [tried, other]


@pytest.mark.parametrize(("times", "said"), [(1, "once"), (2, "2 times")])
def test_a_task_that_faults_brought_back_says_how_often(times: int, said: str) -> None:
    back = [one for n in range(times) for one in preemption(2 + 3 * n, "worker-0", back=4 + 3 * n)]
    events = [happened(0, "run"), *began_again(0, "worker-0"), *back, ended(15, "worker-0", 129)]
    events += [happened(20, "job", "worker-0", outcome="failed", reason="worker-0 failed")]
    (one,) = why(events, "{worker: 1}", "faults: [{preempt: worker-0, at: 1s}]\n").ended
    assert one.tried == f"not restarted (policy never); brought back {said} by faults"
    assert one.how == "129: ended by SIGHUP"


@pytest.mark.parametrize(
    ("end", "headline"),
    [
        (job(9, "timeout", "why"), "The job ran out of time: why."),
        (job(9, "interrupted", "why"), "The job was interrupted: why."),
        (happened(9, "error", message="why"), "The emulator or its engine failed: why."),
    ],
)
def test_every_outcome_has_its_headline(end: Told, headline: str) -> None:
    found = why([happened(0, "run"), end], extra="")
    assert (found.headline, found.ended) == (headline, [])


# --- The text about a run below a failed test -----------------------------------------------------


def test_it_has_verdicts_events_and_the_last_output_of_the_failed_task(tmp_path: Path) -> None:
    printed = [(1.0, "\x1b[31mno room\x1b[0m")]
    dies = Script(printed, exits_at=2, exit_code=3, oom_killed=True)
    scripts = {"worker-0": Script(exits_at=None), "worker-1": dies}
    text = f"{BASE}cluster: {{worker: 2}}\nexpect: {{final_step: 3}}\n"
    result = ran(tmp_path, text, scripts, reports=False)
    lines = story(result).splitlines()
    assert lines[0] == "worker-1 ran out of memory at 2.00s."
    assert lines[2].split() == ["expectation", "verdict", "expected", "actual"]
    assert any(line.split()[:2] == ["final_step", "unknown"] for line in lines)
    assert "   2.00s  worker-1 ended with exit code 3 (out of memory)" in lines
    assert lines[lines.index("the last output of worker-1:") + 1] == "  no room"
    assert lines[-1] == f"run     {result.folder}"  # there is no page to point at
    assert all(line == line.rstrip() for line in lines)


def test_of_many_events_the_first_six_and_the_last_are_told() -> None:
    told = [happened(n, "all-running") for n in range(32)]
    whole = [f"{format_duration(n):>8}  all tasks are running" for n in range(32)]
    assert event_lines(told[:30]) == whole[:30]
    assert event_lines(told) == [*whole[:6], "          … 2 more …", *whole[8:]]
