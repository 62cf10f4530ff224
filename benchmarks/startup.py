"""How long it takes to start and to remove 12 containers: bare SDK, docker-compose, emulate.

Every way is a process of its own, from its start to the moment when all containers run (`up`), and
from the wish to end them until nothing is left (`down`). The floor is what the Docker SDK needs
when it does nothing but create, start and remove, all in parallel. Ways alternate within a round,
so that a noisy moment hits all of them.

    python benchmarks/startup.py --rounds 7
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from emulator.engines.docker import DockerEngine

TASKS = 12
COMMAND = ["sleep", "1000"]
FLOOR = Path(__file__).with_name("startup_floor.py")


@dataclass
class Times:
    """Seconds."""

    up: float
    down: float
    cpu: float
    """CPU seconds of our own process and its children, not of the engine."""


def main() -> None:
    """Run the rounds and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tasks", type=int, default=TASKS)
    options = parser.parse_args()
    image = DockerEngine().images.base(lambda line: None)
    ways: dict[str, Callable[[str, int], Times]] = {"floor": floor, "emulate": emulate}
    if shutil.which("docker-compose"):
        ways["compose"] = compose
    measured: dict[str, list[Times]] = {name: [] for name in ways}
    for number in range(-1, options.rounds):
        names = list(ways)
        if number % 2:
            names.reverse()
        for name in names:
            times = ways[name](image, options.tasks)
            print(
                f"{number:3} {name:8} up {times.up:.2f} down {times.down:.2f} cpu {times.cpu:.2f}"
            )
            if number >= 0:  # round -1 warms caches
                measured[name].append(times)
    report(measured, options.tasks)


def report(measured: dict[str, list[Times]], tasks: int) -> None:
    """Print medians, and each way as a ratio to the floor of the same round."""
    print(f"\n{'':8}  {'up s':>6} {'down s':>6} {'cpu ms/task':>11}   up/floor  down/floor")
    for name, all_times in measured.items():
        up = statistics.median(t.up for t in all_times)
        down = statistics.median(t.down for t in all_times)
        cpu = statistics.median(t.cpu for t in all_times) / tasks * 1000
        pairs = list(zip(all_times, measured["floor"], strict=True))
        up_ratio = statistics.median(t.up / f.up for t, f in pairs)
        down_ratio = statistics.median(t.down / f.down for t, f in pairs)
        print(f"{name:8}  {up:6.2f} {down:6.2f} {cpu:11.1f}   {up_ratio:8.2f}  {down_ratio:10.2f}")


def floor(image: str, tasks: int) -> Times:
    """Bare SDK calls in parallel, in a process of their own."""
    return _measure([sys.executable, str(FLOOR), image, str(tasks)], "all running", Path())


def emulate(image: str, tasks: int) -> Times:
    """`emulate up`, then SIGTERM, as `emulate down` sends it."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder, "scenario.yaml")
        scenario.write_text(
            f"name: startup\nframework: none\nimage: {image}\nprogram: {{command: {COMMAND}}}\n"
            f"cluster: {{worker: {tasks}}}\n"
        )
        command = [sys.executable, "-m", "emulator", "up", str(scenario), "--engine", "docker"]
        return _measure([*command, "--out", folder], "all tasks are running", Path(folder))


def compose(image: str, tasks: int) -> Times:
    """`docker-compose up -d` and `down`, with the same kill signal."""
    services = {
        f"worker-{n}": {"image": image, "command": COMMAND, "init": True} for n in range(tasks)
    }
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "docker-compose.yaml").write_text(
            json.dumps({"version": "3.7", "services": services})
        )
        cpu = _children_cpu()
        began = time.perf_counter()
        subprocess.run(["docker-compose", "up", "-d"], cwd=folder, check=True, capture_output=True)
        up = time.perf_counter() - began
        began = time.perf_counter()
        subprocess.run(["docker-compose", "down"], cwd=folder, check=True, capture_output=True)
        return Times(up, time.perf_counter() - began, _children_cpu() - cpu)


def _measure(command: list[str], ready: str, folder: Path) -> Times:
    """Start the command, wait for the line that says that all run, end it, wait for its end."""
    cpu = _children_cpu()
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if ready in line:
            break
    up = time.perf_counter() - began
    began = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    process.stdout.read()
    process.wait()
    return Times(up, time.perf_counter() - began, _children_cpu() - cpu)


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
