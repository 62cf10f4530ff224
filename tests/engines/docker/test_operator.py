"""Jobs of the training operator in real containers: which disk a pod has, and what remains."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from emulator.api.client import Cluster
from emulator.record.events import TaskExit
from emulator.record.reader import Record
from tests.conftest import left
from tests.engines.docker.site import Site

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_engine")]

PROGRAM = """
import os, pathlib, signal, sys, time

def until(path):
    while not pathlib.Path(path).exists():
        time.sleep(0.02)

mark = pathlib.Path("/tmp/mark")
print("old disk" if mark.exists() else "new disk", flush=True)
first = not pathlib.Path("/shared/" + os.environ["EMULATOR_TASK"]).exists()
pathlib.Path("/shared/" + os.environ["EMULATOR_TASK"]).touch()
mark.touch()
"""


def test_exit_code_makes_a_new_pod_and_on_failure_keeps_its_disk(site: Site) -> None:
    site.interpreter = "python3"
    program = """
if os.environ["EMULATOR_ROLE"] == "chief":
    until("/shared/again-worker-0"), until("/shared/again-ps-0")
elif first:
    os.kill(os.getpid(), signal.SIGKILL)
else:
    pathlib.Path("/shared/again-" + os.environ["EMULATOR_TASK"]).touch()
    time.sleep(600)
"""
    result = site.run(
        PROGRAM + program,
        "framework: tensorflow\ncluster: {chief: 1, worker: 1, ps: 1}\n"
        "operator: {kind: TFJob, job: m, clean_pods: running, "
        "restart: {worker: exit-code, ps: on-failure}}\n",
    )
    assert (result.outcome, left("docker", result.run_id)) == ("succeeded", [])
    assert site.of("worker-0") == ["new disk", "new disk"]
    assert site.of("ps-0") == ["new disk", "old disk"]
    found = [(one["type"], one["reason"]) for one in result.summary["conditions"]]
    assert found == [
        ("Created", "TFJobCreated"),
        ("Running", "TFJobRunning"),
        ("Restarting", "TFJobRestarting"),
        ("Running", "TFJobRunning"),
        ("Succeeded", "TFJobSucceeded"),
    ]


def test_a_suspended_job_gets_new_pods(site: Site) -> None:
    """It is asked as `emulate suspend` and `emulate resume` do, by another client."""
    folders: list[Path] = []

    def ask() -> None:
        with Cluster(Record(folders[0])) as cluster:
            starting = {"worker-0", "worker-1"}
            for task, _ in cluster.lines():
                starting.discard(task)
                if not starting:  # both have said what disk they found
                    break
            cluster.suspend()
            exits = (entry for entry in cluster.history() if isinstance(entry, TaskExit))
            for _ in range(2):
                next(exits)
            cluster.resume()

    client = threading.Thread(target=ask)
    program = """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
if first:
    signal.sigwait([signal.SIGTERM])
    sys.exit(3)
"""
    site.interpreter = "python3"
    result = site.run(
        PROGRAM + program,
        "framework: tensorflow\ncluster: {worker: 2}\n"
        "operator: {kind: TFJob, job: m, success: all-workers}\n",
        planned=lambda plan, folder: folders.append(folder),
        reachable=client.start,
    )
    client.join()
    assert (result.outcome, left("docker", result.run_id)) == ("succeeded", [])
    assert site.of("worker-0") == ["new disk", "new disk"]
    assert "Suspended" in [one["type"] for one in result.summary["conditions"]]
