"""The table of formats. A new one is one file and its entry here."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from emulator.errors import Problem, ScenarioError, shown
from emulator.manifests.cluster_json import CLUSTER_JSON
from emulator.manifests.documents import Document
from emulator.manifests.helm_values import HELM_VALUES
from emulator.manifests.spec import Format
from emulator.scenario.document import KeyPath
from emulator.scenario.extension import added

FORMATS: Sequence[Format] = (*chain.from_iterable(added("formats")), HELM_VALUES, CLUSTER_JSON)
"""Every format, in the order in which they are tried."""
KEPT: Sequence[KeyPath] = (
    ("metadata", "annotations", "emulator/overlay"),
    ("x-emulator",),
    ("emulator",),
)
"""Where the exports of earlier versions had a scenario, or a part of one."""


def format_of(documents: Sequence[Document], file: str) -> Format:
    """Return the format of a file. Raises ScenarioError if it is none that can run."""
    for document in documents:
        for path in KEPT:
            if document.get(*path) is not None:
                hint = "give the scenario, or the manifest without it and a part with --faults"
                raise ScenarioError([document.problem(path, "is not read any more", hint)])
    found = next((one for one in FORMATS if one.recognises(documents)), None)
    if found is None:
        raise ScenarioError([_unknown(documents, file)])
    return found


def _unknown(documents: Sequence[Document], file: str) -> Problem:
    known = ", ".join(one.name for one in FORMATS)
    for document in documents:
        kind, version = document.get("kind"), document.get("apiVersion")
        if kind is not None:
            what = shown(f"{kind} of {version}" if version else str(kind), 100)
            return document.problem(("kind",), f"{what} can't run here", f"known: {known}")
    hint = f"known: a scenario, {known}"
    return Problem(f"{file}:1", "", "neither a scenario nor a manifest", hint)
