"""Figures of the benchmarks: how they are stored, compared with the last ones, and shown."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["STORED", "Figure", "machine", "store", "stored", "tables", "worse"]

HERE = Path(__file__).parent
STORED = HERE / "results.json"
PAGE = HERE.parent / "docs" / "benchmarks.md"
WORSE = 1.1
"""A figure got worse if it grew by more than a tenth."""


@dataclass(frozen=True)
class Figure:
    """One measured number; less is better for each of them."""

    key: str
    """Its name in results.json."""
    title: str
    value: float
    unit: str
    """Such as `s`, `ms`, or a ratio as `/ floor`."""
    goal: float | None = None

    @property
    def reached(self) -> str:
        """Whether it is no greater than its goal; empty where there is none."""
        return "" if self.goal is None else "yes" if self.value <= self.goal else "**no**"


def stored() -> dict[str, float]:
    """Return the values that were stored last, by key."""
    if not STORED.exists():
        return {}
    tables: Mapping[str, Any] = json.loads(STORED.read_text())["tables"]
    return {one["key"]: one["value"] for table in tables.values() for one in table["figures"]}


def worse(before: Mapping[str, float], figures: Iterable[Figure]) -> list[str]:
    """Return a sentence for each figure that is more than a tenth greater than `before`."""
    return [
        f"{one.key} ({one.title}): {before[one.key]:.3g} -> {one.value:.3g} {one.unit}"
        for one in figures
        if before.get(one.key) and one.value > WORSE * before[one.key]
    ]


def machine() -> str:
    """Return what a figure was measured on, in words."""
    import os

    import docker

    try:
        version = docker.from_env().version()["Version"]
    except docker.errors.DockerException:
        version = "none"
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {platform.system()} {platform.release()}, Docker {version}"


def commit() -> str:
    """Return the commit that is measured; with a `+` if the work tree differs from it."""
    git = ["git", "-C", str(HERE)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run([*git, "status", "--porcelain", "emulator"], capture_output=True)
    return head.stdout.strip() + ("+" if changed.stdout else "")


def store(name: str, command: str, when: str, figures: Iterable[Figure]) -> None:
    """Put the figures of one benchmark in results.json."""
    all_tables = json.loads(STORED.read_text()) if STORED.exists() else {"tables": {}}
    all_tables["tables"][name] = {
        "command": command,
        "commit": commit(),
        "date": when,
        "machine": machine(),
        "figures": [asdict(one) for one in figures],
    }
    STORED.write_text(json.dumps(all_tables, indent=1) + "\n")
    _write_page(all_tables["tables"])


def tables(stored_tables: Mapping[str, Any]) -> dict[str, str]:
    """Return the table of each benchmark in Markdown, by name (pure)."""
    found = {}
    for name, table in stored_tables.items():
        rows = [Figure(**one) for one in table["figures"]]
        lines = [
            f"`{table['command']}` at {table['commit']}, {table['date']}; {table['machine']}.",
            "",
            "| | measured | goal | reached |",
            "|---|---|---|---|",
            *(
                f"| {one.title} | {one.value:.3g} {one.unit} | "
                f"{'' if one.goal is None else f'{one.goal:g}'} | {one.reached} |"
                for one in rows
            ),
        ]
        found[name] = "\n".join(lines)
    return found


def _write_page(stored_tables: Mapping[str, Any]) -> None:
    """Write each table between its two markers in docs/benchmarks.md."""
    page = PAGE.read_text()
    for name, table in tables(stored_tables).items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if begin not in page:
            raise SystemExit(f"{PAGE} has no place for a table: {begin} ... {end}")
        page = re.sub(
            re.escape(begin) + ".*?" + re.escape(end),
            lambda _, text=f"{begin}\n{table}\n{end}": text,  # type: ignore[misc]
            page,
            flags=re.DOTALL,
        )
    PAGE.write_text(page)
