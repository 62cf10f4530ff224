"""`sweep`: a fault at each of many moments."""

from __future__ import annotations

import contextlib
import time
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
    ScenarioFile,
    Sets,
    WhichEngine,
    additions,
    complete_scenarios,
    console,
    note,
    perhaps_unread,
    print_json,
    read_fault,
    requested,
)
from emulator.cli.up import RunId, Seed, Warm
from emulator.errors import EmulatorError, ProgramFailed, UsageError
from emulator.runtime.signals import Interruption

if TYPE_CHECKING:
    from rich.console import Console

    from emulator.planning.requested import RequestedScenario
    from emulator.record.reader import Record
    from emulator.search.points import Point, SweepResult
    from emulator.search.sweep import Sweep

OUT = "{out}"
"""In a command: the folder in which it is to save."""
MaxMoments = Annotated[
    int, typer.Option("--max-moments", min=1, help="Of more moments, so many, evenly spread.")
]
AtOnce = Annotated[int | None, typer.Option("--at-once", min=1, help="Runs side by side.")]


def sweep(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SCENARIO | -- COMMAND]",
            help="A scenario as for `up`, or what runs, with its arguments; in these, `out` in "
            "braces is the folder to save in.",
            autocompletion=complete_scenarios,
            show_default=False,
        ),
    ] = None,
    file: ScenarioFile = None,
    fault: Annotated[
        str | None,
        typer.Option(
            "--fault",
            metavar="FAULT",
            help="As in a scenario, such as: kill: worker-0. [default: a kill of each task that "
            "saves, and of all at once]",
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="MOMENTS",
            help="'every write of a save, each rename, steps 10..200 by 10, phase checkpoint'. "
            "[default: each call of a save]",
            show_default=False,
        ),
    ] = None,
    max_moments: MaxMoments = 100,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0.0, metavar="SHARE", help="What losses and results may differ by, as a share."
        ),
    ] = 1e-6,
    result: Annotated[
        str,
        typer.Option(metavar="GLOB", help="Compare these files alone.", show_default=False),
    ] = "",
    at_once: AtOnce = None,
    sets: Sets = None,
    engine: WhichEngine = "auto",
    out: Out = Path("runs"),
    seed: Seed = None,
    run_id: RunId = None,
    warm: Warm = False,
    json: Annotated[bool, typer.Option("--json", help="Each moment as data.")] = False,
    python: Python = None,
    images: Annotated[
        list[str] | None,
        typer.Option(
            "--image",
            metavar="[NAME=]REF",
            help="The image of a command, with Docker; of a manifest as for `up`.",
        ),
    ] = None,
    workers: OwnWorkers = None,
    framework: OwnFramework = None,
    source: OwnSource = None,
    steps: OwnSteps = None,
    timeout: OwnTimeout = None,
) -> None:
    """Kill a training at each call of a save, one by one.

    It says at which moments it went on from its newest save, and ended as it does without a fault:
    two runs without one come first. Other faults and moments can be asked for; those of a scenario
    are left out. The same command with the same --run-id goes on with a sweep that was stopped or
    killed.

    Exit codes: 0 all passed, 1 one did not, an expectation failed, or it fails without a fault, 2
    bad usage or scenario, 3 one could not be judged, 4 the emulator or the engine failed, 130
    interrupted.
    """
    of_command = {
        "workers": workers,
        "framework": None if framework is None else framework.value,
        "source": source,
        "steps": steps,
        "timeout": timeout,
    }
    is_command = len(words or ()) > 1
    if is_command:
        engine = ("docker" if images else "process") if engine == "auto" else engine
        image = images[-1] if images else None
        changes = [*(sets or ()), *([] if seed is None else [f"seed={seed}"])]
        asked = _of_command(words or [], engine, python, changes, image=image, **of_command)
    else:
        if given := next((key for key, value in of_command.items() if value is not None), ""):
            raise UsageError(
                f"--{given} is for a command; a scenario has it as a key.",
                "For example: emulate sweep --workers 2 -- python train.py.",
            )
        scenario = Path(words[0]) if words else None
        asked = requested(scenario, file, sets, seed, additions(images, None, None))
    asked.scenario  # noqa: B018  its mistakes come before those of the moments
    from emulator.engines import choose
    from emulator.planning.plan import new_run_id
    from emulator.search.moments import EACH_CALL, joined
    from emulator.search.page import write
    from emulator.search.question import Question
    from emulator.search.sweep import Sweep

    chosen = None if fault is None else fault_of(fault)
    moments = joined(at or []) or EACH_CALL
    question = Question(asked, chosen, moments, max_moments, tolerance, result)
    folder = out / (run_id or new_run_id(f"{asked.scenario.name}-sweep"))
    if engine == "auto":
        with contextlib.closing(choose(engine, note)) as there:
            engine = there.name
    options: dict[str, Any] = {"warm": warm, "at_once": at_once, "python": python, "say": note}
    if is_command:
        options["refuse"] = _Saves(named=any(OUT in word for word in words or ()))
    swept = _performed(Sweep.open(question, engine, folder, done=_Progress(), **options), folder)
    page = write(swept)
    with perhaps_unread():
        print_sweep(swept, folder / page.name, console(stderr=json))
        if json:
            print_json(swept.as_data())
    raise typer.Exit(swept.exit_code)


def _of_command(
    words: list[str],
    engine: str,
    python: str | None,
    sets: list[str],
    **more: Any,  # noqa: ANN401  of Question
) -> RequestedScenario:
    """Return the scenario of a command; `more` are fields of its question."""
    from emulator.trial.question import path_for, question_of

    return question_of(
        [word.replace(OUT, f"${{shared}}/{SAVES}") for word in words],
        path_for(python) if engine == "process" else None,
        restarts=2,  # after the fault, and once more: what fails twice needs a person
        verb="sweep",
        **more,
    ).asked(Path.cwd(), (), *sets)


SAVES = "out"
"""The folder on the shared volume that a command saves to."""


def _performed(found: Sweep, folder: Path) -> SweepResult:
    """Perform a sweep; where it is stopped, say how to go on with it."""
    try:
        return found.perform()
    except (ProgramFailed, UsageError):
        raise  # and would again
    except (KeyboardInterrupt, Interruption, EmulatorError):
        if folder.exists():
            note(f"the same command with --run-id={folder.name} goes on with it")
        raise


class _Saves:
    """Looks where a command has saved, in its first run without a fault."""

    def __init__(self, *, named: bool) -> None:
        self._named = named

    def __call__(self, record: Record) -> None:
        from emulator.trial.answer import saved_outside

        run = str(record.path.resolve())
        if record.plan.engine == "process" and (outside := saved_outside(record.timeline, run)):
            raise UsageError(
                f"It saves outside its folder, such as {outside[0]}: all moments would go on from "
                "each other's saves.",
                f"Have it save to {OUT}, such as: emulate sweep -- python train.py --out {OUT}.",
            )
        if not self._named:
            from emulator.analysis.saves import saves_of

            saves = saves_of(record.timeline)[0]
            if saves:
                place = f"{saves[0].task}'s own disk" if saves[0].task else "the shared volume"
                note(f"it saves {saves[0].path} on {place}")


class _Progress:
    """Says of each moment what became of it, and how long the others take."""

    def __init__(self) -> None:
        self._count = 0
        self._first: float | None = None

    def __call__(self, point: Point, of: int) -> None:
        from emulator.search.points import said
        from emulator.search.sweep import about

        self._count += 1
        now = time.monotonic()
        left = ""
        if self._first is None:
            self._first = now
        elif self._count < of:
            each = (now - self._first) / (self._count - 1)
            left = f" (about {about(each * (of - self._count))} to go)"
        note(f"{self._count} of {of}{left}: {point.moment.words}: {said(point)}")


def print_sweep(result: SweepResult, page: Path, screen: Console) -> None:
    """Print what became of each moment, and where the page is."""
    from emulator.report.tables import print_table
    from emulator.search.page import table
    from emulator.validation.units import format_count

    print_table(screen, table(result))
    screen.out(result.figure, highlight=False)
    if result.left_out:
        left_out = format_count(result.left_out, "moment")
        screen.out(f"{left_out} left out between these (--max-moments).")
    for what in result.not_compared:
        screen.out(f"Not compared, since two runs without a fault differ: {what}", highlight=False)
    for word, path in result.kept.items():
        screen.out(f"{word}: emulate up {page.parent / path.name}", highlight=False)
    screen.out(f"Page: {page}", highlight=False)


def fault_of(text: str) -> dict[str, Any]:
    """Return a fault as it is written in a scenario. Raises UsageError."""
    found = read_fault(text, "For example: --fault '{preempt: worker-1, grace: 5s}'.")
    if "at" in found:
        raise UsageError("--fault has no `at`: a sweep sets it.", "Write the moments in --at.")
    return found
