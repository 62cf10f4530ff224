"""The whole of what is made of a file, or all that is wrong with it: `NAME.made`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.errors import ScenarioError
from emulator.scenario.assembly import as_text, format_of
from emulator.scenario.loader import parse
from emulator.scenario.manifests import read_documents

WHOLE = Path(__file__).parent / "whole"


def made(path: Path) -> dict[str, Any]:
    """Return the scenario, the notes, and the place of each value; or the mistakes."""
    given = read_documents(path.read_text(), path.name)
    try:
        found = format_of(given, path.name).convert(given, {})
    except ScenarioError as error:
        return {"problems": [str(problem) for problem in error.problems]}
    origins = {
        ".".join(map(str, at)): f"{origin.place.partition(':')[2]} {origin.path}"
        for at, origin in found.origins.items()
    }
    notes = [str(note) for note in found.notes]
    return {"scenario": found.scenario, "notes": notes, "origins": origins}


@pytest.mark.parametrize("expected", sorted(WHOLE.glob("*.made")), ids=lambda path: str(path.stem))
def test_the_whole_of_a_conversion(expected: Path) -> None:
    check_conversion(expected)


def check_conversion(expected: Path) -> None:
    found = made(expected.with_suffix(""))
    assert found == yaml.safe_load(expected.read_text())
    if "program" in found.get("scenario", {}):  # else `--command` or `--faults` is needed
        parse(as_text(found["scenario"]))
