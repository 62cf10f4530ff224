"""Who may use how much of this machine: leases of cores, memory and GPUs among all processes.

Whoever wants to run something claims what it needs, and waits until that is free; strictly in order
of arrival, so that a large claim is not starved by small ones.

A claim is a file and a named pipe that its owner keeps open for reading. Nobody ever writes into
it: to open it for writing fails where the owner is gone, and whoever has it open for writing is
told by `poll` once the owner goes, whether it releases the claim or is killed. So waiting is to
watch the pipes of all that hold something or came before, and to look again when one closes. The
files are changed under a mutex that dies with its holder.

What a killed holder ran is removed before its claim is: the one who finds it opens its pipe, so
that nobody else does the same, and that its own death is found in turn.
"""

from __future__ import annotations

from emulator.broker.claims import Capacity, Claim, Need, Run, grant, need_of
from emulator.broker.leases import Broker, Lease

__all__ = ["Broker", "Capacity", "Claim", "Lease", "Need", "Run", "grant", "need_of"]
