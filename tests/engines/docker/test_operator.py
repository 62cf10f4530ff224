"""A job of the training operator in real containers."""

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
import os, pathlib, signal, sys

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
mark = pathlib.Path("/tmp/mark")
print("old disk" if mark.exists() else "new disk", flush=True)
mark.touch()
ran = pathlib.Path("/shared/" + os.environ["EMULATOR_TASK"])
if not ran.exists():
    ran.touch()
    signal.sigwait([signal.SIGTERM])
    sys.exit(3)
"""
    site.interpreter = "python3"
    result = site.run(
        program,
        "framework: tensorflow\ncluster: {worker: 2}\n"
        "operator: {kind: TFJob, job: m, success: all-workers}\n",
        planned=lambda plan, folder: folders.append(folder),
        reachable=client.start,
    )
    client.join()
    assert (result.outcome, left("docker", result.run_id)) == ("succeeded", [])
    assert site.of("worker-0") == ["new disk", "new disk"]
    assert "Suspended" in [one["type"] for one in result.summary["conditions"]]
