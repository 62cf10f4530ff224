"""What the end of a run looks like on a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from emulator.analysis.analyse import Analysis, FaultResult, HelperResult
from emulator.analysis.explanation import Explanation
from emulator.analysis.listing import Listed
from emulator.engines.base import Finding
from emulator.record.reader import Record
from emulator.record.writer import RunWriter
from emulator.report.data import HTML
from emulator.report.listings import print_findings, print_listing, print_runs, print_status
from emulator.report.live import LivePrinter
from emulator.report.terminal import print_result, print_summary
from emulator.results import Result, summary
from emulator.runtime.clock import ManualClock
from emulator.supervisor.job import JobEnd
from tests.histories import a_plan
from tests.report.test_expected import on_a_terminal


def a_summary(analysis: Analysis, **more: Any) -> dict[str, Any]:
    return summary(a_plan("{worker: 1}"), analysis, [], **more)


def printed(
    time: Mapping[str, float], faults: Sequence[FaultResult] = (), **numbers: Any
) -> list[str]:
    analysis = Analysis(
        "succeeded", "worker-0 finished", 10.0, **{"tasks": {}, **numbers}, time=time, faults=faults
    )
    return rows_of(partial(print_summary, a_summary(analysis)))


@pytest.mark.parametrize(
    ("time", "final_step", "line"),
    [
        (
            {"startup": 3.0, "productive": 2.0, "wasted": 0.0, "recovery": 5.0},
            None,
            ["time: productive 20%, recovery 50%, startup 30%"],
        ),
        ({"productive": 9.9, "eval": 0.1}, None, ["time: productive 99%, eval 1%"]),
        ({"productive": 9.91, "eval": 0.09}, None, ["time: productive 99%"]),
        ({"productive": 0.0, "other": 0.0}, None, []),
        ({"productive": 0.0, "other": 10.0}, None, ["time: no step reported 100%"]),
        ({"productive": 0.0, "other": 10.0}, 1, ["time: other 100%"]),
    ],
)
def test_the_time_is_one_line_of_what_took_a_hundredth_or_more(
    time: Mapping[str, float], final_step: int | None, line: list[str]
) -> None:
    lines = printed(time, final_step=final_step)
    assert [found for found in lines if found.startswith("time")] == line


def test_the_status_of_a_run_has_tables_of_what_it_has() -> None:
    task = {"name": "ps-0", "state": "running", "step": 7, "restarts": 1, "exit_code": 137}
    status: dict[str, Any] = {"run_id": "run-1", "state": "up", "engine": "docker", "tasks": [task]}
    fault = {"id": "f1", "kind": "kill", "target": "ps-0", "stage": "applied"}
    port = {"name": "ps-0", "port": 80, "address": "here:81"}
    rows = [
        ["run-1:", "up,", "on", "the", "docker", "engine"],
        *(["task", "state", "step", "restarts", "exit"], ["ps-0", "running", "7", "1", "137"]),
        *(["fault", "kind", "target", "stage"], ["f1", "kill", "ps-0", "applied"]),
        *(["helper", "state", "exit"], ["events", "exited", "3"]),
        *(["task", "port", "is", "at"], ["ps-0", "80", "here:81"]),
    ]
    status |= {"faults": [], "helpers": {}}
    assert [line.split() for line in rows_of(partial(print_status, status))] == rows[:3]
    coloured = on_a_terminal(partial(print_status, status), 120)
    assert coloured.startswith("run-1: up, on the docker engine\n")  # no word is picked out
    helpers = {"events": {"state": "exited", "exit_code": 3}}
    status |= {"faults": [fault], "helpers": helpers, "ports": [port]}
    assert [line.split() for line in rows_of(partial(print_status, status))] == rows


# --- Text from elsewhere is shown as it is -------------------------------------------------------


def test_last_words_are_printed_whatever_they_are() -> None:
    analysis = Analysis("failed", "worker-0 failed", 1.0, tasks={}, time={})
    words = ("bad \udcff byte", "\x1b[2J\x1b]0;title\x07[bold]gone[/]")
    found = a_summary(analysis, explanation=Explanation(last_words={"worker-0": words}))
    end = JobEnd("failed", "worker-0 failed", "worker-0")
    result = Result(Path("/runs [a]/r"), end, analysis, [], found)
    utf_8 = io.BytesIO()  # and nothing else
    stream = io.TextIOWrapper(utf_8, encoding="utf-8", write_through=True)
    print_result(result, Console(file=stream, width=120), kept=True)
    text = utf_8.getvalue().decode()
    assert "  bad  byte\n  [bold]gone[/]\n" in text
    assert "\x1b" not in text
    assert text.count("/runs [a]/r") == 2


def test_the_target_of_a_fault_and_the_name_of_a_run_are_shown_as_they_were_written() -> None:
    pending = FaultResult("0", "partition", "[vw]orker-0 | worker-1", "pending")
    assert any("0: partition [vw]orker-0 | worker-1" in line for line in printed({}, [pending]))
    row = Listed("mwms [old]", "mwms", "", "docker", None, "succeeded", "ok")
    assert any("mwms [old]" in line for line in rows_of(partial(print_listing, [row])))


@pytest.mark.parametrize("width", [60, 79, 80, 100, 140])
def test_a_narrow_terminal_lists_shorter_ids_then_a_run_in_several_lines(width: int) -> None:
    """The scenario is the beginning of the run's name, and has no column."""
    run, figures = "quickstart-1123030334-bfd411", {"steps_per_second": 42.2, "goodput": 0.04}
    figures |= {"duration": 85.0, "lost_steps": 991}
    listed = Listed(run, "quickstart", "", "docker", 1.0, "interrupted", "unknown", figures)
    lines = rows_of(partial(print_listing, [listed]), width)
    words = " ".join(lines).split()
    assert "scenario" not in words
    assert {"interrupted", "unknown", "42.2", "4%", "991", "1m"} <= {*words}
    assert {"steps/s", "goodput", "lost", "took"} <= {*words}
    assert len(lines) == (3 if width < 79 else 2)
    assert (run in words) == (width not in (79, 80))
    assert max(map(len, lines)) <= width


# --- Whole tables ---------------------------------------------------------------------------------


def rows_of(print_it: Callable[[Console], None], width: int = 120) -> list[str]:
    """Return the lines that are printed, without lines of blanks and of dashes."""
    file = io.StringIO()
    print_it(Console(file=file, width=width))
    return [line for line in file.getvalue().splitlines() if line.strip(" ─")]


def test_a_listing_has_its_columns_in_order() -> None:
    figures = {"steps_per_second": 42.2, "goodput": 0.04, "lost_steps": 12, "duration": 85.0}
    one = Listed("other-1", "mwms", "a=1", "docker", 86400.0 * 40, "succeeded", "ok", figures)
    two = Listed("mwms-2", "mwms", "", "docker", None, "running", None, {})
    when = f"{datetime.fromtimestamp(86400.0 * 40):%m-%d %H:%M}"
    print_it = partial(print_listing, [one, two])
    lines = rows_of(print_it)
    assert [re.split(" {3,}", line.strip()) for line in lines] == [
        ["run", "scenario", "when", "outcome", "verdict", "steps/s", "goodput", "lost", "took"],
        ["other-1", "mwms a=1", when, "succeeded", "ok", "42.2", "4%", "12", "1m 25s"],
        ["mwms-2", "running"],
    ]


def test_only_runs_that_have_ended_have_a_verdict_in_a_list(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run-1", a_plan("{worker: 1}"), "", ManualClock())
    for state in ("running", "crashed"):
        _, row = rows_of(lambda c: print_runs([Record(writer.path)], {"run-1": 2}, c))
        assert row.split() == ["run-1", "test", "fake", state, "2"]
        writer.close()


def test_what_is_not_ok_comes_last_with_what_is_to_do() -> None:
    long = Finding("docker", "fatal", "it does not answer", "start [it]")
    found = [
        long,
        replace(long, what="netem", status="optional", advice="load it"),
        replace(long, what="gpus", status="ok", advice="", below="[a] more\n" + "x" * 150),
    ]
    assert rows_of(lambda console: print_findings(found, console)) == [
        " what        found",
        " gpus   ok   it does not answer",
        "optional netem: it does not answer",
        "  load it",
        "fatal docker: it does not answer",
        "  start [it]",
        "[a] more",
        "x" * 150,
    ]


def test_what_started_warm_and_where_the_report_is_are_said(tmp_path: Path) -> None:
    analysis = Analysis("succeeded", "", 1.0, tasks={}, time={})
    found = a_summary(analysis)
    sources = {"used": [{"source": "the bar", "tasks": ["a", "b"]}], "seen": []}
    for warm, said in ((["a"], "1 task started warm"), (["a", "b"], "2 tasks started warm")):
        lines = rows_of(partial(print_summary, {**found, "warm": warm, "step_sources": sources}))
        assert f"{said}: these times have no imports" in lines
        assert "steps: from the bar of a and b" in lines
    (tmp_path / HTML).touch()
    for folder, print_it, more in (
        (Path("/r"), print_result, []),
        (tmp_path, print_result, [f"Report: {tmp_path / HTML}"]),
        (Path("/r"), partial(print_result, kept=True), ["Kept; `emulate down /r` removes it."]),
    ):
        result = Result(folder, JobEnd("succeeded", ""), analysis, [], found)
        lines = on_a_terminal(partial(print_it, result), 200).splitlines()
        assert lines[lines.index(f"Record: {folder}") + 1 :] == more


# --- Lines of a run -------------------------------------------------------------------------------


class Closed(io.StringIO):
    """A stream whose reader has gone after a line."""

    def write(self, text: str) -> int:
        if self.getvalue():
            raise BrokenPipeError
        return super().write(text)


def test_a_run_is_followed_until_its_reader_has_gone() -> None:
    stream, given = Closed(), iter([("worker-0", "a"), ("x", "b"), ("x", "c"), ("x", "d")])
    LivePrinter(stream).follow(a_plan("{worker: 1}"), given)
    assert stream.getvalue() == "worker-0 | a\n"
    assert list(given) == [("x", "c"), ("x", "d")]


def test_a_terminal_has_the_names_in_colour_unless_it_or_the_user_says_no(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = a_plan("{worker: 11, ps: 1}", "helpers: {board: {command: [b]}}\n")
    for name, value, coloured in (("TERM", "xterm", True), ("TERM", "dumb", False),
                                  ("NO_COLOR", "1", False)):  # fmt: skip
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv(name, value)
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda: True)
        printer = LivePrinter(stream)
        printer.callbacks().planned(plan, Path("runs/r"))
        printer.follow(plan, [("worker-0", "a"), ("worker-10", "b"), ("other", "c")])
        lines = stream.getvalue().splitlines()
        assert len(lines) == 4 + len(plan.warnings)
        begin, end = ("\x1b[3{}m", "\x1b[0m") if coloured else ("", "")
        heads = (("worker-0  |", 6, "a"), ("worker-10 |", 6, "b"), ("other     |", 7, "c"))
        assert lines[-3:] == [f"{begin.format(n)}{head}{end} {text}" for head, n, text in heads]
        roles = "11 workers, 1 ps (helpers: board)"
        assert f"run-1: {roles} on the fake engine; record in runs/r" in lines[0]
        notes = [re.sub(r"\x1b\[\d+m", "", line) for line in lines[1:-3]]
        assert notes == [f"emulate   | note: {warning}" for warning in plan.warnings]


def test_a_helper_that_failed_is_a_note_below_the_figures() -> None:
    failed = HelperResult("failed", 3, "", ("starting", "[no] disk"))
    refused = HelperResult("failed", None, "it can't start", ())
    helpers = {"board": HelperResult("stopped", 143), "sink": failed, "web": refused}
    assert [line for line in printed({}, helpers=helpers) if line.startswith("note:")] == [
        "note: the helper sink failed with exit code 3, which does not decide the job: [no] disk",
        "note: the helper web failed, which does not decide the job: it can't start",
    ]
