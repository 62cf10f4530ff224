"""docs/scenario.md lists every key of a scenario, with its default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from emulator.scenario.addresses import Addresses
from emulator.scenario.container import Container, ContainerBase, File, Mount, Port, Ulimit
from emulator.scenario.frameworks.pytorch import Elastic
from emulator.scenario.kubernetes import Kubernetes, Toleration
from emulator.scenario.operator import Operator, OperatorElastic
from emulator.scenario.pod import PodContainer
from emulator.scenario.prices import MachinePrice
from emulator.scenario.restart import Restart
from emulator.scenario.schema import (
    Dockerfile,
    Expectations,
    Gpus,
    Helper,
    Metrics,
    NamedImage,
    Network,
    Program,
    Reserve,
    Role,
    Scenario,
    Throughput,
)

PAGE = (Path(__file__).parents[2] / "docs" / "scenario.md").read_text()
SECTIONS: dict[str, type[BaseModel]] = {
    "program.": Program,
    "image.": Dockerfile,
    "elastic.": Elastic,
    "operator.elastic.": OperatorElastic,
    "operator.": Operator,
    "addresses.": Addresses,
    "restart.": Restart,
    "network.": Network,
    "kubernetes.": Kubernetes,
    "kubernetes.tolerations.": Toleration,
    "metrics.": Metrics,
    "reserve.": Reserve,
    "prices.": MachinePrice,
    "expect.": Expectations,
    "expect.throughput.": Throughput,
    "gpus.": Gpus,
    "helpers.": Helper,
    "init.": PodContainer,
    "files.": File,
    "mounts.": Mount,
    "ports.": Port,
    "ulimits.": Ulimit,
    "": Role,
}
INTRODUCED = {
    *(
        "cluster",
        "elastic",
        "operator",
        "addresses",
        "faults",
        "program",
        "restart",
        "network",
        "kubernetes",
        "metrics",
        "reserve",
        "expect",
    )
}
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
    keys -= {f"helpers.{name}" for name in Container.model_fields}  # the page refers to roles
    keys -= {f"init.{name}" for name in ContainerBase.model_fields}
    keys |= set(Scenario.model_fields) - INTRODUCED
    assert listed == keys - {"expect.throughput", "operator.elastic"}


@pytest.mark.parametrize("name", sorted(INTRODUCED))
def test_each_section_is_introduced(name: str) -> None:
    assert re.search(rf"`{name}[`.:]", PAGE)


@pytest.mark.parametrize(
    ("prefix", "name"),
    [("restart.", "limit"), ("restart.", "policy"), ("restart.", "scope"), ("gpus.", "count"),
     ("metrics.", "steps"), ("kubernetes.", "shared"), ("network.", "metadata"),
     ("expect.", "outcome"), ("", "replicas")],
)  # fmt: skip
def test_the_defaults_are_those_of_the_schema(prefix: str, name: str) -> None:
    (default,) = [default for keys, default in rows() if prefix + name in keys]
    value = SECTIONS[prefix].model_fields[name].default
    assert default.replace("`", "").split(",")[0] == str(value)
