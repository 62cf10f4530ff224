"""The run folder: one writer while it runs, readable at any moment after.

`scenario.yaml` and `plan.json` are written before the first task starts, `history.jsonl`,
`samples.jsonl` and `logs/` during, `summary.json` and `verdicts.json` last. A crash at any stage
leaves something to read; a torn last line is left out on reading.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from filelock import Timeout
from pydantic import ValidationError

from emulator.errors import RecordError, UsageError
from emulator.metrics import sample_file
from emulator.metrics.samples import GpuUsage, Sample, Usage
from emulator.planning.plan import Plan, is_run_id
from emulator.record.coalesce import Coalescer
from emulator.record.events import Entry, RunStarted, Step, entry_of, line_of
from emulator.record.history import as_it_happened
from emulator.record.lock import LOCK, acquire, in_use, is_live, lock_of, wait_until_over
from emulator.record.tail import last_lines
from emulator.record.timeline import Timeline
from emulator.record.version import check_format, header
from emulator.runtime.clock import Clock

__all__ = [
    "LOCK",
    "Record",
    "RunFolder",
    "as_it_happened",
    "is_live",
    "runs_in",
    "uncollected",
    "wait_until_over",
]


class RunFolder:
    """The writing side; holds the run's lock as long as it is open, even if it is killed."""

    def __init__(self, path: Path, plan: Plan, scenario_text: str, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._began = clock.now()
        self._n = 0
        self._coalescer = Coalescer()
        self._logs: dict[str, IO[bytes]] = {}
        if path.is_symlink():
            raise UsageError(f"{path} is a link.", "Choose another --run-id.")
        with _saying(path):
            path.mkdir(parents=True, exist_ok=True)
            (path / "logs").mkdir(exist_ok=True)
        if (path / "plan.json").exists():
            raise UsageError(
                f"There is a run in {path} already.", "Leave --run-id out, or choose another."
            )
        self._take()
        with _saying(path):
            (path / "scenario.yaml").write_text(scenario_text, encoding="utf-8")
            _write_json(path / "plan.json", {**header(), **plan.model_dump(mode="json")})

    def _take(self) -> None:
        self._lock = lock_of(self.path)
        with _saying(self.path):
            acquire(self._lock)
            # Unbuffered: what was written before a kill -9 is there after it.
            self._history = (self.path / "history.jsonl").open("ab", buffering=0)
        self._samples = sample_file.SampleFile(self.path / sample_file.NAME)

    @classmethod
    def reopen(cls, record: Record, clock: Clock) -> RunFolder:
        """Go on writing a run whose writer was killed; its time goes on as well.

        What was torn by the kill is cut off. Raises UsageError where somebody is writing it.
        """
        folder = cls.__new__(cls)
        folder.path, folder._clock, folder._logs = record.path, clock, {}
        folder._take()
        history = Record(record.path).history  # `record` may have been read before
        with _saying(record.path):
            _cut(record.path / "history.jsonl", len(history))
            for path in (record.path / "logs").glob("*.log"):
                _cut(path)
            if (samples := record.path / sample_file.NAME).exists():
                _cut(samples)
        last = history[-1] if history else None
        folder._n = last.n + 1 if last else 0
        folder._coalescer = Coalescer(sum(isinstance(event, Step) for event in history))
        since = max(0.0, clock.wall() - last.wall) if last else 0.0
        folder._began = clock.now() - (last.t + since if last else 0.0)
        return folder

    @property
    def t(self) -> float:
        """Seconds since the run began."""
        return self._clock.now() - self._began

    def write(self, event: Entry, *, wall: float | None = None) -> Entry:
        """Append to the history; the only place where events get their number and time.

        `wall` is the engine's stamp, where it gave one. Step events may be merged (`coalesce.py`);
        a buffered step has the number of the event that it will be merged into.
        """
        event = replace(
            event,
            n=self._n,
            t=round(self._clock.now() - self._began, 6),
            wall=round(self._clock.wall() if wall is None else wall, 6),
        )
        for one in self._coalescer.take(event):
            event = replace(event, n=self._n)
            self._append(replace(one, n=self._n))
        return event

    def _append(self, event: Entry) -> None:
        self._n += 1
        with _saying(self.path):
            self._history.write(line_of(event).encode() + b"\n")

    def log(self, task: str, text: str) -> None:
        """Append a line to the task's log, as it was printed."""
        with _saying(self.path):
            if task not in self._logs:
                self._logs[task] = (self.path / "logs" / f"{task}.log").open("ab", buffering=0)
            self._logs[task].write(text.encode("utf-8", "surrogateescape") + b"\n")

    def sample(
        self, at: float, wall: float, tasks: Mapping[str, Usage], gpus: Sequence[GpuUsage] = ()
    ) -> Sample:
        """Append what was measured at the time `at` of the run's clock."""
        sample = Sample(round(at - self._began, 6), round(wall, 6), tasks, gpus)
        with _saying(self.path):
            self._samples.append(sample)
        return sample

    def printed(self, task: str) -> list[str]:
        """Return the lines in the task's log as an engine tells them."""
        try:
            text = (self.path / "logs" / f"{task}.log").read_bytes()
        except FileNotFoundError:
            return []
        return text.decode("utf-8", "surrogateescape").split("\n")[:-1]

    def printed_until(self, task: str) -> float:
        """Return when the task printed its last line, in seconds since 1970."""
        return min((self.path / "logs" / f"{task}.log").stat().st_mtime, self._clock.wall())

    def finish(self, name: str, value: object) -> None:
        """Write a result file: `summary.json`, `verdicts.json`."""
        with _saying(self.path):
            _write_json(self.path / name, value)

    def close(self) -> None:
        """Close the files and give the lock back."""
        with contextlib.suppress(OSError):  # a full disk was told of before
            self._samples.close()
        for log in self._logs.values():
            log.close()
        self._history.close()
        self._lock.release()


@dataclass(frozen=True)
class Record:
    """The reading side: a run folder, finished or not."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> Record:
        """Return the record in `path`; raises UsageError where there is none."""
        if not (path / "plan.json").is_file():
            raise UsageError(
                f"{path} is no run folder: it has no plan.json.", "`emulate ps --all` lists runs."
            )
        return cls(path)

    @classmethod
    def find(cls, name: str, out: Path) -> Record:
        """Return the run that `name` means: an id, the beginning of one, a folder, or `last`.

        Raises UsageError where there is none in the folder `out`.
        """
        with contextlib.suppress(ValueError):  # no path has a NUL byte
            if Path(name, "plan.json").is_file():
                return cls(Path(name).resolve())
        runs = runs_in(out)
        if name == "last" and runs:
            return runs[-1]
        matching = [run for run in runs if run.run_id == name] or [
            run for run in runs if run.run_id.startswith(name)
        ]
        if len(matching) == 1:
            return matching[0]
        why = "fits several runs" if matching else f"is no run in {out}"
        raise UsageError(
            f"{name} {why}.", "`emulate ps --all` lists them; --out names another folder."
        )

    @property
    def run_id(self) -> str:
        """The folder's name is the run's."""
        return self.path.name

    def check_name(self) -> None:
        """Raise UsageError where the folder was renamed or copied since its run.

        Such a folder can be read. What is removed or taken over is named by the run id: it may
        belong to another run by now.
        """
        if self.plan.run_id != self.run_id:
            raise UsageError(
                f"{self.path} holds the record of {self.plan.run_id} under another name.",
                f"Give the folder the name {self.plan.run_id} to do this.",
            )

    @cached_property
    def plan(self) -> Plan:
        """The plan as it was when the run began.

        Raises RecordError where it can't be read, or is of another format.
        """
        try:
            text = (self.path / "plan.json").read_bytes()
            with contextlib.suppress(ValueError):  # which pydantic puts into words
                check_format(json.loads(text), self.path)
            # Paths in it are absolute and may be gone by now: that is no mistake any more.
            return Plan.model_validate_json(text, context={"stored": True})
        except OSError as error:
            raise RecordError(f"Can't read the plan in {self.path}: {error.strerror}.") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(step) for step in first["loc"]) or "plan.json"
            raise RecordError(
                f"The plan in {self.path} is none of this version: {where}: {first['msg']}.",
                "Judge it with the version that ran it.",
            ) from None

    @cached_property
    def history(self) -> Sequence[Entry]:
        """Every event that was written completely, in order.

        Raises RecordError where it is of another format.
        """
        try:
            with uncollected(), (self.path / "history.jsonl").open("rb") as lines:
                return tuple(_entries(lines, self.path))
        except FileNotFoundError:
            return ()

    @cached_property
    def happened(self) -> Sequence[Entry]:
        """The history with the time at which things happened, in that order.

        Every number and picture is made from this; see `history.HappenedAt` for the rule.
        """
        return tuple(as_it_happened(self.history))

    @cached_property
    def timeline(self) -> Timeline:
        """The run over time. Raises RecordError where it can't be read."""
        with uncollected():
            return Timeline(self.plan, self.happened)

    @cached_property
    def samples(self) -> Sequence[Sample]:
        """Everything that was measured, in order; raises RecordError where it can't be read."""
        path = self.path / sample_file.NAME
        try:
            with uncollected():
                return tuple(sample_file.read(path))
        except OSError as error:
            raise RecordError(f"Can't read {path}: {error.strerror}.") from None

    def log(self, task: str) -> list[str]:
        """Return what the task printed."""
        try:
            text = (self.path / "logs" / f"{task}.log").read_text("utf-8", "replace")
        except FileNotFoundError:
            return []
        return text.splitlines()

    def last_words(self, task: str, count: int) -> list[str]:
        """Return the last lines that the task printed; reads no more than those."""
        path = self.path / "logs" / f"{task}.log"
        try:
            with path.open("rb") as file:
                file.seek(last_lines(path, count))
                return file.read().decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return []

    def result(self, name: str) -> dict[str, Any] | None:
        """Return a result file, None where the run has not come that far."""
        try:
            value: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return value

    @property
    def summary(self) -> dict[str, Any] | None:
        """The summary, None where the run has not come that far.

        Raises RecordError where it is of another format.
        """
        if (found := self.result("summary.json")) is not None:
            check_format(found, self.path)
        return found

    @property
    def live(self) -> bool:
        """Whether a supervisor is at work on it now."""
        return is_live(self.path)


def runs_in(folder: Path) -> list[Record]:
    """Return the runs in a folder, oldest first; what has no run's name is none."""
    plans = [plan for plan in folder.glob("*/plan.json") if is_run_id(plan.parent.name)]
    return [Record(plan.parent) for plan in sorted(plans, key=lambda p: p.stat().st_mtime)]


def _entries(lines: IO[bytes], path: Path) -> Iterator[Entry]:
    for number, line in enumerate(lines):
        if not line.endswith(b"\n"):
            return  # torn by a crash or a full disk
        try:
            fields = json.loads(line)
            if number == 0 and fields["event"] == RunStarted.event:
                check_format(fields, path)
            yield entry_of(fields)
        except (ValueError, KeyError, TypeError):
            return  # a torn line and what was written after it, once there was room again


def _cut(path: Path, lines: int | None = None) -> None:
    """Cut off a torn line, or all after so many lines."""
    with path.open("r+b") as file:
        whole = [line for line in file if line.endswith(b"\n")]
        file.truncate(sum(map(len, whole[:lines])))


def _write_json(path: Path, value: object) -> None:
    """Write whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=2, default=str) + "\n", encoding="utf-8")
    os.replace(partial, path)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Keep Python from looking for cycles meanwhile: a record has none, but a million objects.

    To look through them again and again takes longer than to read and judge them.
    """
    was_at_work = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_at_work:
            gc.enable()


@contextlib.contextmanager
def _saying(path: Path) -> Iterator[None]:
    """Turn what the disk says into a sentence."""
    try:
        yield
    except Timeout:
        raise in_use(path) from None
    except OSError as error:
        raise RecordError(
            f"Can't write the run folder {path}: {error.strerror or error}.",
            "Make room, or choose another place with --out.",
        ) from None
