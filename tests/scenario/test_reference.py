"""docs/scenario.md explains each key of a scenario, and leaves its facts to the reference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emulator.scenario.schema import Scenario

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "scenario.md").read_text()
REFERENCE = (DOCS / "reference" / "scenario.md").read_text()


@pytest.mark.parametrize("name", sorted(Scenario.model_fields))
def test_every_key_of_a_scenario_is_explained(name: str) -> None:
    assert re.search(rf"`{name}[`.:]", PAGE)


def test_no_table_repeats_the_reference() -> None:
    keys = set(re.findall(r"(?m)^\| `(\w+)` \|", REFERENCE))
    assert {"cluster", "replicas", "final_step"} <= keys
    first_cells = re.findall(r"(?m)^\|([^|]*)\|", PAGE)
    listed = {name for cell in first_cells for name in re.findall(r"`[\w.]*?(\w+)`", cell)}
    assert not listed & keys - {"shared"}  # of the table of `/shared`


def test_what_the_reference_has_is_linked_to() -> None:
    """A part of a scenario that has keys of its own, but those that are parts of faults."""
    sections = re.findall(r"(?m)^## (?!Fault: )(.*)\n\n.* At `(?!faults)([\w.*]+)`", REFERENCE)
    assert len(sections) > 20
    linked = set(re.findall(r"\(reference/scenario\.md#([\w-]+)\)", PAGE))
    below = {"trafficbounds", "relativebounds"}  # which `bytes_per_step` and `throughput` lead to
    assert {name.lower() for name, _ in sections} - below - linked == set()
