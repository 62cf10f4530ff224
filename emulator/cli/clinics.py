"""Clinics: programs with a framework's own way of saving, and the presets that matter to them.

Each is a folder `images/starters/from-NAME` with a program and a scenario, which has its presets in
`parametrize`. docs/clinics.md says what each survives.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from emulator.errors import UsageError
from emulator.runtime.bundled import ROOT, SCENARIO

PREFIX = "from-"
PYTEST = """\
[pytest]
# Every *.yaml in this folder is a test, once for each preset that it lists.
emulator_scenarios = .
timeout = 1200
"""


def names() -> list[str]:
    """Return the names of all clinics."""
    return sorted(
        path.name.removeprefix(PREFIX) for path in (ROOT / "images/starters").glob(f"{PREFIX}*")
    )


def folder_of(name: str) -> Path:
    """Return the folder of a clinic. Raises UsageError if there is none of this name."""
    if name not in names():
        raise UsageError(f"There is no clinic {name}.", f"There are {', '.join(names())}.")
    return ROOT / "images/starters" / f"{PREFIX}{name}"


def next_steps(folder: Path) -> Iterator[str]:
    """Yield what to try with a clinic that was written to a folder, in lines."""
    from emulator.faults.spec import FaultSpec
    from emulator.scenario.loader import load

    scenario = folder / SCENARIO
    read = load(scenario)
    grid = read.parametrize
    varied = " ".join(
        f"--vary {key}={','.join(map(str, values))}" for key, values in sorted(grid.items())
    )
    task = next(one.target for one in read.faults if isinstance(one, FaultSpec))
    yield f"now try: emulate up {scenario}"
    yield f"all of its platforms, as a table: emulate up {scenario} {varied}"
    yield f"the same as tests: pytest {folder}"
    yield (
        f"killed before every call of a save: emulate sweep {scenario} "
        f"--fault '{{kill: {task}}}' --at 'every write of a save, each rename' "
        "--set 'expect={outcome: succeeded}'"
    )
