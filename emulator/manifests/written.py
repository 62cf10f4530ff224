"""Files of `emulate export` in formats that nothing reads: the scenario is in them (pure).

A Compose file, a TrainJob and plain Kubernetes objects have all of their scenario in an annotation,
or under a key of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from emulator.manifests.documents import Document, dotted
from emulator.manifests.spec import OVERLAY, Conversion, Format, Note, Options
from emulator.scenario.document import KeyPath

PLACES: Sequence[KeyPath] = (("metadata", "annotations", OVERLAY), ("x-emulator",), ("emulator",))
"""Where a file has a scenario, or a part of one: of Kubernetes, of Compose, of Helm."""


def places_in(documents: Sequence[Document]) -> list[tuple[Document, KeyPath]]:
    """Return where the documents have a scenario, or a part of one."""
    return [(one, path) for one in documents for path in PLACES if one.get(*path) is not None]


def _convert(documents: Sequence[Document], options: Options) -> Conversion:
    _, path = places_in(documents)[0]
    text = "the scenario is taken from there as it is; changes of the rest are not read"
    # The scenario itself is merged over it, as the part that other formats have.
    return Conversion({}, (Note(f"all but {dotted(path)}", "ignored", text),))


EXPORTED = Format(
    "a file of `emulate export`", lambda documents: bool(places_in(documents)), _convert
)
"""A file that has the whole scenario in it."""
