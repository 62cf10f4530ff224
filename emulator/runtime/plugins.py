"""Plug-ins: what adds to the emulator without being named by it, each found by entry points.

Ours are the folders of emulator/plugins; their entry points are in pyproject.toml. Another
package's are found in the same way, and can't take the place of ours.

| group                | a value                                    | asked by                |
|----------------------|--------------------------------------------|-------------------------|
| `emulator.engines`   | a class as `engines.base.Engine`           | `engines/__init__.py`   |
| `emulator.sections`  | a pydantic model, for a key of a scenario  | `scenario/sections.py`  |
| `emulator.faults`    | a `faults.spec.FaultSpec`                  | `faults/kinds.py`       |
| `emulator.manifests` | a `scenario.manifests.Manifests`           | `scenario/manifests.py` |
| `emulator.exports`   | an `Export`, or a `Page`                   | `cli/export.py`, `api/` |
| `emulator.commands`  | a `Command`, or an `Option` of ours        | `cli/added.py`          |

The name of an entry point is that of the engine, the key of the section, the fault or the command.
A plug-in that can't be imported costs what it adds, and a sentence where that is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from emulator.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from pathlib import Path

OURS = "training-emulator"
"""The distribution whose plug-ins come first."""
Group = Literal["engines", "sections", "faults", "manifests", "exports", "commands"]
Broken = MutableMapping[str, UsageError]
"""By the name of an entry point: why it can't be loaded."""


@dataclass(frozen=True)
class Command:
    """A command of `emulate`."""

    run: Callable[..., None]
    """With parameters as Typer has them, and a docstring, which is its help."""
    section: str
    """Where `emulate --help` lists it: `Run`, `Look`, `Break`, `Judge` or `Set up`."""
    example: str


@dataclass(frozen=True)
class Option:
    """An option of our commands that read manifests: it says what a manifest does not."""

    name: str
    """Such as `configmap` for `--configmap`, whose values are `KEY=VALUE`."""
    metavar: str
    help: str
    example: str
    """A value of it."""
    instead: str
    """What a scenario has for it."""
    is_path: bool = False
    """What follows `=` is a path of this machine."""


@dataclass(frozen=True)
class Export:
    """A format of `emulate export`: the option of its entry point's name."""

    metavar: str
    """Of its value: a place to write to, or a name elsewhere."""
    help: str
    write: Callable[[Any, Any, str], str]
    """Write a run (a `Record` and its `Analysis`) to the value; say in one line what and where.
    Raises UsageError."""
    require: Callable[[], None] = lambda: None
    """Raise UsageError where a library is missing, before anything is written."""


@dataclass(frozen=True)
class Page:
    """What the API of a run that goes on answers in another tool's format."""

    path: str
    """Such as `/metrics`."""
    open: Callable[[Path], Callable[[str], tuple[bytes, str]]]
    """Given the run folder, return what makes of an `Accept` header a text and its type."""


def names(group: Group) -> tuple[str, ...]:
    """Return the names in a group, ours first; nothing is imported."""
    return tuple(_found(group))


def load(group: Group, name: str) -> Any:  # noqa: ANN401  see the table
    """Return the value of an entry point. Raises UsageError where it can't be imported."""
    entry = _found(group)[name]
    try:
        return entry.load()
    except Exception as error:  # another package's defect
        raise UsageError(
            f"{name} can't be loaded from {entry.value} ({error!r}).",
            "Install what it needs, or remove the package that it comes from.",
        ) from None


def added(group: Group, broken: Broken) -> Iterator[tuple[str, Any]]:
    """Yield what the group has, by name; what can't be loaded goes to `broken`."""
    for name in names(group):
        try:
            yield name, load(group, name)
        except UsageError as error:
            broken[name] = error


def options() -> list[Option]:
    """Return the options that plug-ins add; those that can't be loaded are left out."""
    return [one for _, one in added("commands", {}) if isinstance(one, Option)]


def formats() -> Iterator[tuple[str, Export]]:
    """Yield the formats that plug-ins write, by the option's name."""
    yield from ((name, one) for name, one in added("exports", {}) if isinstance(one, Export))


def pages() -> list[Page]:
    """Return the pages of a run that plug-ins make."""
    return [one for _, one in added("exports", {}) if isinstance(one, Page)]


def broken(group: Group) -> Mapping[str, UsageError]:
    """Return what of a group can't be loaded, and why."""
    found: dict[str, UsageError] = {}
    for _ in added(group, found):
        pass
    return found


def _found(group: Group) -> Mapping[str, EntryPoint]:
    return _scan(tuple(sys.path)).get(f"emulator.{group}", {})


@lru_cache(maxsize=1)
def _scan(path: tuple[str, ...]) -> Mapping[str, Mapping[str, EntryPoint]]:
    """Return the entry points of all groups; to look at every package takes some 10 ms."""
    from importlib.metadata import distributions  # a short command asks for none

    found = (one for each in distributions() for one in each.entry_points)
    every = [one for one in found if one.group.startswith("emulator.")]
    every.sort(key=lambda one: one.dist is None or one.dist.name != OURS)
    groups: dict[str, dict[str, EntryPoint]] = {}
    for one in every:
        groups.setdefault(one.group, {}).setdefault(one.name, one)
    return groups
