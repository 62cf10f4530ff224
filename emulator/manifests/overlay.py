"""JSON merge patches: the difference of two scenarios, and a part merged over one (pure).

Source: RFC 7386, JSON Merge Patch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from emulator.scenario.document import KeyPath
from emulator.scenario.loader import short_for


def merged(base: Any, patch: Any, path: KeyPath = ()) -> Any:  # noqa: ANN401  JSON
    """Return `base` with a merge patch applied: null removes a key, a list replaces a list.

    `path` is where they are in a scenario. What a plain value there is short for counts:
    `worker: 4` over a mapping changes its `replicas`.
    """
    short = short_for(path)
    if not isinstance(patch, Mapping):
        is_short = short and isinstance(base, Mapping) and isinstance(patch, int | str)
        return {**base, short: patch} if is_short else deepcopy(patch)
    if short and isinstance(base, int | str):
        base = {short: base}
    result = dict(base) if isinstance(base, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value, (*path, key))
    return result


def difference(before: Any, after: Any) -> Any:  # noqa: ANN401  JSON
    """Return the merge patch that turns `before` into `after`.

    A null in `after` can't be said in a merge patch; scenarios have none where it matters.
    """
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return deepcopy(after)
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        if key not in before:
            patch[key] = deepcopy(value)
        elif not _same(before[key], value):
            patch[key] = difference(before[key], value)
    return patch


def _same(one: object, other: object) -> bool:
    """Return whether two values are the same JSON, where 1 is neither true nor 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
