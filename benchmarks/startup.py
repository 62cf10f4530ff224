"""How long it takes to start and to remove 12 containers: bare SDK, docker-compose, emulate.

Every way is a process of its own, from its start to the moment when all containers run (`up`), and
from the wish to end them until nothing is left (`down`). The floor is what the Docker SDK needs
when it does nothing but create, start and remove, all in parallel. Ways alternate within a round,
so that a noisy moment hits all of them.

    python benchmarks/startup.py --rounds 7
"""

from __future__ import annotations

import argparse
import contextlib
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

from benchmarks.figures import Figure
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
    report(_rounds(options.tasks, options.rounds), options.tasks)


def measure(rounds: int = 5) -> list[Figure]:
    """Return the ratios to the floor with 12 containers, and the CPU beyond it."""
    measured = _rounds(TASKS, rounds)
    up, down = _ratios(measured, "emulate")
    cpu = {
        name: statistics.median(one.cpu for one in times) / TASKS * 1000
        for name, times in measured.items()
    }
    found = [
        Figure("startup.up", "12 containers: up", up, "of the floor", 1.10),
        Figure("startup.down", "down", down, "of the floor", 1.15),
        Figure(
            "startup.cpu", "CPU a task beyond the floor", cpu["emulate"] - cpu["floor"], "ms", 20
        ),
    ]
    if "compose" in measured:
        up, down = _ratios(measured, "compose")
        found += [
            Figure("startup.compose_up", "docker-compose: up", up, "of the floor"),
            Figure("startup.compose_down", "docker-compose: down", down, "of the floor"),
        ]
    return found


def measure_scale(tasks: int = 200) -> list[Figure]:
    """Return the ratio to the floor with many containers, and how it grows from 12."""
    ways: dict[str, Callable[[str, int], Times]] = {"floor": floor, "emulate": emulate}
    small, large = _rounds(TASKS, 2, ways), _rounds(tasks, 1, ways)
    up, _ = _ratios(large, "emulate")
    each = {
        number: statistics.median(one.up for one in times["emulate"]) / number
        for number, times in ((TASKS, small), (tasks, large))
    }
    return [
        Figure("scale.up", f"{tasks} containers: up", up, "of the floor", 1.15),
        Figure(
            "scale.linear",
            f"up for each container, {tasks} against {TASKS}",
            each[tasks] / each[TASKS],
            "times",
            1.2,
        ),
    ]


def _ratios(measured: dict[str, list[Times]], name: str) -> tuple[float, float]:
    """Return the medians of up and down over the floor of the same round."""
    pairs = list(zip(measured[name], measured["floor"], strict=True))
    return (
        statistics.median(one.up / other.up for one, other in pairs),
        statistics.median(one.down / other.down for one, other in pairs),
    )


def _rounds(
    tasks: int, rounds: int, chosen: dict[str, Callable[[str, int], Times]] | None = None
) -> dict[str, list[Times]]:
    """Return the times of each way, in every round."""
    with contextlib.closing(DockerEngine()) as engine:
        image = engine.images.base(lambda line: None)
    ways: dict[str, Callable[[str, int], Times]] = chosen or {"floor": floor, "emulate": emulate}
    if chosen is None and shutil.which("docker-compose"):
        ways["compose"] = compose
    measured: dict[str, list[Times]] = {name: [] for name in ways}
    for number in range(-1, rounds):
        names = list(ways)
        if number % 2:
            names.reverse()
        for name in names:
            times = ways[name](image, tasks)
            print(
                f"{number:3} {name:8} up {times.up:.2f} down {times.down:.2f} cpu {times.cpu:.2f}"
            )
            if number >= 0:  # round -1 warms caches
                measured[name].append(times)
    return measured


def report(measured: dict[str, list[Times]], tasks: int) -> None:
    """Print medians, and each way as a ratio to the floor of the same round."""
    print(f"\n{'':8}  {'up s':>6} {'down s':>6} {'cpu ms/task':>11}   up/floor  down/floor")
    for name, all_times in measured.items():
        up = statistics.median(t.up for t in all_times)
        down = statistics.median(t.down for t in all_times)
        cpu = statistics.median(t.cpu for t in all_times) / tasks * 1000
        up_ratio, down_ratio = _ratios(measured, name)
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
