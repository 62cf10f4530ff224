"""GPUs through the real bindings, on a library whose devices stand in a file."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from emulator.metrics.gpu_usage import shares
from emulator.metrics.samples import GpuShare
from tests.conftest import Emulate
from tests.metrics.fake_gpus import SOURCE, Machine, compiled, environment

GIB = 2**30
FUNCTIONS = sorted(set(re.findall(r"^nvmlReturn_t (nvml\w+)\(", SOURCE.read_text(), re.M)))
CODES = [*range(1, 31), 999, 12345]
"""NVML's error codes, NVML_ERROR_UNKNOWN, and one that no version has."""
LOST = 15
NOT_SUPPORTED = 3

DRIVER = "driver 580.65.06"
COLUMNS = (
    "utilisation",
    "memory",
    "memory_total",
    "power",
    "temperature",
    "sm_clock",
    "memory_clock",
    "ecc_errors",
)


def gpu(index: int, *, compute: str = "", graphics: str = "", busy: str = "") -> str:
    return f"""\
{index}.uuid GPU-{index}
{index}.name NVIDIA H100
{index}.memory {80 * GIB} {GIB} {10 * GIB}
{index}.utilisation 93
{index}.power 212500
{index}.temperature 61
{index}.clock.1 1410
{index}.clock.2 1215
{index}.ecc 2
{index}.compute {compute}
{index}.graphics {graphics}
{index}.busy {busy}
{index}.events 8
"""


def row(index: int, **changed: Any) -> dict[str, Any]:
    """What is sampled of `gpu(index)`."""
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "NVIDIA H100",
        "utilisation": 0.93,
        "memory": 10 * GIB,
        "memory_total": 80 * GIB,
        "power": 212.5,
        "temperature": 61,
        "sm_clock": 1410,
        "memory_clock": 1215,
        "ecc_errors": 2,
        "xid": None,
        "lost": False,
        "tasks": {},
        **changed,
    }


def lost(index: int, **known: Any) -> dict[str, Any]:
    return row(index, **dict.fromkeys(COLUMNS), lost=True, **known)


def share(memory: int | None, utilisation: float | None = 0.0) -> dict[str, Any]:
    return {"memory": memory, "utilisation": utilisation}


TWO = f"{DRIVER}\ndevices 2\n{gpu(0)}{gpu(1)}"
MIG = f"""\
{DRIVER}
devices 2
0.uuid GPU-0
0.name NVIDIA A100
0.memory {40 * GIB} 0 {7 * GIB}
0.power 100000
0.temperature 40
0.clock.1 1000
0.clock.2 1200
0.ecc 0
0.events 8
0.compute 10:{4 * GIB} 20:{3 * GIB}
0.mig 7
0.mig.0.uuid MIG-a
0.mig.0.name NVIDIA A100 MIG 3g.20gb
0.mig.0.memory {20 * GIB} 0 {4 * GIB}
0.mig.0.compute 10:{4 * GIB}
0.mig.0.instance 1
0.mig.5.uuid MIG-b
0.mig.5.name NVIDIA A100 MIG 2g.10gb
0.mig.5.memory {10 * GIB} 0 {3 * GIB}
0.mig.5.compute 20:{3 * GIB}
0.mig.5.instance 5
{gpu(1, compute=f"30:{GIB}")}"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def machine(library: Path, tmp_path: Path) -> Iterator[Machine]:
    with Machine(library, tmp_path) as made:
        yield made


def test_every_column_of_every_device(machine: Machine) -> None:
    machine.write(TWO)
    assert machine.open() == {"why_none": "", "lacking": {}}
    assert machine.sample() == [row(0), row(1)]


def test_each_sample_asks_anew(machine: Machine) -> None:
    machine.write(TWO)
    machine.open()
    machine.write(TWO.replace("0.power 212500", "0.power 98000").replace("1.ecc 2", "1.ecc 3"))
    assert machine.sample() == [row(0, power=98.0), row(1, ecc_errors=3)]


def test_tasks_are_found_by_their_processes(machine: Machine) -> None:
    compute = f"11:{GIB} 12:{2 * GIB} 21:{3 * GIB} 99:{GIB}"
    machine.write(DRIVER, "devices 2", gpu(0, compute=compute), gpu(1, compute=f"21:{GIB}"))
    machine.open()
    first, second = machine.sample({"worker-0": [11, 12, 13], "worker-1": [21], "ps-0": [31]})
    assert first["tasks"] == {"worker-0": share(3 * GIB), "worker-1": share(3 * GIB)}
    assert second["tasks"] == {"worker-1": share(GIB)}


def test_a_process_that_computes_and_draws_counts_once(machine: Machine) -> None:
    machine.write(DRIVER, "devices 1", gpu(0, compute="11:700", graphics="11:700 12:40"))
    machine.open()
    assert machine.sample({"a": [11], "b": [12]})[0]["tasks"] == {"a": share(700), "b": share(40)}


def test_memory_that_the_driver_hides_is_not_taken_for_none_used(machine: Machine) -> None:
    machine.write(DRIVER, "devices 1", gpu(0, compute="11:500 12:- 21:-"))
    machine.open()
    tasks = machine.sample({"a": [11, 12], "b": [21]})[0]["tasks"]
    assert tasks == {"a": share(None), "b": share(None)}


def test_many_processes_on_one_device(machine: Machine) -> None:
    pids = range(100, 160)
    machine.write(DRIVER, "devices 1", gpu(0, compute=" ".join(f"{pid}:1000" for pid in pids)))
    machine.open()
    tasks = machine.sample({"even": pids[::2], "odd": pids[1::2]})[0]["tasks"]
    assert tasks == {"even": share(30_000), "odd": share(30_000)}


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
    machine.write(DRIVER, "devices 1", gpu(0))
    machine.open()
    machine.write(
        DRIVER, "devices 1", gpu(0, busy="0:50:9 11:4294967040:9 12:50:0 21:70:9 22:60:9")
    )
    tasks = machine.sample({"a": [0, 11, 12], "b": [21, 22]})[0]["tasks"]
    assert tasks == {"b": share(0, 1.0)}  # two processes can't be busy for more than all the time


@pytest.mark.parametrize("code", [LOST, 6, 28, 999, 1, 16])
def test_a_lost_device_is_lost_alone(machine: Machine, code: int) -> None:
    text = f"{DRIVER}\ndevices 2\n{gpu(0, compute='11:5')}{gpu(1, compute='11:6')}"
    machine.write(text)
    machine.open()
    machine.write(text, f"0.lost {code}")
    there = row(1, tasks={"a": share(6)})
    assert machine.look({"a": [11]}) == {"gpus": [lost(0), there], "lacking": {}}
    machine.write(text)
    assert machine.sample({"a": [11]}) == [row(0, tasks={"a": share(5)}), there]


def test_one_function_that_says_lost_is_enough(machine: Machine) -> None:
    machine.write(TWO)
    machine.open()
    machine.write(TWO, f"1.fail.nvmlDeviceGetPowerUsage {LOST}")
    assert machine.sample() == [row(0), lost(1)]


def test_a_device_that_is_lost_before_the_start(machine: Machine) -> None:
    machine.write(TWO, f"0.fail.nvmlDeviceGetHandleByIndex_v2 {LOST}")
    assert machine.open() == {"why_none": "", "lacking": {}}
    assert machine.sample() == [row(1)]
    assert machine.devices()["silent"] == {"0": "GPU is lost"}
    machine.write(f"{DRIVER}\ndevices 1\n0.fail.nvmlDeviceGetHandleByIndex_v2 {LOST}")
    assert machine.open()["why_none"] == "no GPU can be opened (GPU 0: GPU is lost)"


def test_the_last_xid_stays_also_when_the_device_is_gone(machine: Machine) -> None:
    machine.write(TWO)
    machine.open()
    machine.write(TWO, "0.xid 1:31 2:43", f"1.fail.nvmlEventSetWait_v2 {LOST}")
    assert machine.sample() == [row(0, xid=43), row(1)]
    machine.write(TWO)
    assert machine.sample() == [row(0, xid=43), row(1)]
    machine.write(TWO, "0.xid 3:79", f"0.lost {LOST}")
    assert machine.sample() == [lost(0, xid=79), row(1)]


def test_instances_have_memory_and_tasks_the_whole_has_the_rest(machine: Machine) -> None:
    machine.write(MIG)
    assert machine.open() == {"why_none": "", "lacking": {}}
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


def test_an_xid_belongs_to_the_instance_that_the_driver_names(machine: Machine) -> None:
    machine.write(MIG)
    machine.open()
    machine.write(MIG, "0.xid 1:13:5")
    assert [found["xid"] for found in machine.sample()] == [13, None, 13, None]


def test_an_instance_that_is_destroyed_is_lost(machine: Machine) -> None:
    machine.write(MIG)
    machine.open()
    machine.write(MIG, "0.mig.5.lost 2")
    assert [found["lost"] for found in machine.sample()] == [False, False, True, False]


def test_tasks_are_given_instances_in_place_of_a_divided_device(machine: Machine) -> None:
    machine.write(MIG)
    found = machine.devices()
    assert found["ids"] == ["MIG-a", "MIG-b", "GPU-1"]
    assert [(g["uuid"], g["parent"], g["divided"]) for g in found["gpus"]] == [
        ("GPU-0", "", True),
        ("MIG-a", "GPU-0", False),
        ("MIG-b", "GPU-0", False),
        ("GPU-1", "", False),
    ]
    assert [g["memory"] for g in found["gpus"]] == [40 * GIB, 20 * GIB, 10 * GIB, 80 * GIB]


def test_a_device_without_uuid_goes_by_its_number(machine: Machine) -> None:
    machine.write(TWO, "1.fail.nvmlDeviceGetUUID 999")
    assert machine.devices()["ids"] == ["GPU-0", "1"]


def test_columns_that_a_driver_does_not_offer_are_empty_and_said_once(machine: Machine) -> None:
    no_ecc = gpu(0).replace("0.ecc 2\n", "").replace("0.events 8", "0.events 1")
    text = f"{DRIVER}\ndevices 2\n{no_ecc}{gpu(1)}"
    machine.write(text, "fail.nvmlDeviceGetPowerUsage 4")
    lacking = {
        "ecc_errors": "Not Supported (GPU 0)",
        "xid": "Not Supported (GPU 0)",
        "power": "Insufficient Permissions (GPU 0, 1)",
    }
    assert machine.open() == {"why_none": "", "lacking": lacking}
    gpus = [row(0, ecc_errors=None, power=None), row(1, power=None)]
    assert machine.look() == {"gpus": gpus, "lacking": lacking}


def test_a_column_that_fails_for_a_moment_is_not_lacking(machine: Machine) -> None:
    machine.write(TWO, "fail.nvmlDeviceGetPowerUsage 999")
    assert list(machine.open()["lacking"]) == ["power"]
    machine.write(TWO)
    assert machine.look()["lacking"] == {}
    machine.write(TWO, "fail.nvmlDeviceGetPowerUsage 999")
    assert machine.look() == {"gpus": [row(0, power=None), row(1, power=None)], "lacking": {}}


def test_no_list_of_processes_as_under_windows_subsystem(machine: Machine) -> None:
    hidden = gpu(0).replace("0.compute \n", "").replace("0.graphics \n", "")
    machine.write(DRIVER, "devices 1", hidden)
    assert machine.open()["lacking"] == {"tasks.memory": "Not Supported (GPU 0)"}
    machine.write(DRIVER, "devices 1", hidden.replace("0.busy ", "0.busy 11:30:5"))
    assert machine.sample({"a": [11]}) == [row(0, tasks={"a": share(None, 0.3)})]


def test_a_library_without_younger_or_older_functions(tmp_path: Path) -> None:
    """Symbols that are not there at all, as with the driver of another year."""
    missing = ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetTemperature", "nvmlDeviceGetMigMode"]
    missing += ["nvmlDeviceGetTotalEccErrors", "nvmlEventSetCreate"]
    missing += ["nvmlDeviceGetProcessUtilization", "nvmlDeviceGetGraphicsRunningProcesses_v3"]
    with Machine(compiled(tmp_path, without=missing), tmp_path) as machine:
        machine.write(DRIVER, "devices 1", gpu(0, compute="11:5"))
        why = "Function Not Found (GPU 0)"
        absent = ("ecc_errors", "tasks.utilisation", "xid")
        assert machine.open() == {"why_none": "", "lacking": dict.fromkeys(absent, why)}
        first = row(0, ecc_errors=None, memory=11 * GIB, tasks={"a": share(5, None)})
        assert machine.sample({"a": [11]}) == [first]


def test_a_driver_that_is_older_than_the_bindings(tmp_path: Path) -> None:
    with Machine(compiled(tmp_path, without=["nvmlInitWithFlags"]), tmp_path) as machine:
        machine.write(TWO)
        why = "the NVIDIA driver is too old (Function Not Found)"
        assert machine.open() == {"why_none": why, "lacking": {}}
        assert machine.sample() == []


def test_no_driver(tmp_path: Path) -> None:
    """The loader stops at a file that is no library, also where a real one is installed."""
    (tmp_path / "libnvidia-ml.so.1").write_text("no library\n" * 100)
    with Machine(tmp_path, tmp_path) as machine:
        assert machine.open()["why_none"] == "no NVIDIA driver (NVML Shared Library Not Found)"
        assert machine.sample({"a": [1]}) == []
        assert machine.devices()["ids"] == []
        machine.close()


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("", "the NVIDIA driver is installed but not loaded (Driver Not Loaded)"),
        (DRIVER, "the driver reports no GPU"),
        (
            f"{TWO}\nfail.nvmlInitWithFlags 18",
            "the NVIDIA driver was updated: reboot (RM has detected an NVML/RM version mismatch.)",
        ),
        (
            f"{TWO}\nfail.nvmlInitWithFlags 4",
            "this user may not use the NVIDIA driver (Insufficient Permissions)",
        ),
        (f"{TWO}\nfail.nvmlInitWithFlags 12345", "the NVIDIA driver does not answer (error 12345)"),
        (
            f"{TWO}\nfail.nvmlDeviceGetCount_v2 999",
            "the NVIDIA driver does not answer (Unknown Error)",
        ),
    ],
)
def test_why_there_are_no_gpus(machine: Machine, lines: str, why: str) -> None:
    machine.write(lines)
    assert machine.open() == {"why_none": why, "lacking": {}}
    assert machine.sample() == []
    assert machine.devices()["why_none"] == why


@pytest.mark.parametrize("function", FUNCTIONS)
def test_whatever_fails_costs_no_more_than_what_it_tells(machine: Machine, function: str) -> None:
    """Any function with any error: in the middle of a run, at its start, and until its end."""
    text = f"{MIG}{gpu(2, compute='40:7')}".replace("devices 2", "devices 3")
    text = text.replace(f" {GIB} {10 * GIB}", f" 0 {10 * GIB}")  # both ways to ask tell the same
    pids = {"a": [10, 30], "b": [20, 40]}
    machine.write(text)
    machine.open()
    healthy = machine.sample(pids)
    for code in CODES:
        machine.write(text, f"1.fail.{function} {code}")
        *others, at_fault, last = machine.sample(pids)
        assert [*others, last] == healthy[:3] + healthy[4:]
        assert_no_more_than(healthy[3], at_fault)
        machine.write(text, f"fail.{function} {code}")
        for before, after in zip(healthy, machine.sample(pids), strict=True):
            assert_no_more_than(before, after)
        machine.close()
        why = machine.open()["why_none"]
        assert bool(why) == (machine.sample(pids) == [])
        machine.close()
        machine.write(text)
        machine.open()
        assert machine.sample(pids) == healthy


def assert_no_more_than(healthy: dict[str, Any], found: dict[str, Any]) -> None:
    """Each column is what it was, or empty."""
    assert found["uuid"] == healthy["uuid"]
    for column in COLUMNS:
        assert found[column] in (None, healthy[column])
    for task, there in found["tasks"].items():
        for key, value in there.items():
            assert value in (None, healthy["tasks"][task][key])


def test_the_driver_is_opened_once_and_let_go(machine: Machine) -> None:
    machine.write(MIG)
    machine.open()
    for now in range(20):
        machine.sample({"a": [10]}, now=float(now))
    machine.close()
    assert machine.sample({"a": [10]}) == []
    calls = Counter(machine.calls())
    assert (calls["nvmlInitWithFlags"], calls["nvmlShutdown"]) == (1, 1)
    assert calls["nvmlEventSetCreate"] == calls["nvmlEventSetFree"] == 2
    assert calls["nvmlDeviceGetUUID"] == 4


@dataclass(frozen=True)
class Group:
    """A process group, as the process engine starts one for each task."""

    leader: subprocess.Popen[str]

    @property
    def pids(self) -> list[int]:
        leader = psutil.Process(self.leader.pid)
        return [leader.pid, *(child.pid for child in leader.children(recursive=True))]


@pytest.fixture
def groups() -> Iterator[list[Group]]:
    """Two tasks, each a shell and a process that it has started."""
    script = "sleep 600 & echo started; wait"
    started = [
        subprocess.Popen(
            ["sh", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        for _ in range(2)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
    yield [Group(process) for process in started]
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_groups_of_real_processes_and_strangers(machine: Machine, groups: list[Group]) -> None:
    (one, child), (_, other) = (group.pids for group in groups)
    used = f"{one}:1000 {child}:200 {other}:30 {os.getpid()}:7"
    machine.write(DRIVER, "devices 1", gpu(0, compute=used, busy=f"{child}:50:1 {other}:20:1"))
    machine.open()
    text = gpu(0, compute=used, busy=f"{child}:50:2 {other}:20:2")
    machine.write(DRIVER, "devices 1", text)
    tasks = machine.sample({f"worker-{n}": group.pids for n, group in enumerate(groups)})[0][
        "tasks"
    ]
    assert tasks == {"worker-0": share(1200, 0.5), "worker-1": share(30, 0.2)}


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
        ("GPU 0", "ok", "NVIDIA A100, 40.0 GiB, driver 580.65.06; in MIG mode, 100 W, 40 degrees"),
        ("GPU 0: MIG-a", "ok", "NVIDIA A100 MIG 3g.20gb, 20.0 GiB, driver 580.65.06; 4.0 GiB used"),
        ("GPU 0: MIG-b", "ok", "NVIDIA A100 MIG 2g.10gb, 10.0 GiB, driver 580.65.06; 3.0 GiB used"),
        ("GPU 1", "warning", "the device is lost: it no longer answers the driver"),
        (
            "GPU 2",
            "ok",
            "NVIDIA H100, 80.0 GiB, driver 580.65.06; 93% busy, 10.0 GiB used, 212 W, 61 degrees",
        ),
        ("GPU 3", "warning", "the driver can't open it (GPU is lost)"),
        ("GPU columns", "warning", "never told: ecc_errors, Not Supported (GPU 2)"),
    ]


def test_shares_of_a_device() -> None:
    owners = {1: "a", 2: "a", 3: "b"}
    assert shares(owners, {}, {}) == {}
    assert shares(owners, None, None) == {}
    assert shares(owners, {1: 5, 2: 6, 9: 7}, None) == {"a": GpuShare(11, None)}
    assert shares(owners, {1: 5, 2: None}, {}) == {"a": GpuShare(None, 0.0)}
    assert shares(owners, None, {3: 0.25}) == {"b": GpuShare(None, 0.25)}
    assert shares(owners, {1: 5}, {2: 0.5, 3: 0.1}) == {
        "a": GpuShare(5, 0.5),
        "b": GpuShare(0, 0.1),  # it has ended, and gave its memory back
    }
