"""What the parts of a pod template are read with (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator.manifests.expansion import Text
from emulator.manifests.fields import Findings
from emulator.manifests.objects import Objects
from emulator.scenario.document import KeyPath
from emulator.validation.limits import MANIFEST_BYTES
from emulator.validation.units import format_size


@dataclass
class Budget:
    """The text that a manifest may make: values and files can be referred to again and again."""

    left: int = MANIFEST_BYTES
    """Characters, for all containers of a job."""

    def claim(self, findings: Findings, path: KeyPath, size: int) -> bool:
        """Say whether there is room for a text; the first that has none is a mistake."""
        if 0 <= self.left < size:
            message = f"makes a scenario of more than {format_size(MANIFEST_BYTES)}"
            findings.mistake(path, message, "mount large files as a folder of this machine")
        self.left -= size
        return self.left >= 0


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
    in_every_container: bool
    """Whether it appends them to those of the side-cars too."""
    budget: Budget
    origins: dict[KeyPath, KeyPath] = field(default_factory=dict)
    """Paths in the role of the scenario -> where they come from in the document."""

    @property
    def spec_path(self) -> KeyPath:
        """Of the template's spec."""
        return (*self.path, "spec")
