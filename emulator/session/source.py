"""The scenario that is asked for: found, parsed, and remembered with its origin."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from emulator.bundled import SCENARIO, scenario_path, scenarios
from emulator.errors import UsageError
from emulator.manifests.convert import NOTHING, Additions, Given, read_scenario
from emulator.planning.baseline import Baseline, BaselineFile, baseline_key
from emulator.scenario import loader
from emulator.scenario.matrix import to_overrides
from emulator.scenario.schema import Scenario
from emulator.validation.fields import Model
from emulator.validation.similar import nearest

ScenarioLike = str | Path | Mapping[str, Any] | Scenario
"""A scenario: a file, its folder, the name of a bundled one, or the content of such a file."""

Sets = Mapping[str, Any] | Sequence[str]
"""Keys and values, or assignments as `--set` takes them."""


@dataclass(frozen=True)
class RequestedScenario:
    """A scenario with its overrides, as `--set` takes them, in the order in which they apply."""

    given: Given
    path: Path | None
    """None if it is written in the test itself."""
    image: tuple[str, ...] = ()
    """The session's image; not part of the key of a baseline."""
    sets: tuple[str, ...] = ()
    """Overrides of all tests of the session."""
    chosen: tuple[str, ...] = ()
    """Overrides of this variant."""
    by_call: bool = False
    """Whether `chosen` is the `set` of a call, not a variant."""
    last: tuple[str, ...] = ()
    added: Additions = NOTHING
    """What the test adds to a manifest."""

    @functools.cached_property
    def scenario(self) -> Scenario:
        """The parsed scenario. Raises UsageError."""
        return self.given.parse(self._overrides, self._called)

    def placed(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which a mistake that is found later gets its file and line."""
        return self.given.placed(self._overrides, self._called)

    def _called(self, override: str) -> str:
        """Return what messages call an override: by where a test or a program gave it."""
        if override in self.image:
            return "--emulator-image"
        if override in self.sets:
            return f"--emulator-set {override}"
        return f'set["{override.partition("=")[0]}"]' if self.by_call else loader.OPTION(override)

    @property
    def _overrides(self) -> tuple[str, ...]:
        return (*self.image, *self.sets, *self.chosen, *self.last)

    def variant(self, chosen: Sequence[str], last: Sequence[str] = ()) -> RequestedScenario:
        """Return another variant of it."""
        return replace(self, chosen=tuple(chosen), last=tuple(last))

    @property
    def label(self) -> str:
        """Its name in tables."""
        return " ".join(self.chosen)

    def baseline(self, engine: str) -> Baseline | None:
        """Return its stored baseline, if there is one. Raises UsageError."""
        if self.path is None:
            return None
        return BaselineFile.beside(self.path).get(self._key(self.path, engine))

    def store(self, baseline: Baseline) -> None:
        """Store a baseline beside its file. Raises UsageError."""
        path = self.file()
        BaselineFile.beside(path).put(self._key(path, baseline.engine), baseline)

    def file(self) -> Path:
        """Return its file; raises UsageError if it is written in a test."""
        if self.path is None:
            raise UsageError(
                "A scenario that is written in a test has no file to store its baseline beside.",
                "Write it to a file, or name a `reference:` and `of: reference`.",
            )
        return self.path

    def _key(self, path: Path, engine: str) -> str:
        return baseline_key(path, " ".join([*self.sets, *self.chosen]), engine)

    def command(self, engine: str) -> str:
        """Return the command that runs it again without pytest; empty if it has no file."""
        if self.path is None:
            return ""
        return self.added.again(self.path, engine, self._overrides)


def assigned(sets: Sets) -> list[str]:
    """Return keys and values as `--set` takes them. Raises UsageError."""
    if isinstance(sets, str):
        return [sets]
    return list(to_overrides(_plain(sets))) if isinstance(sets, Mapping) else list(sets)


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
