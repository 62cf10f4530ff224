"""What a run says beside its verdicts: warnings, hints and last words, in every report."""

from __future__ import annotations

import html
import io
import json
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from emulator.analysis.analyse import analyse
from emulator.analysis.explanation import NO_STEP, NO_STEP_OF_TRAINER, explain, in_short
from emulator.analysis.failed_output import HINTS, LEFT_OUT
from emulator.engines.memory import MemoryEngine, Script
from emulator.planning.requested import RunOptions
from emulator.record.events import Entry
from emulator.record.reader import Record
from emulator.report.terminal import print_result, print_summary, story
from emulator.results import Result, load_result
from emulator.runtime.clock import ManualClock
from emulator.session.run import up
from tests.asked import asked
from tests.histories import began_again, ended, job, step, timeline

OUTPUTS = Path(__file__).parent / "analysis" / "outputs"
STEP = '{"emulate": "step", "step": 7}'


def run(tmp_path: Path, expect: str, /, rest: str = "", **tasks: Script) -> Result:
    clock = ManualClock()
    text = (
        "name: test\nframework: none\nprogram: {command: [a]}\ntimeout: 100s\n"
        f"cluster: {{{', '.join(f'{role}: 1' for role in tasks)}}}\nexpect: {{{expect}}}\n{rest}\n"
    )
    engine = MemoryEngine(clock, {f"{role}-0": script for role, script in tasks.items()})
    return up(asked(text), engine, RunOptions(out=tmp_path, run_id="r"), clock=clock)


def says(*lines: str, exit_code: int = 0, exits_at: float | None = 5) -> Script:
    timed: Sequence[tuple[float, str]] = [(1 + n / 1000, line) for n, line in enumerate(lines)]
    return Script(timed, exits_at=exits_at, exit_code=exit_code)


def printed(result: Result) -> str:
    stream = io.StringIO()
    print_result(result, Console(file=stream, width=80))
    return stream.getvalue()


def test_a_run_that_trained_nothing_says_so_everywhere(tmp_path: Path) -> None:
    result = run(tmp_path, "", worker=says("epoch one, all is well", "saved the model"))
    assert (result.verdict, result.exit_code) == ("ok", 0)
    assert result.summary["warnings"] == [NO_STEP]
    assert result.last_words == {"worker-0": ["epoch one, all is well", "saved the model"]}
    text = printed(result)
    assert "The last output of worker-0:\n  epoch one, all is well\n  saved the model\n" in text
    assert f"warning: {NO_STEP}\n" in text  # on one line, however narrow the terminal
    assert text.count("test: succeeded, verdict ok, with a warning\n") == 1
    page = (result.folder / "report.html").read_text()
    assert "<strong>Warning:</strong> No step was read" in page
    assert '<pre class="output" data-lines="worker-0">' in page
    markdown = (result.folder / "report.md").read_text()
    assert "> **Warning:** No step was read" in markdown
    assert "epoch one, all is well" in markdown
    suite = ET.parse(result.folder / "junit.xml").getroot()[0]
    assert suite.findtext("system-out") == f"warning: {NO_STEP}"
    assert "saved the model" in (suite.findtext("system-err") or "")
    assert suite.get("failures") == suite.get("errors") == "0"
    assert json.loads((result.folder / "summary.json").read_text())["warnings"] == [NO_STEP]


BARS = (
    "Map: 100%|██████████| 600/600 [00:00<00:00, 9.5 examples/s]",
    "MNIST: 100%|██████████| 60/60 [00:06<00:00, 9.5it/s]",
)


def test_what_was_seen_instead_of_steps_is_named(tmp_path: Path) -> None:
    (warning,) = run(tmp_path / "bars", "", worker=says(*BARS)).summary["warnings"]
    seen = "Seen was the bar `Map` (600), the bar `MNIST` (60), which says nowhere that"
    assert warning.startswith(NO_STEP)
    assert seen in warning
    # A trainer that prints no steps is told what to do.
    lines = (*BARS, "{'loss': '5.7', 'epoch': '0.5'}", "{'train_loss': 5.5, 'epoch': 1.0}")
    assert run(tmp_path, "", worker=says(*lines)).summary["warnings"] == [NO_STEP_OF_TRAINER]


def test_the_end_of_a_run_says_from_what_its_steps_were_read(tmp_path: Path) -> None:
    trains = "Training: 100%|██████████| 60/60 [00:06<00:00, 9.5it/s]"
    result = run(tmp_path, "final_step: 60", worker=says(*BARS, trains), chief=says(trains))
    said = "steps: from the bar `Training` (60) of chief-0 and worker-0;"
    said += " also seen: the bar `Map` (600), the bar `MNIST` (60)"
    assert result.verdict == "ok"
    assert said in printed(result).replace("\n", " ")
    assert said in html.unescape((result.folder / "report.html").read_text())


@pytest.mark.parametrize(
    ("expect", "worker", "warned"),
    [
        ("", says("hello"), True),
        ("", says(), True),
        ("", says(STEP), False),
        ("steps: none", says("hello"), False),
        ("steps: none", says(STEP), False),  # that is a verdict
        ("final_step: 5", says("hello"), True),  # the verdict is unknown, and this is why
        ("", says("hello", exits_at=None), True),  # a timeout
        ("", says("hello", exit_code=1), False),  # the failure says more
        ("outcome: failed", says("hello", exit_code=1), True),  # was it the failure that was meant?
    ],
)
def test_who_is_warned(tmp_path: Path, expect: str, worker: Script, *, warned: bool) -> None:
    result = run(tmp_path, expect, worker=worker)
    assert bool(result.summary["warnings"]) == warned
    assert ("with a warning" in printed(result)) == warned


KILLED = "faults: [{kill: worker-0, at: 2s}]\nrestart: {policy: on-failure}"
"""After the last step that `says` prints."""


@pytest.mark.parametrize(
    ("rest", "chief", "says_what"),
    [
        (KILLED, says(STEP), "nothing shows that the training goes on after it"),
        (KILLED, says(STEP, exits_at=None), "`restart: {stall: 1m}` restarts a job that makes"),
        (f"{KILLED[:-1]}, stall: 1h}}", says(STEP, exits_at=None), ""),
        (KILLED, says(STEP, exits_at=4, exit_code=1), ""),  # the failure says more
        (KILLED, Script([(1, STEP), (3, STEP.replace("7", "8"))], exits_at=4), ""),
        (KILLED.replace("kill:", "pause:").replace("2s", "2s, for: 1s"), says(STEP), ""),
    ],
)
def test_a_run_whose_steps_end_at_a_fault_says_so(
    tmp_path: Path, rest: str, chief: Script, says_what: str
) -> None:
    result = run(tmp_path, "", rest, chief=chief, worker=says(exits_at=None))
    warned = result.summary["warnings"]
    assert len(warned) == bool(says_what)
    for warning in warned:
        assert warning.startswith("No step was made after fault 0 (kill worker-0)")
        assert says_what in warning


def test_what_is_not_of_the_training_that_ended_is_said() -> None:
    def warned(events: Sequence[Entry]) -> Sequence[str]:
        found = timeline([*events, job(9)], "{worker: 1, evaluator: 1}")
        return explain(found, analyse(found), lambda task: []).warnings

    first = [*began_again(0, "worker-0"), step(2, "worker-0", 1)]
    assert warned([*first, step(3, "evaluator-0", 1, accuracy=0.9)]) == []
    early = step(1, "evaluator-0", 9, accuracy=0.9)
    assert warned([early, *first, step(3, "evaluator-0", 1, accuracy=0.9)]) == []
    assert warned([*first, step(3, "evaluator-0", 9)]) == []  # it says nothing of it
    (old,) = warned([*first, step(3, "evaluator-0", 1000, accuracy=0.9)])
    assert old == (
        "evaluator-0 reported step 1,000, and the training had not come so far: what it says of "
        "that checkpoint does not count."
    )
    first += [step(3, "worker-0", 1000), ended(4, "worker-0", 1), *began_again(4, "worker-0")]
    (lost,) = warned([*first, step(7, "worker-0", 20)])
    assert lost == (
        "The job ended at step 20, and had been at step 1,000 before: what it had made from there "
        "on was lost, and not made again."
    )


def test_steps_where_none_are_expected_fail(tmp_path: Path) -> None:
    result = run(tmp_path, "steps: none", worker=says(STEP))
    assert (result.verdict, result.exit_code) == ("failed", 1)
    assert [v.expectation for v in result.verdicts if v.status == "failed"] == ["steps"]
    assert run(tmp_path / "other", "steps: none", worker=says("done")).verdict == "ok"


def test_a_known_error_is_answered_everywhere(tmp_path: Path) -> None:
    output = (OUTPUTS / "shared-memory.bus-error.txt").read_text().replace("\0", "").split("\n")
    hint = next(hint for hint in HINTS if hint.name == "shared-memory")
    result = run(tmp_path, "", worker=says(*output, exit_code=1), ps=says(exits_at=None))
    (found,) = result.summary["hints"]
    assert found == {
        "name": "shared-memory",
        "advice": hint.advice,
        "docs": "docs/troubleshooting.md#shared-memory",
        "tasks": ["worker-0"],
        "line": output[0],
    }
    text = f"hint: {hint.advice} See {hint.docs} in the emulator's repository."
    assert f"{text}\n" in printed(result)
    assert text in story(result)
    assert "<strong>Hint:</strong>" in (result.folder / "report.html").read_text()
    assert "> **Hint:**" in (result.folder / "report.md").read_text()
    suite = ET.parse(result.folder / "junit.xml").getroot()[0]
    assert suite.findtext("system-out") == text
    (problem,) = suite.iter("failure")
    assert f"hint:     {hint.advice}" in (problem.text or "")
    stream = io.StringIO()
    print_summary(load_result(Record(result.folder)).summary, Console(file=stream, width=80))
    assert text in stream.getvalue()  # `emulate check` says the same
    survived = says(*output, STEP)  # a job that succeeds gets no hint
    assert run(tmp_path / "survived", "", worker=survived).summary["hints"] == []


def test_the_output_of_a_task_that_hangs_is_searched_after_a_timeout(tmp_path: Path) -> None:
    waiting = says("[W socket.cpp] (gai error: -2 - Name or service not known).", exits_at=None)
    result = run(tmp_path, "", worker=waiting, ps=says("serving", exits_at=None), chief=waiting)
    assert result.outcome == "timeout"
    assert [found["name"] for found in result.summary["hints"]] == ["name-resolution"]
    assert list(result.last_words) == ["chief-0", "worker-0", "ps-0"]


def test_the_end_of_a_job_in_half_a_sentence() -> None:
    trace = ["Traceback (most recent call last):", '  File "a.py", line 1', "ValueError: no. 3."]
    failed = timeline([ended(2, "worker-1", 1), replace(job(2, "failed"), task="worker-1")])
    assert in_short(failed, lambda task: trace) == "worker-1: ValueError: no. 3"
    told = replace(job(2, "failed", "worker-1 failed with exit code 1"), task="worker-1")
    assert in_short(timeline([told]), lambda task: ["bye"]) == "worker-1 failed with exit code 1"
    assert in_short(timeline([step(1, "worker-0", 1)]), lambda task: []) == (
        "it has not ended by itself"
    )


def test_ten_tasks_are_read_the_one_that_ended_the_job_first_then_by_the_time_they_failed() -> None:
    failed = [ended(20 - n, f"worker-{n}", 1) for n in reversed(range(12))]
    # Of a job that succeeds in spite of them, nothing is to be explained.
    for outcome, read in (("failed", [3, *range(11, 3, -1), 2]), ("succeeded", [])):
        events = [step(1, "worker-0", 1), *failed, replace(job(20, outcome), task="worker-3")]
        replayed = timeline(events, "{worker: 12}")
        found = explain(replayed, analyse(replayed), lambda name: [name])
        assert list(found.last_words or ()) == [f"worker-{n}" for n in read]


def test_a_long_exception_is_told_by_its_own_line(tmp_path: Path) -> None:
    trace = ["Traceback (most recent call last):", '  File "a.py", line 1', "ValueError: no"]
    result = run(tmp_path, "", worker=says(*trace, *["value"] * 5000, exit_code=1))
    words = result.last_words["worker-0"]
    assert words[:4] == ["ValueError: no", "value", "value", LEFT_OUT]
    assert load_result(Record(result.folder)) == result
