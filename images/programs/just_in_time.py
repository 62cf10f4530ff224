"""Synchronous training with made steps that saves just in time, or only now and then.

Each step is a wait, and a meeting of all workers with worker 0: so a step is made by all of them or
by none. Worker 0 saves every few steps, alone, because all have the same. With `--just-in-time` a
worker that gets SIGTERM tells worker 0 in the next meeting; that saves at once, and the worker
leaves. Where a worker is gone, the others end with code 1, and the job starts again from the last
save. Needs only Python, and the addresses in EMULATOR_CLUSTER.
"""

import argparse
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

RANK = int(os.environ.get("EMULATOR_RANK", "0"))
SAVED = Path(os.environ.get("EMULATOR_SHARED", "."), "just_in_time.step")
GOES_ON, LEAVES = b"g", b"l"


def say(**event: object) -> None:
    """Print an event."""
    print(json.dumps(event), flush=True)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train in made steps; save just in time.")
    parser.add_argument("--steps", type=int, default=1600, help="steps to train (1600)")
    parser.add_argument("--save-every", type=int, default=400, help="steps between saves (400)")
    parser.add_argument("--step-cost", type=float, default=0.01, help="seconds of a step (0.01)")
    parser.add_argument("--save-cost", type=float, default=0.1, help="seconds of a save (0.1)")
    parser.add_argument("--just-in-time", action="store_true", help="save also on SIGTERM")
    return parser.parse_args()


def save(step: int, cost: float) -> None:
    """Save a step whole, or not at all."""
    say(emulate="phase", phase="checkpoint", state="begin", step=step)
    time.sleep(cost)
    unfinished = SAVED.with_suffix(".unfinished")
    unfinished.write_text(str(step))
    unfinished.replace(SAVED)
    say(emulate="phase", phase="checkpoint", state="end", step=step)


class Meeting:
    """All workers at worker 0: each says whether it leaves, and learns whether one does."""

    def __init__(self) -> None:
        host, _, port = json.loads(os.environ["EMULATOR_CLUSTER"])["worker"][0].rpartition(":")
        count = int(os.environ["EMULATOR_SIZE"])
        if RANK:
            self.others = [self.reach(host, int(port))]
            return
        with socket.create_server(("", int(port))) as listening:
            self.others = [listening.accept()[0] for _ in range(count - 1)]

    @staticmethod
    def reach(host: str, port: int) -> socket.socket:
        """Connect to worker 0, which may start later."""
        while True:
            try:
                return socket.create_connection((host, port))
            except OSError:
                time.sleep(0.1)

    def hold(self, leaves: bool) -> bool:
        """Meet; return whether a worker leaves. Ends the program where one is gone."""
        word = LEAVES if leaves else GOES_ON
        try:
            if RANK:
                self.others[0].sendall(word)
                return self.heard(self.others[0]) == LEAVES
            words = {word, *map(self.heard, self.others)}
            answer = LEAVES if LEAVES in words else GOES_ON
            for other in self.others:
                other.sendall(answer)
            return answer == LEAVES
        except OSError:
            sys.exit("a worker is gone")

    @staticmethod
    def heard(other: socket.socket) -> bytes:
        """Return what one says. Raises OSError where it is gone."""
        word = other.recv(1)
        if not word:
            raise ConnectionResetError
        return word


def main() -> None:
    """Train from the last save on."""
    options = arguments()
    told = []
    if options.just_in_time:
        signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    step = int(SAVED.read_text()) if SAVED.exists() else 0
    meeting = Meeting()
    say(emulate="phase", phase="restore", state="end", step=step)
    while step < options.steps:
        time.sleep(options.step_cost)
        leaves = bool(told)
        is_left = meeting.hold(leaves)
        step += 1
        say(emulate="step", step=step)
        if RANK == 0 and (is_left or step % options.save_every == 0):
            save(step, options.save_cost)
        if is_left and meeting.hold(leaves=True) and leaves:  # once it is saved
            sys.exit(1)


if __name__ == "__main__":
    main()
