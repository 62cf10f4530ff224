"""What a user has under the names of a run is refused, and stays as it was."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.engines.base import Inbox
from emulator.engines.docker import DockerEngine, engine
from emulator.engines.docker.connection import connect
from emulator.engines.docker.container_request import FOLDER, HOST, RUN, probe_labels
from emulator.engines.docker.network import missing_parts
from emulator.errors import EngineError, NameTaken
from emulator.planning.plan import Plan
from emulator.planning.planner import make_plan
from emulator.record.events import Witness
from emulator.record.reader import Record
from emulator.scenario.loader import parse
from tests.conftest import AT_WORK, Emulate, left, own, remove_left_by_killed
from tests.engines.docker.site import Site

pytestmark = pytest.mark.docker

EMPTIES = "rm -rf /shared/* /scratch/*"
MOUNTS = "cluster: {worker: {mounts: {/scratch: {scratch: cache}}}}\n"


class Owner:
    """Volumes of the user, each with a file of user 1000 in a folder that is closed to others."""

    def __init__(self, engine: DockerEngine, site: Site) -> None:
        self.engine, self.site = engine, site
        self.volumes: list[str] = []

    def up(self, run_id: str) -> None:
        self.site.run(EMPTIES, MOUNTS, run_id=run_id)

    def plan(self, run_id: str) -> tuple[Plan, Path]:
        folder = self.site.folder / run_id
        scenario = parse(self.site.text(EMPTIES, MOUNTS), folder=self.site.folder)
        return make_plan(scenario, run_id, self.engine.plan_context(run_id, folder)), folder

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
        made = api.create_container(self.site.image, ["sh", "-c", script], host_config=host_config)
        try:
            api.start(made)
            assert api.wait(made)["StatusCode"] == 0
            printed: bytes = api.logs(made)
            return printed.decode().splitlines()
        finally:
            api.remove_container(made)


AS_IT_WAS = ["700 1000 .", "644 1000 p.txt", "mine"]


@pytest.fixture
def user(docker_engine: DockerEngine, site: Site) -> Iterator[Owner]:
    user = Owner(docker_engine, site)
    yield user
    for volume in user.volumes:
        docker_engine.api.remove_volume(volume)


def test_a_volume_of_the_user_with_the_run_id_is_refused_and_stays_as_it_was(user: Owner) -> None:
    run_id = own("volume")
    user.volume(run_id)
    with pytest.raises(NameTaken, match=f"a volume {run_id} already, which this run did not make"):
        user.up(run_id)
    assert user.about(run_id) == AS_IT_WAS
    assert left("docker", run_id) == []


def test_a_volume_that_is_made_after_the_look_for_it_is_refused_as_well(
    user: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = own("race")
    plan, folder = user.plan(run_id)
    monkeypatch.setattr(engine, "require_no_volume", lambda api, name: user.volume(name))
    with pytest.raises(NameTaken):
        user.engine.prepare(plan, folder, Inbox())
    assert user.about(run_id) == AS_IT_WAS
    assert left("docker", run_id) == []


def test_a_network_of_the_user_is_refused_and_stays(user: Owner) -> None:
    api, run_id = user.engine.api, own("network")
    made = api.create_network(run_id)["Id"]
    try:
        with pytest.raises(NameTaken, match=f"a network {run_id} already"):
            user.up(run_id)
        assert api.inspect_network(run_id)["Id"] == made
        assert left("docker", run_id) == []
    finally:
        api.remove_network(made)


def test_a_container_of_the_user_with_the_name_of_the_witness_stays(user: Owner) -> None:
    api, run_id = user.engine.api, own("witness")
    made = api.create_container(user.site.image, "true", name=f"{run_id}.witness")["Id"]
    try:
        result = user.site.run("true", run_id=run_id)
        assert result.outcome == "succeeded"
        (blind,) = [one for one in Record(result.folder).history if isinstance(one, Witness)]
        assert f"a container {run_id}.witness already" in blind.reason
        assert api.inspect_container(made)["State"]["Status"] == "created"
    finally:
        api.remove_container(made)


def test_a_scratch_volume_of_the_user_ends_the_run_and_stays_as_it_was(user: Owner) -> None:
    run_id = own("scratch")
    volume = f"{run_id}-worker-0.cache.1"
    user.volume(volume)
    with pytest.raises(EngineError, match=f"a volume {volume} already") as refused:
        user.up(run_id)
    assert not isinstance(refused.value, NameTaken)  # the run has made its network
    assert user.about(volume) == AS_IT_WAS
    assert left("docker", run_id) == []


# --- What is made before there is a run -----------------------------------------------------------

PROBED = """\
name: {name}
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
    user: Owner, emulate: Emulate, network_image: str
) -> None:
    name = own("probed")
    path = user.site.path("true", PROBED.format(name=name))
    with containers_made_for(name) as made:
        run = emulate.start("up", path, "--out", emulate.out, unread=True)
        container = next(made)
        run.kill()
        run.wait()
    (found,) = user.engine.api.containers(all=True, filters={"id": container})
    assert not list(emulate.out.glob("*/plan.json"))
    done = emulate("clean", "--engine", "docker", "--out", emulate.out)
    assert f"removing container {found['Names'][0].lstrip('/')}" in done.stderr
    assert user.engine.api.containers(all=True, filters={"id": container}) == []


def test_a_clean_beside_it_does_not_end_a_run_whose_kernel_is_tried(
    user: Owner, network_image: str
) -> None:
    name, api = own("beside"), user.engine.api
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


def test_a_run_with_the_id_of_another_one_removes_nothing_of_it(user: Owner) -> None:
    """As of another folder, or another user."""
    run_id = own("same")
    plan, folder = user.plan(run_id)
    user.engine.prepare(plan, folder, Inbox())
    try:
        before = left("docker", run_id)
        assert len(before) == 2
        with pytest.raises(NameTaken):
            user.up(run_id)
        assert left("docker", run_id) == before
    finally:
        user.engine.tear_down(run_id)


def test_what_killed_test_processes_have_left_is_removed(user: Owner) -> None:
    over = subprocess.run(["sh", "-c", "echo $$"], check=True, capture_output=True, text=True)
    made = {}
    for pid in (int(over.stdout), os.getppid()):
        run = own(f"of-{pid}")
        labels = {RUN: run, FOLDER: "/nowhere", HOST: f"{AT_WORK}-{pid}"}
        made[pid] = user.engine.api.create_container(user.site.image, ["true"], labels=labels)["Id"]
    try:
        remove_left_by_killed(user.engine)
        found = user.engine.api.containers(all=True, filters={"label": f"{FOLDER}=/nowhere"})
        assert [one["Id"] for one in found if one["Id"] in made.values()] == [made[os.getppid()]]
    finally:
        user.engine.api.remove_container(made[os.getppid()])
