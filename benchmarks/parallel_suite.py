#!/usr/bin/env python3
"""Run a suite of twelve scenarios one after the other, then four at a time, on the same machine.

    python benchmarks/parallel_suite.py --rounds 1

Prints the wall time of both, their ratio, and the verdicts. Exits with 1 where a scenario had
another verdict in parallel than alone. Each way is a whole pytest: its start counts as well.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure

SUITE = Path(__file__).parent / "suite"


def run(workers: int, engine: str, folder: Path) -> tuple[float, dict[str, str]]:
    """Return the wall time of the suite in seconds, and each test's outcome with its verdict."""
    junit = folder / "junit.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(SUITE)]
    command += [f"--junitxml={junit}", f"--emulator-out={folder / 'runs'}", "-n", str(workers)]
    command += ["-o", f"emulator_scenarios={SUITE}", f"--emulator-engine={engine}"]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    took = time.monotonic() - began
    if not junit.is_file():
        sys.exit(f"pytest left no report:\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
    cases = ET.parse(junit).getroot().iter("testcase")
    return took, dict(sorted(outcome(case) for case in cases))


def outcome(case: ET.Element) -> tuple[str, str]:
    """Return a test's name, and how it ended: pytest's outcome and the run's verdict."""
    children = {child.tag for child in case}
    ended = next((tag for tag in ("error", "failure", "skipped") if tag in children), "passed")
    told = {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
    return case.attrib["name"], f"{ended}, verdict {told.get('verdict', 'none')}"


def measure() -> list[Figure]:
    """Return the ratio of one round. Raises SystemExit where a verdict differs."""
    with tempfile.TemporaryDirectory() as place:
        alone, verdicts = run(0, "docker", Path(place, "alone"))
        parallel, others = run(4, "docker", Path(place, "parallel"))
    if verdicts != others:
        sys.exit(f"verdicts differ: {verdicts} alone, {others} in parallel")
    return [
        Figure("suite.alone", "12 scenarios, one by one", alone, "s"),
        Figure("suite.parallel", "the same with `-n 4`", parallel, "s"),
        Figure("suite.ratio", "ratio", parallel / alone, "of one by one", 0.5),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--engine", default="docker")
    chosen = parser.parse_args()
    ratios, same = [], True
    for number in range(1, chosen.rounds + 1):
        with tempfile.TemporaryDirectory() as place:
            alone, verdicts = run(0, chosen.engine, Path(place, "alone"))
            parallel, others = run(chosen.workers, chosen.engine, Path(place, "parallel"))
        ratios.append(parallel / alone)
        print(
            f"round {number}: {len(verdicts)} scenarios took {alone:.1f} s one by one and "
            f"{parallel:.1f} s with -n {chosen.workers}: {parallel / alone:.2f}",
            flush=True,
        )
        for name in sorted(verdicts.keys() | others.keys()):
            one, other = verdicts.get(name, "missing"), others.get(name, "missing")
            same = same and one == other
            print(f"  {name:<32} {one}" + ("" if one == other else f"; in parallel {other}"))
    print(f"ratio (median of {chosen.rounds}): {median(ratios):.2f}")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
