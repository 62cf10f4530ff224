"""A document that is put together from parts of others, and knows where each is from (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from emulator.errors import Problem
from emulator.scenario.document import KeyPath
from emulator.scenario.manifests import Document

Source = tuple[Document, KeyPath]
"""A value of a document."""
KEYS: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
}
"""Lists whose items a patch finds by a key (Kubernetes' strategic merge); it replaces others."""


@dataclass(frozen=True)
class Composed(Document):
    """A document of parts; what is wrong with a part is reported where that is from."""

    sources: Mapping[KeyPath, Source] = field(default_factory=dict)
    """Where a value is from; one that is not here, from where the closest above it is."""

    def source(self, path: KeyPath) -> Source:
        """Return where a value is from."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.sources:
                document, above = self.sources[path[:end]]
                return document, (*above, *path[end:])
        return self, path

    def place(self, path: KeyPath = ()) -> str:
        """Return `file:line` of a value."""
        document, there = self.source(path)
        return super().place(path) if document is self else document.place(there)

    def written(self, path: KeyPath) -> str:
        """Return the path of a value in the document that it is from."""
        document, there = self.source(path)
        return super().written(path) if document is self else document.written(there)

    def problem(self, path: KeyPath, message: str, hint: str = "") -> Problem:
        """Return a mistake, at the place that the value is from."""
        return Problem(self.place(path), self.written(path), message, hint)


class Draft:
    """A document while it is put together."""

    def __init__(self, data: dict[str, Any], source: Source) -> None:
        self.data = deepcopy(data)
        self._sources: dict[KeyPath, Source] = {(): source}

    def composed(self, file: str) -> Composed:
        """Return what it has become."""
        return Composed(file, self.data, {}, sources=dict(self._sources))

    def came(self, path: KeyPath, source: Source) -> None:
        """Say where a value, with all that is in it, is from."""
        for known in [one for one in self._sources if one[: len(path)] == path]:
            del self._sources[known]
        self._sources[path] = source

    def get(self, path: KeyPath) -> Any:  # noqa: ANN401  JSON
        """Return a value; None if there is none."""
        found: Any = self.data
        for step in path:
            if isinstance(found, dict):
                found = found.get(step)
            else:
                found = found[step] if isinstance(found, list) and isinstance(step, int) else None
        return found

    def set(self, path: KeyPath, value: object, source: Source) -> None:
        """Set a value; what is above it and missing is made."""
        above: Any = self.data
        for step in path[:-1]:
            above = above.setdefault(step, {}) if isinstance(above, dict) else above[step]
        above[path[-1]] = deepcopy(value)
        self.came(path, source)

    def upsert(self, path: KeyPath, item: Mapping[str, Any], source: Source) -> KeyPath:
        """Replace the item of a list that has the same key, or append it; return where it is."""
        found = self._index(path, item)
        items = self._list(path)
        if found is None:
            items.append(deepcopy(dict(item)))
            found = len(items) - 1
        else:
            items[found] = deepcopy(dict(item))
        self.came((*path, found), source)
        return (*path, found)

    def merge(self, path: KeyPath, patch: Mapping[str, Any], source: Source) -> None:
        """Merge a patch over the mapping at a path, as Kubernetes does strategically."""
        document, there = source
        for key, value in patch.items():
            at, origin = (*path, key), (document, (*there, key))
            if key in KEYS and isinstance(value, list):
                self._merge_items(at, value, origin)
            elif isinstance(value, dict) and isinstance(self.get(at), dict):
                self.merge(at, value, origin)
            else:
                self.set(at, value, origin)

    def _merge_items(self, path: KeyPath, items: Sequence[Any], source: Source) -> None:
        document, there = source
        for number, item in enumerate(items):
            origin = (document, (*there, number))
            found = self._index(path, item)
            if found is None or path[-1] == "env":
                self.upsert(path, item, origin)
            else:
                self.merge((*path, found), item, origin)

    def _index(self, path: KeyPath, item: Mapping[str, Any]) -> int | None:
        key = KEYS[str(path[-1])]
        known = self.get(path) or []
        return next((n for n, one in enumerate(known) if one.get(key) == item.get(key)), None)

    def _list(self, path: KeyPath) -> list[Any]:
        above = self.get(path[:-1])
        items: list[Any] = above.setdefault(path[-1], [])
        return items
