"""Scenarios of the gallery without Docker: what needs TensorFlow alone, or nothing."""

from __future__ import annotations

import pytest

from emulator.pytest_plugin.harness import Emulator

pytestmark = [pytest.mark.gallery, pytest.mark.long, pytest.mark.tensorflow]


@pytest.mark.usefixtures("host_tensorflow")
@pytest.mark.parametrize("name", ["any-image", "dtensor", "in-graph", "input-position", "mirrored"])
def test_a_scenario_runs_as_processes(emulator: Emulator, name: str) -> None:
    """PyTorch and JAX are in their images only; limits of CPU and network need Docker."""
    emulator.run(name, engine="process").check()
