"""`demo`: what the emulator is for, in a quarter of a minute, with nothing but the package."""

from __future__ import annotations

import contextlib
import difflib
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emulator.cli.options import Out, console, perhaps_unread
from emulator.cli.report import open_page
from emulator.cli.setup import write_all
from emulator.errors import EmulatorError
from emulator.runtime.bundled import ROOT

if TYPE_CHECKING:
    from emulator.planning.requested import RequestedScenario
    from emulator.record.events import Entry
    from emulator.results import Result, RunCallbacks

BUNDLED = ROOT / "scenarios" / "demo"
"""Where both programs and their scenarios are."""
PAIR = ("careless", "mended")
FOLDER = Path("emulate-demo")
"""Where its user gets a copy of them."""
PAGE = "compared.html"
"""The page of both runs, in the folder of the latter."""


def demo(
    tensorflow: Annotated[
        bool,
        typer.Option("--tensorflow", help="With TensorFlow on two workers, in Docker if it runs."),
    ] = False,
    out: Out = Path("runs"),
    open_: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
) -> None:
    """Watch a training lose a worker, with and without its work.

    Two workers in plain Python train on this machine, and one of them is preempted: first with a
    careless program, then with five of its lines mended. It takes about 12 seconds, and needs
    neither Docker nor a framework. Both programs and their scenarios are copied to emulate-demo/,
    to go on with.

    Exit codes: 0 the mended program survived, else those of `up`.
    """
    from emulator.planning.requested import RunOptions
    from emulator.report.live import QuietPrinter
    from emulator.session.launch import make_available, perform, read

    pair = [f"{name}-tensorflow" if tensorflow else name for name in PAIR]
    asked = [read(BUNDLED / f"{name}.yaml", [BUNDLED]) for name in pair]
    # Plain Python runs in whatever runs this; TensorFlow may be elsewhere, or in an image.
    options = RunOptions(out=out, python=None if tensorflow else sys.executable)
    watched = sys.stdout.isatty()
    terminal = console()
    results: list[Result] = []
    with QuietPrinter() as printer:
        say = printer.callbacks().say
        engine, _ = make_available(asked, None if tensorflow else "process", out, say)
        printer.close()
        for name, one in zip(PAIR, asked, strict=True):
            if watched:
                if results:
                    _print_difference(asked)
                terminal.out(f"{name}: two workers on the {engine} engine", highlight=False)
            with _ticks(watched=watched) as ticks:
                result = perform(one, engine, options, ticks.callbacks(printer.callbacks()))
            if result.outcome == "interrupted":
                raise typer.Exit(result.exit_code)
            results.append(result)
    if not watched:
        _print_difference(asked)
    with perhaps_unread():
        page = _print_end(results, pair)
    if open_:
        open_page(page)
    raise typer.Exit(results[-1].exit_code)


# --- While it runs --------------------------------------------------------------------------------


@dataclass
class Ticks:
    """Tells each phase of a run with one preemption when it begins."""

    tick: Callable[[str], None]
    doing: Callable[[str], None] = lambda words: None
    """Gets what is done meanwhile."""
    _reached: int = 0
    _struck: str = ""
    """The task that was preempted."""
    _waits_for_step: bool = True

    def callbacks(self, shown: RunCallbacks) -> RunCallbacks:
        """Return callbacks that tell them; what else is shown stays."""
        return replace(shown, entry=self.see, hurried=True)

    def see(self, entry: Entry) -> None:
        """Tell the phase that an event begins, if it begins one."""
        if words := self._phase(entry):
            self.tick(f"{entry.t:5.1f} s  {words}")

    def _phase(self, entry: Entry) -> str:
        from emulator.record import events

        match entry:
            case events.AllRunning():
                return "all workers run"
            case events.Step():
                first = entry.coalesced["first"] if entry.coalesced else entry.step
                self._reached = max(self._reached, entry.step)
                self.doing(f"step {entry.step}")
                if not self._waits_for_step:
                    return ""
                self._waits_for_step = False
                if not self._struck:
                    return "they train together"
                if first < self._reached / 2:
                    return f"the training begins again, at step {first}"
                return f"the training goes on at step {first}"
            case events.FaultEvent(stage="applied"):
                self._struck = entry.task
                return f"{entry.task} is preempted at step {self._reached}, and its disk is gone"
            case events.TaskRunning() if entry.task == self._struck:
                again, self._waits_for_step = self._waits_for_step, True
                return "all are started once more" if again else f"{entry.task} is back"
            case events.JobEnded(outcome="succeeded"):
                return f"step {self._reached} is reached"
            case events.JobEnded():
                return f"it {entry.outcome}: {entry.reason}"
        return ""


@contextlib.contextmanager
def _ticks(*, watched: bool) -> Iterator[Ticks]:
    """Show ticks on a terminal, with a line below them that says what is done meanwhile."""
    from emulator.report.progress import Progress

    progress = Progress()
    mark = "✓" if "utf" in (sys.stdout.encoding or "").lower() else "*"

    def tick(line: str) -> None:
        progress.end()
        console().print(f"  [green]{mark}[/green] {line}", highlight=False, soft_wrap=True)
        progress.begin()

    def doing(words: str) -> None:
        progress.latest = words

    try:
        yield Ticks(tick, doing) if watched else Ticks(lambda line: None)
    finally:
        progress.end()


# --- What it shows --------------------------------------------------------------------------------


def _print_difference(asked: Sequence[RequestedScenario]) -> None:
    careless, mended = (BUNDLED / one.scenario.program.command[-1] for one in asked)
    lines = list(difference(careless.read_text("utf-8"), mended.read_text("utf-8")))
    terminal = console()
    terminal.out(f"\n{mended.name} is {careless.name} with these lines changed:")
    for line in lines:
        style = "green" if line.startswith("+") else "red"
        terminal.print(f"  {line}", style=style, markup=False, highlight=False, soft_wrap=True)
    terminal.out("")


def difference(old: str, new: str) -> Iterator[str]:
    """Yield the lines of which one text has others, with `-` and `+` before them."""
    for line in difflib.ndiff(old.splitlines(), new.splitlines()):
        if line[0] in "+-":
            yield line


def contrast(result: Result) -> str:
    """Return what the preemption cost a run, in some words."""
    from emulator.analysis.why import interruptions, is_anew
    from emulator.record.reader import Record
    from emulator.validation.units import format_count, format_duration

    timeline = Record(result.folder).timeline
    blow = next(iter(interruptions(timeline)), None)
    if blow is None:
        return f"was not preempted: {result.end.reason}"
    what = "preempted" if (blow.step or 0) <= 0 else f"preempted at step {blow.step}"
    if blow.followed is None:
        return f"{what}, and made no step any more"
    back = max(blow.setbacks, key=lambda one: one.steps, default=None)
    lost = format_count(back.steps if back else 0, "step")
    if back is not None and is_anew(back, timeline):
        return f"{what}, began again at step {back.resumed + 1}: {lost} lost"
    return f"{what}, back in {format_duration(blow.followed - blow.at)}: {lost} lost"


def _print_end(results: Sequence[Result], pair: Sequence[str]) -> Path:
    """Print the contrast, where to look at it, and what to do next; return the page."""
    from emulator.record.reader import Record
    from emulator.report.files import write_comparison
    from emulator.report.terminal import print_why
    from emulator.session.variants import compare, judge_all

    terminal = console()
    told = [contrast(result) for result in results]
    width = max(map(len, told))
    if sys.stdout.isatty():
        terminal.out("")
    for name, words, result in zip(PAIR, told, results, strict=True):
        style = "red" if result.exit_code else "green"
        line = f"{name:<8}  {words:<{width}}  exit {result.exit_code}"
        terminal.print(line, style=style, markup=False, highlight=False, soft_wrap=True)
    terminal.out("")
    if results[-1].exit_code:
        print_why(results[-1].summary, terminal)
    judged = judge_all([Record(result.folder) for result in results])
    page = write_comparison(compare(judged), judged, results[-1].folder / PAGE).absolute()
    last = {
        "The page:": page.as_uri(),
        "Programs, scenarios:": _copied(pair),
        "Your own program:": "emulate try -- python train.py",
    }
    for title, words in last.items():
        terminal.out(f"{title:<20} {words}", highlight=False)
    return page


def _copied(pair: Sequence[str]) -> str:
    """Copy programs and scenarios to where they can be edited; return where, or why not."""
    names = [f"{name}.yaml" for name in pair] + [f"{n.replace('-', '_')}.py" for n in pair]
    files = {Path(name): (BUNDLED / name).read_bytes() for name in names}
    missing = {name: text for name, text in files.items() if not os.path.lexists(FOLDER / name)}
    try:
        write_all(FOLDER, missing)
    except EmulatorError as error:
        return error.message
    return shlex.quote(str(FOLDER))
