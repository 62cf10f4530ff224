#!/usr/bin/env python3
"""Make a trace of preemptions from published statistics of spot machines.

    python3 scripts/make_spot_trace.py > scenarios/traces/gcp-preemptible.csv

The statistics are quantiles of the 1442 lifetimes of Google preemptible VMs (2019) that Kadupitiya,
Jadhao and Sharma measured for "Modeling The Temporally Constrained Preemptions of Transient Cloud
VMs" (HPDC 2020, arXiv 1911.05160; the data is in github.com/kadupitiya/goog-preemption-data), and
of the time that inserting a machine took there. A node's life is drawn from the first, the time
until it is replaced from the second.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence

LIFETIMES = (
    0.01, 0.04, 0.08, 0.12, 0.25, 0.36, 0.59, 0.79, 1.08, 1.36, 1.86,
    2.77, 4.38, 9.15, 13.64, 21.94, 24.06, 24.14, 24.24, 24.51, 24.83,
)  # fmt: skip
"""Hours, at every 5 %: most lives are short, and who lives for a day is preempted by rule."""
INSERTIONS = (5.0, 13.2, 20.5, 28.7, 46.6)
"""Seconds, at 5, 25, 50, 75 and 95 %."""
NODES, HOURS, SEED = 4, 12, 7


def draw(chance: random.Random, quantiles: Sequence[float]) -> float:
    """Draw from a distribution that is given by evenly spaced quantiles."""
    place = chance.random() * (len(quantiles) - 1)
    low = int(place)
    return quantiles[low] + (place - low) * (quantiles[low + 1] - quantiles[low])


def main() -> None:
    """Write the trace to stdout."""
    chance = random.Random(SEED)
    rows: list[tuple[float, str, float]] = []
    for node in range(NODES):
        now = 0.0
        while True:
            now += draw(chance, LIFETIMES) * 3600
            if now > HOURS * 3600:
                break
            down = draw(chance, INSERTIONS)
            rows.append((now, f"worker-{node}", down))
            now += down
    out = sys.stdout
    out.write(
        f"# {NODES} preemptible machines over {HOURS} hours; made by make_spot_trace.py from\n"
    )
    out.write("# the lifetimes published with arXiv 1911.05160 (HPDC 2020). Seconds.\n")
    out.write("time,target,down\n")
    for time, target, down in sorted(rows):
        out.write(f"{time:.0f},{target},{down:.1f}\n")


if __name__ == "__main__":
    main()
