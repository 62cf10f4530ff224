"""The filter of the kernel with which only calls that count stop a task."""

from __future__ import annotations

import os
import struct

import pytest

from emulator.faults.call_filter import ALLOW, MACHINES, TRACE, call_filter
from emulator.faults.held_call import KINDS, NUMBERS, OPENS

COUNTED = {name for names in KINDS.values() for name in names}
READ = {"x86_64": 0, "aarch64": 63}


def run(code: bytes, machine: int, number: int, *arguments: int) -> int:
    """Return what a filter says of a call, as the kernel runs it."""
    data = struct.pack("=IIQ6Q", number, machine, 0, *arguments, *[0] * (6 - len(arguments)))
    steps, at, loaded = list(struct.iter_unpack("=HBBI", code)), 0, 0
    while True:
        kind, if_so, if_not, value = steps[at]
        match kind:
            case 0x20:
                (loaded,) = struct.unpack_from("=I", data, value)
                at += 1
            case 0x15:
                at += 1 + (if_so if loaded == value else if_not)
            case 0x45:
                at += 1 + (if_so if loaded & value else if_not)
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(kind)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_calls_that_count_stop_a_task_and_no_others(machine: str) -> None:
    code, empties = call_filter(machine), os.O_WRONLY | os.O_TRUNC
    for number, name in NUMBERS[machine].items():
        if name in COUNTED and name not in OPENS:
            assert run(code, MACHINES[machine], number) == TRACE, name
    for number in (READ[machine], 1_000):
        assert run(code, MACHINES[machine], number, empties, empties, empties) == ALLOW
    opens = next(number for number, name in NUMBERS[machine].items() if name == "openat")
    assert run(code, MACHINES[machine], opens, 3, 0, os.O_RDONLY) == ALLOW
    assert run(code, MACHINES[machine], opens, 3, 0, empties) == TRACE


def test_calls_of_another_machine_are_not_told_apart() -> None:
    write = next(number for number, name in NUMBERS["x86_64"].items() if name == "write")
    assert run(call_filter("x86_64"), MACHINES["aarch64"], write) == ALLOW
    assert run(call_filter("x86_64"), MACHINES["x86_64"], write | 0x40000000) == ALLOW  # x32
