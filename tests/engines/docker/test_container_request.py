"""The exact requests to the Docker engine, and the addresses in them."""

from __future__ import annotations

import io
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.docker.container_request import (
    all_requests,
    bindings,
    container_request,
    cpu_quota,
    files_archive,
    has_pod,
    helper_request,
    init_request,
    link_local_addresses,
    metadata_request,
    program_archive,
    redirects_metadata,
    task_of,
)
from emulator.engines.docker.ownership import Addresses
from emulator.engines.kit.containers import home_of
from emulator.errors import EngineError
from emulator.planning.claims import need_of
from emulator.planning.context import PlanContext, machine_limits
from emulator.planning.plan import Plan
from emulator.planning.planner import make_plan
from emulator.scenario.loader import parse

pytestmark = pytest.mark.usefixtures("in_a_folder")

SITE = PlanContext(
    "docker", lambda name: (name, 2222), lambda image: "img:1", lambda: "abc", "/shared"
)
COMMON = {"emulator.run": "run-1"}


def a_plan(extra: str = "", folder: Path = Path()) -> Plan:
    text = f"name: test\nprogram: {{command: [python, t.py], source: .}}\n{extra}"
    return make_plan(parse(text, folder=folder), "run-1", SITE)


def unpacked(archive: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {entry.name: entry for entry in tar}


@pytest.mark.parametrize(
    ("processes", "more", "capabilities"),
    [("", {}, ["NET_ADMIN"]), ("container:a", {"PidMode": "container:a"}, ["NET_ADMIN", "KILL"])],
)
def test_a_helper_may_kill_only_in_the_processes_that_it_is_given(
    processes: str, more: dict[str, str], capabilities: list[str]
) -> None:
    assert helper_request("img:1", "container:a", "ip link", COMMON, processes=processes) == {
        "Image": "img:1",
        "Cmd": ["sh", "-c", "ip link"],
        "Labels": COMMON,
        "HostConfig": {
            "NetworkMode": "container:a",
            "CapAdd": capabilities,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "LogConfig": {"Type": "json-file", "Config": {}},
            **more,
        },
    }


def test_published_ports_are_read_from_the_description_of_a_container() -> None:
    there = [{"HostIp": "127.0.0.1", "HostPort": "49153"}]
    assert bindings({"80/tcp": there, "81/tcp": None}) == {80: "127.0.0.1:49153"}
    assert bindings(None) == {}


@pytest.mark.parametrize(
    ("cpus", "quota"), [(None, -1), (0.001, 1000), (0.01, 1000), (0.011, 1100), (1.5, 150_000)]
)
def test_a_limit_of_cpus_is_at_least_what_the_kernel_accepts(
    cpus: float | None, quota: int
) -> None:
    assert cpu_quota(cpus) == quota


def test_a_task_with_limits_and_gpus_in_full() -> None:
    plan = a_plan("""\
framework: none
cluster: {server: {cpus: 1.5, memory: 1g, gpus: 2, env: {A: "b=c"}}}
""")
    assert container_request(plan, plan.task("server-0"), COMMON) == {
        "Image": "img:1",
        "Cmd": ["python", "t.py"],
        "Env": [
            "PYTHONUNBUFFERED=1",
            "EMULATOR_RUN=run-1",
            "EMULATOR_TASK=server-0",
            "EMULATOR_ROLE=server",
            "EMULATOR_INDEX=0",
            "EMULATOR_RANK=0",
            "EMULATOR_SIZE=1",
            "EMULATOR_SHARED=/shared",
            "EMULATOR_SEED=0",
            'EMULATOR_CLUSTER={"server": ["server-0:2222"]}',
            "A=b=c",
        ],
        "Hostname": "server-0",
        "Labels": {"emulator.run": "run-1", "emulator.task": "server-0"},
        "WorkingDir": "/job",
        "HostConfig": {
            "NetworkMode": "run-1",
            "Mounts": [
                {
                    "Type": "volume",
                    "Source": "run-1",
                    "Target": "/shared",
                    "VolumeOptions": {"Labels": COMMON},
                }
            ],
            "Init": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "LogConfig": {"Type": "json-file", "Config": {}},
            "CpuPeriod": 100_000,
            "CpuQuota": 150_000,
            "Memory": 1024**3,
            "MemorySwap": 1024**3,
            "DeviceRequests": [
                {"DeviceIDs": ["a", "b"], "Capabilities": [["gpu"]], "Driver": "nvidia"}
            ],
        },
        "NetworkingConfig": {
            "EndpointsConfig": {
                "run-1": {
                    "Aliases": ["server-0"],
                    "IPAMConfig": {"LinkLocalIPs": ["169.254.169.254"]},
                }
            }
        },
    }


def endpoint(plan: Plan, task: str, machine: int = 1) -> dict[str, Any]:
    body = container_request(plan, plan.task(task), COMMON, machine=machine)
    found: dict[str, Any] = body["NetworkingConfig"]["EndpointsConfig"]["run-1"]
    ipam: dict[str, Any] = found.get("IPAMConfig", {})
    return ipam


def test_metadata_is_closed_unless_it_is_opened_or_served() -> None:
    extra = "cluster: {worker: 300}\nhelpers: {board: {command: [b]}}\n"
    opened = a_plan(extra + "network: {metadata: open}\n")
    assert (endpoint(opened, "worker-0"), endpoint(opened, "board")) == ({}, {})
    served = opened.model_copy(update={"metadata": ("gce",)})
    # Of no more than two in turn: where it has lost power, its replacement has the other.
    machines = [endpoint(served, "worker-1", number)["LinkLocalIPs"] for number in (1, 2, 3)]
    assert machines == [["169.254.1.3"], ["169.254.1.4"], ["169.254.1.3"]]
    assert endpoint(served, "board") == {}
    every = {one for task in served.tasks for one in link_local_addresses(served, task.name)}
    assert (len(every), "169.254.169.254" in every) == (600, False)
    hosts = container_request(served, served.task("worker-0"), COMMON)["HostConfig"]["ExtraHosts"]
    assert hosts == ["metadata.google.internal:169.254.169.254"]


def test_without_internet_metadata_is_redirected_from_its_own_address() -> None:
    plan = a_plan("cluster: {worker: 2}\nnetwork: {internet: false}\n")
    assert not redirects_metadata(plan)
    served = plan.model_copy(update={"metadata": ("ec2",)})
    assert redirects_metadata(served)
    assert endpoint(served, "worker-1")["LinkLocalIPs"] == ["169.254.169.254"]
    body = container_request(served, served.task("worker-1"), COMMON)
    assert "ExtraHosts" not in body["HostConfig"]


def test_the_metadata_server_has_no_task_and_only_the_right_to_its_port() -> None:
    plan = a_plan("cluster: {worker: 1}")
    body = metadata_request(plan, "net:1", ["serve"], COMMON, "10.0.0.9")
    assert body["Labels"] == COMMON
    assert (body["HostConfig"]["CapAdd"], body["HostConfig"]["CapDrop"]) == (
        ["NET_BIND_SERVICE"],
        ["ALL"],
    )
    own = body["NetworkingConfig"]["EndpointsConfig"]["run-1"]["IPAMConfig"]
    assert own == {"LinkLocalIPs": ["169.254.169.254"], "IPv4Address": "10.0.0.9"}


def test_a_task_without_limits_requests_none_and_one_without_a_program_stays_in_its_image() -> None:
    plan = a_plan("cluster: {worker: 1}")
    host_config = container_request(plan, plan.task("worker-0"), COMMON)["HostConfig"]
    limits = {"CpuQuota", "Memory", "MemorySwap", "DeviceRequests"}
    assert not limits & host_config.keys()
    text = "name: test\nprogram: {command: [serve]}\ncluster: {worker: 1}\n"
    plan = make_plan(parse(text), "run-1", SITE)
    assert "WorkingDir" not in container_request(plan, plan.task("worker-0"), COMMON)
    archive = unpacked(program_archive(None))
    assert {name: entry.mode for name, entry in archive.items()} == {"shared": 0o777}


@pytest.mark.parametrize(
    ("role", "memory", "processes"),
    [
        ("1", 7 * 1024**3, 32_768),
        ("{memory: 1g}", 1024**3, 32_768),
        ("{processes: 4096}", 7 * 1024**3, 4096),
        ("{memory: 1g, processes: 4096}", 1024**3, 4096),
    ],
)
def test_what_a_scenario_does_not_limit_has_a_default_of_the_machine(
    role: str, memory: int, processes: int
) -> None:
    site = replace(SITE, limits=lambda count: machine_limits(8 * 1024**3, 2**22, count))
    scenario = parse(f"name: test\nprogram: {{command: [t]}}\ncluster: {{worker: {role}}}\n")
    plan = make_plan(scenario, "run-1", site)
    host_config = container_request(plan, plan.task("worker-0"), COMMON)["HostConfig"]
    assert (host_config["Memory"], host_config["MemorySwap"]) == (memory, memory)
    assert host_config["PidsLimit"] == processes
    assert need_of(scenario).memory == (1024**3 if "memory" in role else 0)  # reserves nothing


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder as a checkout leaves it, with a umask that keeps others out."""
    folder = tmp_path / "program"
    for name in ("pkg/data.csv", "pkg/__pycache__/x.pyc", "__pycache__/y.pyc", "train.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o700)
    (folder / "train.py").chmod(0o600)
    (folder / "pkg").chmod(0o700)
    (folder / "link").symlink_to("train.py")
    os.utime(folder / "train.py", (1_000_000, 1_000_000))
    return folder


POD = """\
framework: none
cluster:
  w:
    entrypoint: none
    working_dir: /srv
    env: {A: b}
    ports: [80]
    mounts: {/data: {scratch: data}}
    init:
      - {name: get, image: own, command: [get], mounts: {/d: {scratch: data, writable: false}}}
network: {metadata: closed}
"""


def test_the_containers_of_a_pod() -> None:
    plan = a_plan(POD)
    task = plan.task("w-0")
    step = init_request(plan, task.init[0], COMMON, "10.0.0.9", disk=2)
    # A step has no name on the network.
    assert not {"Hostname", "WorkingDir", "ExposedPorts"} & step.keys()
    assert step["Labels"] == {**COMMON, "emulator.part": "w-0.get", "emulator.disk": "2"}
    assert step["NetworkingConfig"]["EndpointsConfig"] == {
        "run-1": {
            "Aliases": [],
            "IPAMConfig": {"IPv4Address": "10.0.0.9", "LinkLocalIPs": ["169.254.169.254"]},
        }
    }
    assert step["HostConfig"]["Mounts"][1:] == [
        {
            "Type": "volume",
            "Source": "run-1-w-0.data.2",
            "Target": "/d",
            "ReadOnly": True,
            "VolumeOptions": {"NoCopy": True, "Labels": {**COMMON, "emulator.disk": "2"}},
        }
    ]
    shown = {one.name: body for one, body in all_requests(plan, task, COMMON)}
    assert list(shown) == ["w-0.get", "w-0"]  # in their order
    assert not any("Sysctls" in body["HostConfig"] for body in shown.values())
    own = shown["w-0"]
    assert (own["Entrypoint"], own["WorkingDir"]) == ([""], "/srv")
    every = [body["Labels"] for body in shown.values()]
    assert [(task_of(one), one["emulator.disk"]) for one in every] == [("w-0", "1")] * 2
    assert own["HostConfig"]["Mounts"][1]["Source"] == "run-1-w-0.data.1"


@pytest.mark.parametrize(
    ("role", "found"),
    [
        ("cpus: 1", False),
        ("init: [{name: a, command: [b]}]", True),
        ("mounts: {/a: {scratch: b}}", True),
        ("mounts: {/a: {tmpfs: 1m}}", False),
    ],
)
def test_any_part_or_scratch_volume_makes_a_task_a_pod(role: str, found: bool) -> None:
    task = a_plan(f"framework: none\ncluster: {{w: {{{role}}}}}").task("w-0")
    assert has_pod(task) == found


def test_small_files_come_with_their_modes(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("1")
    plan = a_plan(
        "framework: none\ncluster:\n  w:\n    working_dir: /srv\n    mounts: {/s: {scratch: s}}\n"
        "    files: {/etc/a: text, /s/b: {base64: AP8=, mode: '0700'}}\n",
        tmp_path,
    )
    task = plan.task("w-0")
    entries = unpacked(files_archive(plan, task))
    assert {name: (one.isdir(), one.mode, one.size) for name, one in entries.items()} == {
        "s": (True, 0o777, 0),
        "etc/a": (False, 0o644, 4),
        "s/b": (False, 0o700, 2),
    }
    source = unpacked(program_archive(task.copied, home_of(task)))
    assert list(source) == ["shared", "srv", "srv/t.py"]
    for role, names in {
        "cpus: 1": None,
        "mounts: {/t: {tmpfs: 1m}, /r: {scratch: r, writable: false}}": None,
        "mounts: {/t: {tmpfs: 1m}, /s: {scratch: s}}": ["s"],
        "files: {/a: text}": ["a"],
    }.items():
        plan = a_plan(f"framework: none\ncluster: {{w: {{{role}}}}}")
        archive = files_archive(plan, plan.tasks[0])
        assert (list(unpacked(archive)) if archive else None) == names


# --- Addresses of tasks: which one each container gets --------------------------------------------


def container(address: str) -> dict[str, object]:
    endpoint = {"IPAMConfig": {"IPv4Address": address}}
    return {"NetworkSettings": {"Networks": {"run": endpoint, "other": {"IPAMConfig": None}}}}


def test_each_container_has_an_address_of_its_own_and_the_gateway_keeps_the_first() -> None:
    addresses = Addresses("172.20.0.0/16")
    assert [addresses.choose(task, same=False) for task in ("a", "b", "a")] == [
        "172.20.0.2",
        "172.20.0.3",
        "172.20.0.4",
    ]
    assert addresses.choose("b", same=True) == "172.20.0.3"
    assert addresses.choose("c", same=True) == "172.20.0.5"


def test_after_the_last_address_those_that_are_free_again_are_assigned() -> None:
    addresses = Addresses("10.0.0.0/29")  # .2 to .6 are for tasks
    assert [addresses.choose("a", same=False)[-1] for _ in range(5)] == list("23456")
    assert [addresses.choose(task, same=False)[-1] for task in "bcaa"] == list("2345")


def test_a_subnet_without_a_free_address_is_an_error() -> None:
    addresses = Addresses("10.0.0.0/30")
    assert addresses.choose("a", same=False) == "10.0.0.2"
    with pytest.raises(EngineError, match=r"10\.0\.0\.0/30 has no address left"):
        addresses.choose("b", same=False)


def test_a_supervisor_that_takes_over_continues_after_the_highest_address() -> None:
    addresses = Addresses("10.0.0.0/24")
    addresses.remember("a", container("10.0.0.9"))
    addresses.remember("b", container("10.0.0.4"))
    assert addresses.choose("a", same=True) == "10.0.0.9"
    assert addresses.choose("b", same=False) == "10.0.0.10"
    addresses.remember("c", container("10.0.0.254"))
    assert addresses.choose("b", same=False) == "10.0.0.2"
