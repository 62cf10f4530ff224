"""The lines of a session's summary, from the properties of its tests."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from emulator.pytest_plugin.reporting import lines, properties
from emulator.results import Result


def a_run(steps: dict[str, int]) -> Result:
    known: dict[str, Any] = {"run_id": "r", "verdict": "ok", "folder": Path("/r")}
    return cast("Result", SimpleNamespace(summary={"steps": steps}, **known))


def test_lost_steps_that_are_an_interval_are_plain_numbers_for_xdist() -> None:
    named = dict(properties([a_run({"lost": 446, "lost_at_least": 396})]))
    assert (type(named["lost_steps"]), named["lost_steps"]) == (int, 446)
    assert named["lost_at_least"] == 396
    assert next(lines({"a test": named.items()})) == "ok      a test  396 to 446 steps lost"
    exact = dict(properties([a_run({"lost": 446, "lost_at_least": 446})]))
    assert "lost_at_least" not in exact
    assert next(lines({"a test": exact.items()})) == "ok      a test  446 steps lost"
