"""What tracing costs a task, and that one without such a fault pays nothing.

A task writes a byte to a file again and again, in batches, and prints how long a write takes in the
best of them; then it asks for its parent, which no fault waits for. It runs without a fault, with
one that waits for a time, with one that waits for a write of its own (it is traced all the time),
the same as in a sweep (a filter of the kernel stops it at writes alone), with one of another task's
(it is only held at its beginning), with one that has happened before it measures, and with lasting
ones for which it is traced. The runs alternate over the rounds; the ratios are to the task without
a fault in the same round.

    python benchmarks/traced.py --rounds 5
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from emulator.engines.process import ProcessEngine
from emulator.planning.requested import RunOptions
from emulator.record.reader import Record
from emulator.session.launch import read
from emulator.session.run import up

PROGRAM = """
import json, os, time
folder = os.environ["EMULATOR_SHARED"]
own = f"{folder}/{os.environ['EMULATOR_TASK']}"
with open(f"{own}-first", "wb", buffering=0) as file:
    file.write(b"x")


def best(call):
    least = 1.0
    for _ in range(100):
        begin = time.perf_counter()
        for _ in range(200):
            call()
        least = min(least, (time.perf_counter() - begin) / 200)
    return least * 1e6


with open(own, "wb", buffering=0) as file:
    told = {"write": best(lambda: file.write(b"x")), "other": best(os.getppid)}
print(json.dumps({"emulate": "step", "step": 1, **told}), flush=True)
"""
IN_A_SWEEP = "a moment of a sweep"
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
    IN_A_SWEEP: [{"kill": "worker-0", "at": {"write": 1, "of": "nothing"}}],
    "a disk fault of other files": [
        {"disk": "error", "errno": "EIO", "task": "worker-0", "of": "nothing", **LASTS}
    ],
    "late visibility": [{"visibility": "late", "by": "1h", "to": "worker-0", **LASTS}],
}


def measured(case: str, out: Path) -> tuple[float, float]:
    """Return the microseconds of a write of worker-0, and of another call."""
    scenario = {
        "name": "traced",
        "framework": "none",
        "image": "none",
        "program": {"command": ["python3", "-c", PROGRAM]},
        "cluster": {"worker": 2},
        "success": "all-workers",
        "faults": CASES[case],
    }
    options = RunOptions(out=out, disposable=case == IN_A_SWEEP)
    requested = read(scenario, [Path.cwd()], [])
    result = up(requested, ProcessEngine(), options)
    values = Record(result.folder).timeline.tasks["worker-0"].steps[-1].values
    return float(values["write"]), float(values["other"])


def main() -> None:
    """Run the rounds, and print the medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    found: dict[str, list[tuple[float, float]]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory() as out:
        for _ in range(rounds):
            for case in CASES:
                found[case].append(measured(case, Path(out)))
    for case, times in found.items():
        said = []
        for which, name in enumerate(("a write", "another call")):
            pairs = [
                (one[which], base[which])
                for one, base in zip(times, found["no fault"], strict=True)
            ]
            median = statistics.median(one for one, _ in pairs)
            ratio = statistics.median(one / base for one, base in pairs)
            said.append(f"{median:.2f} µs {name}, {ratio:.2f} of a task without a fault")
        print(f"{case}: {'; '.join(said)}")


if __name__ == "__main__":
    main()
