"""A cgroup's files, of both versions: laid out in a folder as the kernel has them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from emulator.metrics.catalog import Usage
from emulator.metrics.cgroups import locate

ID = "081043f11cd9"
NET = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo:  999999       9    0    0    0     0          0         0  999999       9    0    0    0
  eth0: 1200       4    0    0    0     0          0         0      300       0    0    0    0
  eth1:   34       1    0    0    0     0          0         0        5       0    0    0    0
"""


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    names = ("cpu", "cpuacct", "memory", "blkio", "pids")
    lines = [f"{n}:{name}:/docker/{ID}" for n, name in enumerate(names, 1)] + [f"0::/docker/{ID}"]
    c = "sys/fs/cgroup"
    write(
        tmp_path,
        {
            "proc/7/cgroup": "\n".join(lines) + "\n",
            "proc/7/net/dev": NET,
            f"{c}/cpu/docker/{ID}/cpu.cfs_quota_us": "50000\n",
            f"{c}/cpu/docker/{ID}/cpu.cfs_period_us": "100000\n",
            f"{c}/cpu/docker/{ID}/cpu.stat": "nr_throttled 1\nthrottled_time 2500000000\n",
            f"{c}/cpuacct/docker/{ID}/cpuacct.usage": "1500000000\n",
            f"{c}/memory/docker/{ID}/memory.usage_in_bytes": "1000\n",
            f"{c}/memory/docker/{ID}/memory.limit_in_bytes": "4096\n",
            f"{c}/memory/docker/{ID}/memory.stat": "cache 5\ntotal_inactive_file 400\n",
            f"{c}/memory/docker/{ID}/cgroup.procs": "7\n8\n",
            f"{c}/blkio/docker/{ID}/blkio.throttle.io_service_bytes": (
                "8:0 Read 100\n8:0 Write 200\n8:0 Sync 300\n8:0 Total 300\n"
                "8:16 Read 1\n8:16 Write 2\nTotal 303\n"
            ),
            f"{c}/pids/docker/{ID}/pids.current": "3\n",
        },
    )
    return tmp_path


@pytest.fixture
def version_2(tmp_path: Path) -> Path:
    c = f"sys/fs/cgroup/system.slice/docker-{ID}.scope"
    write(
        tmp_path,
        {
            "proc/7/cgroup": f"0::/system.slice/docker-{ID}.scope\n",
            "proc/7/net/dev": NET,
            f"{c}/cpu.stat": "usage_usec 1500000\nuser_usec 1\nthrottled_usec 2500000\n",
            f"{c}/cpu.max": "50000 100000\n",
            f"{c}/memory.current": "1000\n",
            f"{c}/memory.max": "4096\n",
            f"{c}/memory.stat": "anon 5\ninactive_file 400\n",
            f"{c}/io.stat": "8:0 rbytes=100 wbytes=200 rios=1 wios=1\n8:16 rbytes=1 wbytes=2\n",
            f"{c}/pids.current": "3\n",
            f"{c}/cgroup.procs": "7\n8\n",
        },
    )
    return tmp_path


@pytest.fixture(params=["version_1", "version_2"])
def root(request: pytest.FixtureRequest) -> Path:
    return Path(request.getfixturevalue(request.param))


def test_both_versions_tell_the_same(root: Path) -> None:
    cgroup = locate(7, ID, root)
    assert cgroup is not None
    assert cgroup.pids() == [7, 8]
    assert cgroup.usage() == Usage(
        cpu=1.5,
        memory=600,
        throttled=2.5,
        received=1234,
        sent=305,
        read=101,
        written=202,
        processes=3,
        cpus=0.5,
        memory_limit=4096,
    )


def test_where_there_is_no_limit_there_is_none(root: Path) -> None:
    for path, text in {
        "cpu.cfs_quota_us": "-1",
        "memory.limit_in_bytes": "9223372036854771712",
        "cpu.max": "max 100000",
        "memory.max": "max",
    }.items():
        for found in root.rglob(path):
            found.write_text(text + "\n")
    cgroup = locate(7, ID, root)
    assert cgroup is not None
    usage = cgroup.usage()
    assert usage is not None
    assert (usage.cpus, usage.memory_limit) == (None, None)


def test_what_a_controller_that_is_off_would_count_is_left_out(version_2: Path) -> None:
    (folder,) = version_2.glob("sys/fs/cgroup/*/*")
    (folder / "io.stat").unlink()
    cgroup = locate(7, ID, version_2)
    assert cgroup is not None
    usage = cgroup.usage()
    assert usage is not None
    assert (usage.cpu, usage.memory, usage.read, usage.written) == (1.5, 600, None, None)
    for name in ("cpu.max", "memory.current", "memory.max", "memory.stat", "pids.current"):
        (folder / name).unlink()
    (folder / "cpu.stat").write_text("usage_usec 1500000\n")
    assert cgroup.usage() == Usage(1.5, received=1234, sent=305)


def test_a_removed_cgroup_has_no_usage(root: Path) -> None:
    cgroup = locate(7, ID, root)
    assert cgroup is not None
    shutil.rmtree(root / "sys")
    assert cgroup.usage() is None
    assert cgroup.pids() == []


def test_the_same_number_on_another_machine_is_another_process(root: Path) -> None:
    assert locate(7, "another", root) is None
    assert locate(8, ID, root) is None


def test_a_hierarchy_that_is_not_mounted_here_is_none(root: Path) -> None:
    shutil.rmtree(root / "sys")
    cgroup = locate(7, ID, root)
    assert cgroup is None or cgroup.usage() is None
