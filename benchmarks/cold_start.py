"""Seconds from the command to the first step of `mwms`, over those of docker-compose.

Two synchronous workers, TensorFlow imported from nothing in each container. docker-compose gets the
same image, program, environment and limits, as the plan has them. They alternate.

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
from emulator.bundled import ROOT, scenario_path
from emulator.engines import choose
from emulator.engines.requirements import make_ready
from emulator.scenario.loader import load

SCENARIO = "mwms"


def measure(rounds: int = 3) -> list[Figure]:
    """Return the medians and the ratio of pairs; without docker-compose only ours."""
    has_compose = shutil.which("docker-compose") is not None
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(-1, rounds):
        for way in ("emulate", "compose") if number % 2 else ("compose", "emulate"):
            if way == "emulate":
                seconds = emulated()
            elif has_compose:
                seconds = composed()
            else:
                continue
            if number >= 0:  # round -1 fills the page cache
                (ours if way == "emulate" else theirs).append(seconds)
    found = [Figure("cold.emulate", "`emulate up mwms`", statistics.median(ours), "s")]
    if theirs:
        ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
        found += [
            Figure("cold.compose", "docker-compose", statistics.median(theirs), "s"),
            Figure("cold.ratio", "ratio of pairs", ratio, "of docker-compose", 0.95),
        ]
    return found


def emulated() -> float:
    """Return the seconds until a task under `emulate up` has printed its first step."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "emulator", "up", SCENARIO, "--engine", "docker"]
        return _until_first_step([*command, "--out", out], Path(out))


def composed() -> float:
    """Return the same for `docker-compose up` with what our plan says."""
    with contextlib.closing(choose("docker")) as engine:
        plan, _ = make_ready(load(scenario_path(Path(SCENARIO))), engine, out=Path())
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
        env={**os.environ, "PYTHONPATH": str(ROOT)},
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
