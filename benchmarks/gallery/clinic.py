"""Measure docs/gallery/formats.json: `python -m benchmarks.gallery.clinic [FORMAT...]`.

Each cell of the table is a run of its own, and of kills a sweep. What is stored of other formats
and ways stays. Then `python -m benchmarks.gallery runs/gallery formats` writes the
page.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import emulator
from benchmarks.gallery.formats import (
    CALLS,
    DISK,
    FORMATS,
    STORED,
    WAYS,
    Seen,
    applies,
    read,
    seen,
    stored,
)
from emulator.faults.kinds import FAULTS
from emulator.record.reader import Record
from emulator.results import Result
from emulator.search.points import Point, SweepResult

HOLD = 25
"""The step at which the program waits to be killed, after that save."""
IN_PLACE = 11
"""The step at which the version before it is kept, of a file that has one name."""
STEP_COST = "0.5"
"""Seconds of a step where the emulator has to be in time for the next save."""
ON_DISK: Mapping[str, Any] = {
    "shared_size": "64m",
    # It starts again once the disk is whole: only a save finds it broken.
    "restart.backoff": "30s",
}
"""What a scenario needs for a disk that is broken during a save."""
DISK_FOR = "15s"
"""From the step after the first save on; the second one comes in the middle of it."""
RunScenario = Callable[[str, dict[str, Any]], Result]
"""Runs a bundled scenario with keys of it changed."""
SweepScenario = Callable[[str, dict[str, Any]], SweepResult]
"""Kills its worker at each call of a save."""


def ways() -> Iterator[str]:
    """Yield what can be measured with the kinds of faults that there are; what takes long last."""
    quick_ones = [way for way in WAYS if way not in (CALLS, *DISK)]
    yield from (*quick_ones, *(DISK if "disk" in FAULTS else ()), CALLS)


def measure(name: str, way: str, run: RunScenario, sweep: SweepScenario) -> list[Seen]:
    """Return what comes back from a save of a format to which this is done."""
    if way != CALLS:
        return [_one(name, way, run)]
    swept = sweep(FORMATS[name].scenario, {"program.command": _command(name), "expect": {}})
    return [seen_in(point) for point in swept.points]


def seen_in(point: Point) -> Seen:
    """Return what one moment of a sweep showed."""
    outcome = point.outcome
    return Seen(outcome.what, outcome.resumed, outcome.why, point.moment.words)


def _one(name: str, way: str, run: RunScenario) -> Seen:
    held = ["--hold-at", str(HOLD)]
    if way == "between":
        return _run(name, [{"kill": "worker-0", "at": {"step": HOLD}}], run, held)
    if way in DISK:
        return _with_disk(name, way, run)
    at = HOLD
    if way == "stale" and not FORMATS[name].numbered:
        at, held = IN_PLACE, [*held, "--step-cost", STEP_COST]
    faults = [
        {"name": "broken", "checkpoint": way, "at": {"step": at}},
        {"kill": "worker-0", "at": {"after": "broken"}},
    ]
    return _run(name, faults, run, held)


def _with_disk(name: str, way: str, run: RunScenario) -> Seen:
    fault = {"disk": way, "on": "shared", "at": {"step": IN_PLACE}, "for": DISK_FOR}
    slow = ["--step-cost", STEP_COST, "--end-at", str(HOLD)]
    return _run(name, [fault], lambda of, keys: run(of, {**keys, **ON_DISK}), slow)


def _run(
    name: str, faults: list[dict[str, Any]], run: RunScenario, more: Sequence[str] = ()
) -> Seen:
    changed = {"program.command": _command(name, *more), "faults": faults, "expect": {}}
    result = run(FORMATS[name].scenario, changed)
    words = [line for lines in result.last_words.values() for line in lines]
    return seen(Record(result.folder).timeline, words)


def _command(name: str, *more: str) -> list[str]:
    program = f"{FORMATS[name].scenario.replace('-', '_')}.py"
    return ["python", program, "--format", name, *more]


def main() -> int:
    """Measure the formats that were named, or all; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=f"of {', '.join(FORMATS)}")
    parser.add_argument("--ways", nargs="+", choices=[*ways()], help="these alone")
    parser.add_argument("--missing", action="store_true", help="only what is not stored")
    parser.add_argument("--engine", default="docker", help="docker")
    parser.add_argument("--out", default="runs/formats", help="where run folders go")
    parser.add_argument("--warm", action="store_true", help="start tasks warm")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time (2)")
    given = parser.parse_args()
    lock = threading.Lock()

    def run(scenario: str, changed: dict[str, Any]) -> Result:
        return emulator.run(
            scenario,
            set=changed,
            engine=given.engine,
            out=given.out,
            warm=given.warm,
            progress=False,
        )

    def sweep(scenario: str, changed: dict[str, Any]) -> SweepResult:
        return emulator.sweep(
            scenario,
            fault={"kill": "worker-0"},
            set=changed,
            engine=given.engine,
            out=given.out,
        )

    def fill(cell: tuple[str, str]) -> bool:
        name, way = cell
        try:
            found = measure(name, way, run, sweep)
        except Exception as error:
            print(f"{name} {way}: {error!r}", file=sys.stderr, flush=True)
            return False
        with lock:
            results = read()  # others may measure as well
            results.setdefault(name, {})[way] = found
            Path(STORED).write_text(stored(results), encoding="utf-8")
        print(name, way, [one.came_back for one in found], flush=True)
        return True

    known = read()
    cells = [
        (name, way)
        for way in given.ways or ways()
        for name in given.formats or FORMATS
        if applies(FORMATS[name], way) and not (given.missing and way in known.get(name, {}))
    ]
    with ThreadPoolExecutor(given.jobs) as pool:
        return 0 if all([*pool.map(fill, cells)]) else 1


if __name__ == "__main__":
    sys.exit(main())
