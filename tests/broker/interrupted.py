"""Acquires leases repeatedly, and is interrupted at any point."""

from __future__ import annotations

import random
import signal
import sys
from pathlib import Path
from types import FrameType

from emulator.broker import Broker, Capacity, Claim, Need


class RanOut(Exception):
    """Raised by the signal handler."""


def on_alarm(number: int, frame: FrameType | None) -> None:
    raise RanOut


def recover(claim: Claim) -> None:
    """Do nothing: no runs are left."""


def main(folder: str, rounds: str, cpus: str) -> None:
    signal.signal(signal.SIGALRM, on_alarm)
    chance = random.Random(folder)
    broker = Broker(Path(folder))
    interrupted = taken = 0
    for _ in range(int(rounds)):
        try:
            try:
                # With an interval: Python may lose an exception raised while it frees objects.
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00001, 0.003), 0.5)
                with broker.acquire("me", Need(float(cpus)), Capacity(4, 0), recover=recover):
                    taken += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except RanOut:
            interrupted += 1
    sys.stdout.write(f"{interrupted} {taken}\n")
    sys.stdout.flush()
    sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
