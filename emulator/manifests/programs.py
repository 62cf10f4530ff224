"""Programs that come back where their folder is not there: from the ConfigMaps of the file.

`emulate export` writes the folder of a program as a ConfigMap, and into its annotation the path by
which the scenario names the folder. As long as the folder is there, it is the program.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from emulator.manifests.documents import Document
from emulator.manifests.objects import text_of
from emulator.manifests.spec import SOURCE, Note
from emulator.manifests.volumes import DEFAULT_MODE
from emulator.scenario.document import KeyPath
from emulator.scenario.program import WORKDIR

Data = dict[str, Any]


def restored(
    scenario: Mapping[str, Any], documents: Sequence[Document], folder: Path
) -> Iterator[tuple[Data, Note]]:
    """Yield merge patches that put programs into files of containers, each with its note.

    `folder` is that to which the paths of the scenario are relative. A program that is not there,
    and not in the documents either, remains a mistake of the scenario.
    """
    maps = {
        name: one.data
        for one in documents
        if one.get("kind") == "ConfigMap"
        and isinstance(name := one.get("metadata", "annotations", SOURCE), str)
    }
    for path, spec in _with_source(scenario):
        source = spec["source"]
        if source not in maps or _is_there(folder, source):
            continue
        target = spec.get("working_dir") or _of_program(scenario, "working_dir") or WORKDIR
        files = {f"{target}/{name}": file for name, file in _files(maps[source], documents)}
        patch: Data = {"source": None, "working_dir": target, "files": files}
        for key in reversed(path):
            patch = {str(key): patch}
        name = maps[source].get("metadata", {}).get("name")
        text = f"there is no {source} here; the program is that of the ConfigMap {name}"
        yield patch, Note(".".join((*map(str, path), "source")), "approximated", text)


def sources(scenario: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of the programs of a scenario, as it has them."""
    for _, spec in _with_source(scenario):
        yield spec["source"]


def _with_source(scenario: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Data]]:
    """Yield the parts of a scenario that have a program's folder or file."""
    parts: list[tuple[KeyPath, Any]] = [(("program",), scenario.get("program"))]
    for section in ("cluster", "helpers"):
        inner = scenario.get(section)
        if isinstance(inner, Mapping):
            parts += [((section, name), spec) for name, spec in inner.items()]
    for path, spec in parts:
        if isinstance(spec, dict) and isinstance(spec.get("source"), str):
            yield path, spec


def _of_program(scenario: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401  YAML
    program = scenario.get("program")
    return program.get(key) if isinstance(program, Mapping) else None


def _is_there(folder: Path, source: str) -> bool:
    try:
        return (folder / os.path.expanduser(source)).exists()
    except (OSError, ValueError):  # no path at all, which the scenario's own checks say
        return True


def _files(
    configmap: Mapping[str, Any], documents: Sequence[Document]
) -> Iterator[tuple[str, Data]]:
    """Yield the files of a ConfigMap by their path in the volume that has it."""
    contents: dict[str, bytes] = {}
    for section, read in (("data", str.encode), ("binaryData", base64.b64decode)):
        found = configmap.get(section)
        for key, value in (found if isinstance(found, Mapping) else {}).items():
            if isinstance(value, str):
                try:
                    contents[str(key)] = read(value)
                except ValueError:  # not base64: the reader of the job says so where it is used
                    continue
    name = configmap.get("metadata", {}).get("name")
    volume = next((one for d in documents for one in _volumes(d.data, name)), {})
    given = volume.get("defaultMode")
    default = given if isinstance(given, int) else DEFAULT_MODE
    items = volume.get("items")
    listed = [one for one in items if isinstance(one, Mapping)] if isinstance(items, list) else None
    for item in [{"key": key, "path": key} for key in contents] if listed is None else listed:
        content = contents.get(str(item.get("key")))
        if content is None:
            continue
        mode = item.get("mode", default)
        text = text_of(content)
        file = {"base64": base64.b64encode(content).decode()} if text is None else {"text": text}
        is_own = isinstance(mode, int) and mode != DEFAULT_MODE
        yield str(item.get("path")), file | ({"mode": f"{mode:04o}"} if is_own else {})


def _volumes(data: object, name: object) -> Iterator[Mapping[str, Any]]:
    """Yield the sources of the volumes with a ConfigMap, wherever a document has pods."""
    match data:
        case {"configMap": dict(source)} if source.get("name") == name:
            yield source
        case dict():
            for value in data.values():
                yield from _volumes(value, name)
        case list():
            for value in data:
                yield from _volumes(value, name)
