#!/usr/bin/env python3
"""Make a trace of preemptions at random times, as a process without memory makes them.

    python3 scripts/make_failure_trace.py --mtbf 12 --count 2 --down 2 'worker-1' > ladder.csv

The times between two preemptions are drawn from an exponential distribution, which is what the
formulas for checkpoint intervals of Young (1974) and Daly (2006) assume. The same seed gives the
same trace.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator


def rows(
    targets: list[str], *, mtbf: float, least: float, count: int, down: float, seed: int
) -> Iterator[tuple[float, str, float]]:
    """Yield time, target and time without the machine, in seconds.

    `mtbf` is the mean time between two preemptions, `least` the shortest.
    """
    chance = random.Random(seed)
    time = 0.0
    for _ in range(count):
        yield time, chance.choice(targets), down
        time += least + chance.expovariate(1 / (mtbf - least))


def main() -> None:
    """Write the trace to stdout."""
    parser = argparse.ArgumentParser(description="Make a trace of preemptions at random times.")
    parser.add_argument("targets", nargs="+", help="tasks or globs; each preemption hits one")
    parser.add_argument("--mtbf", type=float, required=True, help="mean seconds between two")
    parser.add_argument("--least", type=float, default=0, help="least seconds between two (0)")
    parser.add_argument("--count", type=int, required=True, help="number of preemptions")
    parser.add_argument("--down", type=float, required=True, help="seconds without the machine")
    parser.add_argument("--seed", type=int, default=0, help="0")
    options = parser.parse_args()
    given = vars(options)
    print(f"# {options.count} preemptions, {options.mtbf:g} s apart in the mean, at least")
    print(
        f"# {options.least:g} s; made by make_failure_trace.py with seed {options.seed}. Seconds."
    )
    print("time,target,down")
    for time, target, down in rows(**given):
        print(f"{time:.1f},{target},{down:g}")


if __name__ == "__main__":
    main()
