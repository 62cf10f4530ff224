"""What tracing costs a task, and that one without such a fault pays nothing.

A task writes a byte to a file again and again, in batches, and prints how long a write takes in the
best of them. It runs without a fault, with one that waits for a time, with one that waits for a
write of its own (it is traced all the time), with one of another task's (it is only held at its
beginning), with one that has happened before it measures, and with lasting ones for which it is
traced. The runs alternate over the rounds; the ratios are to the task without a fault in the same
round.

    python benchmarks/traced.py --rounds 5
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import emulator
from emulator.record.reader import Record

PROGRAM = """
import json, os, time
folder = os.environ["EMULATOR_SHARED"]
own = f"{folder}/{os.environ['EMULATOR_TASK']}"
with open(f"{own}-first", "wb", buffering=0) as file:
    file.write(b"x")
best = 1.0
with open(own, "wb", buffering=0) as file:
    for _ in range(100):
        begin = time.perf_counter()
        for _ in range(200):
            file.write(b"x")
        best = min(best, (time.perf_counter() - begin) / 200)
print(json.dumps({"emulate": "step", "step": 1, "microseconds": best * 1e6}), flush=True)
"""
LASTS = {"for": "1h", "at": {"write": 1, "of": "*-first", "task": "worker-0"}}
"""From before it measures until its end."""
CASES: dict[str, list[dict[str, Any]]] = {
    "no fault": [],
    "a fault that waits for a time": [{"kill": "worker-0", "at": "1h"}],
    "a fault that waits for a write of another task": [
        {"kill": "worker-1", "at": {"write": 1, "of": "nothing"}}
    ],
    "a fault that has happened": [
        {"pause": "worker-0", "for": "1ms", "at": {"write": 1, "of": "*-first"}}
    ],
    "a fault that waits for a write": [{"kill": "worker-0", "at": {"write": 1, "of": "nothing"}}],
    "a disk fault of other files": [
        {"disk": "error", "errno": "EIO", "task": "worker-0", "of": "nothing", **LASTS}
    ],
    "late visibility": [{"visibility": "late", "by": "1h", "to": "worker-0", **LASTS}],
}


def measured(case: str, out: Path) -> float:
    """Return the microseconds of a write of worker-0."""
    scenario = {
        "name": "traced",
        "framework": "none",
        "image": "none",
        "program": {"command": ["python3", "-c", PROGRAM]},
        "cluster": {"worker": 2},
        "success": "all-workers",
        "faults": CASES[case],
    }
    result = emulator.run(scenario, engine="process", out=out)
    steps = Record(result.folder).timeline.tasks["worker-0"].steps
    return float(steps[-1].values["microseconds"])


def main() -> None:
    """Run the rounds, and print the medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    found: dict[str, list[float]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory() as out:
        for _ in range(rounds):
            for case in CASES:
                found[case].append(measured(case, Path(out)))
    none = found["no fault"]
    for case, times in found.items():
        ratio = statistics.median(one / base for one, base in zip(times, none, strict=True))
        median = statistics.median(times)
        print(f"{case}: {median:.2f} µs a write, {ratio:.2f} of a task without a fault")


if __name__ == "__main__":
    main()
