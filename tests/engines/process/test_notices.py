"""Tasks that are processes find their metadata server by the variables that clients know."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from emulator.engines.process import ProcessEngine
from emulator.engines.requirements import require
from emulator.errors import EngineError, NotRunning, Unsupported
from emulator.faults.kinds import FAULTS
from emulator.faults.platforms.notices import Notice, variables_at
from emulator.scenario.schema import Scenario
from tests.engines.stage import shells, staged
from tests.faults.platforms.told import Taken

# As a task of TensorFlow does by itself on Google's machines, each second.
TENSORFLOW = """python3 -c '
import time
from tensorflow.python.distribute.failure_handling import failure_handling_util as util
print("on_gcp", util.on_gcp(), flush=True)
while not util.termination_watcher_function_gce():
    time.sleep(0.1)
print("to be terminated", flush=True)
time.sleep(1000)
'"""
SHOWS = "python3 -c 'import json, os; print(json.dumps(dict(os.environ)), flush=True)'; sleep 1000"


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAULTS, Taken.kind, Taken)


def told(script: str, platform: str) -> Scenario:
    fault = {"taken": "worker-0", "metadata": platform, "at": "1h"}
    return shells({"worker": script}, faults=[fault])


@pytest.mark.tensorflow
@pytest.mark.usefixtures("host_tensorflow")
def test_tensorflows_own_watcher_sees_a_maintenance(tmp_path: Path) -> None:
    engine = ProcessEngine()
    with staged(engine, told(TENSORFLOW, "gce"), tmp_path) as s:
        s.start(until="on_gcp True")
        engine.announce(Notice("gce", "preempt", "worker-0", 0.0, 30.0))  # which it does not read
        engine.announce(Notice("gce", "maintenance", "worker-0", 0.0, 3600.0))
        s.until_line("worker-0", "to be terminated")


def test_each_task_has_a_server_of_its_own_while_the_run_lasts(tmp_path: Path) -> None:
    engine = ProcessEngine()
    scenario = told(SHOWS, "ec2")
    with staged(engine, scenario, tmp_path) as s:
        with pytest.raises(NotRunning):
            engine.announce(Notice("ec2", "terminate", "worker-0", 0.0, 120.0))
        s.start()
        environment = json.loads(s.until_found("worker-0", lambda line: "GCE" in line))
        names = variables_at(environment["GCE_METADATA_HOST"])
        assert {name: environment[name] for name in names} == names
        url = environment["AWS_EC2_METADATA_SERVICE_ENDPOINT"] + "latest/meta-data/"

        def ask(key: str) -> str:
            try:
                with urllib.request.urlopen(url + key) as answer:
                    return str(answer.read().decode())
            except urllib.error.HTTPError as error:
                error.close()
                return str(error.code)

        assert ask("spot/instance-action") == "404"
        engine.announce(Notice("ec2", "terminate", "worker-0", 0.0, 120.0))
        assert json.loads(ask("spot/instance-action"))["time"] == "1970-01-01T00:02:00Z"
        before = ask("instance-id")
        engine.remove("worker-0")
        assert ask("spot/instance-action") == "404"
        assert ask("instance-id") != before
    with pytest.raises(urllib.error.URLError):
        ask("instance-id")


def test_without_such_a_fault_there_is_none(tmp_path: Path) -> None:
    engine = ProcessEngine()
    with staged(engine, shells({"worker": SHOWS}), tmp_path) as s:
        s.start()
        assert "GCE_METADATA_IP" not in s.until_found("worker-0", lambda line: "PATH" in line)
        with pytest.raises(EngineError, match="the run has no metadata server"):
            engine.announce(Notice("gce", "preempt", "worker-0", 0.0, 30.0))


def test_azures_events_have_a_fixed_address_which_processes_do_not_reach() -> None:
    with pytest.raises(Unsupported, match="fixed address of Azure's scheduled events") as refused:
        require(told("true", "azure"), ProcessEngine())
    assert "docker" in f"{refused.value} {refused.value.hint}"
