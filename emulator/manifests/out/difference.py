"""What a manifest can't say of a scenario: a merge patch of what it does say (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emulator.manifests.overlay import difference
from emulator.scenario.document import KeyPath
from emulator.scenario.loader import short_for

Data = dict[str, Any]
_SECTIONS = ("env", "files", "mounts")
"""Sections whose keys are names that the user chose."""


def patch_of(converted: Mapping[str, Any], scenario: Mapping[str, Any]) -> Data:
    """Return the merge patch that makes the scenario of what its manifest is converted to.

    Short forms are written at length on both sides: merged over a mapping, one of them would
    change a single key of it.
    """
    said, wanted = at_length(converted), at_length(scenario)
    patch: Data = difference(said, _with_sections(wanted, said))
    return patch


def _as_text(value: Any) -> Any:  # noqa: ANN401  YAML
    """Return a number as text, as `fields.Text` reads it."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


def _with_sections(
    scenario: Mapping[str, Any], converted: Mapping[str, Any], path: KeyPath = ()
) -> Data:
    """Return a scenario with an empty section for one that only its manifest has.

    So the patch takes back single variables and files, not those that are added to the manifest.
    """
    made = dict(scenario)
    for key, value in converted.items():
        at = (*path, key)
        if not isinstance(value, Mapping):
            continue
        if key in _SECTIONS and not _is_name(path):
            made.setdefault(key, {})
        elif isinstance(made.get(key), Mapping):
            made[key] = _with_sections(made[key], value, at)
    return made


def _is_name(path: KeyPath) -> bool:
    """Return whether the keys below a path are names that the user chose."""
    return path[-1:] in (("cluster",), ("helpers",), *((key,) for key in _SECTIONS))


def at_length(value: Any, path: KeyPath = ()) -> Any:  # noqa: ANN401  YAML
    """Return a scenario without short forms, and without keys that are null.

    A merge patch can't set a null; in a scenario such a key is one that is left out. Lists are
    replaced as a whole, so they are kept as they are, but for the words of commands.
    """
    if isinstance(value, Mapping):
        return {
            key: at_length(inner, (*path, key)) for key, inner in value.items() if inner is not None
        }
    if isinstance(value, list) and path[-1:] == ("command",):
        # As a manifest has them; a scenario takes a number for its digits.
        return [_as_text(word) for word in value]
    if path[-2:-1] == ("env",):
        return _as_text(value)
    short = short_for(path)
    return {short: value} if short and isinstance(value, int | str) else value
