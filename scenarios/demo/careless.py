"""Learn y = 3x + 2 on all workers together: in each step they average their gradients."""

import json
import os
import pathlib
import random
import time
from multiprocessing.connection import Client, Connection, Listener

STEPS = 150
saved = pathlib.Path("saved.json")
# The addresses of all workers, and which of them this is; without the emulator it is alone.
workers = json.loads(os.environ.get("EMULATOR_CLUSTER", "{}")).get("worker", ["localhost:2222"])
index = int(os.environ.get("EMULATOR_INDEX", "0"))


def connect() -> list[Connection]:
    """Return the connections of worker 0 to all others, and of each other one to worker 0."""
    host, _, port = workers[0].rpartition(":")
    if index == 0:
        with Listener((host, int(port))) as listener:
            return [listener.accept() for _ in workers[1:]]
    while True:
        try:
            return [Client((host, int(port)))]
        except OSError:  # worker 0 does not listen yet
            time.sleep(0.05)


def average(mine: list[float]) -> list[float]:
    """Return the mean of what all workers have; EOFError: another worker is gone."""
    if index:
        peers[0].send(mine)
        return peers[0].recv()
    all_of_them = [mine, *(peer.recv() for peer in peers)]
    mean = [sum(values) / len(workers) for values in zip(*all_of_them, strict=True)]
    for peer in peers:
        peer.send(mean)
    return mean


peers = connect()
done, weights = 0, [0.0, 0.0]
for step in range(done + 1, STEPS + 1):
    x = random.Random(f"{index} {step}").uniform(-1, 1)  # each step of each worker has its own
    error = weights[0] * x + weights[1] - (3 * x + 2)
    slope, offset, loss = average([error * x, error, error**2])
    weights = [weights[0] - 0.1 * slope, weights[1] - 0.1 * offset]
    time.sleep(0.02)  # for the work of a larger model
    print(f"step {step}/{STEPS} loss {loss:.4f}", flush=True)
    if index == 0 and step % 5 == 0:
        new = saved.with_suffix(".new")
        new.write_text(json.dumps([step, weights]))
        new.replace(saved)  # whole, or not at all
print(f"learned y = {weights[0]:.2f} x + {weights[1]:.2f}")
