"""Measure docs/gallery/formats.json: `python -m benchmarks.gallery.clinic [FORMAT...]`.

Each cell of the table is a run of its own, and of kills one for each call of a save. What is stored
of other formats and ways stays. Then `python -m benchmarks.gallery runs/gallery formats` writes the
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

FIRST, KILLED = 10, 20
"""The steps of the first save, and of the one that is killed: it has a whole one before it."""
HOLD = 25
"""The step at which the program waits to be killed, after that save."""
IN_PLACE = 11
"""The step at which the version before it is kept, of a file that has one name."""
STEP_COST = "0.5"
"""Seconds of a step where the emulator has to be in time for the next save."""
ON_DISK: Mapping[str, Any] = {
    "volumes": {"shared": {"size": "64m"}},
    # It starts again once the disk is whole: only a save finds it broken.
    "restart.backoff": "30s",
}
"""What a scenario needs for a disk that is broken during a save."""
DISK_FOR = "15s"
"""From the step after the first save on; the second one comes in the middle of it."""
MOST = 200
"""Calls of a kind before the save that is killed has to come."""

RunScenario = Callable[[str, dict[str, Any]], Result]
"""Runs a bundled scenario with keys of it changed."""


def ways() -> Iterator[str]:
    """Yield what can be measured with the kinds of faults that there are; what takes long last."""
    quick_ones = [way for way in WAYS if way not in (*CALLS, *DISK)]
    yield from (*quick_ones, *(DISK if "disk" in FAULTS else ()), *reversed(CALLS))


def measure(name: str, way: str, run: RunScenario) -> list[Seen]:
    """Return what comes back from a save of a format to which this is done."""
    return killed_at_each(name, way, run) if way in CALLS else [_one(name, way, run)]


def killed_at_each(name: str, call: str, run: RunScenario) -> list[Seen]:
    """Kill the second save before each of its calls of a kind.

    The calls are counted from the start, so the first one of this save is looked for: saves of one
    format make the same calls. Nothing is returned if a save makes none.
    """
    known: dict[int, Seen] = {}

    def at(number: int) -> Seen:
        if number not in known:
            kill = {"kill": "worker-0", "at": {call: number, "of": FORMATS[name].files}}
            known[number] = _run(name, [kill], run)
        return known[number]

    low, high = 0, 1
    while _place(at(high)) < KILLED and high < MOST:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _place(at(middle)) < KILLED else (low, middle)
    found = []
    while _place(at(high)) == KILLED:
        found.append(at(high))
        high += 1
    return found


def _place(one: Seen) -> float:
    """Return the step of the save in which it was killed; beyond all if it never was."""
    return float("inf") if not one.at else one.save or 0


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
    scenario = FORMATS[name].scenario
    program = f"{scenario.replace('-', '_')}.py"
    changed = {
        "program.command": ["python", program, "--format", name, *more],
        "faults": faults,
        "expect": {},
    }
    result = run(scenario, changed)
    words = [line for lines in result.last_words.values() for line in lines]
    return seen(Record(result.folder).timeline, words)


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
    results, lock = read(), threading.Lock()

    def run(scenario: str, changed: dict[str, Any]) -> Result:
        return emulator.run(
            scenario,
            set=changed,
            engine=given.engine,
            out=given.out,
            warm=given.warm,
            progress=False,
        )

    def fill(cell: tuple[str, str]) -> bool:
        name, way = cell
        try:
            found = measure(name, way, run)
        except Exception as error:
            print(f"{name} {way}: {error!r}", file=sys.stderr, flush=True)
            return False
        with lock:
            results.setdefault(name, {})[way] = found
            Path(STORED).write_text(stored(results), encoding="utf-8")
        print(name, way, [one.came_back for one in found], flush=True)
        return True

    cells = [
        (name, way)
        for way in given.ways or ways()
        for name in given.formats or FORMATS
        if applies(FORMATS[name], way) and not (given.missing and way in results.get(name, {}))
    ]
    with ThreadPoolExecutor(given.jobs) as pool:
        return 0 if all([*pool.map(fill, cells)]) else 1


if __name__ == "__main__":
    sys.exit(main())
