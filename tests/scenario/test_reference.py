"""docs/scenario.md lists every key of a scenario, with its default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from emulator.scenario.schema import (
    Dockerfile,
    Expectations,
    Gpus,
    Metrics,
    NamedImage,
    Network,
    Program,
    Reserve,
    Restart,
    Role,
    Scenario,
    Throughput,
)

PAGE = (Path(__file__).parents[2] / "docs" / "scenario.md").read_text()
SECTIONS: dict[str, type[BaseModel]] = {
    "program.": Program,
    "image.": Dockerfile,
    "restart.": Restart,
    "network.": Network,
    "metrics.": Metrics,
    "reserve.": Reserve,
    "expect.": Expectations,
    "expect.throughput.": Throughput,
    "gpus.": Gpus,
    "": Role,
}
INTRODUCED = {"cluster", "faults", "program", "restart", "network", "metrics", "reserve", "expect"}
"""Keys with a section or with keys of their own."""


def rows() -> Iterator[tuple[list[str], str]]:
    """Yield the keys of each row of the tables, and the default."""
    for line in PAGE.splitlines():
        cells = line.split("|")
        if len(cells) > 3 and cells[1].strip().startswith("`"):
            yield re.findall(r"`([^`]+)`", cells[1]), cells[2].strip()


def test_every_key_is_listed_and_each_listed_key_exists() -> None:
    listed = {key for keys, _ in rows() for key in keys}
    keys = {prefix + name for prefix, model in SECTIONS.items() for name in model.model_fields}
    keys |= {f"image.{name}" for name in NamedImage.model_fields}
    keys |= set(Scenario.model_fields) - INTRODUCED
    assert listed == keys - {"expect.throughput"}


@pytest.mark.parametrize("name", sorted(INTRODUCED))
def test_each_section_is_introduced(name: str) -> None:
    assert re.search(rf"`{name}[`.:]", PAGE)


@pytest.mark.parametrize(
    ("prefix", "name"),
    [("restart.", "limit"), ("restart.", "policy"), ("restart.", "scope"), ("gpus.", "count"),
     ("metrics.", "steps"), ("network.", "metadata"), ("expect.", "outcome"), ("", "replicas")],
)  # fmt: skip
def test_the_defaults_are_those_of_the_schema(prefix: str, name: str) -> None:
    (default,) = [default for keys, default in rows() if prefix + name in keys]
    value = SECTIONS[prefix].model_fields[name].default
    assert default.replace("`", "").split(",")[0] == str(value)
