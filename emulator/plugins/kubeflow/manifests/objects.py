"""What the parts of a pod template are read with.

The ConfigMaps, Secrets and other objects that a job refers to are those of its file, or of an
option.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from emulator.errors import Problem, ScenarioError
from emulator.plugins.kubeflow.manifests.common import Options
from emulator.plugins.kubeflow.manifests.expansion import Text
from emulator.plugins.kubeflow.manifests.fields import Findings, Reader
from emulator.plugins.kubeflow.manifests.kubernetes_fields import MOVED, OBJECTS
from emulator.scenario.document import KeyPath
from emulator.scenario.manifests import Document
from emulator.validation.files import kind_of, readable, reason
from emulator.validation.limits import MANIFEST_BYTES
from emulator.validation.similar import closest
from emulator.validation.units import format_size

MapKind = Literal["ConfigMap", "Secret"]
SECRETS = "its values are plain text in the scenario and in the run folder"
KEYS = 200
"""Values of a ConfigMap, at most: each is a file of a container."""
# k8s.io/apimachinery/pkg/util/validation, IsConfigMapKey.
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


def is_key(text: str) -> bool:
    """Return whether a text can be a key of a ConfigMap, and so the name of a file."""
    return bool(_KEY.fullmatch(text)) and text != "." and not text.startswith("..")


@dataclass(frozen=True)
class Values:
    """The values of a ConfigMap or a Secret."""

    values: Mapping[str, bytes]
    binary: frozenset[str] = frozenset()
    """The keys of `binaryData`, which are files but no variables."""


@dataclass
class Objects:
    """What a job can refer to in its namespace."""

    maps: dict[tuple[str, str], Values] = field(default_factory=dict)
    """By kind and name."""
    given: dict[str, Values] = field(default_factory=dict)
    """By name: those of `--configmap`, which may be of either kind."""
    used: set[str] = field(default_factory=set)
    """The names of `given` that were found."""

    def find(self, kind: MapKind, name: str) -> Values | None:
        """Return a ConfigMap or a Secret; that of an option comes first."""
        if name in self.given:
            self.used.add(name)
            return self.given[name]
        return self.maps.get((kind, name))

    def hint(self, kind: MapKind, name: str) -> str:
        """Return how to add one that is missing."""
        names = [other for of, other in self.maps if of == kind]
        add = f"add it to the file, or give --configmap {name}=FILE, or a folder"
        return closest(name, names) or add


def read_objects(
    documents: Sequence[Document], namespace: str, options: Options
) -> tuple[Objects, list[Findings]]:
    """Return the objects of a namespace, and what is found in the documents that are no job.

    Raises ScenarioError if what an option names can't be read.
    """
    objects, found = Objects(given=_given(options)), []
    for document in documents:
        metadata = document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else ""
        findings = Findings(document, of=f"{document.get('kind')} {name or ''}".strip())
        found.append(findings)
        match document.get("kind"):
            case "ConfigMap" | "Secret" as kind:
                _add_map(objects, findings, kind, namespace)
            case "PersistentVolumeClaim":
                text = "a volume of the engine, whatever its size and its class"
                findings.note(("spec",), "approximated", text)
            case kind:
                findings.note(("kind",), "ignored", f"a {kind} has no meaning on this machine")
    return objects, found


def _add_map(objects: Objects, findings: Findings, kind: str, namespace: str) -> None:
    read = Reader(OBJECTS, MOVED).read(findings, kind)
    metadata = read.get("metadata", {})
    name = metadata.get("name")
    if not name or metadata.get("namespace", "default") != namespace:
        if name:
            elsewhere = metadata.get("namespace", "default")
            text = f"it is in the namespace {elsewhere}, and the job in {namespace}"
            findings.note(("metadata", "namespace"), "ignored", text)
        return
    if (kind, name) in objects.maps:
        findings.mistake(("metadata", "name"), f"there are two of kind {kind} named {name}")
    plain = "data" if kind == "ConfigMap" else "stringData"
    coded = "binaryData" if kind == "ConfigMap" else "data"
    values = dict(_decoded(findings, coded, read.get(coded, {})))
    binary = frozenset(values if kind == "ConfigMap" else ())
    values |= {key: text.encode() for key, text in read.get(plain, {}).items()}
    for section in (plain, coded):
        for key in read.get(section, {}):
            if not is_key(key):
                hint = "letters, digits, '-', '_' and '.'"
                findings.mistake((section, key), "can't be the name of a file", hint)
    if len(values) > KEYS:
        findings.mistake((plain,), f"has {len(values)} values; {KEYS} are the most")
    objects.maps[kind, name] = Values(values, binary)


def _decoded(
    findings: Findings, section: str, values: Mapping[str, str]
) -> Iterator[tuple[str, bytes]]:
    for key, text in values.items():
        try:
            yield key, base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError):
            hint = "write it in stringData as it is" if section == "data" else ""
            findings.mistake((section, key), "is not base64", hint)


# --- Of the option --------------------------------------------------------------------------------


def _given(options: Options) -> dict[str, Values]:
    """Read the files and folders of `--configmap`. Raises ScenarioError."""
    given, problems = dict[str, Values](), list[Problem]()
    for name, path in options.configmaps.items():
        try:
            given[name] = Values(dict(_files(path)))
        except ValueError as error:
            problems.append(Problem(f"--configmap {name}={path}", "", str(error)))
    if problems:
        raise ScenarioError(problems)
    return given


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a folder with their names, or a file, as `kubectl create configmap` does.

    What is in folders below, and links, are left out. Raises ValueError.
    """
    total = 0
    for file in _named(path):
        if not is_key(file.name):
            raise ValueError(f"{file.name} can't be a key: letters, digits, '-', '_' and '.' only")
        try:
            readable(file, MANIFEST_BYTES)
            content = file.read_bytes()
        except OSError as error:
            raise ValueError(f"{file.name}: {reason(error)}") from None
        except ValueError as error:
            raise ValueError(f"{file.name}: {error}") from None
        total += len(content)
        if total > MANIFEST_BYTES:
            raise ValueError(f"has more than {format_size(MANIFEST_BYTES)}")
        yield file.name, content


def _named(path: Path) -> list[Path]:
    """Return a file, or the files of a folder by name. Raises ValueError."""
    try:
        if not path.is_dir():
            return [path]
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if not entry.is_symlink())
        found = [path / name for name in names]
        files = [file for file in found if not kind_of(file.stat().st_mode)]
    except OSError as error:
        raise ValueError(reason(error)) from None
    if len(files) > KEYS:
        raise ValueError(f"has {len(files)} files; {KEYS} are the most")
    return files


def check_used(objects: Objects, options: Options) -> Iterator[Problem]:
    """Yield the options that nothing in the job refers to."""
    for name, path in options.configmaps.items():
        if name not in objects.used:
            message = f"no volume or variable of the job refers to {name}"
            yield Problem(f"--configmap {name}={path}", "", message)


def text_of(content: bytes) -> str | None:
    """Return bytes as text; None if a scenario can't have them as text."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    is_plain = all(one.isprintable() or one in "\n\t" for one in text)
    return text if is_plain else None


# --- Pods that refer to them ----------------------------------------------------------------------


@dataclass
class Pod:
    """A pod template of a job, and what is found in it."""

    findings: Findings
    objects: Objects
    namespace: str
    role: str
    """The replica type in lower case."""
    path: KeyPath
    """Of the template."""
    spec: Mapping[str, Any]
    """The valid part of its spec."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    labels_of_operator: Mapping[str, Text]
    """Labels that the operator adds to them."""
    container: str
    """The name of the container that trains."""
    set_by_operator: frozenset[str]
    """Variables that the operator appends to those of that container."""
    annotations_of_operator: Mapping[str, Text] = field(default_factory=dict)
    """Annotations that it adds to them."""
    origins: dict[KeyPath, KeyPath] = field(default_factory=dict)
    """Paths in the role of the scenario -> where they come from in the document."""

    @property
    def spec_path(self) -> KeyPath:
        """Of the template's spec."""
        return (*self.path, "spec")

    def find_map(self, kind: MapKind, name: str, optional: bool, path: KeyPath) -> Values | None:
        """Return a ConfigMap or a Secret; add a mistake if it is missing and needed."""
        found = self.objects.find(kind, name)
        if found is None and not optional:
            hint = self.objects.hint(kind, name)
            self.findings.mistake(path, f"there is no {kind} {name} in {self.namespace}", hint)
        if found is not None and kind == "Secret":
            self.findings.note(path, "approximated", SECRETS)
        return found

    def refuse_key(self, path: KeyPath, kind: str, name: str, values: Values) -> None:
        """Add the mistake that a ConfigMap or a Secret has no such key."""
        key = self.findings.document.get(*path)
        hint = closest(str(key), values.values) or f"it has {', '.join(sorted(values.values)[:8])}"
        hint = hint if values.values else ""
        self.findings.mistake(path, f"the {kind} {name} has no key {key}", hint)
