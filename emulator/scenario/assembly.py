"""From a manifest and what is added to it to the text of a scenario.

The parts are merged in this order: what the manifest is converted to, the file of `--faults`, and
`--command`. Every value keeps the place in the file that it comes from, so that a mistake in it is
reported there.
"""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from emulator.errors import Problem, ScenarioError, UsageError, shown
from emulator.runtime import plugins
from emulator.scenario import document as yaml_document
from emulator.scenario.document import KeyPath, ParseError
from emulator.scenario.dump import dump
from emulator.scenario.given import (
    Additions,
    Given,
    is_scenario,
    keys_of_scenario,
)
from emulator.scenario.loader import Origins, short_for
from emulator.scenario.manifests import (
    IMAGES,
    ConversionNote,
    Document,
    Format,
    Manifests,
    read_documents,
)
from emulator.scenario.schema import Scenario
from emulator.validation.files import text_of
from emulator.validation.limits import SCENARIO_BYTES
from emulator.validation.units import format_size

GIVEN, FAULTS = "given.yaml", "faults.yaml"
"""In a run folder: a scenario to which something was added, and the file of `--faults`."""
_broken: dict[str, UsageError] = {}
_READ: Sequence[Manifests] = [one for _, one in plugins.added("manifests", _broken)]
FORMATS: Sequence[Format] = tuple(chain.from_iterable(one.formats for one in _READ))
"""Every format, in the order in which they are tried."""
_INSTEAD: Mapping[str, str] = ChainMap(*(dict(one.instead) for one in _READ))


@dataclass
class _Parts:
    """A scenario that is put together."""

    data: dict[str, Any]
    origins: dict[KeyPath, tuple[str, str]]
    """The place of its values, and their path there."""
    notes: Sequence[ConversionNote] = ()
    kept: dict[str, str] = field(default_factory=dict)
    """The files that it comes from, by their name in the run folder."""

    def add(self, patch: Mapping[str, Any], origins: Origins) -> None:
        """Merge a part of a scenario over it."""
        for path in _replaced_by(patch, ()):
            for known in [one for one in self.origins if one[: len(path)] == path]:
                del self.origins[known]
        for path, origin in origins.items():
            self.origins[path] = origin
            if short := short_for(path):
                self.origins[*path, short] = origin
        self.data = merged(self.data, patch)


def assembled(path: Path, text: str, added: Additions) -> Given:
    """Return the scenario that a file and what is added to it make.

    Raises ScenarioError with all mistakes of the manifest, or of the file of `--faults`;
    UsageError if that can't be read, or if something is added that only a manifest can have.
    """
    scenario = _scenario_in(text, str(path))
    if scenario is not None:
        _refuse(path, added)
        if added.faults is None or not isinstance(scenario.data, dict) or scenario.mistakes:
            return Given(path, text)  # with its own mistakes, which its parser reports
        parts = _Parts(scenario.data, _origins(scenario, str(path)), kept={GIVEN: text})
    else:
        parts = _converted(path, text, added)
    if added.faults is not None:
        _add_faults(parts, added.faults, path.resolve().parent)
    if added.command:
        _add_command(parts, added.command)
    if scenario is None and not _has_commands(parts.data):
        raise ScenarioError([_no_command(path)])
    made = _heading(path, parts.notes) + as_text(parts.data)
    if (size := len(made.encode())) > SCENARIO_BYTES:
        message = f"makes a scenario of {format_size(size)}"
        hint = f"{format_size(SCENARIO_BYTES)} are the most; mount large files as a folder"
        raise ScenarioError([Problem(str(path), "", message, hint)])
    return Given(path, made, parts.origins, tuple(parts.notes), parts.kept)


def _scenario_in(text: str, file: str) -> yaml_document.Document | None:
    """Return the scenario that a text is meant to be, parsed; None if it is a manifest.

    Raises ScenarioError if it is neither.
    """
    try:
        document = yaml_document.read(text)
    except ParseError:
        return yaml_document.Document() if is_scenario(text) else None
    if not isinstance(document.data, dict):
        return document
    if keys_of_scenario(document.data):
        return document
    documents = (Document(file, document.data, document.lines),)
    is_manifest = "kind" in document.data or any(one.recognises(documents) for one in FORMATS)
    is_incomplete = not is_manifest and document.data.keys() & Scenario.model_fields.keys()
    return document if is_incomplete else None


def _refuse(path: Path, added: Additions) -> None:
    """Raise UsageError if something is added to a scenario that only a manifest can have."""
    given = [(f"--{one.name}", one.instead) for one in plugins.options() if one.name in added.own]
    if added.images:
        given.append(("--image", "--set image=REF"))
    if added.command:
        given.append(("--command", "--set 'program.command=[python, train.py]'"))
    for option, instead in given:
        raise UsageError(f"{option} is for manifests; {path} is a scenario.", f"Use {instead}.")


def _converted(path: Path, text: str, added: Additions) -> _Parts:
    documents = read_documents(text, str(path))
    found = format_of(documents, str(path)).convert(documents, {IMAGES: added.images, **added.own})
    origins = {at: (origin.place, origin.path) for at, origin in found.origins.items()}
    kept = {"manifest.json" if path.suffix == ".json" else "manifest.yaml": text}
    return _Parts(found.scenario, origins, found.notes, kept)


# --- What is added on the command line ------------------------------------------------------------


def _add_faults(parts: _Parts, file: Path, folder: Path) -> None:
    """Merge the file of `--faults` over a scenario whose paths are relative to `folder`.

    Raises UsageError if it can't be read, ScenarioError with its mistakes.
    """
    try:
        text = text_of(file, SCENARIO_BYTES)
    except ValueError as error:
        raise UsageError(f"Can't read {file}, the file of --faults: {error}.") from None
    try:
        part = yaml_document.read(text)
    except ParseError as error:
        place = f"{file}:{error.line}" if error.line else str(file)
        raise ScenarioError([Problem(place, "", f"not valid YAML: {error}")]) from None
    if not isinstance(part.data, dict):
        hint = "write `faults:` and below it, such as `- {preempt: worker-1, at: 30s}`"
        raise ScenarioError(
            [Problem(f"{file}:1", "", "is not a mapping of keys of a scenario", hint)]
        )
    if part.mistakes:
        raise ScenarioError(
            [
                Problem(f"{file}:{one.line}", _dotted(one.path), one.message, one.hint)
                for one in part.mistakes
            ]
        )
    parts.add(relocated(part.data, file.resolve().parent, folder), _origins(part, str(file)))
    parts.kept[FAULTS] = text


def _add_command(parts: _Parts, command: Sequence[str]) -> None:
    """Set the command of every task. Raises UsageError if a role has one of its own."""
    cluster = parts.data.get("cluster")
    roles = cluster if isinstance(cluster, dict) else {}
    if own := [
        role for role, spec in roles.items() if isinstance(spec, dict) and "command" in spec
    ]:
        raise UsageError(
            f"--command is one for all tasks; {', '.join(own)} has a command of its own.",
            "Write the commands into the file of --faults.",
        )
    path: KeyPath = ("program", "command")
    parts.add({"program": {"command": list(command)}}, {path: ("--command", _dotted(path))})


def _has_commands(scenario: Mapping[str, Any]) -> bool:
    """Say whether every task has a command; an empty one is the image's own."""
    program = scenario.get("program")
    return isinstance(program, dict) and "command" in program


def _no_command(path: Path) -> Problem:
    hint = (
        "add --command 'python train.py', or write `program: {source: train.py, "
        "command: [python, train.py]}` in the file of --faults"
    )
    return Problem(str(path), "", "it does not say what the tasks run", hint)


# --- Parts of a scenario --------------------------------------------------------------------------


def merged(base: Any, patch: Any, path: KeyPath = ()) -> Any:  # noqa: ANN401  JSON
    """Return `base` with a merge patch (RFC 7386) applied (pure).

    Null removes a key, a list replaces a list. `path` is where they are in a scenario. What a plain
    value there is short for counts: `worker: 4` over a mapping changes its `replicas`.
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


def _replaced_by(patch: Mapping[str, Any], path: KeyPath) -> Iterator[KeyPath]:
    """Yield the paths at which a part of a scenario replaces all that was there."""
    for key, value in patch.items():
        at = (*path, key)
        if isinstance(value, Mapping):
            yield from _replaced_by(value, at)
        elif value is None or not short_for(at):
            yield at


def _origins(document: yaml_document.Document, file: str) -> dict[KeyPath, tuple[str, str]]:
    return {path: (f"{file}:{line}", _dotted(path)) for path, line in document.lines.items()}


def _dotted(path: KeyPath) -> str:
    return ".".join(map(str, path))


def relocated(data: Any, old: Path, new: Path) -> Any:  # noqa: ANN401  YAML
    """Return a part of a scenario with its paths relative to the folder `new`, not `old` (pure)."""
    old, new = Path(os.path.abspath(old)), Path(os.path.abspath(new))

    def moved(path: str) -> str:
        return path if path.startswith(("/", "~")) else os.path.relpath(old / path, new)

    return data if old == new else _with_paths(data, (), moved)


def _with_paths(data: Any, path: KeyPath, change: Callable[[str], str]) -> Any:  # noqa: ANN401
    match data:
        case dict() if path in (("parametrize",), ("reference",)):  # values of dotted keys
            return {key: _varied(value, path, str(key), change) for key, value in data.items()}
        case dict():
            return {key: _with_paths(value, (*path, key), change) for key, value in data.items()}
        case list():
            return [_with_paths(value, (*path, n), change) for n, value in enumerate(data)]
        case str() if data and _is_path(path):
            return change(data)
    return data


def _varied(value: Any, section: KeyPath, key: str, change: Callable[[str], str]) -> Any:  # noqa: ANN401
    path = tuple(key.split("."))
    if section == ("parametrize",) and isinstance(value, list):
        return [_with_paths(one, path, change) for one in value]
    return _with_paths(value, path, change)


def _is_path(path: KeyPath) -> bool:
    """Say whether the text at a path of a scenario is a path of this machine (pure)."""
    match path:
        case ("program", "source") | ("faults", int(), "trace"):
            return True
        case ("cluster" | "helpers", _, *inner) | inner:
            pass
    match inner:
        case ("init", int(), *deeper):
            inner = deeper
    match inner:
        case ("source",) | ("image", "dockerfile" | "context"):
            return True
        case ("mounts", _) | ("mounts", _, "path"):
            return True
    return False


# --- Text -----------------------------------------------------------------------------------------


def moved(given: Given, folder: Path) -> str:
    """Return the text of a valid scenario for another folder: paths in it are relative to that."""
    data = yaml_document.read(given.text).data
    there = relocated(data, given.folder, folder.resolve())
    return given.text if there == data else _heading(given.path, given.notes) + as_text(there)


def _heading(path: Path, notes: Sequence[ConversionNote]) -> str:
    """Return the first lines of a converted scenario: where it is from, and what is different."""
    lines = [f"Made from {path.name} by emulate.", *map(str, notes)]
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)


def as_text(scenario: Mapping[str, Any]) -> str:
    """Return the data of a scenario as YAML, short lists and mappings on a line (pure)."""
    return dump(dict(scenario), short=True)


# --- Formats --------------------------------------------------------------------------------------


def format_of(documents: Sequence[Document], file: str) -> Format:
    """Return the format of a file. Raises ScenarioError if it is none that can run."""
    found = next((one for one in FORMATS if one.recognises(documents)), None)
    if found is None:
        raise ScenarioError([_unknown(documents, file)])
    return found


def _unknown(documents: Sequence[Document], file: str) -> Problem:
    known = ", ".join(one.name for one in FORMATS) or "none"
    known += "".join(f". {error.message} {error.hint}" for error in _broken.values())
    for document in documents:
        kind, version = document.get("kind"), document.get("apiVersion")
        if kind is not None:
            what = shown(f"{kind} of {version}" if version else str(kind), 100)
            instead = _INSTEAD.get(str(kind), "")
            hint = f"{instead}; known: {known}" if instead else f"known: {known}"
            return document.problem(("kind",), f"{what} can't run here", hint)
    hint = f"known: a scenario, {known}"
    return Problem(f"{file}:1", "", "neither a scenario nor a manifest", hint)
