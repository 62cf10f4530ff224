"""What formats of manifests have in common: images, names, what all roles say at once (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from emulator.errors import Problem
from emulator.scenario.manifests import IMAGES, OptionValues
from emulator.validation.similar import closest

COMMAND = ("command", "entrypoint")
"""Keys that belong together: the command of another entry point is another one."""
DEFAULT_ENTRYPOINT = "image"

Data = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """What the command line adds to a manifest."""

    images: Mapping[str, str] = field(default_factory=dict)
    """Container name, role or image reference -> the image to use instead."""
    configmaps: Mapping[str, Path] = field(default_factory=dict)
    """Name of a ConfigMap or Secret -> a file or folder with its values."""

    @classmethod
    def of(cls, given: OptionValues) -> Options:
        """Return what is given by `--image` and `--configmap`."""
        paths = given.get("configmap", {}).items()
        return cls(given.get(IMAGES, {}), {name: Path(path) for name, path in paths})


def gathered(roles: Mapping[str, Data]) -> tuple[Data, Data, Data]:
    """Return keys of the scenario, its section `program`, and its section `cluster`.

    A manifest says everything for each replica type. What all have in common is said once.
    Each role has a number of `replicas` and a `command`.
    """
    if not roles:
        return {}, {}, {}
    cluster = {name: dict(role) for name, role in roles.items()}
    entries = list(cluster.values())
    top = {**_same(entries, ("image", "shm_size")), **_shared(entries, ("mounts",))}
    program = {
        **_first_command(entries),
        **_same(entries, ("working_dir",)),
        **_shared(entries, ("env", "files")),
    }
    return top, program, {name: _short(role) for name, role in cluster.items()}


def _same(roles: Sequence[Data], keys: Sequence[str]) -> Data:
    """Take the keys with one value for all roles out of them."""
    first = roles[0]
    same = [key for key in keys if key in first and all(r.get(key) == first[key] for r in roles)]
    taken = {key: first[key] for key in same}
    for role in roles:
        for key in same:
            del role[key]
    return taken


def _shared(roles: Sequence[Data], keys: Sequence[str]) -> Data:
    """Take the entries of mappings that all roles have out of them."""
    taken: Data = {}
    for key in keys:
        first, *others = [role.get(key, {}) for role in roles]
        shared = {
            name: value
            for name, value in first.items()
            if all(name in other and other[name] == value for other in others)
        }
        taken |= {key: shared} if shared else {}
        for role in roles:
            mapping = role.pop(key, {})
            if rest := {name: mapping[name] for name in mapping if name not in shared}:
                role[key] = rest
    return taken


def _first_command(roles: Sequence[Data]) -> Data:
    """Take the command of the first role out of all that have the same; the others keep theirs."""
    first = {key: roles[0][key] for key in COMMAND if key in roles[0]}
    for role in roles:
        own = {key: role.pop(key) for key in COMMAND if key in role}
        if own != first:
            inherited = {"entrypoint": DEFAULT_ENTRYPOINT} if "entrypoint" in first else {}
            role |= {**inherited, **own}
    return first


def _short(role: Data) -> Data | int:
    return role["replicas"] if role.keys() == {"replicas"} else role


# --- Names ----------------------------------------------------------------------------------------


LONGEST = 40
"""Characters of the name of a scenario."""


def as_name(text: object) -> str:
    """Return a text as the name of a scenario; empty if nothing is left of it."""
    safe = re.sub(r"[^a-z0-9]+", "-", text.lower()) if isinstance(text, str) else ""
    return re.sub(r"^[^a-z]+", "", safe)[:LONGEST].strip("-")


def stem_of(file: str) -> str:
    """Return the name of a file up to its first dot: of `shards.values.yaml`, `shards`."""
    return PurePath(file).name.partition(".")[0]


# --- Images ---------------------------------------------------------------------------------------


@dataclass
class Images:
    """What `--image` gives, and what it could be given for."""

    given: Mapping[str, str]
    """Role, image reference or container name -> the image to use instead."""
    known: dict[str, None] = field(default_factory=dict)
    """All names that could have been given."""

    def instead(self, image: str, container: str, role: str = "") -> str:
        """Return what to use for an image: by its role first, then by itself, then by container.

        A role is that of the container that trains; others have none.
        """
        names = [name for name in (role, image, container) if name]
        self.known |= dict.fromkeys(names)
        return next((self.given[name] for name in names if name in self.given), image)

    def problems(self) -> Iterator[Problem]:
        """Yield the names that nothing in the manifest has."""
        for name, image in self.given.items():
            if name not in self.known:
                message = f"there is no container, role or image {name}"
                hint = closest(name, self.known) or f"known: {', '.join(list(self.known)[:8])}"
                yield Problem(f"--image {name}={image}", "", message, hint)
