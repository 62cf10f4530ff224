"""`sweep`: a fault at each of many moments."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emulator.cli.options import (
    Images,
    Out,
    ScenarioArgument,
    ScenarioFile,
    Sets,
    WhichEngine,
    additions,
    console,
    note,
    perhaps_unread,
    print_json,
    read_fault,
    requested,
)
from emulator.cli.up import RunId, Seed, Warm
from emulator.errors import EmulatorError, UsageError
from emulator.runtime.signals import Interruption

if TYPE_CHECKING:
    from rich.console import Console

    from emulator.search.sweep import Point, Sweep, SweepResult

Most = Annotated[int, typer.Option("--most", min=1, help="Of more moments, so many are run.")]
AtOnce = Annotated[int | None, typer.Option("--at-once", min=1, help="Runs side by side.")]


def sweep(
    fault: Annotated[
        str,
        typer.Option("--fault", metavar="FAULT", help="As in a scenario, such as: kill: worker-0."),
    ],
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="MOMENTS",
            help="'steps 10..200 by 10, phase checkpoint, every write of a save, each rename'.",
        ),
    ],
    scenario: ScenarioArgument = None,
    file: ScenarioFile = None,
    sets: Sets = None,
    engine: WhichEngine = "auto",
    out: Out = Path("runs"),
    seed: Seed = None,
    run_id: RunId = None,
    most: Most = 100,
    at_once: AtOnce = None,
    warm: Warm = False,
    json: Annotated[bool, typer.Option("--json", help="Each moment as data.")] = False,
    images: Images = None,
) -> None:
    """Run a scenario once for each moment of a fault.

    It says at which of them the training resumed right. The faults of the scenario itself are left
    out. Of `every write of a save`, a run without a fault first records one. The same command with
    the same --run-id goes on with a sweep that was stopped or killed.

    Exit codes: 0 all resumed right, 1 one did not or an expectation failed, 2 bad usage or
    scenario, 3 one could not be judged, 4 the emulator or the engine failed, 130 interrupted.
    """
    asked = requested(scenario, file, sets, seed, additions(images, None, None))
    asked.scenario  # noqa: B018  its mistakes come before those of the moments
    from emulator.engines import choose
    from emulator.planning.plan import new_run_id
    from emulator.runtime.files import atomic_write
    from emulator.search.page import PAGE, render
    from emulator.search.sweep import Question, Sweep

    question = Question(asked, fault_of(fault), at, most)
    folder = out / (run_id or new_run_id(f"{asked.scenario.name}-sweep"))
    if engine == "auto":
        with contextlib.closing(choose(engine, note)) as chosen:
            engine = chosen.name
    found = Sweep.open(
        question, engine, folder, warm=warm, at_once=at_once, say=note, done=_Progress()
    )
    result = _performed(found, folder)
    page = folder / PAGE
    atomic_write(page, render(result))
    with perhaps_unread():
        print_sweep(result, page, console(stderr=json))
        if json:
            print_json(result.as_data())
    raise typer.Exit(result.exit_code)


def _performed(found: Sweep, folder: Path) -> SweepResult:
    """Perform a sweep; where it is stopped, say how to go on with it."""
    try:
        return found.perform()
    except (KeyboardInterrupt, Interruption, EmulatorError):
        if folder.exists():
            note(f"the same command with --run-id={folder.name} goes on with it")
        raise


class _Progress:
    """Says of each moment what became of it."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, point: Point, of: int) -> None:
        from emulator.search.sweep import said

        self._count += 1
        note(f"{self._count} of {of}: {point.moment.words}: {said(point)}")


def print_sweep(result: SweepResult, page: Path, screen: Console) -> None:
    """Print what became of each moment, and where the page is."""
    from emulator.report.tables import print_table
    from emulator.search.page import table

    print_table(screen, table(result))
    screen.out(result.figure, highlight=False)
    if result.left_out:
        screen.out(f"{result.left_out} moments between these were left out (--most).")
    if result.worst is not None:
        screen.out(f"The worst: emulate up {result.worst}", highlight=False)
    screen.out(f"Page: {page}", highlight=False)


def fault_of(text: str) -> dict[str, Any]:
    """Return a fault as it is written in a scenario. Raises UsageError."""
    found = read_fault(text, "For example: --fault '{preempt: worker-1, grace: 5s}'.")
    if "at" in found:
        raise UsageError("--fault has no `at`: a sweep sets it.", "Write the moments in --at.")
    return found
