"""GPUs through the real bindings, on a library whose devices stand in a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.base import Engine, Measuring
from emulator.engines.capabilities import capable
from emulator.engines.docker import DockerEngine
from emulator.engines.process import ProcessEngine
from emulator.metrics.catalog import GpuShare
from emulator.metrics.gpu.sampler import shares
from emulator.record.events import fields_of
from emulator.record.reader import Record
from tests.conftest import Emulate
from tests.engines.stage import shells, staged
from tests.metrics.fake_gpus import (
    COLUMNS,
    DRIVER,
    FINE,
    GIB,
    LOST,
    MIG,
    TWO,
    Machine,
    environment,
    gpu,
    row,
    share,
)


def test_every_column_of_every_device(machine: Machine) -> None:
    assert machine.open(TWO) == FINE
    assert machine.sample() == [row(0), row(1)]


def test_each_sample_queries_the_driver_again(machine: Machine) -> None:
    machine.open(TWO)
    machine.write(TWO.replace("0.power 212500", "0.power 98000").replace("1.ecc 2", "1.ecc 3"))
    assert machine.sample() == [row(0, power=98.0), row(1, ecc_errors=3)]


def test_tasks_are_found_by_their_processes(machine: Machine) -> None:
    compute = f"11:{GIB} 12:{2 * GIB} 21:{3 * GIB} 99:{GIB}"
    machine.open(DRIVER, "devices 2", gpu(0, compute=compute), gpu(1, compute=f"21:{GIB}"))
    first, second = machine.sample({"worker-0": [11, 12, 13], "worker-1": [21], "ps-0": [31]})
    assert first["tasks"] == {"worker-0": share(3 * GIB), "worker-1": share(3 * GIB)}
    assert second["tasks"] == {"worker-1": share(GIB)}


def test_memory_of_a_task_is_that_of_its_processes(machine: Machine) -> None:
    def tasks(pids: Mapping[str, Sequence[int]], **device: str) -> object:
        machine.open(DRIVER, "devices 1", gpu(0, **device))
        return machine.sample(pids)[0]["tasks"]

    # One that computes and draws counts once.
    found = tasks({"a": [11], "b": [12]}, compute="11:700", graphics="11:700 12:40")
    assert found == {"a": share(700), "b": share(40)}
    # What the driver hides is not taken for none.
    found = tasks({"a": [11, 12], "b": [21]}, compute="11:500 12:- 21:-")
    assert found == {"a": share(None), "b": share(None)}
    many = range(100, 160)
    compute = " ".join(f"{pid}:1000" for pid in many)
    found = tasks({"even": many[::2], "odd": many[1::2]}, compute=compute)
    assert found == {"even": share(30_000), "odd": share(30_000)}


def test_utilisation_of_tasks_is_since_the_sample_before(machine: Machine) -> None:
    def busy(what: str) -> None:
        machine.write(DRIVER, "devices 1", gpu(0, compute="11:1 12:1 21:1", busy=what))

    pids = {"a": [11, 12], "b": [21]}
    busy("11:90:1000")
    machine.open(now=0.0)
    assert machine.sample(pids, now=0.2)[0]["tasks"]["a"] == share(2, 0.0)  # was before
    busy("11:40:2000 12:25:2001 21:30:2001")
    first = machine.sample(pids, now=1.2)[0]["tasks"]
    assert first == {"a": share(2, 0.65), "b": share(1, 0.3)}
    busy("11:40:2000 12:25:2001 21:10:2500")
    second = machine.sample(pids, now=1.5)[0]["tasks"]  # sooner than the driver has news of `a`
    assert second == {"a": share(2, 0.65), "b": share(1, 0.1)}
    third = machine.sample(pids, now=2.3)[0]["tasks"]  # no news for a second: it does nothing
    assert third == {"a": share(2, 0.0), "b": share(1, 0.1)}


def test_what_drivers_leave_in_the_list_is_no_utilisation(machine: Machine) -> None:
    machine.open(DRIVER, "devices 1", gpu(0))
    busy = "0:50:9 11:4294967040:9 12:50:0 21:70:9 22:60:9"
    machine.write(DRIVER, "devices 1", gpu(0, compute="11:1 12:1 21:1 22:1", busy=busy))
    tasks = machine.sample({"a": [0, 11, 12], "b": [21, 22]})[0]["tasks"]
    assert tasks == {"a": share(2, 0.0), "b": share(2, 1.0)}


def test_instances_have_memory_and_tasks_the_whole_has_the_rest(machine: Machine) -> None:
    assert machine.open(MIG) == FINE
    whole, first, second, other = machine.sample({"a": [10, 30], "b": [20]})
    nothing = dict.fromkeys(COLUMNS)
    board = {**nothing, "power": 100.0, "temperature": 40.0, "sm_clock": 1000}
    board |= {"memory_clock": 1200, "ecc_errors": 0}
    assert whole == row(0, name="NVIDIA A100", **board)
    part = {**nothing, "memory": 4 * GIB, "memory_total": 20 * GIB}
    name, tasks = "NVIDIA A100 MIG 3g.20gb", {"a": share(4 * GIB, None)}
    assert first == row(0, uuid="MIG-a", name=name, tasks=tasks, **part)
    assert (second["uuid"], second["memory"]) == ("MIG-b", 3 * GIB)
    assert second["tasks"] == {"b": share(3 * GIB, None)}
    assert other == row(1, tasks={"a": share(GIB)})


def test_an_xid_belongs_to_an_instance_and_one_that_is_destroyed_is_lost(machine: Machine) -> None:
    machine.open(MIG)
    machine.write(MIG, "0.xid 1:13:5", "0.mig.5.lost 2")
    found = machine.sample()
    assert [gpu["xid"] for gpu in found] == [13, None, 13, None]
    assert [gpu["lost"] for gpu in found] == [False, False, True, False]


def test_a_name_that_is_no_text_is_left_out(machine: Machine) -> None:
    machine.open(TWO.replace("0.name NVIDIA H100", "0.name NVIDIA \udce9"))
    assert machine.sample() == [row(0, name=""), row(1)]


def test_tasks_are_given_instances_in_place_of_a_divided_device(machine: Machine) -> None:
    machine.write(MIG)
    found = machine.devices()
    assert found["ids"] == ["MIG-a", "MIG-b", "GPU-1"]
    gpus = {g["uuid"]: (g["parent"], g["divided"], g["memory"] // GIB) for g in found["gpus"]}
    instances = {"MIG-a": ("GPU-0", False, 20), "MIG-b": ("GPU-0", False, 10)}
    assert gpus == {"GPU-0": ("", True, 40), **instances, "GPU-1": ("", False, 80)}


def test_a_device_without_uuid_goes_by_its_number(machine: Machine) -> None:
    machine.write(TWO, "1.fail.nvmlDeviceGetUUID 999")
    assert machine.devices()["ids"] == ["GPU-0", "1"]


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An engine with two running tasks, each a shell and a process that it has started."""
    docker = request.param == "docker"
    image = request.getfixturevalue("tiny_image") if docker else "none"
    role = {"replicas": 2, "command": ["sh", "-c", "sleep 600 & echo started; wait"]}
    scenario = shells({}, image, cluster={"worker": role})
    with staged(DockerEngine() if docker else ProcessEngine(), scenario, tmp_path) as stage:
        for task in stage.plan.tasks:
            stage.start(task.name, until="started")
        yield stage.engine


def test_the_processes_of_real_tasks(machine: Machine, engine: Engine) -> None:
    pids = capable(engine, Measuring).pids()
    # Docker's own init comes before the two.
    (one, child), (two, other) = (sorted(pids[f"worker-{index}"])[-2:] for index in range(2))
    used = f"{one}:1000 {child}:200 {two}:- {other}:30 {os.getpid()}:7"
    machine.open(DRIVER, "devices 1", gpu(0, compute=used))
    busy = f"{child}:50:1 {other}:20:1 {os.getpid()}:30:1"
    machine.write(DRIVER, "devices 1", gpu(0, compute=used, busy=busy))
    tasks = machine.sample(pids)[0]["tasks"]
    assert tasks == {"worker-0": share(1200, 0.5), "worker-1": share(None, 0.2)}


def test_doctor_shows_a_sample_of_each_device(
    emulate: Emulate, library: Path, tmp_path: Path
) -> None:
    state = tmp_path / "gpus.txt"
    without_ecc = gpu(2).replace("2.ecc 2\n", "")
    state.write_text(f"{MIG}{without_ecc}3.uuid x\n".replace("devices 2", "devices 4"))
    with state.open("a") as file:
        file.write(f"1.lost {LOST}\n3.fail.nvmlDeviceGetHandleByIndex_v2 {LOST}\n")
    done = emulate("doctor", "--json", env=environment(library, state))
    findings = [(f["what"], f["status"], f["found"]) for f in done.json if f["what"][:3] == "GPU"]
    assert findings == [
        ("GPU 0", "ok", f"NVIDIA A100, 40.0 GiB, {DRIVER}; in MIG mode, 100 W, 40 °C"),
        ("GPU 0: MIG-a", "ok", f"NVIDIA A100 MIG 3g.20gb, 20.0 GiB, {DRIVER}; 4.0 GiB of 20.0 GiB"),
        ("GPU 0: MIG-b", "ok", f"NVIDIA A100 MIG 2g.10gb, 10.0 GiB, {DRIVER}; 3.0 GiB of 10.0 GiB"),
        ("GPU 1", "warning", "the device is lost: it no longer answers the driver"),
        (
            "GPU 2",
            "ok",
            f"NVIDIA H100, 80.0 GiB, {DRIVER}; 93% busy, 10.0 GiB of 80.0 GiB, 212 W, 61 °C",
        ),
        ("GPU 3", "warning", "the driver can't open it (GPU is lost)"),
        ("GPU columns", "warning", "never reported: ecc_errors, Not Supported (GPU 2)"),
    ]


def test_shares_of_a_device() -> None:
    owners = {1: "a", 2: "a", 3: "b"}
    assert shares(owners, {}, {}) == {}
    assert shares(owners, None, None) == {}
    assert shares(owners, {1: 5, 2: 6, 9: 7}, None) == {"a": GpuShare(11, None)}
    assert shares(owners, {1: 5, 2: None}, {}) == {"a": GpuShare(None, 0.0)}
    assert shares(owners, None, {3: 0.25}) == {"b": GpuShare(None, 0.25)}
    ended = {2: 0.5, 3: 0.1}
    assert shares(owners, {1: 5}, ended) == {"a": GpuShare(5, 0.0)}


# --- A whole run, from the driver's library to the record ----------------------------------------

Finished = tuple[Record, dict[str, Any], dict[str, Any]]
Run = Callable[[str, str], Finished]

# Says that it computes on device 0, waits until that is in the record, and then breaks device 1.
JOB = f"""
samples="$EMULATOR_FOLDER/samples.jsonl"
sed "s/^0.compute.*/0.compute $$:{3 * GIB}/" "$FAKE_NVML" > changed; mv changed "$FAKE_NVML"
until grep -q worker-0.*worker-0 "$samples" 2> /dev/null; do sleep 0.05; done
echo "1.lost {LOST}" >> "$FAKE_NVML"
until grep -q '"lost": true' "$samples"; do sleep 0.05; done
echo '{{"emulate": "step", "step": 1}}'
"""
UNTIL_TWO_SAMPLES = """
until sed -n 2p "$EMULATOR_FOLDER/samples.jsonl" 2> /dev/null | grep -q .; do sleep 0.05; done
"""


@pytest.fixture
def run(emulate: Emulate, library: Path, tmp_path: Path) -> Run:
    """Run a job of the shell with these GPUs: its record, what is sampled, and its summary."""

    def of(gpus: str, job: str) -> Finished:
        state, path = tmp_path / "gpus.txt", tmp_path / "scenario.yaml"
        state.write_text(gpus)
        path.write_text(
            "name: gpus\nframework: none\nimage: none\n"
            f"program: {{command: [sh, -c, {json.dumps(job)}]}}\n"
            "cluster: {worker: 1}\nmetrics: {interval: 100ms}\ntimeout: 5m\n"
        )
        done = emulate.up(path, "--engine", "process", env=environment(library, state))
        assert done.returncode == 0, done.stderr
        assert "GPU" not in done.stderr  # nothing to warn of
        assert "NVML" not in done.stderr
        record = Record(emulate.out / done.json["run_id"])
        (sampling,) = [fields_of(entry) for entry in record.history if entry.event == "sampling"]
        return record, sampling, done.json

    return of


def test_a_run_has_its_gpus_its_tasks_shares_and_a_device_that_is_lost(run: Run) -> None:
    record, sampling, summary = run(TWO, JOB)
    assert [gpu["uuid"] for gpu in sampling["gpus"]] == ["GPU-0", "GPU-1"]
    assert (sampling["driver"], sampling["why_no_gpus"]) == ("580.65.06", "")
    assert sampling["lacking"] == {}
    last = record.samples[-1]
    assert [gpu.lost for gpu in last.gpus] == [False, True]
    assert last.gpus[0].utilisation == 0.93
    assert last.gpus[0].tasks == {"worker-0": GpuShare(3 * GIB, 0.0)}
    assert summary["gpus"]["GPU-0"]["memory_peak"] == 10 * GIB
    assert summary["gpus"]["GPU-1"]["lost"]


def test_without_a_driver_a_run_reports_the_reason_once(run: Run) -> None:
    record, sampling, summary = run("fail.nvmlInit_v2 9\n", UNTIL_TWO_SAMPLES)
    why = "the NVIDIA driver is installed but not loaded (Driver Not Loaded)"
    assert sampling["why_no_gpus"] == why
    assert len(record.samples) > 1
    assert all(sample.gpus == () for sample in record.samples)
    assert summary["gpus"] == {}
