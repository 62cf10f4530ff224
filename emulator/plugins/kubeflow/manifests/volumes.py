"""The volumes of a pod, as mounts and files of its containers (pure)."""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.plugins.kubeflow.manifests.kubernetes_fields import OBJECTS
from emulator.plugins.kubeflow.manifests.objects import MapKind, Pod, is_key, text_of
from emulator.scenario.document import KeyPath
from emulator.scenario.program import SHARED
from emulator.validation.quantities import as_size, parse_quantity
from emulator.validation.similar import closest

SHM = "/dev/shm"
DEFAULT_SHM = "1g"
"""The size of an emptyDir at /dev/shm that has none, in a container without a memory limit."""
IN_MEMORY = "Memory"
DEFAULT_MODE = 0o644
_NAME = 63
_SAFE = re.compile(r"[^a-z0-9]+")
_OF_THE_TASK = ("emptyDir", "hostPath", "ephemeral", "gitRepo", "image", "downwardAPI")
"""Sources that each task has an empty volume of its own for."""


@dataclass
class Mounted:
    """What a container has mounted, by path."""

    mounts: dict[str, Any] = field(default_factory=dict)
    files: dict[str, Any] = field(default_factory=dict)
    shm_size: str | None = None
    origins: dict[KeyPath, KeyPath] = field(default_factory=dict)
    """Paths in the container of the scenario -> where they come from in the document."""


PART = "the part is a volume of its own, which is not seen where all of the volume is mounted"


def check_names(pod: Pod) -> None:
    """Add a mistake for each volume of a pod that has the name of another one."""
    names = set()
    for number, volume in enumerate(pod.spec.get("volumes", [])):
        if volume["name"] in names:
            message = f"there are two volumes named {volume['name']}"
            pod.findings.mistake((*pod.spec_path, "volumes", number, "name"), message)
        names.add(volume["name"])


def mounted(pod: Pod, container: Mapping[str, Any], path: KeyPath) -> Mounted:
    """Return the mounts and files of a container."""
    made = Mounted()
    volumes = {volume["name"]: n for n, volume in enumerate(pod.spec.get("volumes", []))}
    for number, mount in enumerate(container.get("volumeMounts", [])):
        at = (*path, "volumeMounts", number)
        index = volumes.get(mount["name"])
        if index is None:
            hint = closest(mount["name"], volumes) or "define it in spec.volumes of the template"
            message = f"there is no volume {mount['name']}"
            pod.findings.mistake((*at, "name"), message, hint)
            continue
        target = _target(pod, mount["mountPath"], (*at, "mountPath"))
        if target is None:
            continue
        if target in made.mounts:
            pod.findings.mistake((*at, "mountPath"), f"there is another mount at {target}")
        _mount(pod, container, made, _Place(index, mount, target, at))
    return made


@dataclass(frozen=True)
class _Place:
    """Where a volume is mounted in a container."""

    volume: int
    mount: Mapping[str, Any]
    target: str
    path: KeyPath

    @property
    def sub_path(self) -> str:
        """The part of the volume that is mounted; empty: all of it."""
        path = posixpath.normpath(self.mount.get("subPath") or ".")
        return "" if path == "." else path


def _target(pod: Pod, target: str, path: KeyPath) -> str | None:
    """Return a path of a container in its shortest form; None if it is none."""
    if not target.startswith("/") or ":" in target or ".." in target.split("/"):
        hint = "an absolute path, without ':' and '..'"
        pod.findings.mistake(path, f"{target!r} can't be mounted at", hint)
        return None
    return "/" + posixpath.normpath(target).lstrip("/")


def _mount(pod: Pod, container: Mapping[str, Any], made: Mounted, place: _Place) -> None:
    volume = pod.spec["volumes"][place.volume]
    at = (*pod.spec_path, "volumes", place.volume)
    sources = [key for key in volume if key in OBJECTS["Volume"] and key != "name"]
    if len(sources) > 1:
        pod.findings.mistake(at, f"has {' and '.join(sources)}; a volume has one source")
        return
    source = sources[0] if sources else "emptyDir"
    if place.sub_path.startswith(("/", "..")):
        pod.findings.mistake((*place.path, "subPath"), "leads out of the volume")
        return
    if source in ("configMap", "secret", "projected"):
        _put_files(pod, made, place, source, at)
        return
    made.origins["mounts", place.target] = place.path
    if place.target == SHM and source == "hostPath" and _is_shm(volume[source], place):
        made.shm_size = _shm_size({}, container)
        made.origins["shm_size",] = (*at, source)
        text = f"at {SHM} it is `shm_size`, here {made.shm_size}"
        pod.findings.note((*at, source), "approximated", text)
        return
    if place.target == SHM and source == "emptyDir":
        made.shm_size = _shm_size(volume.get("emptyDir", {}), container)
        made.origins["shm_size",] = (*at, source)
        return
    if place.target == SHARED:
        text = "the shared volume of the run is there, which is empty at its start"
        pod.findings.note((*place.path, "mountPath"), "approximated", text)
        return
    is_read_only = place.mount.get("readOnly", False)
    is_in_memory = source == "emptyDir" and volume.get(source, {}).get("medium") == IN_MEMORY
    if is_in_memory and (size := _in_memory(pod, volume, at)):
        made.mounts[place.target] = {"tmpfs": size}
        return
    if place.sub_path:
        pod.findings.note((*place.path, "subPath"), "approximated", PART)
    if source in _OF_THE_TASK:
        entry: dict[str, Any] = {"scratch": _scratch(volume["name"], place.sub_path)}
    else:
        claim = volume[source].get("claimName") if source == "persistentVolumeClaim" else None
        is_read_only = is_read_only or volume[source].get("readOnly", False) is True
        entry = {"volume": volume_name(pod, claim or volume["name"], place.sub_path)}
    made.mounts[place.target] = {**entry, **({"writable": False} if is_read_only else {})}


def _is_shm(volume: Mapping[str, Any], place: _Place) -> bool:
    """Return whether a hostPath is all of the machine's /dev/shm."""
    return posixpath.normpath(volume["path"]) == SHM and not place.sub_path


def _shm_size(volume: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    """Return the size of /dev/shm: that of the volume, else the memory of the container."""
    limit = container.get("resources", {}).get("limits", {}).get("memory")
    size = volume.get("sizeLimit", limit)
    return as_size(parse_quantity(size)) if size and parse_quantity(size) else DEFAULT_SHM


def _in_memory(pod: Pod, volume: Mapping[str, Any], path: KeyPath) -> str | None:
    """Return the size of a volume in memory; None if it must be one on the disk."""
    name, size = volume["name"], volume["emptyDir"].get("sizeLimit")
    containers = [*pod.spec.get("containers", []), *pod.spec.get("initContainers", [])]
    mounts = [one for each in containers for one in each.get("volumeMounts", [])]
    if size is None or not parse_quantity(size):
        why = "it has no sizeLimit"
    elif sum(mount["name"] == name for mount in mounts) > 1:
        why = "several mounts have it"
    else:
        return as_size(parse_quantity(size))
    text = f"it is on the disk, because {why}"
    pod.findings.note((*path, "emptyDir", "medium"), "approximated", text)
    return None


def _scratch(name: str, sub_path: str) -> str:
    """Return the name of an empty volume of a task: one for each part of a volume."""
    return _cut(f"{name}-{sub_path}" if sub_path else name)


def volume_name(pod: Pod, name: str, sub_path: str = "") -> str:
    """Return the name of a volume of the engine that stands for a claim of a namespace.

    It begins with `pvc-`, so that no manifest reaches a volume that others have made.
    """
    return "pvc-" + _cut("-".join(filter(None, [pod.namespace, name, sub_path])))


def _cut(name: str) -> str:
    """Return a name of letters, digits and dashes; a digest keeps apart what would be the same."""
    safe = _SAFE.sub("-", name.lower()).strip("-")
    if safe == name and len(safe) <= _NAME:
        return safe
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{safe[: _NAME - 9].strip('-')}-{digest}".lstrip("-")


# --- Files ----------------------------------------------------------------------------------------

_Content = tuple[bytes, int]
"""The content of a file, and its mode."""


def _put_files(pod: Pod, made: Mounted, place: _Place, source: str, path: KeyPath) -> None:
    """Add the files of a ConfigMap, a Secret or several of them."""
    volume = pod.spec["volumes"][place.volume][source]
    found = dict(_files(pod, source, volume, (*path, source)))
    if place.sub_path:
        found = _below(found, place.sub_path)
        if not found:
            message = f"the volume has no {place.sub_path}"
            pod.findings.mistake((*place.path, "subPath"), message)
    for name, (content, mode) in found.items():
        target = posixpath.join(place.target, name) if name else place.target
        made.files[target] = _entry(content, mode)
        made.origins["files", target] = place.path


def _below(files: Mapping[str, _Content], sub_path: str) -> dict[str, _Content]:
    """Return a file by the name "", or the files of a folder."""
    if sub_path in files:
        return {"": files[sub_path]}
    prefix = f"{sub_path}/"
    return {n.removeprefix(prefix): one for n, one in files.items() if n.startswith(prefix)}


def _files(
    pod: Pod, source: str, volume: Mapping[str, Any], path: KeyPath
) -> Iterator[tuple[str, _Content]]:
    mode = volume.get("defaultMode", DEFAULT_MODE)
    kinds: dict[str, MapKind] = {"configMap": "ConfigMap", "secret": "Secret"}
    if source in kinds:
        key = "secretName" if source == "secret" else "name"
        yield from _map_volume(pod, kinds[source], volume, (key, mode), path)
        return
    for number, projection in enumerate(volume.get("sources", [])):
        for each in kinds:
            if each in projection:
                at = (*path, "sources", number, each)
                yield from _map_volume(pod, kinds[each], projection[each], ("name", mode), at)


def _map_volume(
    pod: Pod, kind: MapKind, volume: Mapping[str, Any], how: tuple[str, int], path: KeyPath
) -> Iterator[tuple[str, _Content]]:
    """Yield the files of a ConfigMap or a Secret; `how`: where its name is, and their mode."""
    (key, mode), optional = how, volume.get("optional", False)
    found = pod.find_map(kind, volume[key], optional, (*path, key))
    if found is None:
        return
    items: Sequence[Mapping[str, Any]] = volume.get("items", [])
    if not items:
        yield from ((name, (content, mode)) for name, content in found.values.items())
    for number, item in enumerate(items):
        at = (*path, "items", number)
        if item["key"] in found.values:
            name = posixpath.normpath(item["path"])
            if not all(map(is_key, name.split("/"))) or item["path"].startswith("/"):
                hint = "a relative path without '..'"
                pod.findings.mistake((*at, "path"), f"{item['path']!r} leads elsewhere", hint)
                continue
            yield name, (found.values[item["key"]], item.get("mode", mode))
        elif not optional:
            pod.refuse_key((*at, "key"), kind, volume[key], found)


def _entry(content: bytes, mode: int) -> Any:  # noqa: ANN401  YAML
    text = text_of(content)
    given = {"base64": base64.b64encode(content).decode()} if text is None else {"text": text}
    if mode != DEFAULT_MODE:
        return {**given, "mode": f"{mode:04o}"}
    return given if text is None else text
