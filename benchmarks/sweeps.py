"""Sweep programs whose saves are known to be right or wrong, again and again, with no option.

    python benchmarks/sweeps.py planted --engine process --rounds 10
    python benchmarks/sweeps.py sound --engine docker

`planted` sweeps programs with a bug that a run without a fault does not show
(tests/search/planted/train.py, scenarios/sweeps), and their mended versions: each bug has to get
its word in each round, and a mended version nothing but `passed`. `sound` sweeps the bundled
scenarios that save, and prints why where a moment did not pass. Exits with 1 where a planted bug
got another word than its own, or where a moment of a sound program is called `failed`, `lost work`
or `silently different`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

PLANTED = Path(__file__).parent.parent / "tests" / "search" / "planted" / "train.py"
WRONG = ("lost work", "failed", "silently different")
BUGS = {
    "two-files": {"silently different", "lost work"},
    "newest": {"silently different"},
    "tracker": {"lost work"},
    "no-optimizer": {"silently different"},
    "data-order": {"silently different"},
    "counter": {"silently different"},
}
"""The words that a bug may have beside `passed`; each has to be there."""
OF_SCENARIOS = {"in-place": {"silently different"}, "newest": {"silently different"}}
OF_SCENARIOS |= {"tracker": {"lost work"}}
SOUND = (
    *("mended", "mended-tensorflow", "ladder-checkpoint", "mwms-ring", "mirrored"),
    *("central-storage", "layer-placement-preemption", "pipeline-preemption"),
    *("tensor-parallel-preemption", "fsdp", "jax-preemption", "elastic-torchrun"),
    *("ladder-torchrun", "parameter-server", "ps-partitioned", "disk-full"),
)
"""Bundled scenarios that save more than once, end by themselves, and are right. (With Keras'
BackupAndRestore and Lightning's last.ckpt, in the middle of an epoch, a job goes on with other
data.)"""
OF_FORMATS = {
    **dict.fromkeys(("torch-rename", "dcp-steps", "lightning-whole", "trainer-complete"), "torch"),
    **{"manager": "tensorflow", "orbax": "jax"},
}
"""Formats of scenarios/formats of which nothing is to be mended."""


def swept(words: list[str], engine: str, cwd: Path) -> tuple[dict[str, Any], float]:
    """Sweep once; return what `--json` gives, or what the command said, and the seconds."""
    began = time.monotonic()
    command = [sys.executable, "-m", "emulator", "sweep", f"--engine={engine}", "--json", *words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    took = time.monotonic() - began
    if done.stdout:
        return json.loads(done.stdout), took
    return {"counts": {}, "points": [], "said": done.stderr[-1500:], "code": done.returncode}, took


def words_of(found: dict[str, Any]) -> set[str]:
    """Return the words that a sweep gave."""
    return {word for word, count in found["counts"].items() if count}


def planted(engine: str, rounds: int, names: list[str], folder: Path) -> int:
    """Sweep what is planted, and what is mended; return how many sweeps said something wrong."""
    shutil.copy(PLANTED, folder)
    cases: list[tuple[str, list[str], set[str]]] = []
    for bug in (*BUGS, ""):
        command = ["--", "python", "train.py", "--out", "{out}", *(["--bug", bug] if bug else [])]
        cases.append((bug or "no bug", command, BUGS.get(bug, {"passed"})))
    for saves, words in OF_SCENARIOS.items():
        for mended in ([], ["--mended"]):
            inner = ", ".join(["python", "saves.py", "--saves", saves, *mended])
            asked = [f"saves-{saves}", f"--set=program.command=[{inner}]"]
            name = f"saves-{saves}{', mended' if mended else ''}"
            cases.append((name, asked, {"passed"} if mended else words))
    wrong = 0
    for name, asked, words in cases:
        if names and name.split(",")[0] not in names:
            continue
        total: Counter[str] = Counter()
        right, seconds = 0, 0.0
        for _ in range(rounds):
            found, took = swept(asked, engine, folder)
            seconds += took
            seen = words_of(found)
            right += (good := words <= seen <= words | {"passed"})
            total.update(found["counts"])
            if not good:
                print(f"  {name}: {seen or found}", *notes_of(found), sep="\n    ", flush=True)
        wrong += rounds - right
        counted = ", ".join(f"{word} {count}" for word, count in total.items() if count)
        print(f"| {name} | {right} of {rounds} | {counted} | {seconds:.0f} s |", flush=True)
    return wrong


def notes_of(found: dict[str, Any]) -> list[str]:
    """Return what a sweep said of the moments that did not pass."""
    points = [one for one in found["points"] if one["outcome"] != "passed"]
    return [f"{one['outcome']}: {one['moment']}: {one['why']}" for one in points]


def sound(engine: str, names: list[str], options: list[str], folder: Path) -> int:
    """Sweep the scenarios, and print each moment that did not pass."""
    wrong = 0
    for name in names:
        asked = [name]
        if (framework := OF_FORMATS.get(name)) is not None:
            command = f"[python, formats_{framework}.py, --format, {name}]"
            asked = [f"formats-{framework}", f"--set=program.command={command}", "--set=expect={}"]
        found, took = swept([*asked, *options], engine, folder)
        wrong += bool(words_of(found) & {*WRONG})
        counted = ", ".join(f"{word} {count}" for word, count in found["counts"].items() if count)
        print(f"| {name} | {counted or found} | {took:.0f} s |", flush=True)
        print(*notes_of(found), *found.get("not_compared", []), sep="\n    ", flush=True)
    return wrong


def main() -> None:
    """Sweep, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["planted", "sound"])
    parser.add_argument("--engine", choices=["docker", "process"], default="process")
    parser.add_argument("--rounds", type=int, default=10, help="Of `planted`.")
    parser.add_argument("--max-moments", type=int, default=4, help="Of `sound`.")
    parser.add_argument("--python", help="Of `sound`, as processes: one with the frameworks.")
    parser.add_argument("names", nargs="*", help="These alone.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        if options.what == "planted":
            wrong = planted(options.engine, options.rounds, options.names, Path(made))
        else:
            more = [f"--max-moments={options.max_moments}"]
            more += [f"--python={options.python}"] if options.python else []
            wrong = sound(options.engine, options.names or [*SOUND, *OF_FORMATS], more, Path(made))
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
