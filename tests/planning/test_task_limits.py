"""What a task may use where its scenario says nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.planning.task_limits import (
    LEAST_PROCESSES,
    of_machine,
    reserved,
    usual_pid_max,
)

GIB = 2**30


@pytest.mark.parametrize(
    ("gib", "left"), [(1, 0.5), (2, 1), (4, 3), (10, 9), (64, 57.6), (512, 460.8)]
)
def test_a_task_gets_the_machine_less_the_larger_of_a_gibibyte_and_a_tenth(
    gib: int, left: float
) -> None:
    assert of_machine(gib * GIB, 32_768, 1).memory == pytest.approx(left * GIB, abs=2**20)


@pytest.mark.parametrize(
    ("pid_max", "containers", "processes"),
    [
        (32_768, 1, 16_384),  # the kernel's default up to 32 cores: one task took the machine
        (32_768, 4, 4096),
        (32_768, 0, 16_384),
        (4_194_304, 100, 20_971),
        (4_194_304, 3, 32_768),
        (4_194_304, 4, 32_768),  # a TensorFlow chief with 21,000 threads is left alone
        (32_768, 500, LEAST_PROCESSES),
    ],
)
def test_all_tasks_together_get_half_of_the_processes_of_the_machine(
    pid_max: int, containers: int, processes: int
) -> None:
    assert of_machine(8 * GIB, pid_max, containers).processes == processes


@given(st.integers(2**22, 2**50), st.integers(32_768, 4_194_304), st.integers(1, 32))
def test_something_is_left_for_the_machine_and_for_the_task(
    machine: int, pid_max: int, containers: int
) -> None:
    limits = of_machine(machine, pid_max, containers)
    assert limits.memory is not None
    assert 0 < limits.memory < machine
    assert limits.memory % 4096 == 0  # as the kernel would round it
    assert limits.memory + reserved(machine) <= machine
    assert limits.processes is not None
    assert LEAST_PROCESSES <= limits.processes <= pid_max // 2 // containers


def test_the_pid_max_of_a_machine_that_nobody_set_grows_with_its_cores() -> None:
    """As in Linux, kernel/pid.c."""
    assert [usual_pid_max(cores) for cores in (2, 32, 64)] == [32_768, 32_768, 65_536]
