"""What a user sees of `emulate up` on a terminal: a real pseudo-terminal, read by an emulator."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
from rich.console import Console

import emulator
from emulator.analysis.run_state import RunState
from emulator.metrics.samples import Sample
from emulator.record.reader import Record
from emulator.record.writer import RunWriter
from emulator.report import live
from emulator.report.live import BACKLOG, LiveView, NotebookView, in_notebook
from emulator.report.step_line import in_words
from emulator.runtime.clock import ManualClock
from tests.analysis.test_failed_output import ONE_DNN
from tests.conftest import Emulate, own
from tests.histories import a_plan, happened, history, step
from tests.report.test_progress import Watched
from tests.terminals import Terminal

# Makes steps until the file `over` is in the shared folder, by a thousand once `far` is there; a
# replacement continues from the last step.
JOB = r"""
trap 'exit 143' TERM
n=$(cat "$EMULATOR_SHARED/$EMULATOR_TASK" 2> /dev/null || echo 0)
while [ ! -e "$EMULATOR_SHARED/over" ]; do
    [ ! -e "$EMULATOR_SHARED/far" ] || n=$((n + 1000))
    n=$((n + 1)); echo $n > "$EMULATOR_SHARED/$EMULATOR_TASK"
    echo "{\"emulate\": \"step\", \"step\": $n}"; sleep 0.05
done
"""
FAULTS = """
restart: on-failure
faults:
  - {preempt: worker-1, at: {step: 20}, grace: 0s, down: 2s}
  - {pause: worker-0, at: {step: 90}, for: 1s}
expect: {final_step: 100}
"""
LASTING = """
restart: on-failure
faults:
  - {preempt: worker-1, at: {step: 20}, grace: 0s, down: 1h}
  - {pause: worker-0, at: {step: 90, task: worker-1}, for: 1h}
expect: {final_step: 400}
"""
"""Each lasts until the test heals it."""
RUN = own("view")

Up = Callable[..., Terminal]


def scenario(tmp_path: Path, job: str = JOB, extra: str = FAULTS, workers: int = 2) -> Path:
    path = tmp_path / "scenario.yaml"
    path.write_text(
        f"name: view\nframework: none\nimage: none\n"
        f"program: {{command: [sh, -c, {json.dumps(job)}]}}\n"
        f"cluster: {{worker: {workers}}}\nsuccess: all-workers\n{extra}"
    )
    return path


@pytest.fixture
def up(emulate: Emulate) -> Iterator[Up]:
    """`emulate up` in a terminal."""
    with contextlib.ExitStack() as terminals:

        def start(path: Path, *arguments: str, **terminal: Any) -> Terminal:
            command = [*emulate.command, "up", str(path), "--engine", "process"]
            command += ["--run-id", RUN, "--out", str(emulate.out), *arguments]
            return terminals.enter_context(contextlib.closing(Terminal(command, **terminal)))

        yield start


def end_of(emulate: Emulate) -> None:
    (emulate.out / RUN / "shared" / "over").touch()


def panel(shown: str) -> list[str]:
    """Return the lines of the panel; empty where there is none."""
    lines = shown.splitlines()
    heads = [n for n, line in enumerate(lines) if line.startswith("── ")]
    return lines[heads[-1] :] if heads else []


def row(shown: str, task: str) -> str:
    return next((line for line in panel(shown) if line.startswith(task + " ")), "")


def training(shown: str) -> bool:
    """Say whether both tasks have made steps, as the panel has it."""
    return all(re.match(r"\S+ +running +0 +\d+ +\d", row(shown, f"worker-{n}")) for n in (0, 1))


def finished(terminal: Terminal, code: int = 0, *, resized: bool = False) -> None:
    """Have the command end: the terminal is as it was, with the cursor where one types next.

    A picture that was under way when the terminal was `resized` may be left: it is of more lines
    than whoever drew it knows.
    """
    assert terminal.finish() == code, terminal.all
    assert resized or panel(terminal.all) == []
    assert not terminal.screen.cursor.hidden
    assert terminal.attributes == terminal.before
    assert terminal.screen.cursor.x == 0


# --- For real -----------------------------------------------------------------------------------


def test_tasks_progress_faults_and_usage_are_seen_and_leave_nothing_behind(
    up: Up, emulate: Emulate, tmp_path: Path
) -> None:
    path = scenario(tmp_path, extra=f"{LASTING}metrics: {{interval: 200ms}}\n")
    terminal = up(path, columns=100)
    terminal.see(training)
    terminal.see(
        lambda shown: "down" in row(shown, "worker-1"),
        re.compile(r"(?m)^task +state +restarts +step +steps/s +CPU +memory"),
        lambda shown: re.match(
            r"worker-0 +running +0 +\d+ .* \d\.\d\d +\d+ MiB", row(shown, "worker-0")
        ),
        re.compile(r"step \d+ of 400 ━+[╸╺]?─+ +\d+%  "),
        re.compile(r"fault 0: preempt worker-1  applied \d+s ago"),
        "fault 1: pause worker-0  waits for step 90",
    )
    with emulator.connect(RUN, emulate.out) as cluster:
        cluster.heal("0")
        terminal.see(
            "fault 0: preempt worker-1  healed",
            lambda shown: "running" in row(shown, "worker-1"),
        )
        terminal.see(re.compile(r"about \d.* left"))
        terminal.see(lambda shown: "running (pause)" in row(shown, "worker-0"))
        cluster.heal("1")
        (emulate.out / RUN / "shared" / "far").touch()
        waiting = r"finishing: waiting for worker-0, worker-1 to exit \(\d+s\)  step \d+ of 400"
        terminal.see(re.compile(waiting))
    end_of(emulate)
    finished(terminal)
    assert "waits for" not in terminal.all
    lines = terminal.all.splitlines()
    assert any(line.startswith("Record: ") for line in lines)
    assert any(re.match(r" *worker-1 +succeeded +0", line) for line in lines)
    # Every line that was printed stands above, once and in order.
    for task in ("worker-0", "worker-1"):
        above = [line for line in lines if line.startswith(f"{task} | ")]
        assert above == [
            f"{task} | {in_words(line)}" for line in Record(emulate.out / RUN).log(task)
        ]


def test_ctrl_c_ends_the_run_and_gives_the_terminal_back(
    up: Up, emulate: Emulate, tmp_path: Path
) -> None:
    terminal = up(scenario(tmp_path))
    terminal.see(training)
    assert terminal.screen.cursor.hidden
    terminal.press("\x03")
    finished(terminal, 130)
    assert "job interrupted: stopped by SIGINT" in terminal.all


def test_a_run_that_fails_gives_the_terminal_back(up: Up, tmp_path: Path) -> None:
    terminal = up(scenario(tmp_path, "echo no data; exit 9", "restart: never\n"))
    finished(terminal, 1)
    assert re.search(r"worker-[01] \| no data", terminal.all)


@pytest.mark.parametrize(("columns", "rows"), [(40, 15), (80, 24), (120, 40), (20, 5)])
def test_it_fits_whatever_the_terminal_is(
    up: Up, emulate: Emulate, tmp_path: Path, columns: int, rows: int
) -> None:
    terminal = up(scenario(tmp_path), columns=columns, rows=rows)
    shown = terminal.see(lambda shown: any("finishing" in line for line in panel(shown)))
    # At most half of the screen, each line of it one line.
    assert 2 <= len(panel(shown)) <= rows // 2
    assert all(len(line) < columns for line in panel(shown))
    end_of(emulate)
    finished(terminal)


def test_a_terminal_that_is_made_smaller_is_followed(
    up: Up, emulate: Emulate, tmp_path: Path
) -> None:
    fault = "faults: [{pause: worker-0, at: {step: 500}, for: 1s}]\nexpect: {final_step: 500}\n"
    terminal = up(scenario(tmp_path, extra=fault), columns=120, rows=40)
    terminal.see(training, "fault 0: pause worker-0  waits for step 500")
    terminal.resize(60, 20)
    (emulate.out / RUN / "shared" / "far").touch()
    shown = terminal.see("finishing", "fault 0: pause worker-0  healed")
    assert all(len(line) < 60 for line in panel(shown))
    end_of(emulate)
    finished(terminal, resized=True)
    assert panel(terminal.shown) == []


@pytest.mark.parametrize(
    ("arguments", "env"), [(["--plain"], {}), ([], {"TERM": "dumb"})], ids=["plain", "dumb"]
)
def test_where_it_is_not_wanted_there_are_lines_alone(
    up: Up, emulate: Emulate, tmp_path: Path, arguments: list[str], env: dict[str, str]
) -> None:
    terminal = up(scenario(tmp_path, extra=""), *arguments, env=env)
    terminal.see(re.compile(r"worker-1 \| step 5\b"))
    end_of(emulate)
    assert terminal.finish() == 0
    assert panel(terminal.all) == []
    # Nothing but colours, and those not where there are none.
    found = set(re.findall(rb"\x1b\[[0-9;?]*([A-Za-z])", terminal.raw))
    assert found == (set() if env else {b"m"})


def test_no_colour_means_none(up: Up, emulate: Emulate, tmp_path: Path) -> None:
    terminal = up(scenario(tmp_path), env={"NO_COLOR": "1"})
    terminal.see(training)
    end_of(emulate)
    terminal.finish()
    found = re.findall(rb"\x1b\[([0-9;]*)m", terminal.raw)
    assert set(b";".join(found).split(b";")) <= {b"", b"0", b"1", b"2"}  # none, bold, dim


def test_what_a_program_does_to_a_terminal_does_not_tear_the_panel(
    up: Up, emulate: Emulate, tmp_path: Path
) -> None:
    """A progress bar, a cleared screen, a cursor that is moved: the last thing of a line shows."""
    mess = r"printf '1/9 [=>..]\r2/9 [==>.]\n\033[2J\033[5Ahello\033[31mred\n\033]0;title\007x\n'"
    terminal = up(scenario(tmp_path, mess + JOB, extra=""))
    terminal.see(training, "no final step is expected", lambda shown: len(panel(shown)) == 5)
    end_of(emulate)
    assert terminal.finish() == 0
    assert {"worker-0 | 2/9 [==>.]", "worker-0 | hellored", "worker-1 | x"} <= {
        *terminal.all.splitlines()
    }


# --- The view alone -------------------------------------------------------------------------------


class Broken(io.StringIO):
    """A terminal that raises an error on each write."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def write(self, text: str) -> int:
        raise self._error


def a_view(file: IO[str]) -> tuple[LiveView, io.StringIO]:
    """Return a view on a terminal, and where plain lines go."""
    plain = io.StringIO()
    return LiveView(Console(file=file, force_terminal=True, width=80, height=24), plain), plain


def begin(view: LiveView, folder: Path) -> None:
    plan = a_plan("{worker: 2}")
    RunWriter(folder, plan, "", ManualClock()).close()
    view.callbacks().planned(plan, folder)


def run(view: LiveView, folder: Path) -> None:
    """Have it show a short run."""
    begin(view, folder)
    callbacks = view.callbacks()
    for entry in history([happened(0, "run"), step(1, "worker-0", 1), step(2, "worker-0", 2)]):
        callbacks.entry(entry)
    callbacks.lines([("worker-0", "hello")])
    callbacks.sample(Sample(2.0, 1002.0, {}))
    view.close()


def test_a_closed_terminal_does_not_end_the_run(tmp_path: Path) -> None:
    view, _ = a_view(Broken(OSError("Input/output error")))
    run(view, tmp_path / "run-1")
    callbacks = view.callbacks()
    for _ in range(BACKLOG * 3):
        callbacks.lines([("worker-0", "more")])
        callbacks.sample(Sample(2.0, 1002.0, {}))
    assert len(view._queue) <= BACKLOG + 4  # and nothing piles up


def test_the_panel_has_all_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = RunState(a_plan("{worker: 2}"))
    monkeypatch.setattr(live, "RunState", lambda plan: state)
    view, _ = a_view(io.StringIO())
    run(view, tmp_path / "run-1")
    assert (state.step, state.sampled, list(state.lines)) == (2, 2.0, [("worker-0", "hello")])
    assert 2 < state.t < live.now(state) < time.time()
    assert live.now(RunState(a_plan("{worker: 2}"))) == 0


def test_a_failing_view_falls_back_to_plain_lines(tmp_path: Path) -> None:
    view, plain = a_view(Broken(ZeroDivisionError("oops")))
    run(view, tmp_path / "run-1")
    assert "the live view has failed (ZeroDivisionError('oops')); plain lines" in plain.getvalue()
    assert "worker-0 | hello" in plain.getvalue()


def test_lines_printed_too_fast_are_counted_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "IDLE", 3600)
    file = Watched()
    view, _ = a_view(file)
    for n in range(BACKLOG + 7):
        view.callbacks().lines([("worker-0", f"line {n}")])
    begin(view, tmp_path / "run-1")
    told = "7 lines were printed too fast to be shown; they are in the logs"
    assert file.shows(told)
    view.callbacks().lines([("worker-0", ONE_DNN), ("worker-0", "hello")])
    assert file.shows("hello")  # and was woken for that
    view.close()  # after it has painted once more
    assert f"line {BACKLOG - 1}\n" in file.getvalue()
    assert f"line {BACKLOG}\n" not in file.getvalue()
    assert "oneDNN" not in file.getvalue()  # what every start prints
    assert file.getvalue().count(told) == file.getvalue().count("too fast") == 1


# --- In a notebook --------------------------------------------------------------------------------


def test_a_cell_shows_what_is_built_and_then_the_panel_at_each_update(tmp_path: Path) -> None:
    shown: list[str] = []
    display = SimpleNamespace(update=lambda data, raw: shown.append(data["text/html"]))
    view = NotebookView(display)
    view.callbacks().say("Step 1/2")
    run(view, tmp_path / "run-1")
    assert ["── " in html for html in shown[:3]] == [False, False, True]  # it begins with the run
    assert all("── " in html for html in shown[2:])
    assert ["Step 1/2" in html for html in shown[:2]] == [True, True]
    assert "worker-0 | hello" in shown[-1]


def test_a_notebook_is_a_shell_with_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    for shell, is_one in ((None, False), (SimpleNamespace(), False),
                          (SimpleNamespace(kernel="python3"), True)):  # fmt: skip
        ipython = SimpleNamespace(get_ipython=lambda shell=shell: shell)
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        assert in_notebook() == is_one
