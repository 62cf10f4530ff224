"""In how many seconds the others notice that a worker is gone, cut off, frozen or hangs.

    python benchmarks/noticed.py --engine docker [--limit 90]

Each framework with its own defaults, but for torchrun's keep-alive of one second. Prints a table of
the seconds, and by what it was noticed. The programs, and the time of the fault, are those of
scenarios/hangs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SCENARIOS = Path(__file__).parent.parent / "scenarios" / "hangs"
LOST = "preempt: worker-1, like: power-loss, down: {limit}s"
FAULTS = {
    "it ends, and its connections are closed": f"{LOST}, loss: closed",
    "its machine answers nothing (`loss: silent`)": LOST,
    "`partition`": "partition: [[worker-0], [worker-1]], for: {limit}s",
    "`pause`": "pause: worker-1, for: {limit}s",
    "`hang`": "hang: worker-1, for: {limit}s",
}
FRAMEWORKS = {
    "gloo": ("hang-gloo", "[python, ddp.py, --steps, 4000, --patience, 1800]", 100),
    "TensorFlow": ("hang-watchdog", "[python, mwms.py, --steps, 800, --save-every, 50]", 320),
    "torchrun": (
        "hang-torchrun",
        "[torchrun, elastic.py, --steps, 400, --save-every, 25, --step-cost, 0.02, "
        "--patience, 1800]",
        100,
    ),
}
"""By framework: the scenario, its command, and the step of the fault."""


def noticed(engine: str, framework: str, fault: str, limit: int, out: Path) -> dict[str, Any]:
    """Run once; return what the summary says of the fault."""
    name, command, step = FRAMEWORKS[framework]
    sets = {
        "program.command": command,
        "faults": f"[{{{fault.format(limit=limit)}, at: {{step: {step}}}}}]",
        "restart": "{policy: on-failure, scope: job, limit: 1}",
        "timeout": f"{limit + 60}s",
        "expect": "{}",
    }
    words = [f"--set={key}={value}" for key, value in sets.items()]
    command_line = [sys.executable, "-m", "emulator", "up", str(SCENARIOS / f"{name}.yaml")]
    command_line += [f"--engine={engine}", f"--out={out}", "--json", *words]
    done = subprocess.run(command_line, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(f"{framework}, {fault}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)["faults"][0]
    return found


def main() -> None:
    """Run all, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="docker")
    parser.add_argument("--limit", type=int, default=90, help="Seconds to wait.")
    options = parser.parse_args()
    print("| the other worker |", *FRAMEWORKS, sep=" | ")
    with tempfile.TemporaryDirectory() as out:
        for words, fault in FAULTS.items():
            cells, by = [], []
            for framework in FRAMEWORKS:
                found = noticed(options.engine, framework, fault, options.limit, Path(out))
                if found["status"] != "applied":
                    cells.append(f"{found['status']}: {found['reason']}")
                elif found["detected_after"] is None:
                    cells.append(f"not in {options.limit} s")
                else:
                    took = max(0.0, found["detected_after"] - found["applied_after"])
                    cells.append(f"{took:.1f} s")
                    by.append(f"{framework}: {found['detected_by']}")
            print(f"| {words} | {' | '.join(cells)} |", *by, sep="\n    ", flush=True)


if __name__ == "__main__":
    main()
