#!/usr/bin/env python3
"""Run the fault scenarios several times in a row; each must give its stated verdict every time.

    python benchmarks/verdicts.py --engine docker --rounds 3
    python benchmarks/verdicts.py --engine process --rounds 3

Prints a line a scenario: its verdicts, and the range of what was lost, recovered and made good.
Exits with 1 where a verdict was another than stated.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCENARIOS = Path(__file__).parent.parent / "scenarios"
FAULTY = {
    "mwms-preemption": "ok",
    "mwms-grace": "ok",
    "mwms-kill-during-checkpoint": "ok",
    "ps-worker-preemption": "ok",
    "ps-loss": "ok",
    "chief-preemption": "ok",
    "partition-heals": "ok",
    "straggler": "ok",
    "straggler-async": "ok",
    "spot-market": "ok",
    "spot-trace": "ok",
    "rolling-restart": "ok",
    "careless-tensorflow": "failed",
}
DOCKER_ONLY = {"partition-heals", "straggler", "straggler-async"}


def run(name: str, engine: str, out: Path) -> dict[str, Any]:
    """Run a scenario once; return its summary."""
    command = [sys.executable, "-m", "emulator", "up", str(SCENARIOS / f"{name}.yaml")]
    command += ["--engine", engine, "--out", str(out), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(f"{name} left no summary: {done.stderr[-2000:]}")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def spread(values: Sequence[float | None], form: str) -> str:
    """Return the least and the greatest of the values that are known."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, high = form.format(min(known)), form.format(max(known))
    return low if low == high else f"{low} to {high}"


def main() -> None:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=["docker", "process"], default="docker")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("names", nargs="*", metavar="SCENARIO", help="all of them if none is named")
    options = parser.parse_args()
    wrong = 0
    names = options.names or list(FAULTY)
    print(f"{'scenario':28} {'verdicts':24} {'took s':14} {'lost':12} {'recovery s':14} goodput")
    for name in names:
        if options.engine == "process" and name in DOCKER_ONLY:
            continue
        with tempfile.TemporaryDirectory() as out:
            done = [run(name, options.engine, Path(out)) for _ in range(options.rounds)]
        verdicts = [one["verdict"] for one in done]
        wrong += sum(verdict != FAULTY[name] for verdict in verdicts)
        recoveries = [max(one["recoveries"], default=None) for one in done]
        print(
            f"{name:28} {' '.join(verdicts):24} "
            f"{spread([one['duration'] for one in done], '{:.0f}'):14} "
            f"{spread([one['steps']['lost'] for one in done], '{:.0f}'):12} "
            f"{spread(recoveries, '{:.1f}'):14} "
            f"{spread([one['goodput'] for one in done], '{:.0%}')}",
            flush=True,
        )
        for one, verdict in zip(done, verdicts, strict=True):
            if verdict != FAULTY[name]:
                odd = [v for v in one["verdicts"] if v["status"] != "ok"]
                print(f"  not as stated: {one['outcome']}: {one['reason']}; {odd}")
    print(f"{wrong} verdicts were not as stated")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
