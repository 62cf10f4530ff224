"""How long short commands take: processes of their own, from start to end.

python benchmarks/commands.py --rounds 15
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Figure

ROOT = Path(__file__).parents[1]
SCENARIO = ROOT / "scenarios" / "strategies" / "quickstart.yaml"
COMMANDS = {
    "help": (["--help"], 0.15),
    "plan": (["plan", str(SCENARIO)], 0.25),
    "ps": (["ps"], 0.25),
}


def measure(rounds: int = 15) -> list[Figure]:
    """Return the median of each command's seconds, and of a bare Python's."""
    seconds: dict[str, list[float]] = {"python": [], **{name: [] for name in COMMANDS}}
    with tempfile.TemporaryDirectory() as folder:
        # Modules are compiled once, as those of an installed package are.
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for number in range(-1, rounds):
            for name, times in seconds.items():
                words = ["-m", "emulator", *COMMANDS[name][0]] if name in COMMANDS else ["-c", ""]
                began = time.perf_counter()
                subprocess.run(
                    [sys.executable, *words],
                    cwd=folder,
                    env=environment,
                    check=True,
                    capture_output=True,
                )
                if number >= 0:  # round -1 fills the page cache and compiles
                    times.append(time.perf_counter() - began)
    found = [Figure("commands.python", "`python -c ''`", statistics.median(seconds["python"]), "s")]
    for name, (words, goal) in COMMANDS.items():
        shown = " ".join(word.rpartition("/")[2] for word in words)
        value = statistics.median(seconds[name])
        found.append(Figure(f"commands.{name}", f"`emulate {shown}`", value, "s", goal))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    for one in measure(parser.parse_args().rounds):
        print(f"{one.title:32} {one.value:.3f} {one.unit}   goal {one.goal}")


if __name__ == "__main__":
    main()
