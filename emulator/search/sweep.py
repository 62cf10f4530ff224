"""`emulate sweep`: a run for each moment, side by side as far as the machine allows.

Two runs without a fault come first: the twins. They show the calls of a save, and what all others
are compared with. What was asked for is in `sweep.json` of the sweep's folder, what the twins have
alike in `uninterrupted.json`, and each run has a folder of its own in there. A sweep that was
killed goes on where it was: moments whose run has ended are read again, and one that was under way
is removed and done again under another name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.analysis.uninterrupted import (
    RESULTS,
    UNINTERRUPTED,
    Figures,
    agreed,
    differences,
    figures_of,
    from_data,
)
from emulator.errors import EmulatorError, EngineError, ProgramFailed, UsageError, shown
from emulator.metrics.samples import totals
from emulator.planning.claims import Capacity, Claim, Need, need_of
from emulator.planning.leases import Broker, Lease
from emulator.planning.requested import RequestedScenario, RunOptions
from emulator.record.events import Refused
from emulator.record.folder import SWEEP
from emulator.record.reader import Record
from emulator.record.version import header
from emulator.results import Result, RunCallbacks, load_result
from emulator.runtime.files import FOR_OWNER, atomic_write, os_errors
from emulator.scenario.matrix import to_overrides
from emulator.search.moments import ALL, Asked, Moment, Whole, parse, spread
from emulator.search.outcomes import Word, classify, worst
from emulator.search.points import Point, SweepResult, said
from emulator.search.question import Question
from emulator.search.saves import Recorded, of_second_save, recorded
from emulator.search.together import Stoppable, together
from emulator.session.launch import make_available, perform
from emulator.supervisor.cleanup import remove
from emulator.validation.units import format_count, format_duration, format_size

if TYPE_CHECKING:
    from emulator.planning.plan import Plan

TWINS = ("twin-1", "twin-2")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Twins:
    """What two runs without a fault have shown."""

    figures: Figures
    """What they have alike."""
    differs: Sequence[str]
    """What they have not: a sentence each."""
    runs: Sequence[Record]
    seconds: float
    """How long the longer one took."""
    bytes: int
    """Of what it had saved at its end."""


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
    python: str | None = None
    """The Python of tasks that are processes; None: the caller's."""
    say: Say = lambda text: None
    done: Callable[[Point, int], None] = lambda point, of: None
    """Called with each moment that is over, and the number of all."""
    refuse: Callable[[Record], object] = lambda record: None
    """Called with the first run without a fault; may raise UsageError before the first fault."""
    _moments: list[Moment] = field(default_factory=list)
    _left_out: int = 0

    @classmethod
    def open(cls, question: Question, engine: str, folder: Path, **options: Any) -> Sweep:  # noqa: ANN401
        """Begin a sweep in a folder, or go on with the one that is there.

        Raises UsageError where the folder has something else, or another sweep.
        """
        sweep = cls(question, engine, folder.resolve(), **options)
        state = sweep.folder / SWEEP
        if state.is_file():
            found = _state(state)
            asked = {**question.as_data(), "engine": engine, "warm": sweep.warm}
            if differs := [key for key, value in asked.items() if found.get(key) != value]:
                raise UsageError(
                    f"There is another sweep in {folder}: its {', '.join(differs)} differs.",
                    "Choose another --run-id.",
                )
            sweep._moments = [_moment(one) for one in found.get("moments", ())]
            sweep._left_out = found.get("left_out", 0)
        elif folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} is in use already.", "Choose another --run-id.")
        return sweep

    def perform(self) -> SweepResult:
        """Run each moment that was not, keep the worst ones; return all.

        Raises EmulatorError: ProgramFailed if the program does not succeed without a fault; an
        interrupt is raised when all runs are removed.
        """
        question = self.question
        asked = parse(question.at)
        _ = question.kind  # raises here, not later
        first = question.tasks[0]
        moments = asked.moments or [Moment("", {"time": "1s"})]
        tried = [question.at_moment(replace(moment, target=first)) for moment in moments]
        plain = question.variant([])
        # Refuses what the engine can't do, before the runs without a fault.
        name, capacity = make_available([plain, *tried], self.engine, self.folder, self.say)
        with os_errors(EngineError, "Can't make the folder of the sweep"):
            self.folder.mkdir(FOR_OWNER, parents=True, exist_ok=True)
        self._write_state()
        if question.restarts_by_itself:
            self.say("the scenario restarts nothing (`policy: never`): the sweep does")
        count = self.at_once or side_by_side(need_of(plain.scenario), len_of(plain), capacity)
        need = need_of(plain.scenario)
        whole = Need(need.cpus * count, need.memory * count, need.gpus * count)
        waits = partial(_waits, self.say)
        with Broker().acquire(
            f"sweep {self.folder.name}", whole, capacity, recover=_recover, waiting=waits
        ) as lease:
            twins = self._twins(asked, plain, name, lease, count)
            if not self._moments:
                found = list(self._found(asked, twins.runs[0]))
                self._moments = spread(found, question.max_moments)
                self._left_out = len(found) - len(self._moments)
                self._write_state()
            cores, memory = _used(twins.runs[1])
            if self.at_once is None and not need.cpus and not need.gpus:
                count = as_measured(count, cores, memory, capacity)
            count = min(count, len(self._moments))
            self._say_what_comes(twins, count, count * cores / capacity.cpus)
            points = self._points(name, lease, count, twins.figures)
        kept = self._keep_worst(points)
        return SweepResult(self.folder, points, self._left_out, twins.differs, kept)

    def _twins(
        self, asked: Asked, plain: RequestedScenario, engine: str, lease: Lease, count: int
    ) -> Twins:
        """Run the scenario twice without a fault; return what that has shown."""
        calls_of = ""
        if asked.calls:
            of = asked.calls[0].of if len(asked.calls) == 1 else "**"
            calls_of = "**" if of == "*" else of
        self.say("two runs without a fault")
        first, second = TWINS
        run = partial(self._run, plain, engine=engine, lease=lease, reads_results=True)
        jobs = [partial(run, first, calls_of=calls_of), partial(run, second)]

        def done(number: int, folder: Path) -> None:
            result = load_result(Record(folder))
            if result.outcome != "succeeded":
                raise _not_without_fault(result)
            if not number:
                self.refuse(Record(folder))

        runs = [Record(folder) for folder in together(jobs, count, done)]
        figures = []
        for record in runs:
            anew = _anew(load_result(record))
            found = figures_of(record.timeline, record.result(RESULTS), is_anew=anew)
            figures.append(self._of_results(found))
        alike, differs = agreed(figures[0], figures[1], self.question.tolerance)
        with os_errors(EngineError, "Can't write what runs without a fault have alike"):
            text = json.dumps({**header(), **alike.as_data(), "differs": differs}, indent=1)
            atomic_write(self.folder / UNINTERRUPTED, text + "\n")
        for what in differs:
            self.say(f"not compared, since two runs without a fault differ: {what}")
        seconds = max(record.timeline.duration for record in runs)
        return Twins(alike, differs, runs, seconds, _bytes(runs[0]))

    def _of_results(self, figures: Figures) -> Figures:
        """Return them with the files that are to be compared. Raises UsageError: there is none."""
        if not (glob := self.question.result):
            return figures
        meant = figures.with_files(glob)
        if not meant.files:
            left = ", ".join([*figures.files][:FEW]) or "there is none"
            raise UsageError(
                f"--result {glob!r} means none of the files that are left: {left}.",
                "A glob of the end of a path, such as '*.pt', or of all of it with a leading '/'.",
            )
        return meant

    def _found(self, asked: Asked, twin: Record) -> Iterator[Moment]:
        """Yield the moments, of which those of a save are in a run without a fault."""
        question = self.question
        refused = next(
            (e for e in twin.history if isinstance(e, Refused) and e.operation == "tracing"), None
        )
        calls = asked.calls if refused is None else ()
        if refused is not None and asked.calls:
            if not asked.moments:
                raise UsageError(
                    f"The calls of a save can't be seen: {refused.reason}",
                    "Moments that need none: --at 'steps 10..50 by 10'.",
                )
            self.say(f"the calls of a save can't be seen, and are left out: {refused.reason}")
        if question.fault is not None:
            yield from asked.moments
            if calls:
                target = str(question.fault[question.kind])
                found = calls_in(twin, target)
                yield from of_second_save(calls, found, _folders(twin, found.task), target)
            return
        several = len(question.tasks) > 1
        for target in question.tasks:
            for moment in asked.moments:
                words = f"{target}, {moment.words}" if several else moment.words
                yield replace(moment, words=words, target=target)
        if several:
            for moment in asked.moments:
                yield replace(moment, words=f"all, {moment.words}", target=ALL)
        if not calls:
            return
        every = [_recorded(twin, target) for target in question.tasks]
        saving = [one for one in every if len(one.saves) > 1] or [calls_in(twin, question.tasks[0])]
        for one in saving:
            for moment in of_second_save(calls, one, _folders(twin, one.task), one.task):
                words = f"{one.task}, {moment.words}" if several else moment.words
                yield replace(moment, words=words, target=one.task)
        if several:
            one = saving[0]
            for moment in of_second_save(calls, one, _folders(twin, one.task), ALL):
                yield replace(moment, words=f"all, {moment.words}", target=ALL)

    def _points(self, engine: str, lease: Lease, count: int, twins: Figures) -> list[Point]:
        """Run each moment that was not; return all, in order."""
        compared, points = {**header(), **twins.as_data()}, dict[int, Point]()
        run = partial(self._run, engine=engine, lease=lease, reads_results=True)

        def job(number: int, stoppable: Stoppable) -> Path:
            requested = self.question.at_moment(self._moments[number])
            return run(requested, f"{number + 1}", stoppable=stoppable, uninterrupted=compared)

        def done(number: int, folder: Path) -> None:
            points[number] = self._point(self._moments[number], folder, compared)
            self.done(points[number], len(self._moments))

        jobs = [partial(job, number) for number in range(len(self._moments))]
        together(jobs, count, done)
        return [points[number] for number in range(len(jobs))]

    def _say_what_comes(self, twins: Twins, count: int, busy: float) -> None:
        """Say how many moments there are, and about how long and how much disk that takes.

        `busy` is the share of the cores that so many runs without a fault use.
        """
        moments = len(self._moments)
        seconds = twins.seconds * max(AGAIN, 2 * busy) * -(-moments // max(1, count))
        left = f", {self._left_out} left out (--max-moments)" if self._left_out else ""
        saves = f", {format_size(twins.bytes * count)} of saves at a time" if twins.bytes else ""
        self.say(
            f"{format_count(moments, 'moment')}{left}: {count} at once, about "
            f"{about(seconds)}{saves}"
        )

    def _run(
        self,
        requested: RequestedScenario,
        stem: str,
        stoppable: Stoppable,
        *,
        engine: str,
        lease: Lease,
        **more: Any,  # noqa: ANN401  of RunOptions
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
            warm=self.warm and not more.get("calls_of"),
            gpus=lease.gpus if need_of(requested.scenario).gpus else None,
            python=self.python,
            disposable=True,
            **more,
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

    def _point(self, moment: Moment, run: Path, twins: Mapping[str, Any]) -> Point:
        """Return what the record of a moment's run shows."""
        record = Record(run)
        result = load_result(record)
        applied = [one.stages.get("applied") for one in record.timeline.faults.values()]
        since = max((one.n for one in applied if one is not None), default=-1)
        own = figures_of(record.timeline, record.result(RESULTS), since, is_anew=_anew(result))
        comparison = differences(own, from_data(twins), self.question.tolerance)
        words = next(iter(result.last_words.values()), ())
        outcome = classify(
            record.timeline,
            result.outcome,
            shown(words[-1].strip(), LONGEST) if words else result.analysis.reason or "",
            result.lost_steps,
            comparison,
            moment.whole,
            moment.during,
        )
        return Point(moment, outcome, result.verdict, run)

    def _keep_worst(self, points: Sequence[Point]) -> Mapping[Word, Path]:
        """Write the worst moment of each word as a scenario; return the files.

        Each expects what was not met, so that it fails until that is mended.
        """
        kept = {}
        for word, number in worst([one.outcome for one in points]).items():
            point = points[number]
            requested = self.question.at_moment(point.moment)
            if promise := point.outcome.promise:
                more = to_overrides({f"expect.{promise}": True})
                requested = replace(requested, last=(*requested.last, *more))
            text = f"# {point.moment.words}: {said(point)}\n".replace("\n#", " ")
            path = self.folder / f"{self._stem(point.moment)}.yaml"
            with os_errors(EngineError, "Can't write the worst moment"):
                atomic_write(path, text + requested.scenario.to_yaml())
            kept[word] = path
        return kept

    def _stem(self, moment: Moment) -> str:
        """Return a name for the scenario of a moment: `kill-before-rename-1`."""
        at = {key: value for key, value in moment.at.items() if key not in ("of", "task")}
        key, value = next(iter(at.items()))
        word = "before" if "of" in moment.at else "at"
        target = {"": "", ALL: "-all"}.get(moment.target, f"-{moment.target}")
        several = target if len(self.question.tasks) > 1 else ""
        text = f"{self.question.kind}{several}-{word}-{key}-{value}"
        return re.sub(r"[^a-zA-Z0-9.]+", "-", text).strip("-")

    def _write_state(self) -> None:
        state = {
            **header(),
            **self.question.as_data(),
            "engine": self.engine,
            "warm": self.warm,
            "moments": [asdict(one) for one in self._moments],
            "left_out": self._left_out,
        }
        with os_errors(EngineError, "Can't write the state of the sweep"):
            atomic_write(self.folder / SWEEP, json.dumps(state, indent=1) + "\n")


FEW = 5
"""Files that are named."""
LONGEST = 120
"""Characters of the last words of a task."""
AGAIN = 1.5
"""How much longer a run with a fault takes than one without, about; its cores have twice the work,
since its tasks start twice."""


def about(seconds: float) -> str:
    """Return a time that is an estimate: `24 s`, `3m 05s`."""
    return f"{seconds:.0f} s" if seconds < 60 else format_duration(round(seconds))


def _moment(data: Mapping[str, Any]) -> Moment:
    whole = data.get("whole")
    return Moment(**{**data, "whole": None if whole is None else Whole(**whole)})


def _anew(result: Result) -> bool:
    """Return whether the steps of a run were counted anew, so that they can't be compared."""
    return any(task.counted_anew for task in result.analysis.tasks.values())


def _bytes(record: Record) -> int:
    """Return how much a run had saved, of what was seen."""
    return sum(save["bytes"] for save in load_result(record).analysis.saves if not save["removed"])


def _not_without_fault(result: Result) -> ProgramFailed:
    """Return why there is no sweep: the program does not succeed without a fault."""
    words = "".join(f"\n  {line}" for line in next(iter(result.last_words.values()), ()))
    return ProgramFailed(
        f"Without a fault the job {result.outcome}: {result.end.reason.rstrip('.')}.{words}",
        f"Its record is in {result.folder}.",
    )


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


def as_measured(count: int, cores: float, memory: int, capacity: Capacity) -> int:
    """Return how many runs of tasks without limits are side by side, from what one used (pure).

    `cores` are in use on average. Runs that mostly wait leave them to others: there are more than
    `count` then, up to two for each core. In memory, all of them need at most half of the machine.
    """
    if cores:
        count = max(count, min(round(capacity.cpus / cores), int(2 * capacity.cpus)))
    return max(1, min(count, capacity.memory // (2 * memory)) if memory else count)


def _used(record: Record) -> tuple[float, int]:
    """Return the cores that a run used on average, and the bytes of memory at most; 0: unknown."""
    samples = record.samples
    found = [totals(samples, task.name) for task in record.plan.tasks]
    used = [one for one in found if one is not None]
    seconds = sum(one.cpu_seconds or 0.0 for one in used)
    return seconds / samples[-1].t if used else 0.0, sum(one.memory_peak or 0 for one in used)


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
    found = {task.name: _recorded(record, task.name) for task in plan.in_training}
    own = found.get(target)
    if own is not None and own.saves:
        return own
    saving = [one for one in found.values() if one.saves]
    return saving[0] if saving else (own or next(iter(found.values())))


def _recorded(record: Record, task: str) -> Recorded:
    rules = record.plan.step_rules(record.plan.task(task))
    return recorded(record.history, task, rules, str(record.path.resolve()))


def _folders(record: Record, task: str) -> list[tuple[str, str]]:
    """Return the folders that are another's in each run, with what a trigger has for them."""
    folder = record.path.resolve()
    return [(f"{folder}/shared", "/shared/"), (f"{folder}/work/{task}", "")]


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
