"""Fixtures: a machine with GPUs that stand in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.metrics.fake_gpus import Machine, compiled


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def machine(library: Path, tmp_path: Path) -> Iterator[Machine]:
    with Machine(library, tmp_path) as made:
        yield made
