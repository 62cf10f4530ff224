"""GPUs that are lost, drivers that lack or refuse: columns are empty, and nothing ever raises."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.metrics.fake_gpus import (
    COLUMNS,
    DRIVER,
    FINE,
    GIB,
    LOST,
    MIG,
    SOURCE,
    TWO,
    Machine,
    compiled,
    gpu,
    lost,
    row,
    share,
)

pytestmark = pytest.mark.slow

FUNCTIONS = sorted(set(re.findall(r"^nvmlReturn_t (nvml\w+)\(", SOURCE.read_text(), re.M)))
CODES = [*range(1, 31), 999, 12345]
"""NVML's error codes, NVML_ERROR_UNKNOWN, and one that no version has."""


@pytest.mark.parametrize("code", [LOST, 6, 28, 999, 1, 16])
def test_a_lost_device_is_lost_alone(machine: Machine, code: int) -> None:
    text = f"{DRIVER}\ndevices 2\n{gpu(0, compute='11:5')}{gpu(1, compute='11:6')}"
    machine.open(text)
    machine.write(text, f"0.lost {code}")
    there = row(1, tasks={"a": share(6)})
    assert machine.look({"a": [11]}) == {"gpus": [lost(0), there], "unavailable": {}}
    machine.write(text)
    assert machine.sample({"a": [11]}) == [row(0, tasks={"a": share(5)}), there]


def test_a_device_is_lost_if_one_function_reports_it(machine: Machine) -> None:
    machine.open(TWO)
    machine.write(TWO, f"1.fail.nvmlDeviceGetPowerUsage {LOST}")
    assert machine.sample() == [row(0), lost(1)]


def test_a_device_that_is_lost_before_the_start(machine: Machine) -> None:
    assert machine.open(TWO, f"0.fail.nvmlDeviceGetHandleByIndex_v2 {LOST}") == FINE
    assert machine.sample() == [row(1)]
    assert machine.devices()["silent"] == {"0": "GPU is lost"}
    none = machine.open(DRIVER, "devices 1", f"0.fail.nvmlDeviceGetHandleByIndex_v2 {LOST}")
    assert none["why_none"] == "no GPU can be opened (GPU 0: GPU is lost)"
    # No column is listed for a lost device.
    assert machine.open(TWO, f"0.lost {LOST}") == FINE


def test_the_last_xid_stays_also_when_the_device_is_gone(machine: Machine) -> None:
    machine.open(TWO)
    machine.write(TWO, "0.xid 1:31 2:43", f"1.fail.nvmlEventSetWait_v2 {LOST}")
    assert machine.sample() == [row(0, xid=43), row(1)]
    machine.write(TWO)
    assert machine.sample() == [row(0, xid=43), row(1)]
    machine.write(TWO, "0.xid 3:79", f"0.lost {LOST}")
    assert machine.sample() == [lost(0, xid=79), row(1)]


def test_columns_that_a_driver_lacks_are_empty_and_reported_once(machine: Machine) -> None:
    no_ecc = gpu(0).replace("0.ecc 2\n", "").replace("0.events 8", "0.events 1")
    text = f"{DRIVER}\ndevices 2\n{no_ecc}{gpu(1)}"
    unavailable = dict.fromkeys(("ecc_errors", "xid"), "Not Supported (GPU 0)")
    unavailable["power"] = "Insufficient Permissions (GPU 0, 1)"
    opened = machine.open(text, "fail.nvmlDeviceGetPowerUsage 4")
    assert opened == {"why_none": "", "unavailable": unavailable}
    gpus = [row(0, ecc_errors=None, power=None), row(1, power=None)]
    assert machine.look() == {"gpus": gpus, "unavailable": unavailable}


def test_a_column_that_fails_for_a_moment_is_not_lacking(machine: Machine) -> None:
    assert list(machine.open(TWO, "fail.nvmlDeviceGetPowerUsage 999")["unavailable"]) == ["power"]
    machine.write(TWO)
    assert machine.look()["unavailable"] == {}
    machine.write(TWO, "fail.nvmlDeviceGetPowerUsage 999")
    assert machine.look() == {"gpus": [row(0, power=None), row(1, power=None)], "unavailable": {}}


def test_no_list_of_processes_as_under_windows_subsystem(machine: Machine) -> None:
    hidden = gpu(0).replace("0.compute \n", "").replace("0.graphics \n", "")
    unavailable = machine.open(DRIVER, "devices 1", hidden)["unavailable"]
    assert unavailable == {"tasks.memory": "Not Supported (GPU 0)"}
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
        assert machine.open() == {"why_none": "", "unavailable": dict.fromkeys(absent, why)}
        first = row(0, ecc_errors=None, memory=11 * GIB, tasks={"a": share(5, None)})
        assert machine.sample({"a": [11]}) == [first]
        machine.close()
        opened = machine.open(DRIVER, "devices 1", gpu(0).replace("0.temperature 61\n", ""))
        assert opened["unavailable"]["temperature"] == "Not Supported (GPU 0)"


def test_used_memory_is_never_now_one_figure_and_now_another(machine: Machine) -> None:
    """The two ways to ask differ by what the driver keeps for itself."""
    machine.open(TWO)
    machine.write(TWO, "0.fail.nvmlDeviceGetMemoryInfo_v2 999")
    assert machine.sample() == [row(0, memory=None, memory_total=None), row(1)]


def test_a_device_without_any_column_is_not_lost(machine: Machine) -> None:
    opened = machine.open(DRIVER, "devices 1", "0.uuid GPU-0", "0.name NVIDIA H100")
    assert machine.sample() == [row(0, **dict.fromkeys(COLUMNS))]
    columns = {*COLUMNS, "tasks.memory", "tasks.utilisation", "xid"} - {"memory_total"}
    assert opened["unavailable"] == dict.fromkeys(columns, "Not Supported (GPU 0)")


def test_a_driver_that_is_older_than_the_bindings(tmp_path: Path) -> None:
    with Machine(compiled(tmp_path, without=["nvmlInitWithFlags"]), tmp_path) as machine:
        machine.write(TWO)
        why = "the NVIDIA driver is too old (Function Not Found)"
        assert machine.open() == {"why_none": why, "unavailable": {}}
        assert machine.sample() == []


def test_no_driver(tmp_path: Path) -> None:
    """The loader stops at a file that is no library, also where a real one is installed."""
    (tmp_path / "libnvidia-ml.so.1").write_text("no library\n" * 100)
    with Machine(tmp_path, tmp_path) as machine:
        assert machine.open()["why_none"] == "no NVIDIA driver (NVML Shared Library Not Found)"
        assert machine.sample({"a": [1]}) == []
        assert machine.devices()["ids"] == []
        machine.close()


NO_ANSWER = "the NVIDIA driver does not answer"
MISMATCH = "the NVIDIA driver was updated: reboot (RM has detected an NVML/RM version mismatch.)"
FORBIDDEN = "this user may not use the NVIDIA driver (Insufficient Permissions)"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("", "the NVIDIA driver is installed but not loaded (Driver Not Loaded)"),
        (DRIVER, "the driver reports no GPU"),
        (f"{TWO}\nfail.nvmlInitWithFlags 18", MISMATCH),
        (f"{TWO}\nfail.nvmlInitWithFlags 4", FORBIDDEN),
        (f"{TWO}\nfail.nvmlInitWithFlags 12345", f"{NO_ANSWER} (error 12345)"),
        (f"{TWO}\nfail.nvmlDeviceGetCount_v2 999", f"{NO_ANSWER} (Unknown Error)"),
    ],
)
def test_why_there_are_no_gpus(machine: Machine, lines: str, why: str) -> None:
    assert machine.open(lines) == {"why_none": why, "unavailable": {}}
    assert machine.sample() == []
    assert machine.devices()["why_none"] == why


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_that_fails_only_costs_its_own_columns(machine: Machine, function: str) -> None:
    """Any function with any error: in the middle of a run, at its start, and until its end."""
    text = f"{MIG}{gpu(2, compute='40:7')}".replace("devices 2", "devices 3")
    text = text.replace(f" {GIB} {10 * GIB}", f" 0 {10 * GIB}")  # both functions return the same
    pids = {"a": [10, 30], "b": [20, 40]}
    machine.open(text)
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
        machine.open(text)
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
    machine.open(MIG)
    for now in range(20):
        machine.sample({"a": [10]}, now=float(now))
    machine.close()
    assert machine.sample({"a": [10]}) == []
    calls = Counter(machine.calls())
    assert (calls["nvmlInitWithFlags"], calls["nvmlShutdown"]) == (1, 1)
    assert calls["nvmlEventSetCreate"] == calls["nvmlEventSetFree"] == 2
    assert calls["nvmlDeviceGetUUID"] == 4


def test_events_that_a_driver_refuses_are_let_go_as_well(machine: Machine) -> None:
    opened = machine.open(TWO, "fail.nvmlDeviceRegisterEvents 999")
    assert opened["unavailable"] == {"xid": "Unknown Error (GPU 0, 1)"}
    calls = Counter(machine.calls())
    assert calls["nvmlEventSetCreate"] == calls["nvmlEventSetFree"] == 2
