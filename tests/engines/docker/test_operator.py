"""Jobs of the training operator in real containers: which disk a pod has, and what remains."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

from emulator.api.client import Cluster
from emulator.engines.docker import DockerEngine
from emulator.execution import up
from emulator.record.events import TaskExit
from emulator.record.reader import Record
from emulator.results import Result, RunCallbacks
from emulator.scenario.loader import parse

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


class Run:
    """A TFJob whose tasks run PROGRAM and more."""

    def __init__(self, folder: Path, image: str) -> None:
        self._folder, self._image = folder, image
        self.printed: dict[str, list[str]] = {}

    def up(self, program: str, extra: str, **callbacks: Any) -> Result:
        (self._folder / "job.py").write_text(PROGRAM + program)
        text = (
            f"name: pods\nimage: {self._image}\ntimeout: 60s\n"
            f"program: {{source: job.py, command: [python3, job.py]}}\n{extra}"
        )
        calls = RunCallbacks(lines=self._note, **callbacks)
        with contextlib.closing(DockerEngine()) as engine:
            scenario, out = parse(text, folder=self._folder), self._folder / "runs"
            result = up(scenario, engine, text=text, out=out, reports=False, callbacks=calls)
            assert not engine.find(result.run_id)
        return result

    def _note(self, lines: Any) -> None:
        for task, text in lines:
            self.printed.setdefault(task, []).append(text)


@pytest.fixture
def job(tmp_path: Path, tiny_image: str) -> Run:
    return Run(tmp_path, tiny_image)


def test_exit_code_makes_a_new_pod_and_on_failure_keeps_its_disk(job: Run) -> None:
    program = """
if os.environ["EMULATOR_ROLE"] == "chief":
    until("/shared/again-worker-0"), until("/shared/again-ps-0")
elif first:
    os.kill(os.getpid(), signal.SIGKILL)
else:
    pathlib.Path("/shared/again-" + os.environ["EMULATOR_TASK"]).touch()
    time.sleep(600)
"""
    result = job.up(
        program,
        "cluster: {chief: 1, worker: 1, ps: 1}\n"
        "operator: {kind: TFJob, job: m, clean_pods: running, "
        "restart: {worker: exit-code, ps: on-failure}}\n",
    )
    assert result.outcome == "succeeded"
    assert job.printed["worker-0"] == ["new disk", "new disk"]
    assert job.printed["ps-0"] == ["new disk", "old disk"]
    found = [(one["type"], one["reason"]) for one in result.summary["conditions"]]
    assert found == [
        ("Created", "TFJobCreated"),
        ("Running", "TFJobRunning"),
        ("Restarting", "TFJobRestarting"),
        ("Running", "TFJobRunning"),
        ("Succeeded", "TFJobSucceeded"),
    ]


def test_a_suspended_job_gets_new_pods(job: Run) -> None:
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
if first:
    signal.sigwait([signal.SIGTERM])
    sys.exit(3)
"""
    result = job.up(
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n" + program,
        "cluster: {worker: 2}\noperator: {kind: TFJob, job: m, success: all-workers}\n",
        planned=lambda plan, folder: folders.append(folder),
        reachable=client.start,
    )
    client.join()
    assert result.outcome == "succeeded"
    assert job.printed["worker-0"] == ["new disk", "new disk"]
    assert "Suspended" in [one["type"] for one in result.summary["conditions"]]
