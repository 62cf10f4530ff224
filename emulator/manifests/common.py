"""What all roles of a scenario have in common, said once (pure).

A manifest says everything for each replica type. As a scenario it is shorter, and easier to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

COMMAND = ("command", "entrypoint")
"""Keys that belong together: the command of another entry point is another one."""
DEFAULT_ENTRYPOINT = "image"

Data = dict[str, Any]


def gathered(roles: Mapping[str, Data]) -> tuple[Data, Data, Data]:
    """Return keys of the scenario, its section `program`, and its section `cluster`.

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
