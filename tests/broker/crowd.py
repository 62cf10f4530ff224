"""One of many that contend for a machine: takes parts of it again and again, and keeps a log.

`+` is written once something is held, and `-` or `x` (who holds it has died, and what he left has
been removed) before anybody else can have it. So whoever reads the log sees what was held at most.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from emulator.broker import Broker, Capacity, Claim, Need


def main(folder: str, log: str, name: str, rounds: str, kills: str, dies: str = "") -> None:
    broker = Broker(Path(folder))
    capacity = Capacity(4, 1000, ("a", "b", "c"))
    chance = random.Random(name)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)  # each line at the end, in one piece

    def note(what: str, name: str, **data: object) -> None:
        os.write(descriptor, json.dumps([what, name, data]).encode() + b"\n")

    def recover(claim: Claim) -> None:
        note("x", claim.name)

    def waiting(claims: Sequence[Claim]) -> None:
        note("?", name)

    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    if dies:  # of an alarm that nobody handles, wherever it is by then
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
