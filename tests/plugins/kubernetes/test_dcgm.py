"""What DCGM's exporter says, as rows of a sample."""

from __future__ import annotations

import pytest

from emulator.metrics.catalog import GpuShare, GpuUsage
from emulator.plugins.kubernetes.dcgm import (
    Exporter,
    devices,
    exporters,
    gpu_usage,
    numbered,
    parse,
)

GIB, NAME = 2**30, "NVIDIA A100-SXM4-80GB"
OWNERS = {("team", "run-worker-0"): "worker-0", ("team", "run-worker-1"): "worker-1"}
HEAD = """\
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
"""


def lines(labels: str, **values: object) -> str:
    return "".join(f"DCGM_FI_{name}{{{labels}}} {value}\n" for name, value in values.items())


def labels(gpu: int, uuid: str, pod: str = "", namespace: str = "team", more: str = "") -> str:
    return (
        f'gpu="{gpu}",UUID="{uuid}",pci_bus_id="00000000:07:00.0",device="nvidia{gpu}",'
        f'modelName="{NAME}",{more}Hostname="node-a",'
        f'container="main",namespace="{namespace}",pod="{pod}"'
    )


WHOLE = {
    "DEV_SM_CLOCK": 1410,
    "DEV_MEM_CLOCK": 1593,
    "DEV_GPU_TEMP": 61,
    "DEV_POWER_USAGE": "312.504000",
    "DEV_XID_ERRORS": 0,
    "DEV_GPU_UTIL": 93,
    "DEV_FB_FREE": 71680,
    "DEV_FB_USED": 9728,
    "DEV_FB_RESERVED": 512,
}


def rows(text: str) -> list[GpuUsage]:
    found = devices(text, "node-a", OWNERS)
    return gpu_usage(found, numbered(found, {}))


def test_a_device_of_a_task_has_all_columns_and_its_share() -> None:
    text = HEAD + lines(labels(3, "GPU-a", "run-worker-0"), **WHOLE)
    assert rows(text) == [
        GpuUsage(
            index=0,
            uuid="GPU-a",
            name=NAME,
            utilisation=0.93,
            memory=9728 * 2**20,
            memory_total=80 * GIB,
            power=312.504,
            temperature=61.0,
            sm_clock=1410.0,
            memory_clock=1593.0,
            tasks={"worker-0": GpuShare(9728 * 2**20, 0.93)},
        )
    ]


OURS = {"worker-0": GpuShare(None, 0.5)}


@pytest.mark.parametrize(
    ("labels", "tasks"),
    [
        (labels(0, "GPU-a"), []),
        (labels(0, "GPU-a", "run-worker-0", namespace="other"), []),
        (labels(0, "GPU-a", "other-worker-0"), []),
        ('gpu="0",UUID="GPU-a"', []),
        (
            'gpu="0",UUID="GPU-a",pod="exporter",namespace="gpu",'
            'exported_pod="run-worker-0",exported_namespace="team"',
            [OURS],
        ),
        ('gpu="0",UUID="GPU-a",pod_name="run-worker-0",pod_namespace="team"', [OURS]),
    ],
)
def test_devices_of_others_are_left_out_and_other_names_of_labels_are_known(
    labels: str, tasks: list[dict[str, GpuShare]]
) -> None:
    assert [row.tasks for row in rows(lines(labels, DEV_GPU_UTIL=50))] == tasks
    assert bool(rows(lines(labels, **WHOLE))) == bool(tasks)


def test_instances_follow_the_row_of_their_device() -> None:
    one = labels(1, "GPU-a", "run-worker-0", more='GPU_I_PROFILE="1g.10gb",GPU_I_ID="7",')
    two = labels(1, "GPU-a", "run-worker-1", more='GPU_I_PROFILE="3g.40gb",GPU_I_ID="2",')
    instance = {"DEV_POWER_USAGE": 200, "DEV_FB_USED": 1024, "DEV_FB_FREE": 8704}
    text = lines(one, **instance, PROF_GR_ENGINE_ACTIVE="0.25") + lines(two, **instance)
    size = 9728 * 2**20
    second, first = (
        GpuUsage(0, uuid, f"{NAME} MIG {kind}", busy, GIB, size, tasks={task: GpuShare(GIB, busy)})
        for uuid, kind, busy, task in (
            ("GPU-a/2", "3g.40gb", None, "worker-1"),
            ("GPU-a/7", "1g.10gb", 0.25, "worker-0"),
        )
    )
    assert rows(text) == [GpuUsage(0, "GPU-a", NAME, power=200.0), second, first]


def test_tasks_on_one_device_do_not_know_their_shares() -> None:
    text = "".join(
        lines(labels(0, "GPU-a", f"run-worker-{n}"), DEV_GPU_UTIL=80, DEV_FB_USED=10)
        for n in (0, 1)
    )
    (row,) = rows(text)
    assert row.tasks == {"worker-0": GpuShare(), "worker-1": GpuShare()}
    assert row.utilisation == 0.8


def test_what_dcgm_can_not_tell_is_left_out() -> None:
    text = lines(
        labels(0, "GPU-a", "run-worker-0"),
        DEV_GPU_UTIL="9223372036854775794",
        DEV_POWER_USAGE="NaN",
        DEV_FB_USED="+Inf",
        DEV_SM_CLOCK="none",
        DEV_GPU_TEMP=40,
        DEV_XID_ERRORS=79,
    )
    tasks = {"worker-0": GpuShare()}
    assert rows(text) == [GpuUsage(0, "GPU-a", NAME, temperature=40.0, xid=79, tasks=tasks)]


def test_other_lines_are_passed_over_and_escapes_are_read() -> None:
    text = (
        'go_goroutines 12\nDCGM_FI_DEV_GPU_UTIL 1\n\nnot a line {"\n'
        'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-\\"a\\\\",modelName="x, y"} 7 1795386522000\n'
    )
    assert list(parse(text)) == [
        ("DCGM_FI_DEV_GPU_UTIL", {"UUID": 'GPU-"a\\', "modelName": "x, y"}, 7.0)
    ]


def test_devices_of_all_nodes_have_numbers_that_stay() -> None:
    text = lines(labels(0, "GPU-b", "run-worker-1"), DEV_GPU_UTIL=1)
    on_b = devices(text, "node-b", OWNERS)
    first = numbered(on_b, {})
    on_a = devices(lines(labels(0, "GPU-a", "run-worker-0"), DEV_GPU_UTIL=1), "node-a", OWNERS)
    assert numbered([*on_a, *on_b], first) == {("node-b", "0"): 0, ("node-a", "0"): 1}


def test_the_exporters_of_our_nodes_are_found_behind_the_service() -> None:
    def address(node: str, pod: str) -> dict[str, object]:
        return {"ip": "10.0.0.1", "nodeName": node, "targetRef": {"kind": "Pod", "name": pod}}

    endpoints = {
        "subsets": [
            {
                "addresses": [address("node-a", "dcgm-1"), address("node-b", "dcgm-2")],
                "notReadyAddresses": [address("node-c", "dcgm-3")],
                "ports": [{"name": "metrics", "port": 9401}],
            },
            {
                "addresses": [address("node-d", "dcgm-4"), {"ip": "10.0.0.9"}],
                "ports": [{"port": 9400}, {"port": 80}],
            },
        ]
    }
    wanted = {"node-a", "node-c", "node-d"}
    assert exporters(endpoints, 9400, wanted) == [
        Exporter("node-a", "dcgm-1", 9401),
        Exporter("node-d", "dcgm-4", 9400),
    ]
    assert exporters({}, 9400, wanted) == []
