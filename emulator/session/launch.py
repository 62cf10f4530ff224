"""What every run that is started from Python goes through: from a name to a finished run.

A scenario is found and parsed, its images are built, and it is run to its end.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from emulator.engines import AUTO, choose
from emulator.errors import EngineLost, EngineMissing, UsageError
from emulator.planning.requested import RequestedScenario, RunOptions
from emulator.results import Result, RunCallbacks
from emulator.runtime.bundled import SCENARIO, scenario_path, scenarios
from emulator.scenario.given import NOTHING, Additions, Given, read_scenario
from emulator.scenario.matrix import to_overrides
from emulator.scenario.schema import Scenario
from emulator.session.ready import make_ready
from emulator.session.run import up
from emulator.validation.fields import Model
from emulator.validation.similar import nearest

if TYPE_CHECKING:
    from emulator.planning.claims import Capacity

ScenarioLike = str | Path | Mapping[str, Any] | Scenario
"""A scenario: a file, its folder, the name of a bundled one, or the content of such a file."""

Sets = Mapping[str, Any] | Sequence[str]
"""Keys and values, or assignments as `--set` takes them."""

NO_IMAGES: Mapping[str, str] = MappingProxyType({})


def assigned(sets: Sets) -> list[str]:
    """Return keys and values as `--set` takes them. Raises UsageError."""
    if isinstance(sets, str):
        return [sets]
    return list(to_overrides(_plain(sets))) if isinstance(sets, Mapping) else list(sets)


def overrides(sets: Sets, seed: int | None) -> list[str]:
    """Return what `set=` and `seed=` override, as `--set` takes it. Raises UsageError."""
    return assigned(sets) + ([] if seed is None else [f"seed={seed}"])


def additions(images: Mapping[str, str], faults: str | Path | None) -> Additions:
    """Return what `images=` and `faults=` add to a file."""
    return Additions(images=dict(images), faults=None if faults is None else Path(faults))


def read(
    given: ScenarioLike,
    folders: Sequence[Path],
    chosen: Sequence[str] = (),
    sets: Sequence[str] = (),
    *,
    image: Sequence[str] = (),
    added: Additions = NOTHING,
) -> RequestedScenario:
    """Find and parse a scenario with `image`, `sets`, `chosen` overridden. Raises UsageError.

    `added` is added to a manifest; its file of faults is looked for like the scenario.
    """
    if added.faults is not None:
        added = replace(added, faults=_find(added.faults, folders))
    if isinstance(given, Mapping | Scenario):
        if added != NOTHING:
            raise UsageError("Only a file can have additions.", "Write them into the scenario.")
        path = None
        if isinstance(given, Scenario):
            text = given.to_yaml()
        else:
            text = json.dumps(_plain(given), indent=2)
        found = Given(folders[0] / "scenario.yaml", text, title="the scenario")
    else:
        path = _find(given, folders)
        found = read_scenario(path, added)
    requested = RequestedScenario(
        found, path, tuple(image), tuple(sets), tuple(chosen), by_call=True, added=added
    )
    _ = requested.scenario  # raises here, not later
    return requested


def _plain(value: Any) -> Any:  # noqa: ANN401  whatever a test gives
    """Return a value as YAML represents it, a path as text. Raises UsageError."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case os.PathLike():
            return os.fspath(value)
        case Model():
            return value.model_dump(mode="json", exclude_unset=True)
        case Mapping():
            return {str(key): _plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
    raise UsageError(
        f"A scenario can't contain {value!r}, a {type(value).__name__}.",
        "It may contain numbers, texts, paths, lists, dicts and faults.",
    )


def _find(given: str | Path, folders: Sequence[Path]) -> Path:
    """Return the file: in one of the folders, or a bundled scenario. Raises UsageError."""
    try:
        for folder in folders:
            for name in (Path(given), Path(f"{given}.yaml"), Path(given, SCENARIO)):
                if (folder / name).is_file():
                    return folder / name
        if (bundled := scenario_path(Path(given))).is_file():
            return bundled
    except OSError as error:  # a name too long
        raise UsageError(f"Can't look for the scenario {given}: {error.strerror}.") from None
    places = ", ".join(dict.fromkeys(map(str, folders)))
    raise UsageError(
        f"There is no scenario {given} in {places}, nor a bundled one of that name.",
        _meant(Path(given), folders),
    )


def _meant(given: Path, folders: Sequence[Path]) -> str:
    """Return a hint: the file beside which it would be, or the bundled scenario, that was meant."""
    beside = [p.name for folder in folders for p in (folder / given).parent.glob("*.y*ml")]
    bundled = [path.stem for path in scenarios()]
    near = nearest(given.name, beside) or nearest(given.stem, bundled)
    meant = str(given.with_name(near)) if near in beside else near
    return f"Did you mean '{meant}'?" if near else "`emulate scenarios` lists the bundled ones."


def make_available(
    variants: Sequence[RequestedScenario],
    engine_name: str | None,
    out: Path,
    say: Callable[[str], None],
) -> tuple[str, Capacity]:
    """Build the images of scenarios; return the name of the engine, and what its machine has.

    Without a name it is chosen as for `auto`. What an engine can't run is refused before anything
    is built. Raises EmulatorError.
    """
    with contextlib.closing(choose(engine_name or AUTO, say)) as engine:
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
