"""Names of tasks on a real network: all that a scenario gives them, and as long as they live."""

from __future__ import annotations

import json

import pytest

from emulator.engines.docker import DockerEngine
from emulator.engines.docker.container_request import TASK
from emulator.record.events import Entry, TaskRunning
from tests.engines.docker.site import Site

pytestmark = pytest.mark.docker


TOGETHER = """
import json, os, pathlib, socket, time

def together(moment):
    pathlib.Path("/shared", moment + os.environ["EMULATOR_TASK"]).touch()
    while not all(pathlib.Path("/shared", moment + f"worker-{n}").exists() for n in range(2)):
        time.sleep(0.02)
"""
RESOLVE = """
def resolve(name):
    try:
        return socket.gethostbyname(name)
    except OSError:
        return None

together("begin")
ends = ("", ".team-a", ".team-a.svc", ".team-a.svc.cluster.local")
names = [f"mnist-worker-{n}" + end for n in range(2) for end in ends]
found = [resolve(name) for name in names]
print(json.dumps({
    "host": socket.gethostname(),
    "same": [len({*found[:4]}), len({*found[4:]}), len({*found})],
    "missing": None in found,
    "by the name of the task": resolve("worker-0"),
    "listed": json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"],
}), flush=True)
together("end")
"""


def test_pods_are_found_by_the_names_of_their_services_and_no_others(
    site: Site, docker_engine: DockerEngine
) -> None:
    labelled: dict[str, dict[str, str]] = {}

    def look(entry: Entry) -> None:
        if isinstance(entry, TaskRunning):
            found = docker_engine.api.inspect_container(entry.id)["Config"]["Labels"]
            labelled[found[TASK]] = found

    site.interpreter = "python3"
    # A name that is not here is looked for elsewhere, in vain, but not for long.
    role = "{replicas: 2, env: {RES_OPTIONS: 'timeout:1 attempts:1'}}"
    job = f"operator: {{kind: TFJob, job: mnist, namespace: team-a}}\ncluster: {{worker: {role}}}\n"
    closed = "framework: tensorflow\nnetwork: {internet: false}\n"
    assert site.run(TOGETHER + RESOLVE, job + closed, entry=look).exit_code == 0
    for number in range(2):
        (text,) = site.of(f"worker-{number}")
        assert json.loads(text) == {
            "host": f"mnist-worker-{number}",
            "same": [1, 1, 2],
            "missing": False,
            "by the name of the task": None,
            "listed": [f"mnist-worker-{n}.team-a.svc:2222" for n in range(2)],
        }
    prefix = "training.kubeflow.org/"
    labels = {
        task: {key.removeprefix(prefix): one for key, one in found.items() if prefix in key}
        for task, found in labelled.items()
    }
    common = {"job-name": "mnist", "operator-name": "tfjob-controller", "replica-type": "worker"}
    assert labels == {
        "worker-0": {**common, "replica-index": "0", "job-role": "master"},
        "worker-1": {**common, "replica-index": "1"},
    }


REJOIN = """
import os, pathlib, socket, sys, time

task = os.environ["EMULATOR_TASK"]
shared = pathlib.Path("/shared")
if task == "worker-0":
    def ask(name):
        while True:
            try:
                with socket.create_connection((name, 8080), 1) as way:
                    return way.recv(9).decode(), way.getpeername()[0]
            except OSError:
                time.sleep(0.05)

    hosts = [f"worker-{n}.release.svc.cluster.local" for n in (1, 2)]
    before = [ask(host) for host in hosts]
    assert [number for number, _ in before] == ["1", "1"], before
    (shared / "fail").touch()
    print("both are there", flush=True)
    for host, (_, address) in zip(hosts, before):
        parts = host.split(".")
        for count in range(len(parts)):
            name = ".".join(parts[:count + 1])
            while (found := ask(name))[0] != "2":
                time.sleep(0.05)
            print(name, found[1] == address, flush=True)
    (shared / "over").touch()
    sys.exit()

lives = shared / f"lives-{task}"
number = len(lives.read_text()) + 1 if lives.exists() else 1
lives.write_text("." * number)
server = socket.create_server(("", 8080))
server.settimeout(0.05)
while not (shared / "over").exists():
    try:
        server.accept()[0].sendall(str(number).encode())
    except TimeoutError:
        if (task, number) == ("worker-1", 1) and (shared / "fail").exists():
            sys.exit(1)
"""


def test_a_task_has_its_names_again_after_a_restart_and_a_preemption(site: Site) -> None:
    """Worker 1 fails and is started again where it was; worker 2 gets another container."""
    site.interpreter = "python3"
    result = site.run(
        REJOIN,
        "cluster: {worker: 3}\nsuccess: all-workers\n"
        "addresses: {host: '{task}.release.svc.cluster.local', port: 8080}\n"
        "restart: {policy: on-failure, backoff: 0}\n"
        "faults:\n- {preempt: worker-2, at: {log: both are there}, grace: 0s, down: 0.5s}\n",
    )
    assert result.exit_code == 0, site.printed
    found = [line.partition(" ")[0] for line in site.of("worker-0")[1:]]
    ends = ("", ".release", ".release.svc", ".release.svc.cluster", ".release.svc.cluster.local")
    assert found == [f"worker-{n}{end}" for n in (1, 2) for end in ends]
    kept = {line.partition(".")[0]: line.endswith("True") for line in site.of("worker-0")[1:]}
    assert not kept["worker-2"]  # as on a cluster, its replacement has an address of its own
