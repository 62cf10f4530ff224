"""What takes an engine of a test's own: one with a metadata service, one that hangs."""

from __future__ import annotations

import contextlib
import gc
import json
import threading
from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from docker.types import IPAMConfig, IPAMPool

from emulator.engines.docker import DockerEngine, connection
from emulator.engines.docker.container_request import FOLDER, HOST, METADATA, RUN, container_request
from emulator.errors import EngineLost
from emulator.planning.context import PlanContext
from emulator.planning.planner import make_plan
from emulator.record.events import Entry
from emulator.record.folder import runs_in
from emulator.runtime.host import this_host
from emulator.scenario.loader import parse
from tests.conftest import Emulate
from tests.engines.docker.own_engine import OwnEngine, own_engine
from tests.engines.docker.site import Site

pytestmark = pytest.mark.docker

METADATA_IPV6 = "fd00:ec2::254"
INTERNET = "198.18.7.7"
LOOK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 80), timeout=5)
    print("reached", flush=True)
except OSError:
    print("closed", flush=True)
"""
LOOKS = f"look() {{ python3 -c '{LOOK}' $1; }}\n"


@pytest.fixture(scope="module")
def own(tiny_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnEngine]:
    with own_engine(tmp_path_factory.mktemp("e")) as engine:
        engine.has(tiny_image)
        yield engine


@pytest.fixture
def site(tmp_path: Path, tiny_image: str, own: OwnEngine, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Runs on that engine, also those of a command."""
    monkeypatch.setenv("DOCKER_HOST", own.host)
    return Site(tmp_path, tiny_image)


def test_clean_goes_on_where_the_engine_will_not_remove_what_a_run_has_left(
    emulate: Emulate, own: OwnEngine, site: Site
) -> None:
    stuck, other = "stuck-1", "other-1"
    for run in (stuck, other):
        given = {RUN: run, FOLDER: "/nowhere", HOST: this_host()}
        own.api.create_network(run, labels=given)
        own.api.create_volume(run, labels=given)
    config = own.api.create_host_config(network_mode=stuck)
    guest = own.api.create_container(site.image, ["sleep", "600"], host_config=config)["Id"]
    own.api.start(guest)
    clean = ("clean", "--engine", "docker", "--out", emulate.out)
    try:
        done = emulate(*clean)
        assert done.returncode == 4
        assert f"would not remove what {stuck} made" in done.stderr
        assert "A container is still on it" in done.stderr
        assert own.api.networks(names=[other]) == []
        assert own.api.volumes(filters={"label": RUN})["Volumes"] in (None, [])
    finally:
        own.api.remove_container(guest, force=True)
    assert emulate(*clean).returncode == 0
    assert own.api.networks(filters={"label": RUN}) == []


# --- The metadata service ------------------------------------------------------------------------

# The first life fails, the second is preempted, the third ends well: each looks before all else.
THREE_LIVES = f"""{LOOKS}
look {METADATA}
if [ ! -e ran ] && [ ! -e /shared/$EMULATOR_TASK ]; then
    touch ran /shared/$EMULATOR_TASK; exit 1
fi
[ ! -e ran ] || exec sh -c 'echo waiting; while :; do sleep 1; done'
"""
FAULTS = (
    "restart: {policy: on-failure, backoff: 0}\n"
    "faults: [{preempt: 'worker-*', at: {log: waiting}, grace: 0s, down: 0s}]\n"
)


@pytest.mark.parametrize(
    ("network", "found"),
    [
        ("", "closed"),
        ("network: {metadata: open}\n", "reached"),
        ("network: {metadata: closed}\n", "closed"),
    ],
)
def test_tasks_reach_the_machines_metadata_unless_it_is_closed_at_every_start(
    site: Site, own: OwnEngine, network: str, found: str
) -> None:
    with own.serving(METADATA):
        assert site.run(THREE_LIVES, network + FAULTS).exit_code == 0
    assert [line for line in site.of("worker-0") if line != "waiting"] == [found] * 3
    # Neither way takes a helper, nor its image.
    assert not [one for one in own.api.images() if "emulator-network" in str(one["RepoTags"])]


def test_where_it_is_closed_tasks_reach_each_other_and_the_internet(
    site: Site, own: OwnEngine
) -> None:
    talk = f"""{LOOKS}
look {METADATA}
look {INTERNET}
python3 -c 'import socket; print(socket.gethostbyname(socket.gethostname()))'
echo $EMULATOR_TASK > /shared/$EMULATOR_TASK
until [ -e /shared/worker-0 ] && [ -e /shared/worker-1 ]; do sleep 0.05; done
python3 -c 'import socket
a, b = (socket.gethostbyname(f"worker-{{n}}") for n in (0, 1))
print("two" if a != b else "one")'
touch /shared/$EMULATOR_TASK.done  # a name is known for as long as its task runs
until [ -e /shared/worker-0.done ] && [ -e /shared/worker-1.done ]; do sleep 0.05; done
"""
    extra = "cluster: {worker: 2}\nsuccess: all-workers\nnetwork: {metadata: closed}\n"
    with own.serving(METADATA), own.serving(INTERNET):
        assert site.run(talk, extra).exit_code == 0
    words = Counter(one for n in (0, 1) for one in site.of(f"worker-{n}"))
    assert (words.pop("closed"), words.pop("reached"), words.pop("two")) == (2, 2, 2)
    assert len(words) == 2
    assert not any(ip_address(address).is_link_local for address in words)


@pytest.mark.parametrize(("metadata", "word"), [("open", "reached"), ("closed", "closed")])
def test_the_ipv6_address_is_closed_as_well_on_a_network_that_has_ipv6(
    own: OwnEngine, tiny_image: str, metadata: str, word: str
) -> None:
    here = PlanContext(
        "docker", lambda name: (name, 2222), lambda image: tiny_image, list, "/shared"
    )
    command = json.dumps(["python3", "-c", LOOK, METADATA_IPV6])
    text = (
        f"name: six\nframework: none\nprogram: {{command: {command}}}\ncluster: {{worker: 1}}\n"
        f"network: {{metadata: {metadata}}}\n"
    )
    plan = make_plan(parse(text), f"six-{metadata}", here)
    subnet = IPAMPool(subnet="fd77:1::/64" if metadata == "open" else "fd77:2::/64")
    made = own.api.create_network(
        plan.run_id, driver="bridge", enable_ipv6=True, ipam=IPAMConfig(pool_configs=[subnet])
    )
    own.api.create_volume(plan.run_id)
    request = container_request(plan, plan.task("worker-0"), {}, ipv6=True)
    with own.serving(METADATA_IPV6):
        container = own.api.create_container_from_config(request)["Id"]
        own.api.start(container)
        own.api.wait(container)
        printed = own.api.logs(container).decode()
    own.api.remove_container(container, force=True)
    own.api.remove_network(made["Id"])
    assert printed.split() == [word]


# --- An engine that hangs ------------------------------------------------------------------------


# What still waits for the engine at that moment leaves its socket to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_engine_that_hangs_in_the_middle_of_a_run_is_lost(
    site: Site, own: OwnEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks print nothing, and it gets no requests: only the heartbeat notices."""
    monkeypatch.setattr(connection, "PING_EVERY", 0.2)
    engine = DockerEngine()
    running = threading.Event()

    def entry(happened: Entry) -> None:
        if happened.event == "all-running":
            running.set()
            engine.api.timeout = 3  # not before: on a busy machine a start may take longer
            own.freeze()

    try:
        with pytest.raises(EngineLost, match="The Docker engine went away"):
            site.run("sleep 1000", engine=engine, entry=entry)
        assert running.is_set()
    finally:
        own.thaw()
    for record in runs_in(site.folder / "runs"):
        with contextlib.closing(DockerEngine()) as again:
            again.tear_down(record.run_id)
    for thread in threading.enumerate():
        if thread.name in ("streams", "ended"):
            thread.join(60)
    gc.collect()  # here, where it is expected, and not in the middle of another test
