"""`emulate sweep`: a run for each moment, side by side as far as the machine allows.

What was asked for is in `sweep.json` of the sweep's folder, and each moment has a run folder of its
own in there. A sweep that was killed goes on where it was: moments whose run has ended are read
again, and one that was under way is removed and done again under another name.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.errors import EmulatorError, EngineError, UsageError
from emulator.planning.claims import Capacity, Claim, Need, need_of
from emulator.planning.leases import Broker, Lease
from emulator.planning.requested import RequestedScenario, RunOptions
from emulator.record.reader import Record
from emulator.record.version import header
from emulator.results import Result, RunCallbacks, judge, load_result
from emulator.runtime.files import FOR_OWNER, atomic_write, os_errors
from emulator.runtime.waiting import Event, for_event, start
from emulator.scenario.matrix import to_overrides
from emulator.search.moments import Asked, Moment, parse, spread
from emulator.search.outcomes import WORDS, Class, Outcome, classify, exit_code, figure, worst
from emulator.search.saves import Recorded, of_second_save, recorded
from emulator.session.launch import make_available, perform
from emulator.supervisor.cleanup import remove

if TYPE_CHECKING:
    from emulator.planning.plan import Plan

STATE, WORST = "sweep.json", "worst.yaml"
RECORDING = "recording"
MOST = 100
"""Moments of a sweep, unless more are asked for."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Question:
    """What a sweep is to find out."""

    requested: RequestedScenario
    """Its own faults are left out."""
    fault: Mapping[str, Any]
    """As a scenario has it, without `at`."""
    at: str
    most: int = MOST

    def as_data(self) -> dict[str, Any]:
        """Return it for the state of a sweep: what must be the same when that goes on."""
        scenario = self.requested.scenario.to_yaml()
        return {"scenario": scenario, "fault": dict(self.fault), "at": self.at, "most": self.most}

    def variant(self, faults: Sequence[Mapping[str, Any]]) -> RequestedScenario:
        """Return the scenario with these faults alone. Raises UsageError."""
        chosen = to_overrides({"faults": list(faults)})
        own = self.requested
        return replace(own, last=(*own.last, *chosen))

    def at_moment(self, moment: Moment) -> RequestedScenario:
        """Return the scenario with the fault at a moment. Raises UsageError."""
        return self.variant([{**self.fault, "at": moment.at}])


@dataclass(frozen=True)
class Point:
    """A moment, and what became of the training."""

    moment: Moment
    outcome: Outcome
    verdict: str
    """Of the run's expectations."""
    run: Path | None
    """Its folder."""

    @property
    def is_ok(self) -> bool:
        """Whether it resumed right, and all that the scenario expects was met."""
        return (self.outcome.what, self.verdict) == ("right", "ok")

    def as_data(self, place: Path) -> dict[str, Any]:
        """Return it as `--json` prints it; its run is relative to the folder `place`."""
        return {
            "moment": self.moment.words,
            "at": self.moment.at,
            "outcome": self.outcome.what,
            "why": self.outcome.why,
            "verdict": self.verdict,
            "lost_steps": self.outcome.lost,
            "resumed_from": self.outcome.resumed,
            "last_save": self.outcome.saved,
            "run": None if self.run is None else self.run.relative_to(place).as_posix(),
        }


@dataclass(frozen=True)
class SweepResult:
    """All moments of a sweep."""

    folder: Path
    points: Sequence[Point]
    left_out: int = 0
    """Moments beyond the most that were asked for."""
    worst: Path | None = None
    """The worst one as a scenario."""

    @property
    def figure(self) -> str:
        """All outcomes in one line."""
        return figure([one.outcome.what for one in self.points])

    @property
    def exit_code(self) -> int:
        """1 if a moment was not ok, 3 if one could not be judged, else 0."""
        return exit_code([(one.outcome.what, one.verdict) for one in self.points])

    def as_data(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        counts = {what: sum(one.outcome.what == what for one in self.points) for what in WORDS}
        return {
            **header(),
            "sweep": self.folder.name,
            "figure": self.figure,
            "counts": counts,
            "left_out": self.left_out,
            "worst": None if self.worst is None else self.worst.name,
            "points": [one.as_data(self.folder) for one in self.points],
        }

    def check(self) -> None:
        """Raise AssertionError unless every moment is ok; the text names each that is not."""
        __tracebackhide__ = True
        if wrong := [one for one in self.points if not one.is_ok]:
            texts = (f"{one.moment.words}: {said(one)}" for one in wrong)
            raise AssertionError("\n".join([self.figure, *texts]))


def said(point: Point) -> str:
    """Return what became of a training at a moment, in words."""
    words = f"{WORDS[point.outcome.what]}; {point.outcome.why}"
    return (
        words
        if point.outcome.what != "right" or point.verdict == "ok"
        else (f"{words}; an expectation {'failed' if point.verdict == 'failed' else 'is unknown'}")
    )


@dataclass
class Sweep:
    """A sweep in its folder; `perform` does what is left of it."""

    question: Question
    engine: str
    """Its name."""
    folder: Path
    warm: bool = False
    at_once: int | None = None
    """Runs side by side; None: as many as the machine has cores and memory for."""
    say: Say = lambda text: None
    done: Callable[[Point, int], None] = lambda point, of: None
    """Called with each moment that is over, and the number of all."""
    _moments: list[Moment] = field(default_factory=list)
    _left_out: int = 0

    @classmethod
    def open(cls, question: Question, engine: str, folder: Path, **options: Any) -> Sweep:  # noqa: ANN401
        """Begin a sweep in a folder, or go on with the one that is there.

        Raises UsageError where the folder has something else, or another sweep.
        """
        sweep = cls(question, engine, folder.resolve(), **options)
        state = sweep.folder / STATE
        if state.is_file():
            found = _state(state)
            asked = {**question.as_data(), "engine": engine, "warm": sweep.warm}
            if differs := [key for key, value in asked.items() if found.get(key) != value]:
                raise UsageError(
                    f"There is another sweep in {folder}: its {', '.join(differs)} differs.",
                    "Choose another --run-id.",
                )
            sweep._moments = [Moment(**one) for one in found.get("moments", ())]
            sweep._left_out = found.get("left_out", 0)
        elif folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} is in use already.", "Choose another --run-id.")
        return sweep

    def perform(self) -> SweepResult:
        """Run each moment that was not, write the worst one; return all.

        Raises EmulatorError; an interrupt is raised when all runs are removed.
        """
        asked = parse(self.question.at)
        for moment in asked.moments or [Moment("", {"time": "1s"})]:
            self.question.at_moment(moment).scenario  # noqa: B018  raises here, not later
        plain = self.question.variant([])
        name, capacity = make_available([plain], self.engine, self.folder, self.say)
        with os_errors(EngineError, "Can't make the folder of the sweep"):
            self.folder.mkdir(FOR_OWNER, parents=True, exist_ok=True)
        self._write_state()
        count = self.at_once or side_by_side(need_of(plain.scenario), len_of(plain), capacity)
        need = need_of(plain.scenario)
        whole = Need(need.cpus * count, need.memory * count, need.gpus * count)
        waits = partial(_waits, self.say)
        with Broker().acquire(
            f"sweep {self.folder.name}", whole, capacity, recover=_recover, waiting=waits
        ) as lease:
            if not self._moments:
                self._moments, self._left_out = self._found(asked, plain, name, lease)
                self._write_state()
            points = _Together(self, name, lease, count).points()
        return replace(self._result(points), worst=self._write_worst(points))

    def _found(
        self, asked: Asked, plain: RequestedScenario, engine: str, lease: Lease
    ) -> tuple[list[Moment], int]:
        """Return the moments, of which those of a save are recorded first, and how many are left
        out."""
        found = list(asked.moments)
        if asked.calls:
            self.say("recording the calls of a save")
            of = asked.calls[0].of if len(asked.calls) == 1 else "**"
            folder = self._run(plain, RECORDING, engine, lease, calls_of="**" if of == "*" else of)
            record = Record(folder)
            result = load_result(record)
            if result.outcome != "succeeded":
                raise UsageError(
                    f"Without a fault the job {result.outcome}: {result.end.reason}.",
                    f"Its record is in {folder}.",
                )
            target = str(self.question.fault[_kind(self.question)])
            calls = calls_in(record, target)
            found += of_second_save(asked.calls, calls, _folders(record, calls.task), target)
        chosen = spread(found, self.question.most)
        return chosen, len(found) - len(chosen)

    def _run(
        self,
        requested: RequestedScenario,
        stem: str,
        engine: str,
        lease: Lease,
        *,
        stoppable: Callable[[Callable[[], None]], None] = lambda stop: None,
        calls_of: str = "",
    ) -> Path:
        """Run a scenario to its end, unless that was done; return the folder of its run."""
        name, ended = self._free_name(stem, engine)
        if ended:
            return self.folder / name
        lease.began_run(name, engine, self.folder / name)
        options = RunOptions(
            out=self.folder,
            run_id=name,
            variant=stem,
            warm=self.warm and not calls_of,
            gpus=lease.gpus if need_of(requested.scenario).gpus else None,
            calls_of=calls_of,
        )
        perform(requested, engine, options, RunCallbacks(stoppable=stoppable))
        return self.folder / name

    def _free_name(self, stem: str, engine: str) -> tuple[str, bool]:
        """Return the name of the run of a moment, and whether it has ended.

        What a killed one has left is removed.
        """
        attempt = 1
        while True:
            name = f"{self.folder.name}-{stem}" + (f"-again{attempt - 1}" if attempt > 1 else "")
            folder = self.folder / name
            if not folder.exists():
                return name, False
            if has_ended(folder):
                return name, True
            remove(name, engine, folder, self.say)
            attempt += 1

    def _point(self, moment: Moment, run: Path) -> Point:
        """Return what the record of a moment's run shows."""
        record = Record(run)
        analysis, _, summary = judge(record)
        outcome = classify(
            record.timeline, analysis.outcome, analysis.reason or "", analysis.lost_steps
        )
        return Point(moment, outcome, summary["verdict"], run)

    def _result(self, points: Sequence[Point]) -> SweepResult:
        return SweepResult(self.folder, points, self._left_out)

    def _write_worst(self, points: Sequence[Point]) -> Path | None:
        """Write the worst moment as a scenario; return the file, None if all resumed right.

        It expects what was not met, so that it fails until that is mended.
        """
        number = worst([one.outcome for one in points])
        if number is None:
            return None
        point = points[number]
        requested = self.question.at_moment(point.moment)
        if promise := point.outcome.promise:
            more = to_overrides({f"expect.{promise}": True})
            requested = replace(requested, last=(*requested.last, *more))
        scenario = requested.scenario
        text = f"# {point.moment.words}: {said(point)}\n".replace("\n#", " ")
        path = self.folder / WORST
        with os_errors(EngineError, "Can't write the worst moment"):
            atomic_write(path, text + scenario.to_yaml())
        return path

    def _write_state(self) -> None:
        state = {
            **header(),
            **self.question.as_data(),
            "engine": self.engine,
            "warm": self.warm,
            "moments": [{"words": one.words, "at": one.at} for one in self._moments],
            "left_out": self._left_out,
        }
        with os_errors(EngineError, "Can't write the state of the sweep"):
            atomic_write(self.folder / STATE, json.dumps(state, indent=1) + "\n")


class _Together:
    """The runs of a sweep, several at once; an interrupt ends them, and is raised after that."""

    def __init__(self, sweep: Sweep, engine: str, lease: Lease, count: int) -> None:
        self._sweep, self._engine, self._lease = sweep, engine, lease
        self._moments = sweep._moments
        self._left: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(len(self._moments)):
            self._left.put(number)
        self._threads = max(1, min(count, len(self._moments)))
        self._lock = threading.Lock()
        self._stops: dict[int, Callable[[], None]] = {}
        self._points: dict[int, Point] = {}
        self._error: BaseException | None = None
        self._ended, self._over = 0, Event()

    def points(self) -> list[Point]:
        """Return all moments, in order."""
        for _ in range(self._threads):
            start(self._work)
        interrupt: BaseException | None = None
        while not self._over.is_set():
            try:
                for_event(self._over)
            except BaseException as error:
                interrupt = interrupt or error
                self._stop(error)
        if interrupt is not None or self._error is not None:
            raise interrupt or self._error  # type: ignore[misc]
        return [self._points[number] for number in range(len(self._moments))]

    def _stop(self, error: BaseException) -> None:
        """Begin no more runs, and end those under way as Ctrl-C does."""
        with self._lock:
            self._error = self._error or error
            stops = list(self._stops.values())
        for stop in stops:
            stop()

    def _work(self) -> None:
        try:
            while self._error is None:
                try:
                    number = self._left.get_nowait()
                except queue.Empty:
                    break
                self._do(number)
        except BaseException as error:  # it must end the sweep, not this thread alone
            self._stop(error)
        finally:
            with self._lock:
                self._ended += 1
                if self._ended == self._threads:
                    self._over.set()

    def _do(self, number: int) -> None:
        sweep, moment = self._sweep, self._moments[number]

        def stoppable(stop: Callable[[], None]) -> None:
            with self._lock:
                self._stops[number] = stop
                asked = self._error is not None
            if asked:
                stop()

        requested = sweep.question.at_moment(moment)
        run = sweep._run(requested, f"{number + 1}", self._engine, self._lease, stoppable=stoppable)
        with self._lock:
            self._stops.pop(number, None)
            if self._error is not None:
                return
        point = sweep._point(moment, run)
        self._points[number] = point
        sweep.done(point, len(self._moments))


def side_by_side(need: Need, tasks: int, capacity: Capacity) -> int:
    """Return how many runs the machine has room for (pure).

    Tasks without a limit count as a core each, up to all that there are.
    """
    cpus = need.cpus or min(tasks, capacity.cpus)
    count = int(capacity.cpus / cpus)
    if need.memory:
        count = min(count, int(capacity.memory / need.memory))
    if need.gpus:
        count = 1  # which devices a run gets is said for one alone
    return max(1, count)


def len_of(requested: RequestedScenario) -> int:
    """Return the number of tasks that train at the same time."""
    return sum(role.replicas for role in requested.scenario.in_training.values())


def has_ended(folder: Path) -> bool:
    """Return whether a run has ended by itself, and was judged."""
    try:
        summary = Record.open(folder).result("summary.json")
    except EmulatorError:
        return False
    return isinstance(summary, dict) and summary.get("outcome") not in (None, "interrupted")


def calls_in(record: Record, target: str) -> Recorded:
    """Return the calls of the task whose saves count: the fault's target, or who saves instead."""
    plan: Plan = record.plan
    history = record.history
    names = [task.name for task in plan.in_training]
    found = {name: recorded(history, name) for name in names}
    own = found.get(target)
    if own is not None and own.saves:
        return own
    saving = [one for one in found.values() if one.saves]
    return saving[0] if saving else (own or found[names[0]])


def _folders(record: Record, task: str) -> list[tuple[str, str]]:
    """Return the folders that are another's in each run, with what a trigger has for them."""
    folder = record.path.resolve()
    return [(f"{folder}/shared", "/shared/"), (f"{folder}/work/{task}", "")]


def _kind(question: Question) -> str:
    from emulator.faults.kinds import FAULTS

    kinds = [key for key in question.fault if key in FAULTS]
    if len(kinds) != 1:
        raise UsageError(
            f"--fault {json.dumps(dict(question.fault))} is no fault.",
            "For example: --fault '{preempt: worker-1, grace: 5s}'.",
        )
    return kinds[0]


def _state(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
        return dict(found)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{path} can't be read: {error}.", "Choose another --run-id.") from None


def _waits(say: Say, others: Sequence[Claim]) -> None:
    names = ", ".join(f"{claim.name} (process {claim.pid})" for claim in others)
    say(f"waiting for a share of this machine, after {names}")


def _recover(claim: Claim) -> None:
    """Remove what is left of the runs of a program that was killed."""
    import contextlib

    for run in claim.runs:
        with contextlib.suppress(EmulatorError):  # `emulate clean` finds it
            remove(run.run_id, run.engine, run.folder)


__all__ = ["Class", "Point", "Question", "Result", "Sweep", "SweepResult"]
