"""Why a run is not ok, as its page begins with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emulator.engines.memory import Script
from emulator.record.events import TaskExit
from emulator.report import page
from emulator.report.data import read
from emulator.report.failure import failure_of, how_it_ended, last_traceback
from tests.histories import an_event
from tests.report.runs import a_run, facts_of, preempted, step_line

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
BREAKS = Script(
    lines=[(1, step_line(1)), *((2.0, line) for line in TRACEBACK)], exits_at=3, exit_code=1
)
LASTS = Script(lines=[(n, step_line(n)) for n in range(1, 9)], exits_at=None)


def test_a_failed_run_says_what_failed_how_and_what_was_tried(tmp_path: Path) -> None:
    extra = "cluster: {worker: 2}\nrestart: {policy: on-failure, limit: 1, backoff: 1s}\n"
    extra += "expect: {final_step: 9}\n"
    facts = read(a_run(tmp_path, extra, {"worker-0": LASTS, "worker-1": BREAKS}))
    found = failure_of(facts)
    assert found is not None
    assert found.headline.startswith("The job failed: worker-1 ")
    (one,) = found.ended
    assert (one.task, one.how, one.step) == ("worker-1", "1: an error of the program", "1")
    assert one.tried == "restarted once alone; the limit is 1"
    assert (found.task, list(found.words)) == ("worker-1", TRACEBACK)
    assert found.unmet == ["final_step: expected at least 9, got 7"]


def test_the_page_of_a_failed_run_begins_with_it(tmp_path: Path) -> None:
    scripts = {"worker-0": LASTS, "worker-1": BREAKS}
    html = page.render(read(a_run(tmp_path, "cluster: {worker: 2}\n", scripts)))
    assert re.findall(r'<section id="(\w+)"', html)[0] == "failure"
    text = html[html.index('id="failure"') : html.index('id="expectations"')]
    assert "not restarted (policy never)" in text
    assert "ValueError: shapes do not match" in text
    assert html.count('<pre class="log">') == 1  # and is not repeated at the end


def test_only_a_run_that_is_not_ok_has_it() -> None:
    ok = facts_of(preempted())
    ok.summary["verdict"] = "ok"  # type: ignore[index]
    assert failure_of(ok) is None
    assert 'id="failure"' not in page.render(ok)
    assert failure_of(facts_of(preempted()[:8], running=True)) is None
    crashed = failure_of(facts_of(preempted()[:8]))
    assert crashed is not None
    assert crashed.headline == "The emulator was killed before the job ended."


def test_what_was_not_met_is_said_of_a_job_that_succeeded() -> None:
    facts = facts_of(preempted(), extra="expect: {final_step: 40, accuracy: 0.9}\n")
    found = failure_of(facts)
    assert found is not None
    assert found.headline == "The job succeeded, but did not meet all expectations."
    assert found.ended == []
    assert found.unmet[0] == "final_step: expected at least 40, got 32"
    assert found.unmet[1].startswith("accuracy: expected at least 0.900; not known: ")


@pytest.mark.parametrize(
    ("exit_fields", "text"),
    [
        ({"exit_code": 1}, "1: an error of the program"),
        ({"exit_code": 7}, "7"),
        ({"exit_code": 137}, "137: ended by SIGKILL"),
        ({"exit_code": 137, "oom_killed": True}, "137: ended by SIGKILL, out of memory"),
        ({"exit_code": 137, "reason": "Evicted"}, "137: ended by SIGKILL, Evicted"),
        ({"exit_code": 255}, "255"),
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
