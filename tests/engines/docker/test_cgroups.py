"""A cgroup's files, of both versions: laid out in a folder as the kernel has them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from emulator.engines.docker.usage import Meter, locate
from emulator.metrics.catalog import Usage

ID = "081043f11cd9"
NET = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo:  999999       9    0    0    0     0          0         0  999999       9    0    0    0
  eth0: 1200       4    0    0    0     0          0         0      300       0    0    0    0
  eth1:   34       1    0    0    0     0          0         0        5       0    0    0    0
"""


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/7/net/dev": NET, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def found(root: Path) -> Meter:
    cgroup = locate(7, ID, root)
    assert cgroup is not None
    return cgroup


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    names = ("cpu", "cpuacct", "memory", "blkio", "pids")
    lines = [f"{n}:{name}:/docker/{ID}" for n, name in enumerate(names, 1)] + [f"0::/docker/{ID}"]
    files = {
        "cpu/cpu.cfs_quota_us": "50000\n",
        "cpu/cpu.cfs_period_us": "100000\n",
        "cpu/cpu.stat": "nr_throttled 1\nthrottled_time 2500000000\n",
        "cpuacct/cpuacct.usage": "1500000000\n",
        "memory/memory.usage_in_bytes": "1000\n",
        "memory/memory.limit_in_bytes": "4096\n",
        "memory/memory.stat": "cache 5\ntotal_inactive_file 400\n",
        "memory/cgroup.procs": "7\n8\n",
        "blkio/blkio.throttle.io_service_bytes": (
            "8:0 Read 100\n8:0 Write 200\n8:0 Sync 300\n8:0 Total 300\n"
            "8:16 Read 1\n8:16 Write 2\nTotal 303\n"
        ),
        "pids/pids.current": "3\n",
    }
    paths = {f"sys/fs/cgroup/{n.replace('/', f'/docker/{ID}/')}": text for n, text in files.items()}
    return write(tmp_path, {"proc/7/cgroup": "\n".join(lines) + "\n", **paths})


@pytest.fixture
def version_2(tmp_path: Path) -> Path:
    name = f"system.slice/docker-{ID}.scope"
    files = {
        "cpu.stat": "usage_usec 1500000\nuser_usec 1\nthrottled_usec 2500000\n",
        "cpu.max": "50000 100000\n",
        "memory.current": "1000\n",
        "memory.max": "4096\n",
        "memory.stat": "anon 5\ninactive_file 400\n",
        "io.stat": "8:0 rbytes=100 wbytes=200 rios=1 wios=1\n8:16 rbytes=1 wbytes=2\n",
        "pids.current": "3\n",
        "cgroup.procs": "7\n8\n",
    }
    paths = {f"sys/fs/cgroup/{name}/{path}": text for path, text in files.items()}
    return write(tmp_path, {"proc/7/cgroup": f"0::/{name}\n", **paths})


@pytest.fixture(params=["version_1", "version_2"])
def root(request: pytest.FixtureRequest) -> Path:
    return Path(request.getfixturevalue(request.param))


USED = Usage(1.5, 600, 2.5, 1234, 305, 101, 202, processes=3, cpus=0.5, memory_limit=4096)


def test_both_versions_tell_the_same(root: Path) -> None:
    cgroup = found(root)
    assert cgroup.pids() == [7, 8]
    assert cgroup.usage() == USED
    assert not [one for one in psutil.Process().open_files() if str(root) in one.path]


def test_where_there_is_no_limit_there_is_none(root: Path) -> None:
    for path, text in {
        "cpu.cfs_quota_us": "-1",
        "memory.limit_in_bytes": "9223372036854771712",
        "cpu.max": "max 100000",
        "memory.max": "max",
    }.items():
        for file in root.rglob(path):
            file.write_text(text + "\n")
    assert found(root).usage() == replace(USED, cpus=None, memory_limit=None)


def test_what_a_controller_that_is_off_would_count_is_left_out(version_2: Path) -> None:
    (folder,) = version_2.glob("sys/fs/cgroup/*/*")
    cgroup = found(version_2)
    for name in ("io.stat", "memory.stat"):
        (folder / name).unlink()
    assert cgroup.usage() == replace(USED, memory=1000, read=None, written=None)
    for name in ("cpu.max", "memory.current", "memory.max", "pids.current"):
        (folder / name).unlink()
    (folder / "cpu.stat").write_text("usage_usec 1500000\n")
    assert cgroup.usage() == Usage(1.5, received=1234, sent=305)


def test_of_version_1_two_controllers_are_enough(version_1: Path) -> None:
    folders = version_1 / "sys/fs/cgroup"
    shutil.copytree(folders / "cpu", folders / "cpuacct", dirs_exist_ok=True)
    write(version_1, {"proc/7/cgroup": f"1:cpuacct:/docker/{ID}\n2:memory:/docker/{ID}\n"})
    usage = found(version_1).usage()
    assert usage is not None
    assert (usage.cpu, usage.throttled, usage.cpus) == (1.5, 2.5, 0.5)
    assert (usage.memory, usage.processes, usage.read, usage.written) == (600, None, None, None)
    (folders / "cpuacct/docker" / ID / "cpu.stat").write_text("nr_periods 0\n")
    assert found(version_1).usage() == replace(usage, throttled=0)


def test_a_removed_cgroup_has_no_usage(root: Path) -> None:
    cgroup = found(root)
    shutil.rmtree(root / "sys")
    assert cgroup.usage() is None
    assert cgroup.pids() == []
    later = locate(7, ID, root)  # in a hierarchy that is not mounted here
    assert later is None or later.usage() is None


def test_the_same_number_on_another_machine_is_another_process(root: Path) -> None:
    assert locate(7, "another", root) is None
    assert locate(8, ID, root) is None
