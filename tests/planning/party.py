"""A process that acquires leases, controlled through stdin.

It reports on stdout: `waiting NAMES`, `recovering NAME RUNS`, `granted GPUS`; and of leases that it
acquires in a loop, interrupted at any point: how often it was `interrupted`, and got one.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from emulator.errors import EmulatorError
from emulator.planning import leases
from emulator.planning.claims import Capacity, Claim, Need
from emulator.planning.leases import Broker, Lease


class RanOut(Exception):
    """Raised by the signal handler."""


def on_alarm(number: int, frame: FrameType | None) -> None:
    raise RanOut


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def waiting(claims: Sequence[Claim]) -> None:
    say("waiting", *[claim.name for claim in claims])


def recover(claim: Claim) -> None:
    say("recovering", claim.name, claim.pid, *[run.run_id for run in claim.runs])
    if "stuck" in sys.argv:
        sys.stdin.readline()


def interrupted(broker: Broker, rounds: int) -> tuple[int, int]:
    """Acquire so often; return how often that was interrupted, and how often a lease was had."""
    chance, capacity = random.Random(7), Capacity(4, 0)
    interrupted = taken = 0
    for _ in range(rounds):
        try:
            try:
                # With an interval: Python may lose an exception raised while it frees objects.
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00001, 0.02), 0.5)
                with broker.acquire("me", Need(2), capacity, recover=lambda claim: None):
                    taken += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except RanOut:
            interrupted += 1
    return interrupted, taken


def main(folder: str, name: str, cpus: str, gpus: str, *devices: str) -> None:
    signal.signal(signal.SIGALRM, on_alarm)
    leases.POLL = 0.02
    broker = Broker(Path(folder))
    capacity = Capacity(4, 100, tuple(d for d in devices if d != "stuck"))
    held: list[Lease] = []

    def acquire(cpus: str, gpus: str) -> None:
        need = Need(float(cpus), 0, int(gpus))
        try:
            lease = broker.acquire(name, need, capacity, recover=recover, waiting=waiting)
        except (EmulatorError, RanOut, KeyboardInterrupt) as error:
            say("not", type(error).__name__, error)
        else:
            held.append(lease)
            say("granted", *lease.gpus)

    acquire(cpus, gpus)
    for line in sys.stdin:
        match line.split():
            case ["run", *run_ids]:
                for run_id in run_ids:
                    held[-1].began_run(run_id, "process", Path("runs", run_id))
                say("noted")
            case ["interrupted", rounds]:
                say(*interrupted(broker, int(rounds)))
            case ["again", cpus, gpus]:
                acquire(cpus, gpus)
            case ["release"]:
                held.pop().release()
                say("released")
            case ["abandon", *run_ids]:
                held.pop().abandon(run_ids)
                say("abandoned")
            case ["release", "first"]:
                held.pop(0).release()
                say("released")
            case ["fork", "and", "acquire"]:
                if not os.fork():
                    acquire("1", "0")
                    os._exit(0)
            case ["fork"]:
                child = os.fork()
                if not child:
                    for lease in held:
                        lease.release()  # must not release the parent's
                    say("forked", os.getpid())
                    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
