"""A training without a framework, and three ways to react when its machine is taken away.

It fits a line, and saves every few steps. `--react signal` also saves on SIGTERM, and leaves.
`--react notice` asks the metadata servers of Compute Engine, EC2 and Azure besides, because some
clouds send no signal. Needs nothing but Python.
"""

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path

import events

SEED = os.environ.get("EMULATOR_SEED", "0")
SAVED = Path(os.environ.get("EMULATOR_SHARED", "."), "told.json")
PREEMPTED = 143  # the exit code of what SIGTERM has ended

told = threading.Event()
"""The machine will be taken away."""


def arguments() -> argparse.Namespace:
    """Read the command line; the variable REACT is the default of --react."""
    parser = argparse.ArgumentParser(description="Train; save when the machine will be gone.")
    parser.add_argument("--steps", type=int, default=300, help="steps to train (300)")
    parser.add_argument("--save-every", type=int, default=100, help="steps between saves (100)")
    parser.add_argument("--step-cost", type=float, default=0.05, help="seconds of a step (0.05)")
    parser.add_argument("--save-cost", type=float, default=0.2, help="seconds of a save (0.2)")
    parser.add_argument("--poll", type=float, default=0.5, help="seconds between questions (0.5)")
    ways = ["nothing", "signal", "notice"]
    parser.add_argument("--react", choices=ways, default=os.environ.get("REACT", "nothing"))
    return parser.parse_args()


def save(step: int, slope: float, offset: float, cost: float) -> None:
    """Save whole or not at all: if it is killed meanwhile, the old file remains."""
    with events.during("checkpoint", step=step):
        time.sleep(cost)  # as for a larger model
        unfinished = SAVED.with_suffix(".unfinished")
        unfinished.write_text(json.dumps([step, slope, offset]))
        unfinished.replace(SAVED)


def restore() -> tuple[int, float, float]:
    """Return what was saved last: the step and the line."""
    if not SAVED.exists():
        return 0, 0.0, 0.0
    step, slope, offset = json.loads(SAVED.read_text())
    events.phase("restore", "end", step=step)
    return step, slope, offset


def ask(url: str, **headers: str) -> str:
    """Return the answer of a metadata server; empty if there is none, or an error such as 404."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=1) as got:
            return got.read().decode()
    except OSError:
        return ""


def is_announced() -> bool:
    """Return whether a cloud says that this machine will be taken away."""
    google = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    local = "http://169.254.169.254"
    amazon = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", local).rstrip("/")
    instance = f"http://{google}/computeMetadata/v1/instance"
    return (
        ask(f"{instance}/preempted", **{"Metadata-Flavor": "Google"}) == "TRUE"
        or "action" in ask(f"{amazon}/latest/meta-data/spot/instance-action")
        or '"Preempt"'
        in ask(f"{local}/metadata/scheduledevents?api-version=2020-07-01", Metadata="true")
    )


def watch(every: float) -> None:
    """Ask now and then, until there is a notice."""
    while not is_announced():
        time.sleep(every)
    told.set()


def main() -> None:
    """Train from the last save on; save and leave when the machine will be taken away."""
    options = arguments()
    if options.react != "nothing":
        signal.signal(signal.SIGTERM, lambda *_: told.set())
    if options.react == "notice":
        threading.Thread(target=watch, args=[options.poll], daemon=True).start()
    done, slope, offset = restore()
    for step in range(done + 1, options.steps + 1):
        time.sleep(options.step_cost)
        x = random.Random(f"{SEED} {step}").uniform(-1.0, 1.0)  # the same after a restart
        error = slope * x + offset - (3.0 * x + 2.0)
        slope, offset = slope - 0.1 * error * x, offset - 0.1 * error
        events.step(step, loss=error**2)
        if told.is_set() or step % options.save_every == 0:
            save(step, slope, offset, options.save_cost)
        if told.is_set():
            sys.exit(PREEMPTED)
    print(f"learned y = {slope:.2f} x + {offset:.2f}")


if __name__ == "__main__":
    main()
