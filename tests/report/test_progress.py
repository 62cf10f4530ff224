"""What is under way, and for how long."""

from __future__ import annotations

import io
import os
import re
import sys
import termios
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from emulator.report.live import LivePrinter, QuietPrinter
from emulator.report.progress import Progress, under_way
from tests.analysis.test_failed_output import ONE_DNN
from tests.histories import a_plan, happened, step

PLAN = a_plan("{worker: 2}", "framework: tensorflow\n")


class Watched(io.TextIOWrapper):
    """A terminal of which is read what was flushed, as wide as the one of a device."""

    def __init__(self, device: int = -1) -> None:
        self.flushed, self.device, self.heard = io.BytesIO(), device, ""
        self.awaited, self.until = ("", threading.Event()), threading.Event()
        """A text, which is not written before `until`."""
        self.until.set()
        super().__init__(self.flushed, "utf-8", newline="")

    def write(self, text: str) -> int:
        self.heard += text
        if self.awaited[0] in self.heard:
            self.awaited[1].set()
            self.until.wait(60)
        return super().write(text)

    def shows(self, text: str) -> bool:
        """Say whether a text is written, after waiting for it."""
        self.awaited = text, threading.Event()
        return text in self.heard or self.awaited[1].wait(60)

    def getvalue(self) -> str:
        return self.flushed.getvalue().decode()

    def fileno(self) -> int:
        return self.device

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("columns", "cells"), [(None, 79), (0, 79), (20, 19)])
def test_a_terminal_shows_what_is_under_way_and_forgets_it(
    monkeypatch: pytest.MonkeyPatch, columns: int | None, cells: int
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    other, device = os.openpty()
    termios.tcsetwinsize(device, (24, columns or 0))
    stream = Watched(-1 if columns is None else device)
    progress = Progress(stream)
    progress.begin("step 2 " + "x" * 90)
    stream.until = progress._ending
    assert stream.shows("s  ")
    progress.end()
    written = stream.getvalue()
    assert re.fullmatch(r"(\r\x1b\[K[0-9.]+s  step 2 x+)+\r\x1b\[K", written)
    assert {len(line) for line in written.split("\r\x1b[K")} == {0, cells}
    progress.end()
    assert stream.getvalue() == written
    os.close(other)
    os.close(device)


@pytest.mark.parametrize("printer", [LivePrinter, QuietPrinter])
def test_the_latest_line_of_a_build_is_what_is_under_way_until_the_next_step(
    monkeypatch: pytest.MonkeyPatch, printer: type[LivePrinter]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Watched()
    with printer(stream) as shown:
        say = shown.callbacks().say
        say("cpu: Step 1/2")
        for text, latest in (
            ("  ---> 12ab", ""),
            ("  Removing intermediate container 12ab", ""),
            ("  Collecting torch ", "Collecting torch"),
            ("cpu: Step 2/2", ""),
        ):
            say(text)
            assert text.startswith("  ") or f"{text}\n" in stream.getvalue()
            assert shown._progress.latest == latest
            assert shown._progress._thread is not None
        shown.callbacks().planned(PLAN, Path("runs/run-1"))
        assert shown._progress._thread is None
        say("cpu: Step 3/3")
        assert (shown._progress._thread is None) == (printer is LivePrinter)
    assert shown._progress._thread is None
    assert "---> 12ab" not in stream.getvalue()


@pytest.mark.parametrize(
    ("term", "stream"),
    [("dumb", Watched()), ("unknown", Watched()), (None, Watched()), ("xterm", io.StringIO())],
)
def test_nothing_is_shown_where_there_is_no_terminal_or_its_cursor_can_not_be_moved(
    monkeypatch: pytest.MonkeyPatch, term: str | None, stream: Watched | io.StringIO
) -> None:
    monkeypatch.delenv("TERM", raising=False)
    if term is not None:
        monkeypatch.setenv("TERM", term)
    progress = Progress(stream)
    progress.begin("step 2")
    assert progress._thread is None
    progress.end()
    assert stream.getvalue() == ""


def test_a_block_shows_its_text_as_long_as_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream := Watched())
    with under_way("starting"):
        assert stream.shows("s  ")
    assert re.fullmatch(r"(\r\x1b\[K0\.\d+s  starting)+\r\x1b\[K", stream.getvalue())


# --- What is printed ----------------------------------------------------------------------------


RUN, HELLO, NOISE = "run-1: 2 workers on ", "hello", ONE_DNN[:20]
EVENT = "2.00s: all tasks are"
STEP, DETAIL, LEFT_OUT = "cpu: Step 1/2", "  Collecting tensorf", "what TensorFlow prin"


@pytest.mark.parametrize(
    ("printer", "expected"),
    [
        # What every start prints is said once and left out;
        (LivePrinter, [STEP, RUN, EVENT, LEFT_OUT, HELLO]),
        # everything is printed, or only what the emulator does, where that is wanted.
        (partial(LivePrinter, verbose=True), [STEP, DETAIL, RUN, EVENT, NOISE, NOISE, HELLO]),
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
        callbacks.entry(happened(2, "all-running"))
        callbacks.entry(step(3, "worker-0", 1))
        callbacks.lines([("worker-0", ONE_DNN), ("worker-1", ONE_DNN), ("worker-0", "hello")])
    lines = stream.getvalue().splitlines()
    assert [line.partition("| ")[2][:20] for line in lines] == expected
