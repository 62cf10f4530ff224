"""Run the benchmarks that need no GPU, store their figures, and write docs/benchmarks.md's tables.

    make bench                                    # all of them, in about 20 minutes
    python -m benchmarks.bench startup lines      # some

Prints which figures got worse by more than a tenth since the last stored ones. Run it on a machine
that does nothing else.
"""

from __future__ import annotations

import argparse
import datetime
import os
from collections.abc import Callable, Mapping

from benchmarks import cold_start, commands, lines, parallel_suite, pods, startup
from benchmarks.figures import Figure, store, stored, worse

BENCHMARKS: Mapping[str, Callable[[], list[Figure]]] = {
    "commands": commands.measure,
    "startup": startup.measure,
    "scale": startup.measure_scale,
    "lines": lines.measure,
    "cold": cold_start.measure,
    "suite": parallel_suite.measure,
    "pods": pods.measure,
}
"""By the name of the table in docs/benchmarks.md."""


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    names = parser.parse_args().names or list(BENCHMARKS)
    if unknown := set(names) - BENCHMARKS.keys():
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    before = stored()
    slower: list[str] = []
    for name in names:
        load = os.getloadavg()[0]
        print(f"{name} (load {load:.1f} before it)", flush=True)
        figures = BENCHMARKS[name]()
        for one in figures:
            goal = "" if one.goal is None else f"goal {one.goal:g}"
            print(f"  {one.title:60} {one.value:9.3g} {one.unit:18} {goal}", flush=True)
        slower += worse(before, figures)
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        store(name, f"python -m benchmarks.bench {name}", date, figures)
    for text in slower:
        print(f"worse by more than a tenth: {text}")


if __name__ == "__main__":
    main()
