"""Measure docs/clinics.json, and write docs/clinics.md: `python -m benchmarks.clinics [CLINIC...]`.

Each cell is a run of what `emulate init --from CLINIC` writes: one preset, one way to react.
What is stored of other cells stays. `--page` writes the page alone, from what is stored.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import emulator
from benchmarks.gallery.pages import filled, markdown
from emulator.record.events import Phase
from emulator.record.reader import Record
from emulator.record.timeline import Timeline
from emulator.results import Result
from emulator.runtime.bundled import ROOT
from emulator.scenario.loader import load

DOCS = Path(__file__).parents[1] / "docs"
STORED, PAGE = DOCS / "clinics.json", DOCS / "clinics.md"
LIKE = "faults.0.like"


@dataclass(frozen=True)
class Clinic:
    """One starter, and the ways to react that are compared."""

    title: str
    ways: Mapping[str, Mapping[str, Any]]
    """Keys of its scenario that are changed, by the title of the way."""


CLINICS: Mapping[str, Clinic] = {
    "plain": Clinic(
        "Plain Python",
        {
            "no handler": {"program.env.REACT": "nothing"},
            "handler of SIGTERM": {"program.env.REACT": "signal"},
            "and asks the metadata servers": {"program.env.REACT": "notice"},
        },
    ),
    "tensorflow-backup": Clinic("Keras `BackupAndRestore`", {"a backup every 50 steps": {}}),
    "tensorflow-preemption-handler": Clinic(
        "TensorFlow `PreemptionCheckpointHandler`",
        {
            "as its documentation has it": {},
            "and a save every 50 steps": {"program.env.SAVE_EVERY": "50"},
        },
    ),
    "torchrun": Clinic(
        "torchrun, DistributedDataParallel and a DataLoader",
        {
            "handler of SIGTERM": {},
            "and DataLoader processes that ignore it": {"program.env.LOADER": "ignores"},
        },
    ),
    "lightning-slurm": Clinic(
        "Lightning in a Slurm job",
        {
            "SIGTERM": {"faults.0.signal": "SIGTERM"},
            "`--signal=SIGUSR1@...`": {"faults.0.signal": "SIGUSR1"},
        },
    ),
    "transformers-jit": Clinic(
        "Transformers' Trainer",
        {
            "a save every 50 steps": {"program.env.JIT": "0"},
            "and `enable_jit_checkpoint`": {"program.env.JIT": "1"},
        },
    ),
    "jax-orbax": Clinic("JAX and Orbax `CheckpointManager`", {"a save every 50 steps": {}}),
}
"""By the name that `emulate init --from` has, in the order of the page."""


def scenario_of(name: str) -> Path:
    """Return the scenario of a clinic."""
    return ROOT / "images" / "starters" / f"from-{name}" / "scenario.yaml"


def presets(name: str) -> Sequence[str]:
    """Return the presets of a clinic, as its scenario lists them."""
    return [str(one) for one in load(scenario_of(name)).parametrize[LIKE]]


# --- What a run showed ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What one run showed. Times are seconds since the notice; None: unknown, or never."""

    outcome: str
    """How the job ended."""
    resumed: int | None = None
    """The step from which it went on; 0: from scratch; None: it did not."""
    lost: int | None = None
    """Steps that were trained again."""
    saved: float | None = None
    """Until a save was whole, before the end of the task."""
    left: float | None = None
    """Of the grace period, after that."""
    saving: float | None = None
    """For how long a save had run that the end cut off."""
    ended: float | None = None
    """Until the task had ended."""
    exit_code: int | None = None
    killed: bool = False
    """It still ran when the grace period was over."""
    ran_on: Sequence[str] | None = None
    """The processes that still ran then."""
    notice: bool = True
    """There was one."""
    words: str = ""
    """Why it is unknown, or why the job failed."""


def seen(result: Result) -> Seen:
    """Return what a finished run showed of its one preemption."""
    timeline = Record(result.folder).timeline
    applied = [one for one in result.summary["faults"] if one["status"] == "applied"]
    if not applied:
        reasons = [one["reason"] for one in result.summary["faults"]]
        return Seen("unknown", words=reasons[0] if reasons else "there was no fault")
    found = next(iter(result.summary["notices"]), None)
    noticed: Mapping[str, Any] = found or {}
    return Seen(
        result.outcome,
        resumed=resumed_from(timeline),
        lost=result.lost_steps,
        saved=noticed.get("saved_after"),
        left=noticed.get("left"),
        saving=noticed.get("saving"),
        ended=noticed.get("ended_after"),
        exit_code=applied[0]["exit_code"],
        killed=bool(applied[0]["killed"]),
        ran_on=noticed.get("at_the_kill"),
        notice=found is not None,
        words="" if result.outcome == "succeeded" else result.summary["reason"],
    )


def resumed_from(timeline: Timeline) -> int | None:
    """Return the step from which the first start after the fault went on; 0: from scratch."""
    later = [life for task in timeline.tasks.values() for life in task.incarnations[1:]]
    restored = [
        (one.t, one.step)
        for life in later
        for one in life.reports
        if isinstance(one, Phase) and (one.phase, one.state) == ("restore", "end") and one.step
    ]
    if restored:
        return min(restored)[1]
    return 0 if any(life.steps for life in later) else None


# --- What is stored -------------------------------------------------------------------------------

Results = dict[str, dict[str, dict[str, Seen]]]
"""By clinic, way and preset."""


def read(path: Path = STORED) -> Results:
    """Return what was measured."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {
        name: {
            way: {preset: Seen(**one) for preset, one in runs.items()} for way, runs in ways.items()
        }
        for name, ways in found.items()
    }


def stored(results: Results) -> str:
    """Return the text of the file, in the order of the page."""
    ordered = {
        name: {
            way: {
                preset: asdict(results[name][way][preset])
                for preset in presets(name)
                if preset in results[name][way]
            }
            for way in clinic.ways
            if way in results[name]
        }
        for name, clinic in CLINICS.items()
        if name in results
    }
    return json.dumps(ordered, indent=1) + "\n"


# --- The page -------------------------------------------------------------------------------------

NOT_MEASURED = "not measured"


def text(one: Seen | None) -> str:
    """Return a cell: what was lost, and whether there was a save after the notice."""
    if one is None:
        return NOT_MEASURED
    if one.outcome == "unknown":
        return f"unknown: {one.words}"
    if one.outcome != "succeeded":
        return f"**the job {one.outcome}**: {one.words}"
    where = "from scratch" if one.resumed == 0 else f"from step {one.resumed}"
    lost = "unknown" if one.lost is None else f"{one.lost}"
    return f"**{lost} lost**, {where}; {saved(one)}"


def saved(one: Seen) -> str:
    """Return whether there was a save between notice and end, in words."""
    if not one.notice:
        return "no notice"
    if one.saved is None and one.saving is not None:
        return f"a save was cut off after {one.saving:.1f} s"
    if one.saved is None:
        return "no save"
    left = "" if one.left is None else f", {one.left:.1f} s left"
    return f"saved after {one.saved:.1f} s{left}"


def ran_on(one: Seen) -> str:
    """Return what still ran when the grace period was over."""
    if not one.killed:
        return f"ended by itself, exit {one.exit_code}"
    if one.ran_on is None:
        return "killed"
    return f"killed: {', '.join(one.ran_on)}" if one.ran_on else "killed"


def table(results: Results, name: str) -> str:
    """Return a row for each preset of a clinic, and a column for each way."""
    ways = CLINICS[name].ways
    found = results.get(name, {})
    rows = [
        [f"`{preset}`", *(text(found.get(way, {}).get(preset)) for way in ways)]
        for preset in presets(name)
    ]
    return markdown(["`like`", *ways], rows)


def ends(results: Results, name: str) -> str:
    """Return how the task ended, for each run that was measured."""
    ways = CLINICS[name].ways
    found = results.get(name, {})
    rows = [
        [
            f"`{preset}`",
            *(
                ran_on(one) if (one := found.get(way, {}).get(preset)) else NOT_MEASURED
                for way in ways
            ),
        ]
        for preset in presets(name)
        if any(preset in runs for runs in found.values())
    ]
    return markdown(["`like`", *ways], rows) if rows else ""


def blocks(results: Results) -> dict[str, str]:
    """Return the tables of the page."""
    tables = {name: table(results, name) for name in CLINICS}
    return tables | {f"{name} ends": ends(results, name) for name in CLINICS}


# --- Measuring ------------------------------------------------------------------------------------


def cells(
    names: Sequence[str], results: Results, only: Sequence[str], *, missing: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield the cells to measure: clinic, way, preset."""
    for name in names or CLINICS:
        for preset in presets(name):
            for way in CLINICS[name].ways:
                is_there = preset in results.get(name, {}).get(way, {})
                if (not only or preset in only) and not (missing and is_there):
                    yield name, way, preset


def main() -> int:
    """Measure what was named, or all, and write the page; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clinics", nargs="*", metavar="CLINIC", help=f"of {', '.join(CLINICS)}")
    parser.add_argument("--presets", nargs="+", default=[], help="these alone")
    parser.add_argument("--missing", action="store_true", help="only what is not stored")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    parser.add_argument("--engine", default="docker", help="docker")
    parser.add_argument("--out", default="runs/clinics", help="where run folders go")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time (2)")
    given = parser.parse_args()
    lock = threading.Lock()

    def fill(cell: tuple[str, str, str]) -> bool:
        name, way, preset = cell
        changed = {**CLINICS[name].ways[way], LIKE: preset, "expect": {}}
        try:
            one = seen(
                emulator.run(
                    scenario_of(name),
                    set=changed,
                    engine=given.engine,
                    out=given.out,
                    progress=False,
                )
            )
        except Exception as error:
            print(f"{cell}: {error!r}", file=sys.stderr, flush=True)
            return False
        with lock:
            results = read()
            results.setdefault(name, {}).setdefault(way, {})[preset] = one
            STORED.write_text(stored(results), encoding="utf-8")
        print(name, way, preset, text(one), flush=True)
        return True

    todo = (
        [] if given.page else [*cells(given.clinics, read(), given.presets, missing=given.missing)]
    )
    with ThreadPoolExecutor(given.jobs) as pool:
        done = all([*pool.map(fill, todo)])
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(page, [], blocks(read())), encoding="utf-8")
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
