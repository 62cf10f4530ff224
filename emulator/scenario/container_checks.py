"""Checks of containers across their keys: commands, files, mounts, init steps, side-cars (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from emulator.scenario import rendezvous
from emulator.scenario.container import File, Mount, is_in
from emulator.scenario.document import KeyPath
from emulator.scenario.pod import PodContainer
from emulator.scenario.program import SHARED, WORKDIR
from emulator.scenario.schema import Helper, Role, Scenario

Mistake = tuple[KeyPath, str, str]
"""Its path, what is wrong, and what to write instead."""


@dataclass(frozen=True)
class _Effective:
    """A container with what it has of the job."""

    path: KeyPath
    command: tuple[str, ...]
    entrypoint: str
    source: Path | None
    home: str
    mounts: Mapping[str, tuple[KeyPath, Mount]]
    """Each with the path of its key."""
    files: Mapping[str, tuple[KeyPath, File]]


def container_errors(scenario: Scenario) -> Iterator[Mistake]:
    """Yield the mistakes of all containers; one of the job as a whole is there once."""
    found: dict[KeyPath, Mistake] = {}
    for one in _containers(scenario):
        for mistake in (*_of_command(one), *_of_mounts(one), *_of_files(one), *_of_home(one)):
            found.setdefault(mistake[0], mistake)
    yield from found.values()
    yield from _of_parts(scenario)


def _containers(scenario: Scenario) -> Iterator[_Effective]:
    for role, spec in scenario.cluster.items():
        yield _of_role(scenario, ("cluster", role), spec)
    for name, helper in scenario.helpers.items():
        yield _of_one(("helpers", name), helper, helper.source)
    for path, part in scenario.pod_containers:
        yield _of_one(path, part, None)


def _of_role(scenario: Scenario, path: KeyPath, spec: Role) -> _Effective:
    program = scenario.program
    own = _of_one(path, spec, spec.source or program.source)
    return _Effective(
        path,
        tuple(program.command if spec.command is None else spec.command),
        spec.entrypoint or program.entrypoint,
        own.source,
        spec.working_dir or program.working_dir or WORKDIR,
        {**{at: (("mounts", at), one) for at, one in scenario.mounts.items()}, **own.mounts},
        {
            **{at: (("program", "files", at), one) for at, one in program.files.items()},
            **own.files,
        },
    )


def _of_one(path: KeyPath, spec: Role | Helper | PodContainer, source: Path | None) -> _Effective:
    return _Effective(
        path,
        tuple(spec.command or ()),
        spec.entrypoint or "image",
        source,
        spec.working_dir or WORKDIR,
        {at: ((*path, "mounts", at), mount) for at, mount in spec.mounts.items()},
        {at: ((*path, "files", at), file) for at, file in spec.files.items()},
    )


def _of_command(one: _Effective) -> Iterator[Mistake]:
    if one.entrypoint == "none" and not one.command:
        message = "without the image's entry point and without a command, nothing runs"
        yield one.path, message, "write the `command`, or `entrypoint: image`"


def _of_mounts(one: _Effective) -> Iterator[Mistake]:
    """Yield mounts to which the program would be copied, or where it has something itself."""
    source = one.source
    for target, (path, mount) in one.mounts.items() if source is not None else ():
        assert source is not None
        if is_in(one.home, target) and mount.scratch is None:
            message = f"the program is copied to {one.home}, which would be in this mount"
            yield path, message, "mount at another folder"
        if target == one.home or not is_in(target, one.home):
            continue
        name = PurePosixPath(target).relative_to(one.home).parts[0]
        if (source / name).exists() if source.is_dir() else source.name == name:
            message = f"the program has {name} as well, which would be copied there"
            yield path, message, "mount it under another name"


def _of_files(one: _Effective) -> Iterator[Mistake]:
    """Yield files that would be written into a mount of the user's, or over one another."""
    for target, (path, _) in one.files.items():
        for at, (_, mount) in one.mounts.items():
            if target == at or (is_in(target, at) and mount.scratch is None):
                message = f"lies in what is mounted at {at}, to which nothing is written"
                yield path, message, "choose another path, or leave that mount out"
        for other in one.files:
            if other != target and is_in(other, target):
                yield path, f"is a file, and the folder of {other} as well", "leave one of them out"


def _of_home(one: _Effective) -> Iterator[Mistake]:
    if one.source is not None and is_in(one.home, SHARED):
        message = f"the program would be copied to {one.home}, which all tasks share"
        yield (*one.path, "working_dir"), message, f"choose a folder outside of {SHARED}"


def _of_parts(scenario: Scenario) -> Iterator[Mistake]:
    """Yield init steps and side-cars with the same name, and their reserved variables."""
    for role, spec in scenario.cluster.items():
        names = list[str]()
        for key, parts in (("init", spec.init), ("sidecars", spec.sidecars)):
            for number, part in enumerate(parts):
                if part.name in names:
                    message = f"{role} has another init step or side-car called {part.name}"
                    yield ("cluster", role, key, number, "name"), message, "choose another name"
                names.append(part.name)
    for path, part in scenario.pod_containers:
        for variable in part.env:
            if hint := rendezvous.instead(variable, frozenset()):
                yield (*path, "env", variable), "is set by the emulator itself", hint
