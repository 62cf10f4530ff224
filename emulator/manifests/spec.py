"""What defines a format of manifests (pure). `table.py` lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from emulator.manifests.documents import Document
from emulator.scenario.document import KeyPath


@dataclass(frozen=True)
class ConversionNote:
    """A field that does not do here all that it does in a cluster."""

    path: str
    """In Kubernetes' notation: `spec.runPolicy.schedulingPolicy`."""
    how: Literal["approximated", "ignored"]
    text: str
    """What is done instead, or why nothing is."""

    def __str__(self) -> str:
        return f"{self.path} is {self.how}: {self.text}"


@dataclass(frozen=True)
class SourceLocation:
    """Where a value of the converted scenario comes from."""

    place: str
    """`file:line`."""
    path: str
    """In Kubernetes' notation."""


@dataclass(frozen=True)
class Conversion:
    """A scenario as plain YAML data, and what of the manifest is not in it."""

    scenario: dict[str, Any]
    notes: tuple[ConversionNote, ...] = ()
    origins: Mapping[KeyPath, SourceLocation] = field(default_factory=dict)
    """By path in the scenario; a value without one comes from its closest parent's."""


@dataclass(frozen=True)
class Options:
    """What the command line adds to a manifest."""

    images: Mapping[str, str] = field(default_factory=dict)
    """Container name, role or image reference -> the image to use instead."""
    configmaps: Mapping[str, Path] = field(default_factory=dict)
    """Name of a ConfigMap or Secret -> a file or folder with its values."""


@dataclass(frozen=True)
class Format:
    """One format."""

    name: str
    """As users know it: `TFJob`."""
    recognises: Callable[[Sequence[Document]], bool]
    """Whether a file is meant to be of this format, even with mistakes in it."""
    convert: Callable[[Sequence[Document], Options], Conversion]
    """Make the scenario. Raises ScenarioError with all mistakes of the manifest."""
