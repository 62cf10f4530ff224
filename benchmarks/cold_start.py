"""Seconds from the command to the first step of `mwms`, over those of docker-compose.

Two synchronous workers. Cold: TensorFlow is imported from nothing in each container. Warm: the
tasks are forked in containers that wait since an earlier run. docker-compose gets the same image,
program, environment and limits, as the plan has them. The three alternate.

    python benchmarks/cold_start.py --rounds 3
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Figure
from emulator.engines import WARM_SESSION, choose
from emulator.engines.docker import DockerEngine
from emulator.planning.requested import RequestedScenario
from emulator.runtime.bundled import ROOT, scenario_path
from emulator.scenario.given import read_scenario
from emulator.session.ready import make_ready

SCENARIO = "mwms"
SESSION = f"benchmark-{os.getpid()}"
TITLES = {
    "emulate": "`emulate up mwms`",
    "warm": "`emulate up mwms --warm`, not the first time",
    "compose": "docker-compose",
}
UNIT = "of docker-compose"


def measure(rounds: int = 3) -> list[Figure]:
    """Return the medians and the ratio of pairs; without docker-compose only ours."""
    ways = {"emulate": emulated, "warm": warm, "compose": composed}
    if shutil.which("docker-compose") is None:
        del ways["compose"]
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    try:
        for number in range(-1, rounds):
            for way in ways if number % 2 else reversed(ways):
                took = ways[way]()
                if number >= 0:  # round -1 fills the page cache, and makes the warm containers
                    seconds[way].append(took)
    finally:
        DockerEngine.remove_waiting(SESSION)
    found = [
        Figure(f"cold.{way}", TITLES[way], statistics.median(seconds[way]), "s") for way in ways
    ]
    if "compose" in ways:
        found += [
            Figure(f"cold.{key}", title, ratio(seconds[way], seconds["compose"]), UNIT, goal)
            for way, key, title, goal in (
                ("emulate", "ratio", "ratio of pairs", 0.95),
                ("warm", "warm_ratio", "ratio of pairs, warm", 0.25),
            )
        ]
    return found


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Return the median ratio of pairs."""
    return statistics.median(one / other for one, other in zip(ours, theirs, strict=True))


def warm() -> float:
    """Return the seconds until a task that starts warm has printed its first step."""
    return emulated("--warm")


def emulated(*options: str) -> float:
    """Return the seconds until a task under `emulate up` has printed its first step."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "emulator", "up", SCENARIO, "--engine", "docker"]
        return _until_first_step([*command, *options, "--out", out], Path(out))


def composed() -> float:
    """Return the same for `docker-compose up` with what our plan says."""
    path = scenario_path(Path(SCENARIO))
    with contextlib.closing(choose("docker")) as engine:
        plan, _ = make_ready(RequestedScenario(read_scenario(path), path), engine)
    services = {
        task.name: {
            "image": task.image,
            "command": list(task.command),
            "hostname": task.name,
            "init": True,
            "environment": dict(task.env),
            "working_dir": "/job",
            "volumes": [f"{task.source}:/job", "shared:/shared"],
            **({"mem_limit": task.memory} if task.memory else {}),
            **({"cpus": task.cpus} if task.cpus else {}),
        }
        for task in plan.tasks
    }
    with tempfile.TemporaryDirectory() as folder:
        text = {"version": "2.4", "services": services, "volumes": {"shared": {}}}
        Path(folder, "docker-compose.yaml").write_text(json.dumps(text))
        try:
            return _until_first_step(["docker-compose", "up"], Path(folder))
        finally:
            down = ["docker-compose", "down", "--volumes", "-t", "0"]
            subprocess.run(down, cwd=folder, check=True, capture_output=True)


def _until_first_step(command: list[str], folder: Path) -> float:
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), WARM_SESSION: SESSION},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    printed = []
    for line in process.stdout:
        printed.append(line)
        if '"step"' in line:
            seconds = time.perf_counter() - began
            process.send_signal(signal.SIGTERM)
            process.communicate()
            return seconds
    raise SystemExit(f"{command[0]} ended without a step:\n{''.join(printed[-20:])}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    for one in measure(parser.parse_args().rounds):
        print(f"{one.title:24} {one.value:.2f} {one.unit}")


if __name__ == "__main__":
    main()
