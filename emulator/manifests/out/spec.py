"""What a format of `emulate export --to` is (pure). `table.py` lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulator.manifests.out.deployment import Deployment
    from emulator.scenario.frameworks.spec import FrameworkName
    from emulator.scenario.schema import Scenario

Documents = list[dict[str, Any]]
"""The documents of a file, in order."""


@dataclass(frozen=True)
class Draft:
    """A scenario as a file of another tool, before it has its head."""

    documents: Documents
    notes: tuple[str, ...] = ()
    """What works differently there, or is missing, and what to do about it."""
    usage: tuple[str, ...] = ()
    """How the file is used: lines for its head."""


@dataclass(frozen=True)
class ExportFormat:
    """One format that scenarios are written in."""

    name: str
    """The value of `--to`."""
    about: str
    draft: Callable[[Deployment], Draft]
    host: Callable[[Scenario, str, int], str]
    """The host name of a task, from its role and index; of a helper with the index -1."""
    port: int = 2222
    """The port of tasks, unless the scenario says another."""
    frameworks: Sequence[FrameworkName] = ()
    """Those of its jobs; empty: all."""
    has_operator: bool = False
    """Whether the training operator runs it, which `operator:` of a scenario describes."""
