"""Fixtures: a machine with GPUs that stand in a file, and engines that run TensorFlow."""

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


@pytest.fixture(
    params=[
        pytest.param("process", marks=pytest.mark.tensorflow),
        pytest.param("docker", marks=pytest.mark.docker),
    ]
)
def tensorflow_on(request: pytest.FixtureRequest) -> str:
    """Return the name of an engine whose tasks have TensorFlow."""
    request.getfixturevalue("host_tensorflow" if request.param == "process" else "docker_engine")
    return str(request.param)
