"""docs/results.md and docs/faults.md say what every key of summary.json means."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.memory import Script
from tests.report.runs import PREEMPT, a_run, step_line

DOCS = Path(__file__).parents[2] / "docs"


def listed(page: str, title: str) -> set[str]:
    """Return the keys in the first column of the tables of a section."""
    section = (DOCS / page).read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


@pytest.fixture
def summary(tmp_path: Path) -> dict[str, Any]:
    scripts = {"worker-*": Script(lines=[(n, step_line(n)) for n in range(1, 30)], exits_at=31)}
    found = a_run(tmp_path, f"cluster: {{worker: 2}}\n{PREEMPT}", scripts).summary
    assert found
    return found


def test_every_key_of_the_summary_is_explained(summary: dict[str, Any]) -> None:
    known = listed("results.md", "summary.json")
    parents = {name.partition(".")[0] for name in known}
    assert len(summary) > 30
    assert set(summary) - parents == set()
    for part in ("steps", "startup", "throughput", "cost"):
        last = {name.rpartition(".")[2] for name in known}
        assert set(summary[part]) - last == set(), part
    assert set(summary["time"]) - listed("results.md", "summary.json") == set()


def test_every_key_of_a_fault_is_explained(summary: dict[str, Any]) -> None:
    (fault,) = summary["faults"]
    section = (DOCS / "faults.md").read_text().partition("\n## Results of a fault\n")[2]
    unexplained = {key for key in fault if f"`{key}`" not in section.partition("\n## ")[0]}
    assert unexplained <= {"id", "kind", "target", "status", "reason", "triggered"}
