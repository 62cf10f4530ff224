"""A run folder as lists, logs and removal need it: its run, its results, its logs.

`reader.py` reads everything else. This module stays without the models of plan and events: most of
the time of a short command is spent on imports.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from emulator.errors import RecordError, UsageError, shown
from emulator.record.lock import is_live
from emulator.record.task_log import Printed, beginning, end_of, end_of_log, printed
from emulator.record.version import check_format
from emulator.validation.run_id import is_run_id
from emulator.validation.stored import read_stored, stored_json

GIVEN = ("manifest.yaml", "manifest.json", "given.yaml", "faults.yaml")
"""Beside `scenario.yaml`: what that was made from, as it was given. No other name is written."""
SWEEP = "sweep.json"
"""What a sweep has asked for, in its folder, in which its runs are."""
VERDICTS = ("ok", "failed", "unknown")
TAIL = 256 * 1024
"""Bytes of a log in which the reason of a failure is looked for."""

SHOWN = 8
"""Run ids in a message about several, at most."""
HISTORY_TAIL = 16 * 1024
"""Bytes of a history in which its last events are."""


class AmbiguousRun(UsageError):
    """A name fits several runs."""


@dataclass(frozen=True)
class Outline:
    """What identifies a run, from its plan."""

    run_id: str
    engine: str
    scenario: str
    """The scenario's name."""
    variant: str
    tasks: tuple[str, ...]
    """The names of its tasks."""
    helpers: tuple[str, ...] = ()
    """The names of its helpers."""
    warm: str = ""
    """The warm cluster that it used; empty if it started cold."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run, finished or not."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return the record in `path`; raises UsageError if there is none."""
        if not (path / "plan.json").is_file():
            raise UsageError(
                f"{path} is no run folder: it has no plan.json.", "`emulate ps --all` lists runs."
            )
        return cls(path)

    @classmethod
    def find(cls, name: str, out: Path, *, live: bool = False) -> Self:
        """Return the run that `name` means in the folder `out`.

        It is an id, the beginning of one, a folder, `last`, or the name of a scenario, whose latest
        run is meant; with `live` the latest that is under way, if any is. Raises UsageError if
        there is none, and AmbiguousRun if several ids begin so.
        """
        with contextlib.suppress(ValueError):  # no path has a NUL byte
            if Path(name, "plan.json").is_file():
                return cls(Path(name).resolve())
        runs = runs_in(out)
        if name == "last" and not runs:
            raise UsageError(
                f"There is no run in {out}.", "`emulate up` makes one; --out names a folder."
            )
        exact = [run for run in runs if run.run_id == name and name != "last"]
        under_way = [run for run in runs if run.live] if live and not exact else []
        found = _latest(name, under_way) or _latest(name, exact or runs)
        return cls((found or _beginning_with(name, runs, out)).path)

    @property
    def run_id(self) -> str:
        """The folder's name is the run's."""
        return self.path.name

    def is_of(self, scenario: str) -> bool:
        """Whether it is a run of the scenario of that name; False if its plan can't be read."""
        with contextlib.suppress(RecordError):
            return self.outline.scenario == scenario
        return False

    def check_name(self) -> None:
        """Raise UsageError if the folder was renamed or copied since its run.

        Such a folder can be read. But resources are found by run id when a run is removed or taken
        over: they may belong to another run by now.
        """
        if self.outline.run_id != self.run_id:
            raise UsageError(
                f"{self.path} holds the record of {self.outline.run_id} under another name.",
                f"Give the folder the name {self.outline.run_id} to do this.",
            )

    @cached_property
    def outline(self) -> Outline:
        """What identifies the run.

        Raises RecordError if its plan can't be read, or is of another format.
        """
        try:
            plan = check_format(stored_json(read_stored(self.path / "plan.json")), self.path)
            return Outline(
                run_id=str(plan["run_id"]),
                engine=str(plan["engine"]),
                scenario=str(plan["scenario"]["name"]),
                variant=str(plan["variant"]),
                tasks=tuple(str(task["name"]) for task in plan["tasks"]),
                helpers=tuple(str(one["name"]) for one in plan.get("helpers", ())),
                warm=str(plan["warm"]["cluster"]) if plan.get("warm") else "",
            )
        except FileNotFoundError as error:
            raise no_plan(error) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise other_version(self.path, f"{type(error).__name__}: {error}") from None

    def log(self, task: str) -> list[str]:
        """Return what the task printed."""
        lines = printed(self.path / "logs" / f"{task}.log")
        return [one for line in lines for one in line.text.splitlines() or [""]]

    def printed(
        self, tasks: Sequence[str], *, last: int | None = None, since: float | None = None
    ) -> Iterator[Printed]:
        """Yield what tasks printed, in the order of time.

        `last`: no more than so many lines of each; `since`: none that was printed before that time,
        in seconds since 1970.
        """
        logs = [self.path / "logs" / f"{task}.log" for task in tasks]
        lines = [printed(log, beginning(log, last=last, since=since)) for log in logs]
        return heapq.merge(*lines, key=lambda line: line.wall)

    def tail(self, task: str) -> list[str]:
        """Return the last lines that the task printed: those in the last TAIL bytes of its log."""
        return end_of_log(self.path / "logs" / f"{task}.log", TAIL)

    @property
    def was_removed(self) -> bool:
        """Whether the run itself has removed what it made: nothing of it is left in the engine."""
        for line in reversed(end_of(self.path / "history.jsonl", HISTORY_TAIL)):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                if stored_json(line.encode())["event"] == "removed":
                    return True
        return False

    def result(self, name: str) -> dict[str, Any] | None:
        """Return a result file; None if the run has not written it yet."""
        try:
            value: dict[str, Any] = stored_json(read_stored(self.path / name))
        except (FileNotFoundError, RecordError, ValueError):
            return None
        return value

    @property
    def summary(self) -> dict[str, Any] | None:
        """The summary; None if the run has not written it yet.

        Raises RecordError if it is of another format, or not as a run writes it.
        """
        path = self.path / "summary.json"
        try:
            return _checked(check_format(stored_json(read_stored(path)), self.path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise RecordError(f"Can't read {path}: {error}.") from None

    @property
    def live(self) -> bool:
        """Whether it has a supervisor now."""
        return is_live(self.path)


def runs_in(folder: Path) -> list[RunFolder]:
    """Return the runs in a folder, oldest first; other folders are left out."""
    plans = [plan for plan in folder.glob("*/plan.json") if is_run_id(plan.parent.name)]
    return [RunFolder(plan.parent) for plan in sorted(plans, key=lambda p: p.stat().st_mtime)]


def all_runs_in(folder: Path) -> list[RunFolder]:
    """Return the runs in a folder, and those of sweeps in it; other folders are left out."""
    sweeps = sorted(state.parent for state in folder.glob(f"*/{SWEEP}"))
    of_sweeps = (runs_in(one) for one in sweeps if is_run_id(one.name) and not one.is_symlink())
    return [*runs_in(folder), *(run for runs in of_sweeps for run in runs)]


def _latest(name: str, runs: Sequence[RunFolder]) -> RunFolder | None:
    """Return the latest run that has that id or is of that scenario, or of all for `last`."""
    newest = reversed(runs)
    return next((r for r in newest if name in ("last", r.run_id) or r.is_of(name)), None)


def _beginning_with(name: str, runs: Sequence[RunFolder], out: Path) -> RunFolder:
    """Return the one run whose id begins so. Raises UsageError, AmbiguousRun.

    `begin…end` is an id as a narrow terminal shows it.
    """
    begin, _, end = name.partition("…")
    ids = [run.run_id for run in reversed(runs)]
    matching = [one for one in ids if one.startswith(begin) and one.endswith(end)]
    if not matching:
        raise UsageError(
            f"{name} is no run in {out}.",
            "`emulate runs` lists them; --out names another folder.",
        )
    if len(matching) > 1:
        rest = f" and {len(matching) - SHOWN} more" if len(matching) > SHOWN else ""
        raise AmbiguousRun(
            f"{name} fits several runs: {', '.join(matching[:SHOWN])}{rest}.",
            "Write more of its id; `last` is the latest run.",
        )
    return next(run for run in runs if run.run_id == matching[0])


def _checked(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return a summary whose values that lists need are texts. Raises ValueError."""
    for key in ("scenario", "engine", "outcome", "verdict", "variant"):
        if not isinstance(summary.get(key, "" if key == "variant" else None), str):
            raise ValueError(f"{key} is no text")
    if summary["verdict"] not in VERDICTS:
        raise ValueError(f"{shown(summary['verdict'], 20)!r} is no verdict")
    return dict(summary)


def no_plan(error: FileNotFoundError) -> RecordError:
    """Return the error for a run folder whose plan is gone."""
    return RecordError(f"Can't read {error.filename}: {error.strerror}.")


def other_version(path: Path, why: str) -> RecordError:
    """Return the error for a run folder whose plan is not as this version writes it."""
    return RecordError(
        f"The plan in {path} is none of this version: {why}.",
        "Judge it with the version that ran it.",
    )
