"""What a scenario says about images: by name, or built from a Dockerfile."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from emulator.scenario.paths import ContextPath, DockerfilePath
from emulator.validation.fields import Model, Variable


def _module(value: str) -> str:
    if not all(part.isidentifier() for part in value.split(".")):
        raise ValueError(f"{value!r} is not the name of a Python module, such as 'tensorflow'")
    return value


Module = Annotated[str, Field(max_length=200), AfterValidator(_module)]
Preload = Annotated[list[Module] | None, Field(max_length=50, examples=[["tensorflow"]])]


class Dockerfile(Model):
    """An image built from the user's Dockerfile."""

    dockerfile: DockerfilePath = Field(examples=["docker/Dockerfile"])
    """The Dockerfile from which the image is built."""
    context: ContextPath | None = None
    """The build context; default: the Dockerfile's folder, or nothing if it copies no files."""
    args: dict[Variable, str] = Field({}, examples=[{"PYTHON": "3.12"}])
    """Build arguments, which the Dockerfile declares by ARG."""
    preload: Preload = None
    """The modules that a warm start imports ahead; default: those of the framework."""


class NamedImage(Model):
    """An image by name, with what a warm start imports ahead."""

    name: Annotated[str, BeforeValidator(lambda value: _reference(value))] = Field(examples=["cpu"])
    """The name of the image, or a reference."""
    preload: Preload = None
    """The modules that a warm start imports ahead; default: those of the framework."""


# https://github.com/distribution/reference: registry, path, tag, digest.
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[A-Za-z0-9+._-]+:[0-9a-fA-F]+)?"
)
_REFERENCE_LENGTH = 500


def _reference(value: object) -> object:
    if isinstance(value, str) and (
        len(value) > _REFERENCE_LENGTH or not _REFERENCE.fullmatch(value)
    ):
        raise ValueError(f"{value!r} is not an image reference, such as 'python:3.11-slim'")
    return value


def _image(value: object) -> object:
    if isinstance(value, str | Mapping | Dockerfile | NamedImage):
        return _reference(value)
    raise ValueError(
        "an image is 'cpu', 'gpu', 'auto', 'pytorch', 'jax', 'python', a reference or a dockerfile:"
    )


def _kind_of_image(value: object) -> str:
    if isinstance(value, str):
        return "Reference"
    named = isinstance(value, NamedImage) or (isinstance(value, Mapping) and "name" in value)
    return "NamedImage" if named else "Dockerfile"


Image = Annotated[
    Annotated[str, Tag("Reference")]
    | Annotated[NamedImage, Tag("NamedImage")]
    | Annotated[Dockerfile, Tag("Dockerfile")],
    # Not a plain union: that would report the errors of each kind of image.
    Discriminator(_kind_of_image),
    BeforeValidator(_image),
]
AnyImage = str | NamedImage | Dockerfile


_REGISTRY = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?"
    r"(/[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*)*"
)


def registry_name(text: str) -> str:
    """Return the name of a registry as it is. Raises ValueError where it is none."""
    first = text.partition("/")[0]
    is_host = any(mark in first for mark in ".:")
    # Without a host it is a name in the engine's own registry, which has no capitals.
    if not _REGISTRY.fullmatch(text) or (not is_host and first != first.lower()):
        raise ValueError(f"{text!r} is not a registry, such as localhost:5000/team")
    return text
