"""Which scenario a test wants: found, read, and remembered as it was asked for."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.bundled import scenario_path
from emulator.errors import UsageError
from emulator.planning.baseline import Baseline, BaselineFile, baseline_key
from emulator.scenario.loader import parse, scenario_text
from emulator.scenario.matrix import to_overrides
from emulator.scenario.schema import Scenario

__all__ = ["Given", "Sets", "Wanted", "assigned", "read"]

Given = str | Path | Mapping[str, Any]
"""A scenario: a file, the name of a bundled one, or what such a file would hold."""

Sets = Mapping[str, Any] | Sequence[str]
"""Keys and values, or to_overrides as `--set` takes them."""


@dataclass(frozen=True)
class Wanted:
    """A scenario that was read, and what a record keeps of where it came from."""

    given: Given
    folders: tuple[Path, ...]
    """Where it was looked for."""
    scenario: Scenario
    text: str
    chosen: tuple[str, ...]
    """What sets this variant apart, as `--set` takes it."""
    path: Path | None
    """None where it stands in the test itself."""
    sets: tuple[str, ...] = ()
    """What was overridden before, for all tests alike."""
    last: tuple[str, ...] = ()
    """What was overridden after all else."""
    image: tuple[str, ...] = ()
    """The image instead of its own, as it would be set; how it is called says nothing of a rate."""

    def again(self, chosen: Sequence[str], last: Sequence[str] = ()) -> Wanted:
        """Read another variant of it. Raises UsageError."""
        return read(self.given, self.folders, chosen, self.sets, last, image=self.image)

    @property
    def variant(self) -> str:
        """Its name in tables."""
        return " ".join(self.chosen)

    def baseline(self, engine: str) -> Baseline | None:
        """Return what is stored of it, if anything is. Raises UsageError."""
        if self.path is None:
            return None
        return BaselineFile.beside(self.path).get(self._key(self.path, engine))

    def store(self, came: Baseline) -> None:
        """Store what it came to, beside its file. Raises UsageError."""
        path = self.file()
        BaselineFile.beside(path).put(self._key(path, came.engine), came)

    def file(self) -> Path:
        """Return where it stands; raises UsageError where that is a test."""
        if self.path is None:
            raise UsageError(
                "A scenario that stands in a test has no file to store its baseline beside.",
                "Write it to a file, or name a `reference:` and `of: reference`.",
            )
        return self.path

    def _key(self, path: Path, engine: str) -> str:
        return baseline_key(path, " ".join([*self.sets, *self.chosen]), engine)

    def command(self, engine: str) -> str:
        """Return what runs it again without pytest."""
        if self.path is None:
            return ""
        sets = [f"--set={one}" for one in (*self.image, *self.sets, *self.chosen, *self.last)]
        return shlex.join(["emulate", "up", str(self.path), f"--engine={engine}", *sets])


def assigned(sets: Sets) -> list[str]:
    """Return keys and values as `--set` takes them. Raises UsageError."""
    if isinstance(sets, str):
        return [sets]
    return list(to_overrides(_written(sets))) if isinstance(sets, Mapping) else list(sets)


def read(
    given: Given,
    folders: Sequence[Path],
    chosen: Sequence[str] = (),
    sets: Sequence[str] = (),
    last: Sequence[str] = (),
    *,
    image: Sequence[str] = (),
) -> Wanted:
    """Read a scenario with `image`, `sets`, `chosen`, `last` overridden. Raises UsageError.

    `chosen` is what sets this variant of it apart.
    """
    overrides = [*image, *sets, *chosen, *last]
    path = None
    if isinstance(given, Mapping):
        text = json.dumps(_written(given), indent=2)
        scenario = parse(text, file="the test", folder=folders[0], sets=overrides)
    else:
        path = _find(given, folders)
        text = scenario_text(path)
        scenario = parse(text, file=str(path), folder=path.resolve().parent, sets=overrides)
    return Wanted(
        given,
        tuple(folders),
        scenario,
        text,
        tuple(chosen),
        path,
        tuple(sets),
        tuple(last),
        tuple(image),
    )


def _written(value: Any) -> Any:  # noqa: ANN401  whatever a test gives
    """Return what YAML can say of a value: a path is its text. Raises UsageError."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case os.PathLike():
            return os.fspath(value)
        case Mapping():
            return {str(key): _written(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_written(inner) for inner in value]
    raise UsageError(
        f"{value!r} is nothing that a scenario can say: a {type(value).__name__}.",
        "Numbers, texts, paths, lists and dicts are.",
    )


def _find(given: str | Path, folders: Sequence[Path]) -> Path:
    """Return the file: in one of the folders, or a bundled scenario. Raises UsageError."""
    try:
        for folder in folders:
            for name in (Path(given), Path(f"{given}.yaml")):
                if (folder / name).is_file():
                    return folder / name
        if (bundled := scenario_path(Path(given))).is_file():
            return bundled
    except OSError as error:  # a name too long
        raise UsageError(f"Can't look for the scenario {given}: {error.strerror}.") from None
    places = ", ".join(dict.fromkeys(map(str, folders)))
    raise UsageError(
        f"There is no scenario {given} in {places}, and none that is bundled has that name."
    )
