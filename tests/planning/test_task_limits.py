"""What a task may use where its scenario says nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.planning.task_limits import (
    LEAST_PROCESSES,
    PROCESSES,
    of_machine,
    reserved,
    usual_pid_max,
)

GIB = 2**30


@pytest.mark.parametrize(
    ("machine", "left"),
    [
        (1 * GIB, 0.5),
        (2 * GIB, 1),
        (4 * GIB, 3),
        (10 * GIB, 9),
        (64 * GIB, 57.6),
        (512 * GIB, 460.8),
    ],
)
def test_a_task_gets_the_machine_less_the_larger_of_a_gibibyte_and_a_tenth(
    machine: int, left: float
) -> None:
    assert of_machine(machine, 32_768, 1).memory == pytest.approx(left * GIB, abs=2**20)


@given(st.integers(2**22, 2**50))
def test_something_is_left_for_the_machine_and_for_the_task(machine: int) -> None:
    limit = of_machine(machine, 32_768, 1).memory
    assert limit is not None
    assert 0 < limit < machine
    assert limit % 4096 == 0  # as the kernel would round it
    assert limit + reserved(machine) <= machine


def test_a_tensorflow_chief_with_21000_threads_is_left_alone() -> None:
    """Where there is room for it."""
    assert of_machine(8 * GIB, 4_194_304, 4).processes == PROCESSES == 32_768


@pytest.mark.parametrize(
    ("pid_max", "containers", "processes"),
    [
        (32_768, 1, 16_384),  # the kernel's default up to 32 cores: one task took the machine
        (32_768, 4, 4096),
        (32_768, 0, 16_384),
        (4_194_304, 100, 20_971),
        (4_194_304, 3, PROCESSES),
        (32_768, 500, LEAST_PROCESSES),
    ],
)
def test_all_tasks_together_get_half_of_the_processes_of_the_machine(
    pid_max: int, containers: int, processes: int
) -> None:
    assert of_machine(8 * GIB, pid_max, containers).processes == processes


@given(st.integers(32_768, 4_194_304), st.integers(1, 32))
def test_no_task_and_not_all_of_them_take_the_machine(pid_max: int, containers: int) -> None:
    limit = of_machine(8 * GIB, pid_max, containers).processes
    assert limit is not None
    assert limit >= LEAST_PROCESSES
    assert limit * containers <= pid_max // 2


def test_the_pid_max_of_a_machine_that_nobody_set_grows_with_its_cores() -> None:
    """As in Linux, kernel/pid.c."""
    assert [usual_pid_max(cores) for cores in (2, 32, 64)] == [32_768, 32_768, 65_536]
