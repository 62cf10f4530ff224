"""One of many processes that compete for a machine: acquires leases repeatedly, and keeps a log.

It writes `+` after a lease is granted, and `-` (released) or `x` (recovered from a dead owner)
before the resources are free. So the log shows the most that was granted at any time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from emulator.planning import leases
from emulator.planning.claims import Capacity, Claim, Need
from emulator.planning.leases import Broker


def main(folder: str, log: str, name: str, rounds: str, kills: str, dies: str = "") -> None:
    leases.POLL = 0.02
    broker = Broker(Path(folder))
    capacity = Capacity(4, 1000, ("a", "b", "c"))
    chance = random.Random(name)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)  # atomic appends

    def note(what: str, name: str, **data: object) -> None:
        os.write(descriptor, json.dumps([what, name, data]).encode() + b"\n")

    def recover(claim: Claim) -> None:
        note("x", claim.name)

    def waiting(claims: Sequence[Claim]) -> None:
        note("?", name)

    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    if dies:  # killed by an unhandled alarm at any point
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0, float(dies)))
    for number in range(int(rounds)):
        need = Need(
            chance.choice([0.5, 1, 2, 9]), chance.choice([0, 300, 600]), chance.randrange(4)
        )
        one = f"{name}-{number}"
        with broker.acquire(one, need, capacity, recover=recover, waiting=waiting) as lease:
            used = {"cpus": min(need.cpus, 4), "memory": need.memory, "gpus": list(lease.gpus)}
            note("+", one, **used)
            if chance.random() < float(kills):
                os.kill(os.getpid(), signal.SIGKILL)
            note("-", one)


if __name__ == "__main__":
    main(*sys.argv[1:])
