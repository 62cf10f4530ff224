"""Checks of containers across their keys: commands, files, mounts, init steps (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from emulator.scenario import rendezvous
from emulator.scenario.container import PodContainer, is_in
from emulator.scenario.document import KeyPath
from emulator.scenario.program import SHARED, WORKDIR

if TYPE_CHECKING:
    from emulator.scenario.schema import AnyContainer, Scenario

Mistake = tuple[KeyPath, str, str]
"""Its path, what is wrong, and what to write instead."""


@dataclass(frozen=True)
class _Placed:
    """A container with the place of what it has."""

    path: KeyPath
    own: AnyContainer
    """As it is written."""
    full: AnyContainer
    """With what it has of the job."""

    @property
    def source(self) -> Path | None:
        return None if isinstance(self.full, PodContainer) else self.full.source

    @property
    def home(self) -> str:
        return self.full.working_dir or WORKDIR

    def place(self, key: Literal["mounts", "files"], name: str) -> KeyPath:
        """Return the path of a mount's or a file's key."""
        if name in getattr(self.own, key):
            return (*self.path, key, name)
        return ("mounts", name) if key == "mounts" else ("program", "files", name)


def container_errors(scenario: Scenario) -> Iterator[Mistake]:
    """Yield the mistakes of all containers; one of the job as a whole is there once."""
    found: dict[KeyPath, Mistake] = {}
    for path, own, _ in scenario.containers:
        one = _Placed(path, own, scenario.as_run(own))
        for mistake in (
            *_check_command(one),
            *_check_mounts(one),
            *_check_files(one),
            *_check_home(one),
        ):
            found.setdefault(mistake[0], mistake)
    yield from found.values()
    yield from _check_parts(scenario)


def _check_command(one: _Placed) -> Iterator[Mistake]:
    if one.full.entrypoint == "none" and not one.full.command:
        message = "without the image's entry point and without a command, nothing runs"
        yield one.path, message, "write the `command`, or `entrypoint: image`"


def _check_mounts(one: _Placed) -> Iterator[Mistake]:
    """Yield mounts to which the program would be copied, or where it has something itself."""
    if (source := one.source) is None:
        return
    for target, mount in one.full.mounts.items():
        path = one.place("mounts", target)
        if is_in(one.home, target) and mount.scratch is None:
            message = f"the program is copied to {one.home}, which would be in this mount"
            yield path, message, "mount at another folder"
        if target == one.home or not is_in(target, one.home):
            continue
        name = PurePosixPath(target).relative_to(one.home).parts[0]
        if (source / name).exists() if source.is_dir() else source.name == name:
            message = f"the program has {name} as well, which would be copied there"
            yield path, message, "mount it under another name"


def _check_files(one: _Placed) -> Iterator[Mistake]:
    """Yield files that would be written into a mount of the user's, or over one another."""
    for target in one.full.files:
        path = one.place("files", target)
        for at, mount in one.full.mounts.items():
            if target == at or (is_in(target, at) and mount.scratch is None):
                message = f"lies in what is mounted at {at}, to which nothing is written"
                yield path, message, "choose another path, or leave that mount out"
        for other in one.full.files:
            if other != target and is_in(other, target):
                yield path, f"is a file, and the folder of {other} as well", "leave one of them out"


def _check_home(one: _Placed) -> Iterator[Mistake]:
    if one.source is not None and is_in(one.home, SHARED):
        message = f"the program would be copied to {one.home}, which all tasks share"
        yield (*one.path, "working_dir"), message, f"choose a folder outside of {SHARED}"


def _check_parts(scenario: Scenario) -> Iterator[Mistake]:
    """Yield init steps with the same name, and their reserved variables."""
    names = set[tuple[object, str]]()
    for path, part, _ in scenario.containers:
        if not isinstance(part, PodContainer):
            continue
        if (path[1], part.name) in names:
            message = f"{path[1]} has another init step called {part.name}"
            yield (*path, "name"), message, "choose another name"
        names.add((path[1], part.name))
        for variable in part.env:
            if hint := rendezvous.instead(variable, frozenset()):
                yield (*path, "env", variable), "is set by the emulator itself", hint
