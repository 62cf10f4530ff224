"""The writing side of a run folder: one writer, which has the run's lock.

`scenario.yaml`, what it was made from and `plan.json` are written before the first task starts,
`history.jsonl`, `samples.jsonl` and `logs/` during the run, `summary.json` and `verdicts.json`
last. A crash at any stage leaves something to read.
"""

from __future__ import annotations

import contextlib
import json
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from emulator.errors import RecordError, UsageError
from emulator.metrics import sample_file
from emulator.metrics.samples import Sample
from emulator.record.events import Entry, LogCut, Phase, Step, line_of
from emulator.record.folder import GIVEN
from emulator.record.history import HappenedAt
from emulator.record.lock import LOCK, acquire, release
from emulator.record.reader import Record
from emulator.record.remains import require_free
from emulator.record.task_log import LogWriter, cut_torn, parts_of
from emulator.record.version import header
from emulator.runtime.clock import both_times
from emulator.runtime.files import FOR_OWNER, appending, atomic_write, for_owner, os_errors

if TYPE_CHECKING:
    from emulator.metrics.catalog import GpuUsage, Usage
    from emulator.planning.plan import Plan
    from emulator.runtime.clock import Clock

FREE = 100_000
"""Step events of a run that are written one by one."""
EACH = 50_000
"""Step events after which the interval doubles."""


class Subscriber(Protocol):
    """Follows a run; its methods are called on the supervisor's thread and must not block."""

    @property
    def hurried(self) -> bool:
        """Whether it needs lines at once, and not a quarter of a second later."""

    def entry(self, entry: Entry, /) -> None:
        """Take an event that was written."""

    def lines(self, lines: Sequence[tuple[str, str]], /) -> None:
        """Take lines that tasks printed: each its task and its text."""

    def sample(self, sample: Sample, /) -> None:
        """Take a sample that was stored."""


@dataclass
class _Buffer:
    """The steps of one task that are not written yet."""

    last: Step
    """The last that was reported, buffered or written."""
    since: float
    """When the last written step was made (`wall`)."""
    at_once: bool = False
    """Another event was written: the next step is written at once."""
    first: int = 0
    count: int = 0
    values: dict[str, Any] = field(default_factory=dict)

    def add(self, entry: Step) -> None:
        """Add a step that is not smaller than the last."""
        self.values.update(entry.values)
        if self.count and entry.step == self.last.step:
            return
        self.first = self.first if self.count else entry.step
        self.count += 1
        self.last = entry

    def is_ended_by(self, entry: Step, interval: float) -> bool:
        """Return whether this step can't be merged with those before it."""
        return (
            self.at_once
            or entry.step < self.last.step
            or (not self.count and entry.step == self.last.step)
            or entry.bar_opened is not None
            or entry.wall - self.last.wall >= interval
        )

    def merged(self) -> Step:
        """Return the one event for all."""
        coalesced = {"first": self.first, "count": self.count} if self.count > 1 else None
        return replace(self.last, values=self.values, coalesced=coalesced)


class Coalescer:
    """Merges step events, so that the history of a long run stays small (pure).

    The first FREE step events of a run are written one by one, so a short run is exact. After that
    a task's steps are buffered until an interval has passed since its last written event. Then one
    event is written: the last of the steps, with a summary of the others:

        {"event": "step", "step": 1200, "loss": 0.41, "coalesced": {"first": 1191, "count": 10}}

    `first` is the first of the steps and `count` the number of different ones. Other values are the
    last that were reported.

    Exact as without merging: the times around failures, because the buffer is written before any
    other event (for a phase, only the buffer of its task), and the first step after it at once;
    lost and repeated steps, because a smaller step ends the buffer and is written at once, and so
    does the first one of a bar; pauses of an interval or longer, which end the buffer as well.

    Lost: within a merged event the steps count as evenly spaced, in number and in time. So a pause
    that is shorter than the interval is spread over the steps around it, and it is no longer known
    which steps were left out. A step that is reported twice in a row counts once.

    The interval is a second, and doubles with every further EACH step events. Each interval a
    task's steps make N = 1 event as a rule, and 3 at worst (it reports each step twice and pauses
    all the time). With T tasks and an interval of 2**k s, EACH events take EACH * 2**k / (N * T)
    seconds. So a run of S seconds has FREE + K * EACH step events, K = log2(1 + S * N * T / EACH):
    a day of 25 tasks 373,000, at worst 452,000, of about 160 bytes each. Other events are not
    merged: each adds at most two step events for each task, a phase or a smaller step two.

    A supervisor that is killed loses no more than its buffers, and the next one reads these steps
    again from the tasks' logs.
    """

    def __init__(self, written: int = 0) -> None:
        """Begin, or continue after so many step events were `written`."""
        self._written = written
        self._buffers: dict[str, _Buffer] = {}

    @property
    def interval(self) -> float:
        """Seconds between two step events of a task; 0 as long as each is written."""
        return 2.0 ** ((self._written - FREE) // EACH) if self._written >= FREE else 0.0

    def add(self, entry: Entry) -> list[Entry]:
        """Return the events to write now that this one has happened, in order."""
        steps = list(self._step(entry) if isinstance(entry, Step) else self._buffered_before(entry))
        self._written += len(steps)
        return [*steps] if isinstance(entry, Step) else [*steps, entry]

    def _step(self, entry: Step) -> Iterator[Step]:
        buffer, interval = self._buffers.get(entry.task), self.interval
        if buffer is None or not interval or buffer.is_ended_by(entry, interval):
            if buffer is not None and buffer.count:
                yield buffer.merged()
            self._buffers[entry.task] = _Buffer(entry, entry.wall)
            yield entry
            return
        buffer.add(entry)
        # The engine's clock may have been set back: then the buffer is written too.
        if abs(entry.wall - buffer.since) >= interval:
            yield self._flush(buffer)

    def _buffered_before(self, entry: Entry) -> Iterator[Step]:
        """Yield the buffered steps that precede another event: of all tasks, or a phase's task."""
        for task in [entry.task] if isinstance(entry, Phase) else list(self._buffers):
            if (buffer := self._buffers.get(task)) is None:
                continue
            if buffer.count:
                yield self._flush(buffer)
            self._buffers[task].at_once = True

    def _flush(self, buffer: _Buffer) -> Step:
        self._buffers[buffer.last.task] = _Buffer(buffer.last, buffer.last.wall)
        return buffer.merged()


class RunWriter:
    """The writing side; has the run's lock until it is closed or its process ends.

    It passes what is written on to subscribers.
    """

    def __init__(
        self,
        path: Path,
        plan: Plan,
        scenario_text: str,
        clock: Clock,
        kept: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._begin(path, plan, clock)
        if path.is_symlink():
            raise UsageError(f"{path} is a link.", "Choose another --run-id.")
        texts = {"scenario.yaml": scenario_text, **{n: kept[n] for n in kept.keys() & GIVEN}}
        with _disk_errors(path):
            require_free(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            is_new = _make(path)
            _make(path / "logs")
        self._open()
        try:
            with _disk_errors(path):
                for name, text in texts.items():
                    with open(path / name, "w", encoding="utf-8", opener=for_owner) as file:
                        file.write(text)
                data = {**header(), **plan.model_dump(mode="json")}
                atomic_write(path / "plan.json", _json(data), private=True)
        except BaseException:
            self._remove(texts, folder=is_new)
            self.close()
            raise

    def _remove(self, names: Iterable[str], *, folder: bool) -> None:
        """Remove the files of a run that has not begun, and its `folder` if this writer made it.

        There was nothing of anybody else in it.
        """
        with contextlib.suppress(OSError):
            for name in (*names, "history.jsonl", sample_file.NAME, LOCK):
                (self.path / name).unlink(missing_ok=True)
            (self.path / "logs").rmdir()
            if folder:
                self.path.rmdir()

    def _begin(self, path: Path, plan: Plan, clock: Clock) -> None:
        self.path, self._clock, self._began = path, clock, clock.now()
        self._log_limit = plan.scenario.log_limit
        self._n, self._coalescer = 0, Coalescer()
        self._logs: dict[str, LogWriter] = {}
        self._subscribers: Sequence[Subscriber] = ()
        self._in_batch = False
        self._lines_waiting: dict[str, list[tuple[str, float]]] = {}
        self._events_waiting: list[bytes] = []
        self._untold_lines: list[tuple[str, str]] = []
        self._untold_events: list[Entry] = []
        self._cut_short = set[str]()
        """Tasks whose log was said to have reached its limit."""

    def _open(self) -> None:
        with _disk_errors(self.path):
            self._release = weakref.finalize(self, release, acquire(self.path))
            # Unbuffered: what is written survives a kill -9.
            self._history = appending(self.path / "history.jsonl")
        self._samples = sample_file.SampleFile(self.path / sample_file.NAME)

    @classmethod
    def reopen(cls, record: Record, clock: Clock) -> RunWriter:
        """Continue a run whose writer was killed, and its time; torn lines are cut off.

        Raises InUse if another process has its lock.
        """
        writer = cls.__new__(cls)
        writer._begin(record.path, record.plan, clock)
        writer._open()
        history = Record(record.path).history  # `record` may have been read before
        with _disk_errors(record.path):
            _cut(record.path / "history.jsonl", len(history))
            for path in (record.path / "logs").glob("*.log"):
                cut_torn(path)
            if (samples := record.path / sample_file.NAME).exists():
                _cut(samples)
        last = history[-1] if history else None
        writer._n = last.n + 1 if last else 0
        writer._coalescer = Coalescer(sum(isinstance(event, Step) for event in history))
        # The last event may have the stamp of an engine, which is earlier than its time.
        happened = HappenedAt()
        for entry in history:
            happened(entry)
        began = happened.began
        lasted = max(last.t, clock.wall() - began) if last and began is not None else 0.0
        writer._began = clock.now() - lasted
        return writer

    @property
    def t(self) -> float:
        """Seconds since the run began."""
        return self._clock.now() - self._began

    @property
    def hurried(self) -> bool:
        """Whether a subscriber needs lines at once."""
        return any(subscriber.hurried for subscriber in self._subscribers)

    @contextlib.contextmanager
    def telling(self, *subscribers: Subscriber) -> Iterator[None]:
        """Pass on to these what is written meanwhile."""
        self._subscribers = subscribers
        try:
            yield
        finally:
            self._subscribers = ()

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Write output, steps and phases together: at the end, or with another event."""
        self._in_batch = True
        try:
            yield
        finally:
            self._in_batch = False
            self._flush()

    def write(self, event: Entry, *, wall: float | None = None) -> Entry:
        """Append to the history; the only place where events get their number and time.

        `wall` is the engine's stamp, if it gave one. Step events may be merged (`Coalescer`); a
        step that waits has the number of the event that it will be merged into. Raises RecordError.
        """
        now, ours = both_times(self._clock) if wall is None else (self._clock.now(), wall)
        event = event.having(n=self._n, t=round(now - self._began, 6), wall=round(ours, 6))
        for one in self._coalescer.add(event):
            if one.n != self._n:
                event, one = event.having(n=self._n), one.having(n=self._n)
            self._events_waiting.append(line_of(one).encode() + b"\n")
            self._n += 1
        self._untold_events.append(event)
        if not self._in_batch or not isinstance(event, Step | Phase):
            self._flush()
        return event

    def log(self, task: str, text: str, *, wall: float | None = None, shown: bool = True) -> None:
        """Append a line to the task's log, as it was printed; pass it on unless it is not `shown`.

        `wall` is the engine's stamp, if it gave one. Raises RecordError.
        """
        line = text, self._clock.wall() if wall is None else wall
        self._lines_waiting.setdefault(task, []).append(line)
        if shown:
            self._untold_lines.append((task, text))
        if not self._in_batch:
            self._flush()

    def _flush(self) -> None:
        """Write what waits, and pass it on."""
        try:
            self._write_waiting()
        except OSError:
            with _disk_errors(self.path):  # only now: to enter it costs more than to write a line
                raise
        lines, self._untold_lines = self._untold_lines, []
        entries, self._untold_events = self._untold_events, []
        for subscriber in self._subscribers:
            if lines:
                subscriber.lines(lines)
            for entry in entries:
                subscriber.entry(entry)
        for name, log in self._logs.items():
            if log.leaves_out and name not in self._cut_short:
                self._cut_short.add(name)
                self.write(LogCut(task=name, limit=self._log_limit))

    def _write_waiting(self) -> None:
        """Write output first, from which a take-over recovers lost steps."""
        for task in list(self._lines_waiting):
            if task not in self._logs:
                self._logs[task] = LogWriter(self.path / "logs" / f"{task}.log", self._log_limit)
            self._logs[task].write(self._lines_waiting[task])
            del self._lines_waiting[
                task
            ]  # only now: what a full disk did not take is written later
        if self._events_waiting:
            self._history.write(b"".join(self._events_waiting))
            self._events_waiting.clear()

    def sample(
        self, at: float, wall: float, tasks: Mapping[str, Usage], gpus: Sequence[GpuUsage] = ()
    ) -> Sample:
        """Append a measurement of the time `at` of the run's clock."""
        sample = Sample(round(at - self._began, 6), round(wall, 6), tasks, gpus)
        with _disk_errors(self.path):
            self._samples.append(sample)
        return sample

    def tell(self, sample: Sample) -> None:
        """Pass on a sample; the thread that took it has stored it."""
        for subscriber in self._subscribers:
            subscriber.sample(sample)

    def printed(self, task: str) -> list[str]:
        """Return the lines in the task's log, as the engine reported them."""
        text = b""
        for part in parts_of(self.path / "logs" / f"{task}.log"):
            with contextlib.suppress(FileNotFoundError):
                text += part.path.read_bytes()
        return text.decode("utf-8", "surrogateescape").split("\n")[:-1]

    def printed_until(self, task: str) -> float:
        """Return when the task printed its last line, in seconds since 1970."""
        last = parts_of(self.path / "logs" / f"{task}.log")[-1].path
        return min(last.stat().st_mtime, self._clock.wall())

    def write_result(self, name: str, value: object) -> None:
        """Write a result file: `summary.json`, `verdicts.json`."""
        with _disk_errors(self.path):
            atomic_write(self.path / name, _json(value), private=True)

    def close(self) -> None:
        """Close the files and release the lock."""
        with contextlib.suppress(OSError):  # a full disk was reported before
            self._samples.close()
        for log in self._logs.values():
            log.close()
        self._history.close()
        self._release()


def _make(folder: Path) -> bool:
    """Make a folder for the owner alone; False: it is there already."""
    try:
        folder.mkdir(FOR_OWNER)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return False
    return True


def _cut(path: Path, lines: int | None = None) -> None:
    """Cut off a torn line, or all after so many lines."""
    with path.open("r+b") as file:
        whole = [line for line in file if line.endswith(b"\n")]
        file.truncate(sum(map(len, whole[:lines])))


def _json(value: object) -> str:
    return json.dumps(value, indent=2, default=str) + "\n"


def _disk_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    hint = "Make room, or choose another place with --out."
    return os_errors(RecordError, f"Can't write the run folder {path}", hint)
