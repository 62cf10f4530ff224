"""Write a scenario as a file of another tool, with what that can't say, so that it comes back.

A scenario is converted at once to what its manifest says of it. What remains is kept in the
manifest: as the merge patch from one to the other, or, where nothing reads the format, as a whole.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from emulator.errors import ScenarioError, UsageError
from emulator.manifests.assembly import relocated
from emulator.manifests.documents import Document, read_documents
from emulator.manifests.out.deployment import deployment
from emulator.manifests.out.difference import patch_of
from emulator.manifests.out.spec import Documents, Draft, Target
from emulator.manifests.out.table import IN_CLUSTER, TARGETS
from emulator.manifests.programs import sources
from emulator.manifests.spec import Format, Options
from emulator.manifests.table import FORMATS
from emulator.scenario.dump import WIDTH, dump
from emulator.scenario.schema import Scenario
from emulator.validation.similar import suggestion

HEAD = "# Written by `emulate export"
"""The first characters of every file that an export writes."""


@dataclass(frozen=True)
class Written:
    """A scenario as a file of another tool."""

    text: str
    notes: tuple[str, ...]
    """What works differently there, or is missing, and what to do about it."""


def target(name: str, scenario: Scenario) -> Target:
    """Return the format of that name. Raises UsageError if it can't have such a scenario."""
    if name not in TARGETS:
        hint = suggestion(name, (*TARGETS, IN_CLUSTER), "Formats")
        raise UsageError(f"There is no format {name}.", hint)
    found = TARGETS[name]
    if found.frameworks and scenario.framework not in found.frameworks:
        others = [one.name for one in TARGETS.values() if scenario.framework in one.frameworks]
        others += [one.name for one in TARGETS.values() if not one.frameworks]
        raise UsageError(
            f"A {found.importer or found.name} runs {found.frameworks[0]}, and the scenario has "
            f"framework: {scenario.framework}.",
            f"Formats for it: {', '.join(others)}.",
        )
    return found


def export(
    scenario: Scenario,
    data: Mapping[str, Any],
    to: Target,
    *,
    folder: Path,
    destination: Path,
    images: Mapping[str, str] | None = None,
    file: str = "FILE",
) -> Written:
    """Return a scenario as a file of another tool.

    `data` is what the scenario's own file says, with paths relative to `folder`; in the new file
    they are relative to `destination`, its folder. `file` is its name, for its head. `images` are
    references to use instead of images, by role or by the image's name.

    Raises UsageError if the format can't have the scenario.
    """
    own = relocated(data, folder, destination)
    deployed = deployment(
        scenario,
        partial(to.host, scenario),
        port=to.port,
        images=images,
        path=_relative_to(destination),
        sources={_resolved(destination, text): text for text in sources(own)},
    )
    draft = to.draft(deployed)
    to.carry(draft.documents, patch_of(_converted(draft, to), own) if _importer(to) else own)
    text = _head(scenario, to, draft, file) + text_of(draft.documents)
    if "{{" in text:  # a template, for whoever reads it again
        _read(text, to)
    return Written(text, draft.notes)


def _relative_to(folder: Path) -> Callable[[Path], str]:
    def written(path: Path) -> str:
        relative = os.path.relpath(path, folder)
        return relative if relative.startswith("..") else f"./{relative}"

    return written


def _resolved(folder: Path, path: str) -> Path:
    return (folder / Path(path).expanduser()).resolve()


def _importer(to: Target) -> Format | None:
    """Return the format that reads what is written; None: it comes back as a whole."""
    return next((one for one in FORMATS if one.name == to.importer), None)


def _converted(draft: Draft, to: Target) -> dict[str, Any]:
    """Return the scenario that the documents say by themselves."""
    importer = _importer(to)
    assert importer is not None
    documents = _read(text_of(draft.documents), to)
    try:
        return importer.convert(documents, Options()).scenario
    except ScenarioError as error:
        raise _unreadable(to, error) from None


def _read(text: str, to: Target) -> tuple[Document, ...]:
    try:
        return read_documents(text, to.name)
    except ScenarioError as error:
        raise _unreadable(to, error) from None


def _unreadable(to: Target, error: ScenarioError) -> UsageError:
    one = error.problems[0]
    return UsageError(
        f"The scenario can't be written for {to.name}, because it could not be read again: "
        f"{one.path}: {one.message}.",
        "Change it, such as by a script that has such text.",
    )


# --- The text -------------------------------------------------------------------------------------


def text_of(documents: Documents) -> str:
    """Return documents as YAML."""
    return "---\n".join(dump(one) for one in documents)


def _head(scenario: Scenario, to: Target, draft: Draft, file: str) -> str:
    """Return the comments at the head of a file."""
    lines = [f"{HEAD} {scenario.name} --to {to.name}`: {to.about}."]
    lines += [f"#     {line.replace('FILE', file)}" for line in draft.usage]
    for note in draft.notes:
        lines += textwrap.wrap(
            note, WIDTH, initial_indent="# - ", subsequent_indent="#   ", break_long_words=False
        )
    return "\n".join(lines) + "\n"
