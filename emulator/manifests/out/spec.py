"""What a format of `emulate export --to` is (pure). `table.py` lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from emulator.manifests.out.deployment import Deployment

if TYPE_CHECKING:
    from emulator.scenario.frameworks.spec import FrameworkName
    from emulator.scenario.schema import Scenario

Documents = list[dict[str, Any]]
"""The documents of a file, in order."""


@dataclass(frozen=True)
class Draft:
    """A scenario as a file of another tool, before what it can't say is added."""

    documents: Documents
    notes: tuple[str, ...] = ()
    """What works differently there, or is missing, and what to do about it."""
    usage: tuple[str, ...] = ()
    """How the file is used: lines for its head."""


@dataclass(frozen=True)
class Order:
    """What a scenario is exported with."""

    images: Mapping[str, str] = field(default_factory=dict)
    """References to write instead of an image, by its name in the scenario, or by role."""


@dataclass(frozen=True)
class Target:
    """One format that scenarios are written in."""

    name: str
    """The value of `--to`."""
    about: str
    draft: Callable[[Deployment], Draft]
    host: Callable[[Scenario, str, int], str]
    """The host name of a task, from its role and index; of a helper with the index -1."""
    carry: Callable[[Documents, Any], None]
    """Puts into the documents what they can't say: a merge patch, or the whole scenario."""
    port: int = 2222
    """The port of tasks, unless the scenario says another."""
    frameworks: Sequence[FrameworkName] = ()
    """Those of its jobs; empty: all."""
    importer: str = ""
    """The name of the format that reads it; empty: it comes back by the whole scenario alone."""
