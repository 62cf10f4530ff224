"""`emulator.sweep` and `emulator.moments`: sweeps from Python, without a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from emulator.analysis.uninterrupted import TOLERANCE
from emulator.errors import UsageError
from emulator.planning.plan import new_run_id
from emulator.search.moments import EACH_CALL, joined, parse
from emulator.search.points import SweepResult
from emulator.search.question import MAX_MOMENTS, Question
from emulator.search.sweep import Sweep
from emulator.session.launch import NO_IMAGES, ScenarioLike, Sets, additions, overrides, read


def sweep(
    scenario: ScenarioLike,
    *,
    fault: Mapping[str, Any] | None = None,
    at: str | Sequence[str] = EACH_CALL,
    set: Sets = (),
    seed: int | None = None,
    engine: str | None = None,
    images: Mapping[str, str] = NO_IMAGES,
    out: str | Path = "runs",
    run_id: str | None = None,
    max_moments: int = MAX_MOMENTS,
    tolerance: float = TOLERANCE,
    result: str = "",
    at_once: int | None = None,
    warm: bool = False,
) -> SweepResult:
    """Run a scenario once for each moment of a fault, and return what became of it each time.

    `fault` is as in a scenario, without `at`: `{"preempt": "worker-1", "grace": "5s"}`; None: a
    kill of each task that saves, and of all at once. `at` is the list of moments as `emulate sweep
    --at` takes it. Losses and results are alike if they differ by no more than `tolerance`, as a
    share; `result` is the glob of the files that are compared, empty: all that is left. A `run_id`
    that was used before goes on with that sweep. `at_once` runs are side by side; None: as many as
    the machine has room for. The others are those of `emulator.run`, and so are
    the errors; ProgramFailed if the program does not succeed without a fault.
    """
    requested = read(scenario, [Path.cwd()], overrides(set, seed), added=additions(images, None))
    question = Question(requested, fault, joined(at), max_moments, tolerance, result)
    folder = Path(out) / (run_id or new_run_id(f"{requested.scenario.name}-sweep"))
    found = Sweep.open(question, engine or "auto", folder, warm=warm, at_once=at_once)
    return found.perform()


def moments(at: str) -> list[dict[str, Any]]:
    """Return the triggers that a list of moments means, for `pytest.mark.parametrize`.

    Those of `every write of a save` are known only in a sweep. Raises UsageError.
    """
    asked = parse(at)
    if asked.calls:
        raise UsageError(
            f"Every {asked.calls[0].kind} of a save is known only when one was recorded.",
            "Use emulator.sweep, or the fixture's sweep.",
        )
    return [one.at for one in asked.moments]
