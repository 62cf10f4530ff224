"""From a scenario that was asked for to the plan of a run that its engine can do."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.engines.base import Configuring, Engine
from emulator.engines.requirements import require, require_of
from emulator.errors import Misfit, Unsupported, UsageError
from emulator.planning.planner import make_plan
from emulator.planning.requested import RequestedScenario, RunOptions
from emulator.runtime.files import disk, shortages

if TYPE_CHECKING:
    from emulator.planning.context import PlanContext
    from emulator.planning.plan import Plan
    from emulator.scenario.schema import Scenario

STARTS_COLD = "all tasks start cold: they begin held, since their calls to the kernel count"


def make_ready(
    requested: RequestedScenario,
    engine: Engine,
    options: RunOptions = RunOptions(),
    refused: list[Unsupported | Misfit] | None = None,
) -> tuple[Plan, Path]:
    """Check that the engine can run the scenario; return the plan and the run folder.

    With `refused`, what the engine can't do or does not have is put there instead of raised, and
    the plan is made as if it could.

    Raises Unsupported, EngineMissing if the scenario's settings lead to no engine, and UsageError
    if the run id is not valid or the folder's path is not text.
    """
    scenario = requested.scenario
    cold: tuple[str, ...] = ()
    if options.warm and options.begins_held(scenario):
        options, cold = replace(options, warm=False), (STARTS_COLD,)
    if isinstance(engine, Configuring):
        engine.configure(scenario)
    try:
        require(scenario, engine)
    except (Unsupported, Misfit) as error:
        if refused is None:
            raise
        refused.append(error)
    if options.calls_of:
        require_of(engine, [("recording the calls of a save", "calls")])
    run_id = options.named(scenario)
    folder = _as_text(options.out.resolve() / run_id)
    context = replace(engine.plan_context(run_id, folder), out=folder.parent)
    if (gpus := options.gpus) is not None:
        context = replace(context, gpus=lambda: gpus)
    if options.python is not None:
        context = replace(context, python=_python(options.python, context))
    full = shortages([*disk("the run folder", folder), *context.disks(scenario)])
    planned = partial(
        make_plan,
        scenario,
        run_id,
        variant=options.variant,
        reference=options.reference,
        notes=(*requested.given.warnings, *full, *cold),
        calls_of=options.calls_of,
        disposable=options.disposable,
        reads_results=options.reads_results,
    )
    try:
        return planned(context), folder
    except Unsupported as error:
        if refused is None or "gpu" not in error.lacks:
            raise
        refused += [error] if "gpus" in engine.capabilities else []  # else it is there already
        return planned(replace(context, gpus=lambda: _as_many_gpus(scenario))), folder


def _python(path: str, context: PlanContext) -> str:
    """Return the Python that a run was asked to use. Raises UsageError."""
    if context.python_of is None:
        raise UsageError(
            f"--python is for tasks that are processes here; with the {context.engine} engine "
            "their image has the Python.",
            "Leave it out, or use --engine process.",
        )
    return context.python_of(path)


def _as_many_gpus(scenario: Scenario) -> list[str]:
    """Return devices of a machine that has as many as a scenario asks for, of which none is."""
    count = sum(spec.gpus.count * spec.replicas for spec in scenario.cluster.values())
    return [str(number) for number in range(count)]


def _as_text(folder: Path) -> Path:
    """Return the folder. Raises UsageError if its path is not text, which JSON requires."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"The path of the run folder {folder} has bytes that are not text.",
            "Choose another one with --out.",
        ) from None
    return folder
