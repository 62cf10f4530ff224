"""The runs that the gallery shows, read from their folders."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Run:
    """A finished run."""

    scenario: str
    variant: str
    """The values of a scenario's `parametrize:`, such as `program.env.N=2`; empty without."""
    summary: Mapping[str, Any]
    """Its summary.json."""
    folder: Path

    @property
    def name(self) -> str:
        """The name that pages use: `pipeline`, or with a variant `pipeline[program.env.N=2]`."""
        return f"{self.scenario}[{self.variant}]" if self.variant else self.scenario


def read_runs(folder: Path) -> list[Run]:
    """Return the latest run of each scenario and variant on the Docker engine, by name."""
    latest: dict[str, Run] = {}
    for path in sorted(folder.rglob("summary.json"), key=lambda path: path.stat().st_mtime):
        summary = json.loads(path.read_text(encoding="utf-8"))
        run = Run(summary["scenario"], summary["variant"], summary, path.parent)
        if summary["engine"] == "docker":
            latest[run.name] = run
    return [latest[name] for name in sorted(latest)]


def chosen(runs: Sequence[Run], patterns: str) -> Iterator[Run]:
    """Yield the runs that patterns name, in their order; raises LookupError if one names none.

    `NAME` is the run of a scenario without variants, `NAME[*]` all variants, `NAME[*=ring*]` some.
    """
    for pattern in patterns.split():
        scenario, _, variant = pattern.partition("[")
        found = [
            run
            for run in runs
            if fnmatchcase(run.scenario, scenario)
            and fnmatchcase(run.variant, variant.removesuffix("]"))
        ]
        if not found:
            raise LookupError(f"there is no run {pattern}")
        yield from found
