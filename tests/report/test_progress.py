"""What is under way, and for how long."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from emulator.report.progress import Progress
from emulator.report.terminal import LivePrinter, QuietPrinter
from tests.analysis.test_boilerplate import ONE_DNN
from tests.histories import a_plan

PLAN = a_plan("{worker: 2}", "framework: tensorflow\n")


class Terminal(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.wrote = threading.Event()
        """A line with a time was written."""

    def write(self, text: str) -> int:
        count = super().write(text)
        if "s  " in text:
            self.wrote.set()
        return count

    def isatty(self) -> bool:
        return True


def test_the_line_has_the_time_and_is_never_wrapped() -> None:
    progress = Progress(io.StringIO())
    progress.latest = "Collecting tensorflow\x1b[2J"
    assert progress.line(75.4, 80) == "1m 15s  Collecting tensorflow"
    assert progress.line(75.4, 20) == "1m 15s  Collecting"


def test_a_terminal_shows_what_is_under_way_and_forgets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    progress = Progress(stream)
    progress.begin("step 2")
    assert stream.wrote.wait(60)
    progress.end()
    written = stream.getvalue()
    assert "step 2" in written
    assert written.endswith("\r\x1b[K")
    progress.end()
    assert stream.getvalue() == written


def test_nothing_is_shown_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    progress.begin("step 2")
    progress.end()
    assert stream.getvalue() == ""


# --- What is printed ----------------------------------------------------------------------------


RUN, HELLO, NOISE = "run-1: 2 workers on ", "hello", ONE_DNN[:20]
STEP, DETAIL, LEFT_OUT = "cpu: Step 1/2", "  Collecting tensorf", "what TensorFlow prin"


@pytest.mark.parametrize(
    ("printer", "expected"),
    [
        # What every start prints is said once and left out;
        (LivePrinter, [STEP, RUN, LEFT_OUT, HELLO]),
        # everything is printed, or only what the emulator does, where that is wanted.
        (partial(LivePrinter, verbose=True), [STEP, DETAIL, RUN, NOISE, NOISE, HELLO]),
        (QuietPrinter, [STEP]),
    ],
)
def test_what_is_printed_of_an_image_that_is_built_and_of_lines_of_two_tasks(
    printer: Callable[[io.StringIO], LivePrinter], expected: list[str]
) -> None:
    stream = io.StringIO()
    with printer(stream) as shown:
        callbacks = shown.callbacks()
        callbacks.say("cpu: Step 1/2")
        callbacks.say("  Collecting tensorflow")
        callbacks.planned(PLAN, Path("runs/run-1"))
        callbacks.lines([("worker-0", ONE_DNN), ("worker-1", ONE_DNN), ("worker-0", "hello")])
    lines = stream.getvalue().splitlines()
    assert [line.partition("| ")[2][:20] for line in lines] == expected


def test_a_run_begins_with_what_starts_before_what() -> None:
    plan = a_plan("{ingest: {before: training, command: [b]}, worker: 2}")
    stream = io.StringIO()
    LivePrinter(stream).callbacks().planned(plan, Path("runs/run-1"))
    roles = "1 ingest before training, 2 workers"
    assert f"run-1: {roles} on the fake engine; record in runs/run-1" in stream.getvalue()
