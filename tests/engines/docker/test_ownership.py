"""What a user has under the names of a run is refused, and stays as it was."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.engines.base import Inbox
from emulator.engines.docker import DockerEngine, engine
from emulator.engines.docker.connection import connect
from emulator.engines.docker.network import missing_parts
from emulator.engines.docker.requests import probe_labels
from emulator.errors import EngineError, NameTaken
from emulator.execution import up
from emulator.planning.plan import Plan, make_plan
from emulator.scenario.loader import parse
from tests.conftest import Emulate, left, own

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


# --- What is made before there is a run -----------------------------------------------------------

PROBED = """
name: {name}
framework: none
image: {image}
program: {{command: ['true']}}
cluster: {{worker: 2}}
faults: [{{partition: [[worker-0], [worker-1]], at: 1s, for: 1s}}]
"""


@contextlib.contextmanager
def containers_made_for(scenario: str) -> Iterator[Iterator[str]]:
    """Yield the ids of the containers that are made for a scenario in the next minute."""
    filters = {"type": "container", "event": "create", "label": f"emulator.scenario={scenario}"}
    with contextlib.closing(connect()) as api:
        now = int(time.time())
        events = api.events(since=now, until=now + 60, filters=filters, decode=True)
        with contextlib.closing(events):
            yield (event["id"] for event in events)


@pytest.fixture
def network_image(docker_engine: DockerEngine) -> str:
    return docker_engine.images.ensure("network", lambda line: None)


def test_what_a_kill_leaves_while_the_kernel_is_tried_is_removed_by_clean(
    site: Site, emulate: Emulate, network_image: str
) -> None:
    name = own("probed")
    path = site.folder / "probed.yaml"
    path.write_text(PROBED.format(name=name, image=site.image))
    with containers_made_for(name) as made:
        run = emulate.start("up", path, "--out", emulate.out, unread=True)
        container = next(made)
        run.kill()
        run.wait()
    (found,) = site.engine.api.containers(all=True, filters={"id": container})
    assert not list(emulate.out.glob("*/plan.json"))
    done = emulate("clean", "--engine", "docker", "--out", emulate.out)
    assert f"removing container {found['Names'][0].lstrip('/')}" in done.stderr
    assert site.engine.api.containers(all=True, filters={"id": container}) == []


def test_a_clean_beside_it_does_not_end_a_run_whose_kernel_is_tried(
    site: Site, network_image: str
) -> None:
    name, api = own("beside"), site.engine.api
    labels, removed = probe_labels(name), list[str]()
    with containers_made_for(name) as made, contextlib.closing(DockerEngine()) as other:

        def clean() -> None:
            container = next(made)
            other.tear_down(labels["emulator.run"])
            removed.append(container)

        cleaner = threading.Thread(target=clean)
        cleaner.start()
        missing_parts(api, network_image, ["iptables"], labels)
        cleaner.join()
    assert removed
    assert left("docker", labels["emulator.run"]) == []


# --- Another run ----------------------------------------------------------------------------------


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
