"""Leases of this machine's cores, memory and GPUs, shared by all processes.

A process claims what it needs and waits until that is free. Claims are granted strictly in order
of arrival, so that small claims cannot starve a large one.

A claim is a file, and a FileLock that its owner holds: the kernel releases it however the owner
ends. So a claim whose lock can be taken has no owner any more. The files are changed under a mutex.
One that waits looks again twice a second, and whoever looks grants what can be granted.

The runs of a killed owner are removed before its claim is. The process that finds the claim holds
its lock meanwhile: so no other process removes the same runs, and its death is detected as well.

`leases` has all of this; the names here are those of the claims, which load in no time.
"""

from __future__ import annotations

from emulator.broker.claims import Capacity, Claim, Need, Run, grant, need_of

__all__ = ["Capacity", "Claim", "Need", "Run", "grant", "need_of"]
