"""Images that nodes pull from a registry, as they were pushed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.engines.docker import DockerEngine
from emulator.engines.recipes import recipe_tag
from tests.clusters import ForTest
from tests.conftest import Emulate, own

pytestmark = [pytest.mark.kubernetes, pytest.mark.docker]
RUN = own("pulled")


@pytest.fixture
def clean(docker_engine: DockerEngine, registry: str) -> Iterator[None]:
    """Remove what the node has pulled: it is on the engine of this machine."""
    yield
    for one in docker_engine.api.images():
        for name in (*(one["RepoTags"] or []), *(one["RepoDigests"] or [])):
            if registry in name:
                docker_engine.api.remove_image(name, force=True)


@pytest.mark.usefixtures("clean")
def test_nodes_pull_what_was_pushed(
    emulate: Emulate,
    kubernetes_cluster: ForTest,
    registry: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plan has the digest, and Pods run from it although nobody names it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = emulate("build", "network", "--push", f"{registry}/team")
    assert done.returncode == 0, done.stderr
    (tmp_path / "scenario.yaml").write_text(
        "name: pulled\nframework: none\nimage: network\n"
        "program: {command: [sh, -c, echo it runs]}\n"
        "cluster: {worker: {replicas: 2, cpus: 0.1, memory: 32m}}\n"
    )
    done = emulate.up(
        tmp_path / "scenario.yaml",
        *kubernetes_cluster.arguments,
        *("--set", f"kubernetes.registry={registry}/team", "--run-id", RUN),
        env=kubernetes_cluster.environment,
    )
    assert done.returncode == 0, done.stderr
    plan = json.loads((emulate.out / RUN / "plan.json").read_text())
    (image,) = {task["image"] for task in plan["tasks"]}
    assert image.startswith(f"{registry}/team/{recipe_tag('network')}@sha256:")
