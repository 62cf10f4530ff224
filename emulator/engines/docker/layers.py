"""Removes what a build only needed from the image that it made.

A layer that a COPY made stays in an image, whatever later steps delete. So the image is saved, its
layers of inputs are left out, and the rest is loaded as another image. The layers below these are
already in the engine. Format: https://github.com/moby/docker-image-spec, as `docker save` writes
it.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

from emulator.engines.docker.dockerfiles import STAGE
from emulator.errors import ImageError

_NOP = re.compile(r"/bin/sh -c #\(nop\)\s+(\w+)\s+(\S+)")


def copies(history: Sequence[Mapping[str, Any]], folder: str) -> list[int]:
    """Return the numbers of the layers that copied the inputs, from the bottom up (pure)."""
    layers = [entry for entry in history if not entry.get("empty_layer")]
    copied = re.compile(rf"/bin/sh -c #\(nop\) COPY \S+ in /{re.escape(folder)}/ *")
    return [n for n, one in enumerate(layers) if copied.fullmatch(str(one.get("created_by", "")))]


def cleaned(config: Mapping[str, Any], folder: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """Return an image's configuration without inputs: layers, history, labels (pure)."""
    removed = copies(config["history"], folder)
    diff_ids = config["rootfs"]["diff_ids"]
    kept = [one for number, one in enumerate(diff_ids) if number not in removed]
    settings = dict(config["config"])
    labels = dict(settings.get("Labels") or {})
    labels.pop(STAGE, None)
    settings["Labels"] = labels
    return {
        # Of the container of the last step, with its environment.
        **{k: v for k, v in config.items() if k not in ("container", "container_config")},
        "config": settings,
        "rootfs": {**config["rootfs"], "diff_ids": kept},
        "history": _cleaned_history(config["history"], folder, variables),
    }


def _cleaned_history(
    history: Sequence[Mapping[str, Any]], folder: str, variables: Mapping[str, str]
) -> list[dict[str, Any]]:
    layer, removed = 0, copies(history, folder)
    kept: list[dict[str, Any]] = []
    for entry in history:
        if not entry.get("empty_layer"):
            layer += 1
            if layer - 1 in removed:
                continue
        said = str(entry.get("created_by", ""))
        if match := _NOP.match(said):
            name = match[2].partition("=")[0]
            if (match[1] == "ARG" and name in variables) or (match[1], name) == ("LABEL", STAGE):
                continue
        kept.append({**entry, "created_by": _without(said, variables)} if said else dict(entry))
    return kept


def _without(said: str, variables: Mapping[str, str]) -> str:
    """Return a step without our variables: `|2 A=b PIP_CERT=c /bin/sh` -> `|1 A=b /bin/sh`."""
    match = re.match(r"\|(\d+) ", said)
    if match is None:
        return said
    count, rest = int(match[1]), " " + said[match.end() :]
    for name, value in variables.items():
        if f" {name}={value} " in rest:
            count -= 1
            rest = rest.replace(f" {name}={value} ", " ", 1)
    return f"|{count}{rest}" if count > 0 else rest[1:]


def without_inputs(
    saved: IO[bytes],
    result: IO[bytes],
    tag: str,
    folder: str,
    variables: Mapping[str, str],
    *,
    complete: bool = False,
) -> None:
    """Write an archive of the image `tag` without the inputs; `saved` is one of it with them.

    The layers below the inputs are left out unless it is to be `complete`. Raises ImageError if
    another layer has the inputs too.
    """
    with tarfile.open(fileobj=saved) as source, tarfile.open(fileobj=result, mode="w") as target:
        (manifest,) = json.loads(_read(source, "manifest.json"))
        config = json.loads(_read(source, manifest["Config"]))
        removed = copies(config["history"], folder)
        clean = json.dumps(cleaned(config, folder, variables)).encode()
        name = f"{hashlib.sha256(clean).hexdigest()}.json"
        layers: list[str] = []
        for number, layer in enumerate(manifest["Layers"]):
            if number in removed:
                continue
            layers.append(layer)
            above = not removed or number > removed[0]  # without any, each layer is checked
            if above:
                _refuse_inputs(source, layer, folder, tag)
            if complete or above:
                _copy(source, target, layer)
        _add(target, name, clean)
        entry = {"Config": name, "RepoTags": [tag], "Layers": layers}
        _add(target, "manifest.json", json.dumps([entry]).encode())


def _refuse_inputs(source: tarfile.TarFile, layer: str, folder: str, tag: str) -> None:
    """Raise ImageError if a layer has files of the inputs."""
    content = source.extractfile(layer)
    assert content is not None
    with tarfile.open(fileobj=content) as files:
        if any(file.isfile() and file.name.startswith(f"{folder}/") for file in files):
            raise ImageError(
                f"{tag} would keep /{folder}, which has this machine's CA bundle and wheels.",
                f"A step of its Dockerfile copies the whole root of a stage: leave /{folder} out.",
            )


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()


def _copy(source: tarfile.TarFile, target: tarfile.TarFile, name: str) -> None:
    """Copy a file, which may be a link to another one of the archive."""
    file = source.extractfile(name)
    assert file is not None
    entry = tarfile.TarInfo(name)
    entry.size = file.seek(0, io.SEEK_END)
    file.seek(0)
    target.addfile(entry, file)


def _add(target: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    target.addfile(entry, io.BytesIO(content))


def errors_of(messages: Iterable[bytes]) -> list[str]:
    """Return the errors in what an engine says while it loads an image."""
    return [str(one["error"]) for one in map(json.loads, messages) if "error" in one]
