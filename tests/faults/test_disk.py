"""Faults of a disk: what they are of, what a tracer does for them, and what a disk refuses."""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import Any

import pytest
from pydantic import ValidationError

from emulator.faults.disk import Disk
from emulator.faults.disk_calls import KINDS, NAMES, NUMBERS, Place, is_refused
from emulator.faults.held_call import KINDS as HELD_KINDS
from emulator.faults.schedule import build_schedule, from_json, to_json
from emulator.planning.planner import make_plan
from emulator.scenario.loader import parse
from tests.histories import SITE
from tests.scenario.mistakes import only_problem

BASE = "name: a\nframework: none\nprogram: {command: [a]}\ncluster: {worker: 2}\n"
TASKS = ["worker-0", "worker-1"]


def disk(state: str, **options: Any) -> Disk:
    return Disk.model_validate({"disk": state, "for": "1s", **options})


@pytest.mark.parametrize(
    ("fault", "targets", "needs"),
    [
        ({"disk": "full"}, ["shared"], ("filling the volume shared", "fill")),
        ({"disk": "readonly"}, TASKS, ("a disk of * that is read-only", "calls")),
        ({"disk": "readonly", "task": "worker-1"}, ["worker-1"],
         ("a disk of worker-1 that is read-only", "calls")),
        ({"disk": "full", "on": "worker-*"}, TASKS, ("a disk of worker-* that is full", "calls")),
        ({"disk": "slow", "by": "200ms", "on": "worker-0"}, ["worker-0"],
         ("a disk of worker-0 that is slow by 0.2s", "calls")),
        ({"disk": "error", "errno": "EIO"}, TASKS,
         ("a disk of * that is failing with EIO", "calls")),
    ],
)  # fmt: skip
def test_a_disk_is_the_volume_or_that_of_tasks(
    fault: dict[str, Any], targets: list[str], needs: tuple[str, str]
) -> None:
    spec = Disk.model_validate({**fault, "for": "5s", "at": "1s"})
    planned = build_schedule([spec], 0, TASKS)
    assert [one.target for one in planned] == targets
    assert [one.tasks for one in planned] == [
        () if name == "shared" else (name,) for name in targets
    ]
    assert [from_json(to_json(one)) for one in planned] == [*planned]
    assert list(spec.needs()) == [needs]
    assert {spec.aimed_at(name).target for name in targets} == {*targets}


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (disk("readonly"),
         {"do": "error", "errno": errno.EROFS, "only": "changes", "of": "", "in": "shared"}),
        (disk("full", on="worker-0"),
         {"do": "error", "errno": errno.ENOSPC, "only": "growth", "of": "", "in": "home"}),
        (disk("slow", by="200ms", calls=["write"]),
         {"do": "delay", "seconds": 0.2, "calls": ["write"], "of": "", "in": "shared"}),
        (disk("error", errno="EDQUOT", on="worker-0", of="/tmp/a"),
         {"do": "error", "errno": errno.EDQUOT, "of": r"/tmp/a\Z", "in": ""}),
    ],
    ids=lambda one: one.disk if isinstance(one, Disk) else "",
)  # fmt: skip
def test_a_tracer_does_this_for_it(fault: Disk, rule: dict[str, Any]) -> None:
    assert fault.rule == rule


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"disk": "slow"}, "needs `by: 200ms`"),
        ({"disk": "error"}, "needs `errno: EIO`"),
        ({"disk": "full", "by": "1s"}, "`by` goes with `disk: slow`"),
        ({"disk": "slow", "by": "2m"}, "at most 60s"),
        ({"disk": "slow", "by": "0s"}, "more than 0"),
        ({"disk": "error", "errno": "EWHAT"}, "'EWHAT' is no error of the kernel"),
        ({"disk": "readonly", "calls": ["write"]}, "`calls` goes with"),
        ({"disk": "readonly", "on": "worker-0", "task": "worker-0"}, "`task` goes with"),
        ({"disk": "full", "of": "*.pt"}, "leave `of` out"),
        ({"disk": "full", "task": "worker-0"}, "leave `task` out"),
        ({"disk": "readonly", "of": "/tmp/a"}, "`of` is not in /shared"),
    ],
)
def test_what_says_too_little_or_too_much_is_refused(fault: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        Disk.model_validate({**fault, "for": "1s"})


@pytest.mark.parametrize(
    ("fault", "size"),
    [
        ("disk: full, for: 5s, at: 1s", 2**28),
        ("random: {disk: full, for: 5s}, every: 1m", 2**28),
        ("disk: full, on: worker-0, for: 5s, at: 1s", None),
        ("disk: readonly, for: 5s, at: 1s", None),
    ],
)
def test_a_volume_that_a_fault_fills_has_a_size(fault: str, size: int | None) -> None:
    faults = f"{BASE}faults: [{{{fault}}}]\n"
    assert parse(faults).shared_limit == size
    assert parse(f"{faults}shared_size: 64m\n").shared_limit == 2**26
    warned = make_plan(parse(faults), "r-1", SITE).warnings
    assert [one for one in warned if "it has 256 MiB, in memory" in one][1:] == []
    assert any("it has 256 MiB" in one for one in warned) == (size is not None)


def test_a_shared_volume_has_at_least_a_mebibyte() -> None:
    assert "can't be smaller than 1m" in str(only_problem(BASE + "shared_size: 64k\n"))
    said = str(only_problem(BASE + "volumes: {shared: {size: 64m}}\n"))
    assert "write `shared_size: 64m`" in said


@pytest.mark.parametrize(
    ("of", "inside", "meant", "others"),
    [
        ("", "shared", "/shared /shared/a /shared/b/c", "/work/a /sharedness/a /a/shared/b"),
        ("", "home", "/work /work/a", "/shared/a /workshop/a /tmp/a"),
        (r".*\.pt\Z", "shared", "/shared/a.pt", "/shared/a.pt.tmp /work/a.pt"),
        (r"/tmp/a\Z", "", "/tmp/a", "/tmp/b"),
    ],
)
def test_files_are_meant_by_where_they_are_and_by_name(
    of: str, inside: str, meant: str, others: str
) -> None:
    place = Place(re.compile(of), inside, "/shared", "/work")
    assert [one for one in meant.split() if not place.has(one)] == []
    assert [one for one in others.split() if place.has(one)] == []


def test_all_that_a_container_has_written_is_its_own_disk() -> None:
    place = Place(re.compile(""), "home", "/shared", "/")
    assert place.has("/tmp/a")
    assert not any(map(place.has, ("/shared/a", "/proc/1/stat", "/sys/a", "/dev/null")))


FILE, FOLDER, PIPE = stat.S_IFREG, stat.S_IFDIR, stat.S_IFIFO
NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


@pytest.mark.parametrize(
    ("name", "flags", "found", "changes", "growth"),
    [
        ("openat", os.O_RDONLY, FILE, False, False),
        ("openat", os.O_RDONLY | os.O_CREAT, FILE, False, False),
        ("openat", os.O_RDONLY | os.O_CREAT, None, True, True),
        ("open", NEW, None, True, True),
        ("open", NEW, FILE, True, False),
        ("creat", NEW, FILE, True, False),
        ("openat2", os.O_RDWR, FILE, True, False),
        ("openat", os.O_RDWR, None, False, False),  # ENOENT is the answer
        ("openat", os.O_WRONLY, PIPE, False, False),
        ("openat", os.O_RDWR | os.O_TMPFILE, FOLDER, True, True),
        ("openat", os.O_RDONLY | os.O_DIRECTORY, FOLDER, False, False),
        ("read", 0, None, False, False),
        ("pwrite64", 0, None, True, True),
        ("ftruncate", 0, None, True, False),
        ("fallocate", 0, None, True, True),
        ("fsync", 0, None, False, False),
        ("renameat2", 0, None, True, False),
        ("unlinkat", 0, None, True, False),
        ("mkdirat", 0, None, True, True),
        ("fchmodat", 0, None, True, False),
    ],
)
def test_a_disk_refuses_what_it_can_t_do(
    name: str, flags: int, found: int | None, changes: bool, growth: bool
) -> None:
    assert is_refused("changes", name, flags, found) == changes
    assert is_refused("growth", name, flags, found) == growth
    assert is_refused("", name, flags, found)


def test_each_kind_has_calls_that_are_known() -> None:
    named = {one for calls in KINDS.values() for one in calls}
    held = {one for calls in HELD_KINDS.values() for one in calls}
    for numbers in NUMBERS.values():
        assert {*numbers.values()} - named - held <= {"chmod", "fchmod", "fchmodat", "utimensat"}
        assert all(any(one in {*numbers.values()} | held for one in KINDS[kind]) for kind in KINDS)
    assert NAMES.keys() <= {one for numbers in NUMBERS.values() for one in numbers.values()}
