"""What a user has under the names of a run is refused, and stays as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.engines.base import Inbox
from emulator.engines.docker import DockerEngine, engine
from emulator.errors import EngineError, NameTaken
from emulator.execution import up
from emulator.planning.plan import Plan, make_plan
from emulator.scenario.loader import parse
from tests.conftest import left, own

pytestmark = pytest.mark.docker

EMPTIES = "rm -rf /shared/* /scratch/*"


class Site:
    """Volumes of the user, each with a file of user 1000 in a folder that is closed to others."""

    def __init__(self, engine: DockerEngine, image: str, folder: Path) -> None:
        self.engine, self.image, self.folder = engine, image, folder
        self.volumes: list[str] = []

    @property
    def text(self) -> str:
        return (
            f"name: owned\nframework: none\nimage: {self.image}\ntimeout: 2m\n"
            f"program: {{command: [sh, -c, '{EMPTIES}']}}\n"
            "cluster: {worker: {mounts: {/scratch: {scratch: cache}}}}\n"
        )

    def plan(self, run_id: str) -> tuple[Plan, Path]:
        folder = self.folder / run_id
        return make_plan(parse(self.text), run_id, self.engine.plan_context(run_id, folder)), folder

    def volume(self, name: str) -> None:
        self.engine.api.create_volume(name)
        self.volumes.append(name)
        self._in(name, "chown 1000 /v; chmod 700 /v; echo mine > /v/p.txt; chown 1000 /v/p.txt")

    def about(self, name: str) -> list[str]:
        """Return modes, owners and names, and the content of the file."""
        assert not self.engine.api.inspect_volume(name)["Labels"]
        return self._in(name, "cd /v; stat -c '%a %u %n' . *; cat p.txt")

    def _in(self, volume: str, script: str) -> list[str]:
        api = self.engine.api
        host_config = api.create_host_config(binds=[f"{volume}:/v"])
        made = api.create_container(self.image, ["sh", "-c", script], host_config=host_config)
        try:
            api.start(made)
            assert api.wait(made)["StatusCode"] == 0
            printed: bytes = api.logs(made)
            return printed.decode().splitlines()
        finally:
            api.remove_container(made)


AS_IT_WAS = ["700 1000 .", "644 1000 p.txt", "mine"]


@pytest.fixture
def site(docker_engine: DockerEngine, tiny_image: str, tmp_path: Path) -> Iterator[Site]:
    site = Site(docker_engine, tiny_image, tmp_path)
    yield site
    for volume in site.volumes:
        docker_engine.api.remove_volume(volume)


def test_a_volume_of_the_user_with_the_run_id_is_refused_and_stays_as_it_was(site: Site) -> None:
    run_id = own("volume")
    site.volume(run_id)
    with pytest.raises(NameTaken, match=f"a volume {run_id} already, which this run did not make"):
        up(parse(site.text), site.engine, text=site.text, out=site.folder, run_id=run_id)
    assert site.about(run_id) == AS_IT_WAS
    assert left("docker", run_id) == []


def test_a_volume_that_is_made_after_the_look_for_it_is_refused_as_well(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = own("race")
    plan, folder = site.plan(run_id)
    monkeypatch.setattr(engine, "require_no_volume", lambda api, name: site.volume(name))
    with pytest.raises(NameTaken):
        site.engine.prepare(plan, folder, Inbox())
    assert site.about(run_id) == AS_IT_WAS
    assert left("docker", run_id) == []


def test_a_network_of_the_user_is_refused_and_stays(site: Site) -> None:
    api, run_id = site.engine.api, own("network")
    made = api.create_network(run_id)["Id"]
    try:
        with pytest.raises(NameTaken, match=f"a network {run_id} already"):
            up(parse(site.text), site.engine, text=site.text, out=site.folder, run_id=run_id)
        assert api.inspect_network(run_id)["Id"] == made
        assert left("docker", run_id) == []
    finally:
        api.remove_network(made)


def test_a_scratch_volume_of_the_user_ends_the_run_and_stays_as_it_was(site: Site) -> None:
    run_id = own("scratch")
    volume = f"{run_id}-worker-0.cache.1"
    site.volume(volume)
    with pytest.raises(EngineError, match=f"a volume {volume} already") as refused:
        up(parse(site.text), site.engine, text=site.text, out=site.folder, run_id=run_id)
    assert not isinstance(refused.value, NameTaken)  # the run has made its network
    assert site.about(volume) == AS_IT_WAS
    assert left("docker", run_id) == []


def test_a_run_with_the_id_of_another_one_removes_nothing_of_it(site: Site) -> None:
    """As of another folder, or another user."""
    run_id = own("same")
    plan, folder = site.plan(run_id)
    site.engine.prepare(plan, folder, Inbox())
    try:
        before = left("docker", run_id)
        assert len(before) == 2
        with contextlib.closing(DockerEngine()) as other, pytest.raises(NameTaken):
            up(parse(site.text), other, text=site.text, out=site.folder / "b", run_id=run_id)
        assert left("docker", run_id) == before
    finally:
        site.engine.tear_down(run_id)
