"""A filter of the kernel with which only the calls that count stop a task for its tracer (pure).

A tracer that looks at each call makes all of them slow: a short training with PyTorch makes 50,000,
mostly to import it, and few of them count. The filter has to be there before the program starts,
and stays for good. Without the tracer the calls in it fail with ENOSYS (seccomp(2)), so it is for
tasks that end with their tracer.
"""

from __future__ import annotations

import os
import struct

from emulator.faults.held_call import FLAGS, KINDS, NUMBERS, OPENS

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""What a filter is told of the machine (linux/audit.h)."""
LOAD, EQUAL, HAS, RETURN = 0x20, 0x15, 0x45, 0x06
"""BPF: load 32 bits, jump if equal, jump if a bit is set, return (linux/bpf_common.h)."""
NUMBER, MACHINE, ARGUMENTS = 0, 4, 16
"""Offsets in `struct seccomp_data`; the arguments have 64 bits."""
TRACE, ALLOW = 0x7FF00000, 0x7FFF0000


def call_filter(machine: str) -> bytes:
    """Return the instructions of the filter for a machine, as `struct sock_filter` has them.

    It stops the task at the calls that `held_call` knows; at an open if it may empty a file.
    """
    code = [(LOAD, 0, 0, MACHINE), (EQUAL, 1, 0, MACHINES[machine]), (RETURN, 0, 0, ALLOW)]
    code.append((LOAD, 0, 0, NUMBER))
    counted = {name for names in KINDS.values() for name in names}
    for number, name in sorted(NUMBERS[machine].items()):
        if name not in counted:
            continue
        if name in OPENS and name in FLAGS:
            code += [
                (EQUAL, 0, 4, number),
                (LOAD, 0, 0, ARGUMENTS + 8 * FLAGS[name]),
                (HAS, 0, 1, os.O_TRUNC),
                (RETURN, 0, 0, TRACE),
                (RETURN, 0, 0, ALLOW),
            ]
        else:
            code += [(EQUAL, 0, 1, number), (RETURN, 0, 0, TRACE)]
    code.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *one) for one in code)
