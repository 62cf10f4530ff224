"""What every run that is started from Python goes through: from a name to a finished run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from emulator.broker import Capacity
from emulator.engines import choose
from emulator.engines.requirements import make_ready
from emulator.errors import EngineLost, EngineMissing
from emulator.manifests.convert import Additions
from emulator.planning.requested import RequestedScenario, RunOptions
from emulator.results import Result, RunCallbacks
from emulator.session.execution import up
from emulator.session.source import Sets, assigned

NO_IMAGES: Mapping[str, str] = MappingProxyType({})


def overrides(sets: Sets, seed: int | None) -> list[str]:
    """Return what `set=` and `seed=` override, as `--set` takes it. Raises UsageError."""
    return assigned(sets) + ([] if seed is None else [f"seed={seed}"])


def additions(images: Mapping[str, str], faults: str | Path | None) -> Additions:
    """Return what `images=` and `faults=` add to a file."""
    return Additions(images=dict(images), faults=None if faults is None else Path(faults))


def make_available(
    variants: Sequence[RequestedScenario], engine_name: str, out: Path, say: Callable[[str], None]
) -> tuple[str, Capacity]:
    """Build the images of scenarios; return the name of the engine, and what its machine has.

    What an engine can't run is refused before anything is built. Raises EmulatorError.
    """
    with contextlib.closing(choose(engine_name, say)) as engine:
        for one in variants:
            make_ready(one, engine, RunOptions(out=out))
        for one in variants:
            engine.ensure_images(one.scenario, say)
        return engine.name, engine.capacity()


def perform(
    requested: RequestedScenario, engine_name: str, options: RunOptions, callbacks: RunCallbacks
) -> Result:
    """Run a scenario to its end on an engine that was available, and judge it.

    See `execution.up`. Raises EngineLost if the engine no longer answers.
    """
    try:
        engine = choose(engine_name)
    except EngineMissing as error:
        raise EngineLost(error.message, error.hint) from None
    with contextlib.closing(engine):
        return up(requested, engine, options, callbacks=callbacks)
