"""How late faults are: against their time, against the line that triggered them, in their lengths.

Two runs of a program that costs nothing: 100 preemptions at fixed times of four tasks that ignore
SIGTERM, and 100 kills at fixed steps. Everything is read from the history.

    python benchmarks/fidelity.py --engine docker
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emulator.engines import choose
from emulator.engines.docker import DockerEngine
from emulator.planning.requested import RunOptions
from emulator.record.events import AllRunning, Entry, FaultEvent, Step, TaskStart
from emulator.record.reader import Record
from emulator.session.launch import read
from emulator.session.run import up

TASKS, FAULTS = 4, 100
GRACE, DOWN = 0.3, 0.5
COUNT = """
n=$(cat n 2>/dev/null || echo 0)
trap '' TERM
while :; do
  n=$((n + 1)); echo $n > n
  echo "{\\"emulate\\": \\"step\\", \\"step\\": $n}"
  sleep 0.05
done
"""


def main() -> None:
    """Run both and print p50 and p99 of each lateness, in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=["docker", "process"], default="docker")
    engine = parser.parse_args().engine
    timed, stepped = preemptions(engine), kills(engine)
    print(f"{engine}: lateness in ms           p50    p99    max   of")
    for name, values in {**timed, **stepped}.items():
        values = sorted(1000 * value for value in values)
        p50, p99 = _percentile(values, 0.5), _percentile(values, 0.99)
        print(f"{name:34} {p50:6.1f} {p99:6.1f} {values[-1]:6.1f} {len(values):4}")


def preemptions(engine: str) -> dict[str, list[float]]:
    """Preempt one task after the other, at fixed times."""
    faults = [
        {
            "preempt": f"worker-{number % TASKS}",
            "at": f"{1000 + 700 * number}ms",
            "grace": f"{GRACE * 1000:.0f}ms",
            "down": f"{DOWN * 1000:.0f}ms",
        }
        for number in range(FAULTS)
    ]
    history = _run(engine, faults, seconds=3 + 0.7 * FAULTS)
    began = next(e.t for e in history if isinstance(e, AllRunning))
    late, grace, down = [], [], []
    for number in range(FAULTS):
        stages = _stages(history, str(number))
        late.append(stages["triggered"].t - began - (1.0 + 0.7 * number))
        grace.append((stages["applied"].seconds or 0.0) - GRACE)
        gone = stages["applied"]
        started = next(
            e for e in history[gone.n :] if isinstance(e, TaskStart) and e.task == gone.task
        )
        down.append(started.t - gone.t - DOWN)
    return {
        "strike, after its time": late,
        "SIGKILL seen, after the grace": grace,
        "start, after the downtime": down,
    }


def kills(engine: str) -> dict[str, list[float]]:
    """Kill one task after the other, each at a step of its own."""
    faults = [
        {"kill": f"worker-{n % TASKS}", "at": {"step": 5 + 8 * n, "task": f"worker-{n % TASKS}"}}
        for n in range(FAULTS)
    ]
    history = _run(engine, faults, seconds=90)
    zero = history[0].wall
    late, gone = [], []
    for number in range(FAULTS):
        stages = _stages(history, str(number))
        if "applied" not in stages:
            raise SystemExit(f"fault {number} was not applied; is the machine this slow?")
        strike = stages["triggered"]
        line = next(
            e
            for e in reversed(history[: strike.n])
            if isinstance(e, Step) and e.task == strike.task
        )
        late.append(strike.t - (line.wall - zero))
        gone.append(stages["applied"].t - strike.t)
    return {"strike, after the line was printed": late, "exit seen, after the strike": gone}


def _run(engine: str, faults: Sequence[dict[str, Any]], seconds: float) -> Sequence[Entry]:
    image = DockerEngine().images.base(lambda line: None) if engine == "docker" else "none"
    scenario = {
        "name": "fidelity",
        "framework": "none",
        "image": image,
        "program": {"command": ["sh", "-c", COUNT]},
        "cluster": {"worker": TASKS, "chief": {"command": ["sleep", str(seconds)]}},
        "success": "chief",
        "restart": {"policy": "on-failure", "limit": 1000, "backoff": "0"},
        "faults": faults,
    }
    asked = read(scenario, [Path()])
    with tempfile.TemporaryDirectory() as out, contextlib.closing(choose(engine)) as chosen:
        result = up(asked, chosen, RunOptions(out=Path(out)))
        return Record(result.folder).history


def _stages(history: Sequence[Entry], fault: str) -> dict[str, FaultEvent]:
    return {e.stage: e for e in history if isinstance(e, FaultEvent) and e.id == fault}


def _percentile(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


if __name__ == "__main__":
    main()
