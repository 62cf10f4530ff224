"""docs/cheat-sheet.md and docs/recipes.md: what they show is valid, and the sheet has every key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.faults.kinds import entries
from emulator.planning.planner import make_plan
from emulator.scenario.loader import parse
from emulator.scenario.schema import json_schema
from tests.histories import SITE

DOCS = Path(__file__).parents[2] / "docs"
SHEET = (DOCS / "cheat-sheet.md").read_text()
RECIPES = (DOCS / "recipes.md").read_text()


def blocks(page: str) -> list[str]:
    """Return the scenarios of a page; other blocks have no `cluster`."""
    found = re.findall(r"(?ms)^```yaml\n(.*?)^```$", page)
    return [text for text in found if "cluster" in yaml.safe_load(text)]


def complete(text: str) -> str:
    """A recipe leaves the name out."""
    return text if "name" in yaml.safe_load(text) else f"name: recipe\n{text}"


@pytest.mark.parametrize("text", [*blocks(SHEET), *blocks(RECIPES)], ids=lambda text: text[:20])
def test_each_scenario_has_a_plan(text: str, tmp_path: Path) -> None:
    for name in ("data", "checkpoints"):
        (tmp_path / name).mkdir()
    for name in ("train.py", "Dockerfile", "trace.csv"):
        (tmp_path / name).write_text("time,target,down\n1,worker-1,2\n")
    assert make_plan(parse(complete(text), folder=tmp_path), "x-1", SITE).tasks


def named(key: str) -> re.Pattern[str]:
    return re.compile(rf"(?m)(?:^|[{{,`\s-]){re.escape(key)}(?::|`|$)")


def test_the_sheet_has_every_key() -> None:
    schema: dict[str, Any] = json_schema()
    expected = schema["$defs"]["Expectations"]["properties"]
    keys = [*schema["properties"], *expected, *entries()]
    assert len(keys) > 60
    assert [key for key in keys if not named(key).search(SHEET)] == []
