"""What takes an engine of a test's own: one with a metadata service, without images, that hangs."""

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

import emulator
from emulator.engines.docker import DockerEngine, connection
from emulator.engines.docker.requests import FOLDER, HOST, METADATA, RUN, container_request
from emulator.errors import EngineError, EngineLost
from emulator.execution import up
from emulator.planning.context import PlanContext
from emulator.planning.plan import make_plan
from emulator.record.events import Entry, fields_of
from emulator.record.folder import runs_in
from emulator.results import RunCallbacks
from emulator.runtime.host import this_host
from emulator.scenario.loader import load, parse
from tests.conftest import Emulate
from tests.engines.docker.own_engine import OwnEngine, own_engine

pytestmark = pytest.mark.docker

METADATA_IPV6 = "fd00:ec2::254"
LOOK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 80), timeout=5)
    print("address", "reached", flush=True)
except OSError as error:
    print("address", "closed", error, flush=True)
"""


@pytest.fixture(scope="module")
def own(tiny_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnEngine]:
    with own_engine(tmp_path_factory.mktemp("e")) as engine:
        engine.has(tiny_image)
        yield engine


def scenario(tmp_path: Path, image: str, command: str, extra: str = "", workers: int = 1) -> Path:
    path = tmp_path / "scenario.yaml"
    (tmp_path / "look.py").write_text(LOOK)
    (tmp_path / "job.sh").write_text(command)
    path.write_text(
        f"name: alone\nframework: none\nimage: {image}\n"
        f"program: {{source: {tmp_path}, command: [sh, job.sh]}}\n"
        f"cluster: {{worker: {workers}}}\nsuccess: all-workers\n{extra}"
    )
    return path


def printed_by_tasks(stderr: str) -> list[str]:
    lines = (line.partition(" | ")[2] for line in stderr.splitlines())
    return [line.split()[1] for line in lines if line.startswith("address ")]


def test_clean_goes_on_where_the_engine_will_not_remove_what_a_run_has_left(
    emulate: Emulate, own: OwnEngine, tiny_image: str
) -> None:
    stuck, other = "stuck-1", "other-1"
    for run in (stuck, other):
        given = {RUN: run, FOLDER: "/nowhere", HOST: this_host()}
        own.api.create_network(run, labels=given)
        own.api.create_volume(run, labels=given)
    config = own.api.create_host_config(network_mode=stuck)
    guest = own.api.create_container(tiny_image, ["sleep", "600"], host_config=config)["Id"]
    own.api.start(guest)
    clean = ("clean", "--engine", "docker", "--out", emulate.out)
    try:
        done = emulate(*clean, env=own.env)
        assert done.returncode == 4
        assert f"would not remove what {stuck} made" in done.stderr
        assert "A container is still on it" in done.stderr
        assert own.api.networks(names=[other]) == []
        assert own.api.volumes(filters={"label": RUN})["Volumes"] in (None, [])
    finally:
        own.api.remove_container(guest, force=True)
    assert emulate(*clean, env=own.env).returncode == 0
    assert own.api.networks(filters={"label": RUN}) == []


# --- The metadata service ------------------------------------------------------------------------

# The first life fails, the second is preempted, the third ends well: each looks before all else.
THREE_LIVES = f"""
python3 look.py {METADATA}
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
    ("network", "reached"),
    [("", True), ("network: {metadata: open}\n", True), ("network: {metadata: closed}\n", False)],
)
def test_tasks_reach_the_machines_metadata_unless_it_is_closed_at_every_start(
    emulate: Emulate, tmp_path: Path, own: OwnEngine, tiny_image: str, network: str, reached: bool
) -> None:
    path = scenario(tmp_path, tiny_image, THREE_LIVES, network + FAULTS)
    with own.serving(METADATA):
        done = emulate.up(path, "--engine", "docker", env=own.env)
    assert done.returncode == 0, done.stderr
    assert printed_by_tasks(done.stderr) == ["reached" if reached else "closed"] * 3
    # Neither way takes a helper, nor its image.
    assert not [one for one in own.api.images() if "emulator-network" in str(one["RepoTags"])]


def test_where_it_is_closed_tasks_reach_each_other_and_the_internet(
    emulate: Emulate, tmp_path: Path, own: OwnEngine, tiny_image: str
) -> None:
    talk = f"""
python3 look.py {METADATA}
python3 look.py 198.18.7.7
python3 -c 'import socket; print("address", socket.gethostbyname(socket.gethostname()))'
echo $EMULATOR_TASK > /shared/$EMULATOR_TASK
until [ -e /shared/worker-0 ] && [ -e /shared/worker-1 ]; do sleep 0.05; done
python3 -c 'import socket
a, b = (socket.gethostbyname(f"worker-{{n}}") for n in (0, 1))
print("address", "two" if a != b else "one")'
touch /shared/$EMULATOR_TASK.done  # a name is known for as long as its task runs
until [ -e /shared/worker-0.done ] && [ -e /shared/worker-1.done ]; do sleep 0.05; done
"""
    path = scenario(tmp_path, tiny_image, talk, "network: {metadata: closed}\n", workers=2)
    with own.serving(METADATA), own.serving("198.18.7.7"):
        done = emulate.up(path, "--engine", "docker", env=own.env)
    assert done.returncode == 0, done.stderr
    words = Counter(printed_by_tasks(done.stderr))
    assert (words.pop("closed"), words.pop("reached"), words.pop("two")) == (2, 2, 2)
    assert len(words) == 2
    assert not any(ip_address(address).is_link_local for address in words)


@pytest.mark.parametrize(("metadata", "word"), [("open", "reached"), ("closed", "closed")])
def test_the_ipv6_address_is_closed_as_well_on_a_network_that_has_ipv6(
    own: OwnEngine, tiny_image: str, metadata: str, word: str
) -> None:
    site = PlanContext(
        "docker", lambda name: (name, 2222), lambda image: tiny_image, list, "/shared"
    )
    command = json.dumps(["python3", "-c", LOOK, METADATA_IPV6])
    text = (
        f"name: six\nframework: none\nprogram: {{command: {command}}}\ncluster: {{worker: 1}}\n"
        f"network: {{metadata: {metadata}}}\n"
    )
    plan = make_plan(parse(text), f"six-{metadata}", site)
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
    assert printed_by_tasks(f"x | {printed}") == [word], printed


# --- An engine that has none of our images -------------------------------------------------------

JOB = "while [ ! -e /shared/over ]; do echo tick; sleep 0.1; done"


def test_a_fault_whose_image_can_not_be_built_fails_and_affects_no_task(
    emulate: Emulate, tmp_path: Path, own: OwnEngine, tiny_image: str
) -> None:
    """The engine's containers reach nothing, so no package can be installed in the image."""
    path = scenario(tmp_path, tiny_image, JOB, workers=2)
    env = {**own.env, "EMULATOR_BASE": tiny_image}
    done = emulate("up", "-d", path, "--engine", "docker", "--json", "--out", emulate.out, env=env)
    assert done.returncode == 0, done.stderr
    with emulator.connect(done.json["folder"]) as cluster:
        (cut,) = cluster.partition(["worker-0"], ["worker-1"])
        waits = cluster.wait_for(fault=cut, stage="preparing")
        assert "emulator-network:" in str(fields_of(waits)["reason"])
        with pytest.raises(EngineError, match="does not build"):
            cluster.wait_for(fault=cut)
        assert cluster.status()["state"] == "running"
        cluster.stop()
        assert cluster.wait().outcome == "interrupted"


# --- An engine that hangs ------------------------------------------------------------------------


# What still waits for the engine at that moment leaves its socket to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_engine_that_hangs_in_the_middle_of_a_run_is_lost(
    tmp_path: Path, own: OwnEngine, tiny_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks print nothing, and it gets no requests: only the heartbeat notices."""
    monkeypatch.setattr(connection, "PING_EVERY", 0.2)
    monkeypatch.setenv("DOCKER_HOST", own.host)
    engine = DockerEngine()
    path = scenario(tmp_path, tiny_image, "sleep 1000")
    running = threading.Event()

    def entry(happened: Entry) -> None:
        if happened.event == "all-running":
            running.set()
            engine.api.timeout = 3  # not before: on a busy machine a start may take longer
            own.freeze()

    try:
        with pytest.raises(EngineLost, match="The Docker engine went away"):
            up(
                load(path),
                engine,
                text=path.read_text(),
                out=tmp_path / "runs",
                reports=False,
                callbacks=RunCallbacks(entry=entry),
            )
        assert running.is_set()
    finally:
        own.thaw()
        engine.close()
    for record in runs_in(tmp_path / "runs"):
        with contextlib.closing(DockerEngine()) as again:
            again.tear_down(record.run_id)
    for thread in threading.enumerate():
        if thread.name in ("streams", "ended"):
            thread.join(60)
    gc.collect()  # here, where it is expected, and not in the middle of another test
