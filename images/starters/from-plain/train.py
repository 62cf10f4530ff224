"""A training without a framework, and three ways to react when its machine is taken away.

It needs nothing but Python, and fits y = 3 x + 2. It saves every few steps: a new file, which then
replaces the old one. `--react signal` also saves on SIGTERM, and leaves. `--react notice` also asks
the metadata servers of Compute Engine, EC2 and Azure whether the machine will be taken away: some
clouds send no signal. It leaves when it has saved, so that a new machine goes on from there.
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

SAVED = Path(os.environ.get("EMULATOR_SHARED", "."), "saved.json")
PREEMPTED = 143  # the exit code of what SIGTERM has ended
EC2_AT = "http://169.254.169.254"
GOOGLE_AT = "metadata.google.internal"

told = threading.Event()
"""The machine will be taken away."""


def arguments() -> argparse.Namespace:
    """Read the command line; the variable REACT is the default of --react."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=450, help="steps to train (450)")
    parser.add_argument("--save-every", type=int, default=100, help="steps between saves (100)")
    parser.add_argument("--step-cost", type=float, default=0.05, help="seconds of a step (0.05)")
    parser.add_argument("--save-cost", type=float, default=0.2, help="seconds of a save (0.2)")
    parser.add_argument("--poll", type=float, default=0.5, help="seconds between questions (0.5)")
    parser.add_argument(
        "--react", choices=["nothing", "signal", "notice"], default=os.environ.get("REACT")
    )
    return parser.parse_args()


def say(**event: object) -> None:
    """Print what the emulator reads: a line of JSON."""
    print(json.dumps(event), flush=True)


def save(step: int, slope: float, offset: float, cost: float) -> None:
    """Save whole or not at all: if it is killed meanwhile, the old file remains."""
    say(emulate="phase", phase="checkpoint", state="begin", step=step)
    time.sleep(cost)
    new = SAVED.with_suffix(".new")
    new.write_text(json.dumps([step, slope, offset]))
    new.replace(SAVED)
    say(emulate="phase", phase="checkpoint", state="end", step=step)


def restore() -> tuple[int, float, float]:
    """Return what was saved last."""
    if not SAVED.exists():
        return 0, 0.0, 0.0
    say(emulate="phase", phase="restore", state="begin")
    step, slope, offset = json.loads(SAVED.read_text())
    say(emulate="phase", phase="restore", state="end", step=step)
    return step, slope, offset


# --- Notices --------------------------------------------------------------------------------------


def ask(url: str, **headers: str) -> str:
    """Return the answer of a metadata server; empty where there is none."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=1) as got:
            return got.read().decode()
    except OSError:  # nobody answers, or 404: there is no notice
        return ""


def is_announced() -> bool:
    """Return whether a cloud says that this machine will be taken away."""
    google = os.environ.get("GCE_METADATA_HOST", GOOGLE_AT)
    amazon = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", EC2_AT).rstrip("/")
    azure = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
    instance = f"http://{google}/computeMetadata/v1/instance"
    return (
        ask(f"{instance}/preempted", **{"Metadata-Flavor": "Google"}) == "TRUE"
        or "TERMINATE" in ask(f"{instance}/maintenance-event", **{"Metadata-Flavor": "Google"})
        or "action" in ask(f"{amazon}/latest/meta-data/spot/instance-action")
        or "noticeTime" in ask(f"{amazon}/latest/meta-data/events/recommendations/rebalance")
        or '"Preempt"' in ask(azure, Metadata="true")
    )


def watch(every: float) -> None:
    """Ask now and then, until there is a notice."""
    while not is_announced():
        time.sleep(every)
    told.set()


def main() -> None:
    """Train from the last save on; save and leave where the machine will be taken away."""
    options = arguments()
    react = options.react or "nothing"
    if react != "nothing":
        signal.signal(signal.SIGTERM, lambda *_: told.set())
    if react == "notice":
        threading.Thread(target=watch, args=[options.poll], daemon=True).start()
    done, slope, offset = restore()
    for step in range(done + 1, options.steps + 1):
        time.sleep(options.step_cost)
        x = random.uniform(-1.0, 1.0)
        error = slope * x + offset - (3.0 * x + 2.0)
        slope, offset = slope - 0.1 * error * x, offset - 0.1 * error
        say(emulate="step", step=step, loss=error**2)
        if told.is_set() or step % options.save_every == 0:
            save(step, slope, offset, options.save_cost)
        if told.is_set():
            sys.exit(PREEMPTED)
    print(f"learned y = {slope:.2f} x + {offset:.2f}")


if __name__ == "__main__":
    main()
