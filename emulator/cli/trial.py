"""`try`: whether one's own program survives a preemption, without a scenario."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emulator.cli.options import (
    Out,
    OwnFramework,
    OwnSource,
    OwnSteps,
    OwnTimeout,
    OwnWorkers,
    Python,
    console,
    note,
    perhaps_unread,
    read_fault,
)
from emulator.cli.up import RunId
from emulator.errors import UsageError, printable

if TYPE_CHECKING:
    from rich.console import Console

    from emulator.results import Result, RunCallbacks
    from emulator.trial.command import Program
    from emulator.trial.perform import Trial

COMMAND = "emulate try -- python train.py"
EXAMPLE = r"--steps=iter (?P<step>\d+)"


def try_(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="What runs, with its arguments."),
    ] = None,
    workers: OwnWorkers = None,
    framework: OwnFramework = None,
    engine: Annotated[
        str | None, typer.Option(help="process or docker [default: process; docker with --image]")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="The image in which it runs, with Docker.")
    ] = None,
    python: Python = None,
    source: OwnSource = None,
    shared: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="A folder of the program that outlives a worker."),
    ] = None,
    steps: OwnSteps = None,
    like: Annotated[
        str | None,
        typer.Option(metavar="PRESET", help="As this platform does it, such as ec2-spot or gke."),
    ] = None,
    fault: Annotated[
        str | None,
        typer.Option(metavar="FAULT", help="In place of the preemptions, as in a scenario."),
    ] = None,
    timeout: OwnTimeout = None,
    out: Out = Path("runs"),
    run_id: RunId = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="All that the program prints.")
    ] = False,
) -> None:
    """Try whether a program of your own survives a preemption.

    It runs once without a fault, for half a minute at most. Then each worker is preempted, in a run
    of its own, and comes back on a fresh disk. Each runs in a copy of the folder. The scenario is
    written to emulate-try.yaml, to go on with.

    Exit codes: 0 survived, 1 not, 2 bad usage, 3 it can't be said, 4 the emulator or the engine
    failed, 130 interrupted.
    """
    from emulator.planning.requested import RunOptions
    from emulator.trial.perform import perform_trial
    from emulator.trial.question import path_for, question_of

    if fault is not None and like is not None:
        raise UsageError("--like and --fault are two ways to say the fault: write `like` into it.")
    chosen = engine or ("docker" if image else "process")
    question = question_of(
        command or [],
        path_for(python) if chosen == "process" else None,
        workers=workers,
        framework=None if framework is None else framework.value,
        source=source,
        timeout=timeout,
        shared=shared,
        image=image,
        steps=steps,
        fault=None if fault is None else _fault(fault),
        like=like,
        silent=chosen != "process",
    )
    program = question.program
    many = "1 worker" if program.workers == 1 else f"{program.workers} workers"
    about = f"from {program.imported}" if program.imported else "no framework is imported"
    note(f"{many} ({program.why}), framework {program.framework} ({about}), on {chosen}")
    options = RunOptions(out=out, run_id=run_id, python=python)
    trial = perform_trial(question, Path.cwd(), chosen, options, _Shown(verbose=verbose), note)
    with perhaps_unread():
        code = _print(trial, program, console())
    raise typer.Exit(code)


def _fault(text: str) -> Mapping[str, Any]:
    """Return a fault with its moment. Raises UsageError."""
    example = "For example: --fault '{kill: worker-0, at: {step: 50}}'."
    found = read_fault(text, example)
    if "at" not in found:
        raise UsageError(f"--fault {text!r} is no fault with its moment.", example)
    return found


class _Shown:
    """Shows a run while it is under way."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose

    @contextlib.contextmanager
    def __call__(self) -> Iterator[RunCallbacks]:
        from emulator.report.live import view

        with view(quiet=not self._verbose and not sys.stdout.isatty()) as live:
            yield live.callbacks()


def _print(trial: Trial, program: Program, target: Console) -> int:
    """Print the answer; return the exit code."""
    from rich.text import Text

    from emulator.trial.answer import RANK, WORDS, in_sentences

    def say(text: str) -> None:
        for line in text.splitlines():
            target.print(Text(printable(line)), soft_wrap=not target.is_terminal)

    if trial.interrupted:
        return 130
    if trial.seen is None:
        say(_failed(trial.plain))
        target.out(f"Report: {_page(trial.plain)}", highlight=False)
        return 3
    if not trial.runs:
        say(
            f"It ended after {trial.seen.lasted:.1f} s, too soon to be preempted: give it more "
            "steps."
        )
        return 3
    for answer, _ in trial.runs if len(trial.runs) > 1 else ():
        say(f"{answer.target} {answer.what}   {WORDS[answer.state]}")
    worst, result = max(trial.runs, key=lambda run: RANK.index(run[0].state))
    for sentence in in_sentences(worst):
        say(sentence)
    if trial.likely is not None:
        say(
            f"Steps were read from lines such as {trial.likely.line!r}. If these are none: "
            f"{shlex.quote(EXAMPLE)}"
        )
    elif not trial.seen.reads_steps:
        when = "before its end " if trial.seen.is_late else ""
        begin = f"No step was read {when}of what it prints."
        if program.is_lightning:
            say(f"{begin} Lightning prints none where rich is installed: add a TQDMProgressBar.")
        else:
            say(f"{begin} Say how it prints one: {shlex.quote(EXAMPLE)}")
    if trial.blind:
        say(f"What it wrote outside its folder was not seen: {trial.blind}")
    target.out(f"Report:   {_page(result)}", highlight=False)
    if trial.scenario is not None:
        say(f"Scenario: {trial.scenario.name}; go on with `emulate up {trial.scenario.name}`")
    else:
        say(f"Scenario: not written: {trial.unwritten}")
    return {"survived": 0, "unknown": 3}.get(worst.state, 1)


def _page(result: Result) -> str:
    from emulator.report.data import HTML

    return (result.folder / HTML).absolute().as_uri()


def _failed(result: Result) -> str:
    """Return why the program failed without a fault, with its last words and what is known."""
    words = next(iter(result.last_words.values()), ())
    hints = [f"{one['advice']}" for one in result.summary["hints"]]
    said = "".join(f"  {line}\n" for line in words)
    begin = f"It fails without a fault: {result.end.reason.rstrip('.')}.\n{said}"
    if not hints and any("EOFError" in line for line in words):
        hints = ["It asks for input, and a task has no terminal: give it options instead."]
    if not hints and any("FileNotFoundError" in line for line in words):
        hints = [
            "It runs on a copy of its folder, without what .gitignore names. Name what it needs by "
            "an absolute path, or copy another folder with --source."
        ]
    return begin + "\n".join(hints)
