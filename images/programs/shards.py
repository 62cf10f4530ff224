"""Parameter servers without a framework: a model in shards, sockets, and NumPy.

Every task reads the cluster from CLUSTER_CONFIG and its own place from POD_NAME, as charts for
TensorFlow's older programs set them. A server holds some rows of the weights. A worker asks all
servers for their rows, computes a gradient on its share of the data and sends each server its part.
Nobody waits for another worker, so a lost one costs only its own work. Server 0 counts the steps of
the job, and worker 0 tests the model at the end. Nothing is saved: a lost server takes its rows
with it.
"""

import argparse
import json
import os
import threading
import time
from multiprocessing.connection import Client, Connection, Listener

import digits
import events
import numpy as np

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
LEARNING_RATE = 0.05
REPORT_EVERY = 10
PATIENCE = 60
"""Seconds for which a worker looks for a server that is not there yet."""


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train on rows that parameter servers hold.")
    parser.add_argument("--steps", type=int, default=400, help="steps of the whole job (400)")
    parser.add_argument("--batch", type=int, default=32, help="examples per worker (32)")
    parser.add_argument("--step-cost", type=float, default=0, help="seconds added to a step (0)")
    return parser.parse_args()


def place() -> tuple[dict[str, list[str]], str, int]:
    """Return the cluster, and this task's role and index; a comma too many is no mistake."""
    text = "".join(os.environ["CLUSTER_CONFIG"].split())
    cluster = json.loads(text.replace(",]", "]").replace(",}", "}"))
    role, _, index = os.environ["POD_NAME"].rpartition("-")
    return cluster, role, int(index)


def host_and_port(address: str) -> tuple[str, int]:
    """Split an address."""
    host, _, port = address.rpartition(":")
    return host, int(port)


class Rows:
    """The rows of one server, and on server 0 the number of steps."""

    def __init__(self, rows: int) -> None:
        self.weights, self.step = np.zeros((rows, digits.CLASSES)), 0
        self.lock = threading.Lock()

    def serve(self, worker: Connection) -> None:
        """Answer one worker until it has gone: its gradient, if it has one, for the rows."""
        try:
            while True:
                gradient = worker.recv()
                with self.lock:
                    if gradient is not None:
                        self.weights -= LEARNING_RATE * gradient
                        self.step += 1
                    worker.send((self.step, self.weights.copy()))
        except (EOFError, OSError):
            worker.close()


def serve(port: int, rows: int) -> None:
    """Hold rows for all workers, until SIGTERM."""
    held = Rows(rows)
    # A worker that is preempted leaves a connection that nobody reads: each has a thread.
    with Listener(("0.0.0.0", port), backlog=64) as listener:
        while True:
            threading.Thread(target=held.serve, args=[listener.accept()], daemon=True).start()


def connect(address: str) -> Connection:
    """Connect to a server, which may still be starting."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return Client(host_and_port(address))
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


class Model:
    """The weights, of which every server holds each `len(servers)`-th row."""

    def __init__(self, servers: list[Connection]) -> None:
        self.servers, self.weights = servers, np.zeros((digits.PIXELS, digits.CLASSES))

    def exchange(self, gradient: np.ndarray | None) -> int:
        """Send a gradient, if there is one, fetch the weights; return the job's steps."""
        count = len(self.servers)
        for number, server in enumerate(self.servers):
            server.send(None if gradient is None else gradient[number::count])
        steps = []
        for number, server in enumerate(self.servers):
            step, self.weights[number::count] = server.recv()
            steps.append(step)
        return steps[0]

    def gradient(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the gradient of the softmax cross entropy."""
        scores = x @ self.weights
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        odds[np.arange(len(y)), y] -= 1
        return x.T @ odds / len(y)


def train(options: argparse.Namespace, servers: list[str], worker: int, workers: int) -> None:
    """Train until the job has made its steps; worker 0 tests."""
    train_x, train_y, test_x, test_y = digits.load(SEED)
    model = Model([connect(server) for server in servers])
    batches = digits.batches(
        train_x, train_y, options.batch, seed=SEED, worker=worker, workers=workers
    )
    step = reported = model.exchange(None)
    while step < options.steps:
        time.sleep(options.step_cost)
        step = model.exchange(model.gradient(*next(batches)))
        if reported // REPORT_EVERY < step // REPORT_EVERY and step < options.steps:
            events.step(step)
            reported = step
    accuracy = float(((test_x @ model.weights).argmax(axis=1) == test_y).mean())
    events.step(step, **({"accuracy": accuracy} if worker == 0 else {}))


def main() -> None:
    """Serve, or train."""
    options = arguments()
    cluster, role, index = place()
    servers = cluster["ps"]
    if role == "ps":
        serve(host_and_port(servers[index])[1], len(range(index, digits.PIXELS, len(servers))))
    else:
        train(options, servers, index, len(cluster["worker"]))


if __name__ == "__main__":
    main()
