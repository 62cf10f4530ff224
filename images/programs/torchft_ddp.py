"""Training with PyTorch whose members may change at every step: torchft over gloo, on CPUs.

Each task is a replica with a whole copy of the model. Before each step, the lighthouse
(TORCHFT_LIGHTHOUSE) says which replicas take part. When one is lost, the others fail in their
all-reduce, drop that step's gradients and go on without it; their processes stay. One that joins
gets the weights and the step from a peer, so nothing is saved here.

Each step reports `participants`; `alone`, the steps of the job with one replica, after all were
there once; and `dropped`, the steps whose gradients were not used. The job ends when all replicas
have trained `--steps` steps together.
"""

import argparse
import os
import socket
import time
from datetime import timedelta

import digits
import events

events.phase("startup", "begin")  # includes the import of PyTorch, which takes seconds
import torch  # noqa: E402
import torchft  # noqa: E402
from torch import distributed, nn  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
LEARNING_RATE = 0.3
HIDDEN = 64
REPORT_EVERY = 10


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train with the replicas that are there.")
    parser.add_argument("replica", type=int, help="number of this replica, from 0")
    parser.add_argument("replicas", type=int, help="number of replicas when all are there")
    parser.add_argument("--steps", type=int, default=200, help="steps with all replicas (200)")
    parser.add_argument("--batch", type=int, default=64, help="examples per replica and step (64)")
    parser.add_argument("--timeout", type=float, default=10, help="seconds for a collective (10)")
    parser.add_argument(
        "--step-cost", type=float, default=0, help="additional seconds of each step (0)"
    )
    return parser.parse_args()


class Job:
    """What the replicas share: the weights, the optimizer's state, and what was counted."""

    def __init__(self) -> None:
        """Make the same weights in every replica."""
        torch.manual_seed(SEED)
        self.model = nn.Sequential(
            nn.Linear(digits.PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, digits.CLASSES)
        )
        self.sgd = torch.optim.SGD(self.model.parameters(), LEARNING_RATE)
        self.counts = {"together": 0, "alone": 0, "dropped": 0, "examples": 0}

    def state(self) -> dict[str, dict]:
        """Return what a replica that joins needs. torchft adds the step."""
        return {
            "model": self.model.state_dict(),
            "sgd": self.sgd.state_dict(),
            "counts": dict(self.counts),
        }

    def load(self, state: dict[str, dict]) -> None:
        """Become a copy of the peer that sent its state."""
        self.model.load_state_dict(state["model"])
        self.sgd.load_state_dict(state["sgd"])
        self.counts.update(state["counts"])


def join(job: Job, store: distributed.TCPStore, options: argparse.Namespace) -> torchft.Manager:
    """Register this replica, of one process, at the lighthouse."""
    timeout = timedelta(seconds=options.timeout)
    return torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=timeout),
        load_state_dict=job.load,
        state_dict=job.state,
        min_replica_size=1,
        timeout=timeout,
        rank=0,
        world_size=1,
        store_addr=store.host,
        store_port=store.port,
        replica_id=f"replica_{options.replica}",
    )


def train(job: Job, manager: torchft.Manager, options: argparse.Namespace) -> None:
    """Train with whoever is there, then report the accuracy."""
    with events.during("data"):
        train_x, train_y, test_x, test_y = digits.load(SEED)
        batches = digits.batches(
            train_x,
            train_y,
            options.batch,
            seed=SEED,
            worker=options.replica,
            workers=options.replicas,
        )

    optimizer = torchft.Optimizer(manager, job.sgd)
    counts = job.counts
    while counts["together"] < options.steps:
        time.sleep(options.step_cost)
        x, y = map(torch.from_numpy, next(batches))
        before = manager.current_step()
        optimizer.zero_grad()  # asks the lighthouse who takes part
        loss = nn.functional.cross_entropy(job.model(x), y)
        loss.backward()
        for weights in job.model.parameters():
            manager.allreduce(weights.grad).wait()  # the mean; an error fails the step only
        optimizer.step()  # if there was no error. Loads the state of a peer before, if it is ahead

        step, participants = manager.current_step(), manager.num_participants()
        if step == before:
            counts["dropped"] += 1
            continue
        counts["examples"] += options.batch * participants
        counts["together"] += participants == options.replicas
        counts["alone"] += participants == 1 and counts["together"] > 0
        if step % REPORT_EVERY == 0:
            events.step(step, loss=loss.item(), participants=participants, **counts)

    with events.during("eval"), torch.no_grad():
        guesses = job.model(torch.from_numpy(test_x)).argmax(dim=1)
        accuracy = float((guesses == torch.from_numpy(test_y)).float().mean())
    events.step(step, participants=participants, accuracy=accuracy, **counts)


def main() -> None:
    """Join, train, leave."""
    options = arguments()
    torch.set_num_threads(1)  # the tasks share the machine's cores
    # The replicas meet in the store of one of them: its address is one that the others reach.
    store = distributed.TCPStore(socket.gethostname(), 0, is_master=True, wait_for_workers=False)
    job = Job()
    manager = join(job, store, options)
    events.phase("startup", "end")
    train(job, manager, options)
    manager.shutdown(wait=False)


if __name__ == "__main__":
    main()
