"""Names and labels of objects: valid, and different for what is different."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.engines.kubernetes import names
from emulator.planning.plan import Task
from emulator.scenario.kubernetes import is_label_value

LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
RUN_IDS = st.from_regex(LABEL, fullmatch=True)
TASKS = st.from_regex(r"[a-z]([-a-z0-9]{0,30}[a-z0-9])?-[0-9]{1,3}", fullmatch=True)
LONG = "a" * 60


def test_short_names_are_the_run_s_and_the_task_s() -> None:
    assert names.pod("mwms-1122-a0", "worker-0") == "mwms-1122-a0-worker-0"
    assert names.config_map("mwms-1122-a0", "program-0", 1) == "mwms-1122-a0-program-0-1"
    assert names.address("mwms-1122-a0", "worker-0") == "worker-0.mwms-1122-a0"


@given(RUN_IDS, TASKS)
def test_names_are_labels_however_long_the_run_id_is(run: str, task: str) -> None:
    for name in (
        names.pod(run, task),
        names.service(run),
        names.claim(run),
        names.config_map(run, "files-12", 3),
    ):
        assert LABEL.fullmatch(name)
    assert names.pod(run, task).endswith(task)


def test_what_is_cut_differs_by_its_hash() -> None:
    one, other = names.pod(f"{LONG}b", "worker-0"), names.pod(f"{LONG}c", "worker-0")
    assert one != other
    assert one.startswith("aaaa")
    assert len(one) <= 63
    maps = {names.config_map(f"{LONG}b", "program-0", number) for number in (0, 1)}
    assert len(maps) == 2


@given(st.text(max_size=100), st.text(max_size=100))
def test_labels_are_valid_and_different(one: str, other: str) -> None:
    assert is_label_value(names.label(one))
    assert (names.label(one) == names.label(other)) == (one == other)


def test_full_values_are_in_annotations() -> None:
    common = names.Common("team", {names.RUN: "run-1"}, {names.FOLDER: "/runs/run-1"})
    metadata = common.metadata("run-1-x", task="x" * 70)
    assert metadata["namespace"] == "team"
    assert metadata["labels"] == {names.RUN: "run-1", names.TASK: names.label("x" * 70)}
    assert metadata["annotations"] == {names.FOLDER: "/runs/run-1", names.TASK: "x" * 70}


def test_everything_of_a_run_is_found_by_its_label() -> None:
    assert names.selector() == "emulator.run"
    assert names.selector("run-1") == "emulator.run=run-1"


def a_task(name: str, init: tuple[Task, ...] = (), sidecars: tuple[Task, ...] = ()) -> Task:
    return Task(
        name=name, role="worker", index=0, host=name, port=1, image="img:1", command=(), env={},
        source=Path(), init=init, sidecars=sidecars,
    )  # fmt: skip


@pytest.mark.parametrize("taken", ["main", "emulator-unpack", "emulator-open"])
def test_a_part_that_is_called_like_a_container_of_ours_gets_a_number(taken: str) -> None:
    task = a_task(
        "worker-0",
        (a_task("worker-0.prepare"),),
        (a_task(f"worker-0.{taken}"), a_task("worker-0.b")),
    )
    found = {name: part.name for name, part in names.containers(task).items()}
    assert found == {
        "main": "worker-0",
        "prepare": "worker-0.prepare",
        f"{taken}-2": f"worker-0.{taken}",
        "b": "worker-0.b",
    }
    assert names.container(task.sidecars[0], task) == f"{taken}-2"
