"""`emulate top` on a real pseudo-terminal, on runs in progress."""

from __future__ import annotations

import contextlib
import io
import re
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil
import pytest
from rich.console import Console

import emulator
from emulator.analysis.run_state import RunState
from emulator.api.client import Cluster
from emulator.errors import EmulatorError
from emulator.metrics.samples import Sample
from emulator.record.events import fields_of
from emulator.record.reader import Record
from emulator.record.writer import RunWriter
from emulator.report.top import _End, _follow, _pump, _Screen, print_snapshot
from emulator.runtime import signals
from emulator.runtime.clock import ManualClock
from emulator.validation.units import format_duration
from tests.conftest import Emulate, end, wait_for_line
from tests.histories import BEGAN, a_plan, began_again, ended, happened, history, job
from tests.report.test_expected import on_a_terminal
from tests.report.test_live_view import LASTING, RUN, end_of, panel, row, scenario
from tests.terminals import Terminal

ALTERNATE, BACK = b"\x1b[?1049h", b"\x1b[?1049l"
"""Into a terminal's other screen, and back to what was on it before."""

KILLED = f"Its emulator was killed; `emulate attach {RUN}` takes the run over."

Top = Callable[..., Terminal]


# --- In this process ------------------------------------------------------------------------------


def a_state(workers: int) -> RunState:
    state = RunState(a_plan(f"{{worker: {workers}}}"))
    names = [f"worker-{n}" for n in range(workers)]
    told = [*began_again(0, *names), *(ended(2, name, n) for n, name in enumerate(names[2:]))]
    for entry in history([happened(0, "run"), happened(1, "all-running"), *told]):
        state.entry(entry)
    for number in range(30):
        state.line("worker-1", f"line {number} \x1b[2J" + "x" * 90)
    return state


@pytest.mark.parametrize(
    ("height", "workers", "lines"),
    [
        *((3, 2, 0), (6, 2, 0), (7, 2, 1), (11, 2, 5), (12, 2, 6), (20, 2, 14), (40, 2, 30)),
        # Of twelve rows or more, a third is for lines, also where each task has a row of its own.
        *((11, 30, 0), (12, 30, 4), (15, 30, 5), (24, 30, 8)),
    ],
)
def test_the_screen_has_the_panel_a_hint_and_as_many_last_lines_as_fit(
    height: int, workers: int, lines: int
) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=40, height=height, force_terminal=True, color_system=None)
    console.print(_Screen(state := a_state(workers)), end="")
    shown = stream.getvalue().splitlines()
    assert len(shown) <= height
    # It is of now: the run began long ago.
    assert shown[0] == f"── running {format_duration(state.t)}  run-1 on fake"
    assert state.t > 1e9
    output = [line for line in shown if line.startswith("worker-1 | ")]
    assert output == [f"worker-1 | line {n} {'x' * 90}"[:40] for n in range(30 - lines, 30)]
    assert [line.strip() for line in shown if "q: leave" in line] == [
        "q: leave the view; the run continues"
    ]


def test_what_is_read_is_shown_until_the_end_or_a_key_that_quits() -> None:
    for items, finished in (
        (["x", "q"], False),
        (["Q"], False),
        (["\x03"], False),
        ([happened(0, "run"), Sample(1, BEGAN + 1, {}), ("worker-0", "hello"), _End(None)], True),
        ([happened(0, "run"), _End(EmulatorError("gone"))], True),
    ):
        state, queue = RunState(a_plan("{worker: 1}")), SimpleQueue[Any]()
        paints: list[int] = []
        for item in items:
            queue.put(item)
        assert _follow(state, queue, partial(paints.append, 1)) == finished
        assert paints == [1]
        assert list(state.lines) == [one for one in items if isinstance(one, tuple)]
        assert (state.sampled is not None) == any(isinstance(one, Sample) for one in items)
    assert state.began == BEGAN
    for broken, error in ((_End(EmulatorError("gone")), EmulatorError),
                          (signal.SIGTERM, signals.Interruption)):  # fmt: skip
        queue.put(broken)
        with pytest.raises(error):
            _follow(RunState(a_plan("{worker: 1}")), queue, lambda: None)


def test_items_end_with_the_stream_or_its_error() -> None:
    def breaks() -> Iterator[str]:
        yield "a"
        raise EmulatorError("gone")

    def fails() -> Iterator[str]:
        yield "a"
        raise ZeroDivisionError

    for source, last in ((breaks, "gone"), (lambda: ["a"], "None"), (fails, "None")):
        queue, closing = SimpleQueue[Any](), threading.Event()
        closing.set()
        _pump(source, queue, closing)
        assert queue.get() == "a"
        assert str(queue.get().error) == last
        assert queue.empty()
    with pytest.raises(ZeroDivisionError):
        _pump(fails, SimpleQueue[Any](), threading.Event())


def test_a_snapshot_of_a_run_that_is_over_says_how(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run-1", a_plan("{worker: 1}"), "", ManualClock())

    def says(last: str) -> bool:
        shown = on_a_terminal(partial(print_snapshot, Record(writer.path)), 90)
        return shown.splitlines()[-1] == last

    for text in ("Its emulator was killed; `emulate attach run-1` takes the run over.",
                 "run-1 has finished."):  # fmt: skip
        writer.close()
        assert says(text)
        writer = RunWriter.reopen(Record(writer.path), ManualClock())
        assert says("{2}no step yet{0}")
        writer.write(happened(0, "run"))
        writer.write(job(1))
    writer.close()


# --- On a terminal --------------------------------------------------------------------------------


@pytest.fixture
def top(emulate: Emulate) -> Iterator[Top]:
    with contextlib.ExitStack() as terminals:

        def start(*arguments: str) -> Terminal:
            command = [*emulate.command, "top", "--out", str(emulate.out), *arguments]
            terminal = Terminal(command, columns=100, rows=30)
            return terminals.enter_context(contextlib.closing(terminal))

        yield start


def in_background(emulate: Emulate, path: Path) -> Cluster:
    arguments = ("--engine", "process", "--run-id", RUN, "--out", emulate.out)
    done = emulate("up", "-d", path, *arguments)
    assert done.returncode == 0, done.stderr
    return emulator.connect(RUN, emulate.out)


@pytest.fixture
def running(emulate: Emulate, tmp_path: Path) -> Iterator[Cluster]:
    """A run in the background."""
    with in_background(emulate, scenario(tmp_path)) as cluster:
        yield cluster


def given_back(terminal: Terminal) -> bool:
    """Say whether the screen from before is back, with its cursor and its settings."""
    return (
        terminal.raw.rfind(BACK) > terminal.raw.rfind(ALTERNATE) >= 0
        and not terminal.screen.cursor.hidden
        and terminal.attributes == terminal.before
    )


def filled(shown: str) -> bool:
    """Say whether lines of the tasks reach down to the last row."""
    lines = shown.splitlines()
    step = r"worker-\d \| step \d+"
    return len(lines) == 30 and re.fullmatch(step, lines[-1]) is not None


def test_it_shows_the_run_with_its_last_lines_and_ends_with_it(
    top: Top, emulate: Emulate, tmp_path: Path
) -> None:
    running = in_background(emulate, scenario(tmp_path, extra=LASTING))
    terminal = top()
    terminal.see(
        lambda shown: "down" in row(shown, "worker-1"),
        re.compile(r"step \d+ of 400 ━+[╸╺]?─+ \d+%"),
        "fault 1: pause worker-0  waits for step 90",
        "q: leave the view; the run continues",
    )
    assert ALTERNATE in terminal.raw
    terminal.see(filled)
    running.heal("0")
    terminal.see(lambda shown: "running (pause)" in row(shown, "worker-0"))
    running.heal("1")
    terminal.see(lambda shown: re.search(r"\d\.\d\d +\d+ MiB", row(shown, "worker-1")))
    end_of(emulate)
    assert terminal.finish() == 0, terminal.all
    running.close()
    assert given_back(terminal)
    last = terminal.raw[terminal.raw.rfind(BACK) :].decode()
    assert "succeeded" in last
    assert last.rstrip().endswith(f"{RUN} has finished.")
    assert len(re.findall(r"ended \(0\)", last)) == 2


@pytest.mark.parametrize(("how", "code"), [("q", 0), ("\x03", 130), (signal.SIGTERM, 130)])
def test_leaving_does_not_touch_the_run(
    top: Top, running: Cluster, emulate: Emulate, how: str | signal.Signals, code: int
) -> None:
    terminal = top(RUN)
    terminal.see("q: leave")
    if isinstance(how, str):
        terminal.press(f"x{how}")
    else:
        terminal.process.send_signal(how)
    assert terminal.finish() == code
    assert ("emulate: interrupted by SIGTERM" in terminal.all) == (how == signal.SIGTERM)
    assert "Traceback" not in terminal.all
    assert given_back(terminal)
    assert running.status()["state"] == "running"
    end_of(emulate)
    running.wait()


def test_a_run_in_the_foreground_is_shown_from_another_terminal(
    top: Top, emulate: Emulate, tmp_path: Path
) -> None:
    arguments = ("--engine", "process", "--run-id", RUN, "--out", emulate.out)
    process = emulate.start("up", scenario(tmp_path), *arguments)
    wait_for_line(process, "worker-0 | step 3")
    terminal = top()
    terminal.see(lambda shown: "running" in row(shown, "worker-0"))
    end(process, signal.SIGINT)
    assert terminal.finish() == 0
    assert given_back(terminal)
    assert "interrupted" in terminal.shown


def test_without_a_terminal_it_is_a_snapshot(top: Top, running: Cluster, emulate: Emulate) -> None:
    running.wait_for(event="exit", task="worker-1")
    out = ("--out", emulate.out)
    done = emulate("top", *out)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert len(panel(done.stdout)) == 7
    assert re.match(r"worker-1 +(down|starting|running) +0 +\d+", row(done.stdout, "worker-1"))
    terminal = top("--once")
    assert terminal.finish() == 0
    assert ALTERNATE not in terminal.raw
    assert "worker-0" in terminal.shown
    end_of(emulate)
    running.wait()
    terminal = top(RUN)  # now on a terminal, of a finished run
    assert terminal.finish() == 0
    assert ALTERNATE not in terminal.raw
    assert "succeeded" in terminal.shown
    assert terminal.shown.endswith(f"{RUN} has finished.")


def test_a_run_whose_emulator_was_killed_says_so(
    top: Top, running: Cluster, emulate: Emulate
) -> None:
    terminal = top()
    terminal.see("worker-0  running")  # its history has been read
    supervisor = psutil.Process(int(fields_of(running.wait_for(event="run"))["pid"]))
    supervisor.kill()
    psutil.wait_procs([supervisor], timeout=300)
    assert terminal.finish() == 0
    assert given_back(terminal)
    assert KILLED in terminal.all
    done = emulate("top", RUN, "--out", emulate.out)
    assert done.returncode == 0
    assert KILLED in done.stdout
