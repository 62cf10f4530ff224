"""Fixtures of tests on a cluster: an open connection to it, one that can be cut, and Pods."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.plugins.kubernetes.connection import ApiServer
from tests.clusters import ForTest
from tests.plugins.kubernetes.pods import Pods
from tests.plugins.kubernetes.relay import Relayed, opened, relayed


@pytest.fixture
def cluster(kubernetes_cluster: ForTest) -> Iterator[ApiServer]:
    with opened(kubernetes_cluster) as found:
        yield found


@pytest.fixture
def through_relay(kubernetes_cluster: ForTest, tmp_path: Path) -> Iterator[Relayed]:
    """The same cluster, through what comes between the emulator and the API server."""
    with relayed(kubernetes_cluster, tmp_path) as found:
        yield found


@pytest.fixture
def pods(cluster: ApiServer, tiny_image: str) -> Iterator[Pods]:
    with contextlib.closing(Pods(cluster, tiny_image)) as found:
        yield found
        assert found.errors.empty()
