"""What a task may use where its scenario says nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.planning.task_limits import PROCESSES, of_machine, reserved

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
    assert of_machine(machine).memory == pytest.approx(left * GIB, abs=2**20)


@given(st.integers(2**22, 2**50))
def test_something_is_left_for_the_machine_and_for_the_task(machine: int) -> None:
    limit = of_machine(machine).memory
    assert limit is not None
    assert 0 < limit < machine
    assert limit % 4096 == 0  # as the kernel would round it
    assert limit + reserved(machine) <= machine


def test_a_tensorflow_chief_with_21000_threads_is_left_alone() -> None:
    assert of_machine(8 * GIB).processes == PROCESSES == 32_768
