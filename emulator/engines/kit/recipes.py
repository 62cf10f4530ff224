"""What images are called: those that come with the emulator, and users' own (no engine is needed).

The tag is a hash of what an image is made of, so that every machine knows the name of an image
without asking the engine that has it, or a registry.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING

from emulator.errors import ImageError
from emulator.runtime.bundled import ROOT
from emulator.runtime.files import atomic_write, cache_dir, os_errors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from emulator.scenario.image import AnyImage, Dockerfile

KINDS = ("cpu", "gpu", "pytorch", "jax", "python", "network")
"""The images that come with the emulator, each with a Dockerfile of its own."""


_EXACT = re.compile(r"(?m)^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;#]+)")
"""A requirement of one version: `tensorflow[and-cuda]==2.21.0`."""


def reference(image: AnyImage, has_gpus: Callable[[], object], registry: str | None = None) -> str:
    """Return the reference of an image that a scenario names; nothing is built, or asked for.

    `auto` is the GPU image where tasks can have GPUs. Images that are built here are in the
    `registry`, such as `localhost:5000/team`, if one is named, and have the digest with which this
    machine has pushed them. A reference of the user's is left as it is.

    Raises UsageError where the files of an image of the user's can't be read.
    """
    named = without_preload(image)
    if isinstance(named, str):
        kind = ("gpu" if has_gpus() else "cpu") if named == "auto" else named
        if kind not in KINDS:
            return named
        tag = recipe_tag(kind)
    else:
        # It knows how Docker's builder reads a .dockerignore.
        from emulator.engines.docker.images import custom_tag

        tag = custom_tag(named)
    return pinned(in_registry(tag, registry)) if registry else tag


def is_built(image: AnyImage) -> bool:
    """Say whether an image that a scenario names is built, and not pulled."""
    named = without_preload(image)
    return not isinstance(named, str) or named in (*KINDS, "auto")


def without_preload(image: AnyImage) -> str | Dockerfile:
    """Return what names or builds the image: preloading changes nothing in it."""
    from emulator.scenario.image import NamedImage  # lists of runs do without models

    return image.name if isinstance(image, NamedImage) else image


def stable_tag(kind: str) -> str:
    """Return the name of an image that stays the same when its recipe changes."""
    return f"emulator-{kind}:latest"


def recipe_tag(kind: str) -> str:
    """Return `emulator-<kind>:<hash of the Dockerfile, its requirements and versions>`."""
    digest = hashlib.sha256()
    for name, path in recipe_files(kind).items():
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return f"emulator-{kind}:{digest.hexdigest()[:12]}"


def dockerfile_of(kind: str) -> str:
    """Return the path of a Dockerfile in the repository, and in its build context."""
    return f"Dockerfile.{kind}" if kind in ("cpu", "gpu") else f"images/Dockerfile.{kind}"


def recipe_files(kind: str) -> dict[str, Path]:
    """Return the files of a recipe by what the tag has of their names."""
    if kind == "python":  # alone
        return {f"Dockerfile.{kind}": ROOT / dockerfile_of(kind)}
    paths = [ROOT / dockerfile_of(kind), ROOT / "images" / "requirements" / f"{kind}.txt"]
    if kind != "network":  # it has packages of Debian alone
        paths.append(ROOT / "constraints.txt")
    return {path.name: path for path in paths}


def context_files(kind: str) -> dict[str, Path]:
    """Return the files of a recipe by their places in its build context."""
    paths = [*recipe_files(kind).values(), ROOT / "images/build/README.md"]
    return {str(path.relative_to(ROOT)): path for path in paths}


def required_versions(reference: str) -> dict[str, str]:
    """Return the versions that the recipe of an image requires, by package; none of other images.

    The tag is a hash of the recipe, so that they are those in the image.
    """
    tag = reference.rpartition("/")[2].partition("@")[0]
    for kind in KINDS:
        if tag.startswith(f"emulator-{kind}:") and tag == recipe_tag(kind):
            files = recipe_files(kind)
            text = files[name].read_text("utf-8") if (name := f"{kind}.txt") in files else ""
            return dict(_EXACT.findall(text))
    return {}


# --- Registries ----------------------------------------------------------------------------------


def in_registry(tag: str, registry: str) -> str:
    """Return what an image of this machine is called in a registry (pure)."""
    return f"{registry.rstrip('/')}/{tag}"


def pinned(name: str) -> str:
    """Return a reference with the digest that was pushed from this machine, if it was."""
    try:
        found = json.loads(_record(name).read_text("utf-8"))
        return f"{name}@{found['digest']}" if found["reference"] == name else name
    except (OSError, ValueError, KeyError, TypeError):
        return name


def remember(name: str, digest: str) -> None:
    """Note the digest with which an image was pushed. Raises ImageError if it can't be noted."""
    path = _record(name)
    with os_errors(ImageError, f"Can't write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        content = json.dumps({"reference": name, "digest": digest}, indent=2)
        atomic_write(path, f"{content}\n", many_writers=True)


def _record(name: str) -> Path:
    return cache_dir("pushed") / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"
