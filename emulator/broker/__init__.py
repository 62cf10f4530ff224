"""Leases of this machine's cores, memory and GPUs, shared by all processes.

A process claims what it needs and waits until that is free. Claims are granted strictly in order
of arrival, so that small claims cannot starve a large one.

A claim is a file and a named pipe that its owner keeps open for reading. Nothing is ever written to
the pipe: opening it for writing fails if the owner is gone, and `poll` reports an open writing end
once the owner releases the claim or is killed. To wait, a process polls the pipes of all granted
and earlier claims, and checks again when one closes. The files are changed under a mutex that the
kernel releases when its holder dies.

The runs of a killed owner are removed before its claim is. The process that finds the claim opens
its pipe first: so no other process removes the same runs, and its own death is detected as well.
"""

from __future__ import annotations

from emulator.broker.claims import Capacity, Claim, Need, Run, grant, need_of
from emulator.broker.leases import Broker, Lease

__all__ = ["Broker", "Capacity", "Claim", "Lease", "Need", "Run", "grant", "need_of"]
