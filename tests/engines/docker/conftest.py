"""Fixtures: a place for runs on this machine's engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.docker.site import Site


@pytest.fixture
def site(tmp_path: Path, tiny_image: str) -> Site:
    return Site(tmp_path, tiny_image)
