"""The values of Helm charts for TensorFlow, of two kinds: which one a file has (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emulator.errors import ScenarioError
from emulator.manifests.documents import RENDER, Document
from emulator.manifests.helm_jobs import ROOT, convert_jobs, convert_plain
from emulator.manifests.helm_statefulsets import convert_statefulsets
from emulator.manifests.names import as_name, stem_of
from emulator.manifests.spec import Conversion, Format, Options
from emulator.manifests.values import Values

RELEASE = "release"
"""The name of a release whose file has none."""
_JOBS = {"ps", "worker", "workers"}


def _recognises(documents: Sequence[Document]) -> bool:
    return any(_is_values(document) for document in documents)


def _is_values(document: Document) -> bool:
    data = document.data
    if not isinstance(data, Mapping) or "kind" in data or "apiVersion" in data:
        return False
    numbers = [data[key] for key in _JOBS & data.keys()]
    return isinstance(data.get(ROOT), Mapping) or any(
        isinstance(number, int | Mapping) for number in numbers
    )


def _convert(documents: Sequence[Document], options: Options) -> Conversion:
    values = next(document for document in documents if _is_values(document))
    others = [document for document in documents if document is not values]
    if others:
        problem = others[0].problem((), "is another document; values are one", "leave it out")
        raise ScenarioError([problem])
    data, reader = values.data, Values(values)
    release = release_of(values)
    if isinstance(data.get(ROOT), Mapping):
        return convert_jobs(reader, release, options)
    if "workerImage" in data:
        problem = values.problem(("workerImage",), "is a value of Arena's chart", RENDER)
        raise ScenarioError([problem])
    if any(isinstance(data.get(role), Mapping) and "image" in data[role] for role in _JOBS):
        return convert_statefulsets(reader, release, options)
    return convert_plain(reader, release, options)


def release_of(values: Document) -> str:
    """Return the name of the release: Helm has it from its command line, here the file has it.

    `shards.values.yaml` is of the release `shards`.
    """
    given = values.get("fullnameOverride") or values.get("nameOverride")
    stem = stem_of(values.file)
    return as_name(given) or as_name("" if stem == "values" else stem) or RELEASE


HELM_VALUES = Format("Helm values", _recognises, _convert)
"""Values of a chart with a map of jobs, or of distributed-tensorflow."""
