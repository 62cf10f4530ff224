"""The tracers of a run: one for each task that is held, or whose calls to the kernel count.

A task has one tracer at a time, whatever is done with it: `faults/held_call.py`, which follows
rules that come and go. A task that is `held` begins behind a gate, and is reported as running when
it is held at its first instruction; `go` lets all of them go on together.
"""

from __future__ import annotations

import itertools
import json
import signal
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from emulator.engines.base import Engine, Inbox
from emulator.engines.capabilities import capable
from emulator.errors import EmulatorError, EngineError, EngineLost, NotRunning
from emulator.faults.held_call import LINKS
from emulator.faults.spec import Effect, Holding, Rule
from emulator.faults.spec import path_pattern as path_pattern
from emulator.faults.tracer import program as tracer
from emulator.record.events import DiskMet, KernelCall, Refused

if TYPE_CHECKING:
    from emulator.faults.schedule import PlannedFault
    from emulator.planning.plan import Plan
    from emulator.runtime.clock import Workers
    from emulator.supervisor.engine_calls import Called

LIST = "list"
"""The id of the rule that records calls."""
LINES = r'\d|"phase"|[Cc]heckpoint|[Ss]av(?:e|ing)'
"""The lines of output that are recorded with the calls: they tell one save from the next."""


@dataclass
class _Traced:
    """What is done with a task, and how far its tracer is."""

    filtered: bool = False
    """A filter of the kernel stops it, and it ends with its tracer."""
    turn: threading.Lock = field(default_factory=threading.Lock)
    """The kernel lets one program trace a task: the next begins when the one before has ended."""
    rules: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What its tracer is to do, by id."""
    fault: PlannedFault | None = None
    """The fault before whose call it is held."""
    waiting: list[PlannedFault] = field(default_factory=list)
    """Those that begin to count when that one has happened."""
    stage: Literal["none", "to begin", "begun", "attached"] = "none"
    """Of its tracer; one that is to begin has not read the rules yet."""
    program: object = None
    """Its tracer, which may have to wait for its turn."""
    lines: list[str] = field(default_factory=list)
    """What is told once it is attached."""
    is_held: bool = False
    """It waits at its beginning."""
    of_held: Mapping[str, Rule] = field(default_factory=dict)
    """Those of the rules that are of held faults, such as those of a disk."""
    followed: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The ids of the rules that its tracer has said it follows, and what it said of each."""
    dropping: set[str] = field(default_factory=set)
    """The ids of rules of which its tracer has yet to say that they are over."""
    refusal: EmulatorError | None = None
    """Why its last tracer could not go on."""
    missed: EmulatorError | None = None
    """Why its calls can't be counted before it starts again."""
    has_begun: bool = False
    """It runs, and nobody traces it any more because nothing was to be done."""

    @property
    def is_needed(self) -> bool:
        """Return whether its tracer stays."""
        return self.filtered or bool(self.rules)

    def end(self) -> None:
        """Its tracer ends by itself, if nothing is left for it."""
        if self.stage != "none" and not self.is_needed:
            self.stage, self.program, self.has_begun = "none", None, True


class Tracing:
    """The tracers of a run; its calls but `begin` return at once."""

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        inbox: Inbox,
        workers: Workers,
        wall: Callable[[], float],
        answer: Callable[..., Called],
        lost: Callable[[str, EmulatorError], object],
    ) -> None:
        """`answer` makes a result of a call, with the fields of a `Called`.

        `lost` is told of a task whose tracer can't go on, though it followed rules of held faults.
        """
        self._engine, self._inbox, self._workers = engine, inbox, workers
        self._wall, self._answer = wall, answer
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._lost, self._numbers = lost, itertools.count()
        self._tasks = {task.name: _Traced(task.filtered) for task in plan.tasks}
        for task in plan.in_training if plan.calls_of else ():
            of = path_pattern(plan.calls_of)
            rule = {"do": "list", "id": LIST, "of": of, "lines": LINES}
            self._tasks[task.name].rules[LIST] = rule

    def begin(self, task: str, ran: Callable[[], object]) -> None:
        """Trace a task that has started behind a gate; blocks until its tracer ends.

        `ran` is called when it is held at its beginning, or can't be.
        """
        traced, once = self._tasks[task], _Once(ran)
        with self._lock:
            traced.stage, traced.program, traced.missed = "to begin", once, None
            traced.has_begun = False
        try:
            self._run(task, once, once)
        finally:
            once()

    def go(self) -> None:
        """Let all tasks go on that are held at their beginning."""
        with self._lock:
            for task, traced in self._tasks.items():
                if traced.is_held:
                    traced.is_held = False
                    self._tell(task, traced, {"go": True})
                    traced.end()

    def miss(self, task: str) -> None:
        """A task has run while nobody traced it: its calls can't be counted any more."""
        self._tasks[task].missed = _late(task)

    def watch(self, fault: PlannedFault) -> None:
        """Have the task held before the call with which a fault happens."""
        traced = self._tasks[fault.watched]
        with self._lock:
            if traced.fault not in (None, fault):
                if fault not in traced.waiting:
                    traced.waiting.append(fault)
            elif fault.id not in traced.rules or traced.stage == "none":
                self._count(fault, traced)

    def let_go(self, fault: PlannedFault) -> None:
        """Let the task go on that is held, or watched, for a fault."""
        traced = self._tasks[fault.watched]
        with self._lock:
            if fault in traced.waiting:
                traced.waiting.remove(fault)
            if traced.fault != fault:
                return
            traced.fault = None
            del traced.rules[fault.id]
            if traced.waiting:
                self._count(traced.waiting.pop(0), traced)
            if traced.is_needed:
                self._tell(fault.watched, traced, {"drop": [fault.id]})
            else:
                traced.end()
                let_go = capable(self._engine, Holding).let_go
                self._workers.submit(let_go, fault.watched)

    def follow(self, task: str, rules: Sequence[Rule]) -> list[Mapping[str, Any]]:
        """Have a task follow these rules of its held faults, and no others of them.

        Blocks until its tracer does, and has said that the others are over; returns what it has
        said of each. Raises NotRunning, EngineError.
        """
        traced = self._tasks[task]
        with self._lock:
            self._replace(task, traced, rules)
            try:
                self._await_followed(task, traced, traced.of_held.keys())
            except EmulatorError:
                self._replace(task, traced, [])
                raise
            self._changed.wait_for(lambda: not traced.dropping)
            return [traced.followed.get(id_, {}) for id_ in traced.of_held]

    def _replace(self, task: str, traced: _Traced, rules: Sequence[Rule]) -> None:
        """Have other rules of held faults from now on; those that stay are not interrupted."""
        before, of_held = dict(traced.of_held), dict[str, Rule]()
        for rule in rules:
            same = next((id_ for id_, one in before.items() if one == rule), None)
            if same is not None:
                del before[same]
            of_held[same or f"held {next(self._numbers)}"] = rule
        gone = [*before]
        new = {i: {**rule, "id": i} for i, rule in of_held.items() if i not in traced.of_held}
        traced.of_held = of_held
        traced.rules = {id_: one for id_, one in traced.rules.items() if id_ not in gone} | new
        if gone or new:
            if traced.stage in ("begun", "attached"):
                traced.dropping |= {*gone}
            told = {"add": [*new.values()], "drop": gone, "confirm": bool(gone)}
            self._tell(task, traced, told)
        if not traced.is_held:
            traced.end()

    def _await_followed(self, task: str, traced: _Traced, wanted: Collection[str]) -> None:
        """Trace a task if it is not, and wait until its tracer follows these rules."""
        while wanted:
            program = traced.program
            if traced.stage == "none":
                traced.followed.clear()
                traced.refusal = None
                program = self._begin_tracing(task, traced)
            self._changed.wait_for(
                lambda: traced.followed.keys() >= {*wanted} or traced.program is not program  # noqa: B023
            )
            if traced.followed.keys() >= {*wanted}:
                return
            if traced.refusal is not None:
                raise traced.refusal

    def _begin_tracing(self, task: str, traced: _Traced) -> object:
        program = traced.program = object()
        traced.stage = "to begin"
        self._workers.aside(partial(self._run, task, program))
        return program

    def _count(self, fault: PlannedFault, traced: _Traced) -> None:
        """Begin to count the calls before which a fault happens.

        A task that does not run is traced from its next beginning.
        """
        traced.fault = fault
        trigger = fault.trigger
        rule = {
            "do": "hold",
            "id": fault.id,
            "call": trigger.call,
            "count": trigger.call_number,
            "of": path_pattern(trigger.of or "*"),
        }
        traced.rules[fault.id] = rule
        if traced.missed is not None:
            self._can_t_count(traced, traced.missed)
        elif traced.stage != "none":
            self._tell(fault.watched, traced, {"add": [rule]})
        elif traced.has_begun:
            self._begin_tracing(fault.watched, traced)

    def _can_t_count(self, traced: _Traced, why: EmulatorError) -> None:
        """Say that a fault can't happen, since its task's calls can't be counted."""
        traced.missed = why
        if traced.fault is not None:
            answer = self._answer("watch", traced.fault.id, error=why, wall=self._wall())
            self._inbox.put(answer)

    def _tell(self, task: str, traced: _Traced, what: Mapping[str, Any]) -> None:
        line = json.dumps(what)
        if traced.stage == "attached":
            capable(self._engine, Holding).tell(task, line)
        elif traced.stage == "begun":
            traced.lines.append(line)

    # --- On a worker ----------------------------------------------------------------------------

    def _run(self, task: str, program: object, begun: _Once | None = None) -> None:
        """Trace a task until all have ended, or nothing is left to be done with it."""
        traced = self._tasks[task]
        try:
            with traced.turn:
                with self._lock:
                    if traced.program is not program:
                        return  # it was let go meanwhile
                    rules = [*traced.rules.values(), *([{"do": "begin"}] if begun else [])]
                    given = {*traced.rules}
                    traced.followed.clear()
                    traced.stage, traced.lines = "begun", []
                told = partial(self._told, task, traced, program, begun, given)
                try:
                    request = {"rules": rules, "filtered": traced.filtered}
                    capable(self._engine, Holding).hold(task, tracer(), request, told)
                finally:
                    with self._lock:
                        traced.dropping.clear()
        except NotRunning as gone:
            traced.refusal = gone  # it is traced again as soon as it runs again
        except EmulatorError as refusal:
            self._refused(task, traced, refusal)
        except Exception as defect:
            self._refused(task, traced, EngineLost(f"Tracing {task} failed: {defect!r}"))
        finally:
            with self._lock:
                if traced.program is program:
                    traced.stage, traced.program, traced.is_held = "none", None, False
                    traced.has_begun = not traced.rules
                self._changed.notify_all()

    def _told(
        self,
        task: str,
        traced: _Traced,
        program: object,
        begun: _Once | None,
        given: set[str],
        line: str,
    ) -> None:
        """Take a line of a tracer. Raises EngineError for what it can't do."""
        try:
            answer = json.loads(line)
        except ValueError:  # no answer of the program: it could not run
            answer = {"error": line.strip()}
        match answer:
            case {"error": why}:
                if begun is not None and not begun.was_called:
                    self._engine.signal(task, signal.SIGCONT)  # the gate waits in vain
                raise EngineError(f"{task}: {why}.")
            case {"attached": _}:
                with self._lock:
                    if traced.program is not program:  # it was let go meanwhile
                        capable(self._engine, Holding).let_go(task)
                        return
                    if answer.get("late"):
                        self._late(task, traced)
                    traced.stage = "attached"
                    traced.followed |= {id_: {} for id_ in given - {*answer.get("later", ())}}
                    for waiting in traced.lines:
                        capable(self._engine, Holding).tell(task, waiting)
                    self._changed.notify_all()
            case {"added": ids, **said}:
                with self._lock:
                    if traced.program is program:
                        traced.followed |= dict.fromkeys(ids, said)
                    self._changed.notify_all()
            case {"dropped": ids}:
                with self._lock:
                    traced.dropping -= {*ids}
                    self._changed.notify_all()
            case {"begun": _} if begun is not None:
                traced.is_held = True
                self._workers.aside(begun)  # it may wait for what the tracer says next
            case {"held": _}:
                fault = traced.fault
                if fault is not None:
                    effect = Effect(held_in_words(task, fault.trigger.call, answer))
                    called = self._answer("watch", fault.id, effect=effect, wall=self._wall())
                    self._inbox.put(called)
            case {"met": _, "name": name, "path": path}:
                self._inbox.put(DiskMet(task=task, wall=self._wall(), call=name, path=path))
            case {"call": _} | {"line": _}:
                known = ("call", "path", "to", "bytes", "line")
                fields = {key: answer[key] for key in known if key in answer}
                self._inbox.put(KernelCall(task=task, wall=self._wall(), **fields))

    def _late(self, task: str, traced: _Traced) -> None:
        """A task was found when it had begun: calls of it have not been counted."""
        self._can_t_count(traced, late := _late(task))
        if LIST in traced.rules:
            self._inbox.put(Refused(task=task, operation="tracing", reason=late.message))

    def _refused(self, task: str, traced: _Traced, refusal: EmulatorError) -> None:
        with self._lock:
            traced.refusal = refusal
            was_followed = bool(traced.of_held.keys() & traced.followed.keys())
        if was_followed:
            self._lost(task, refusal)
        if traced.fault is not None:
            self._can_t_count(traced, refusal)
        elif not traced.of_held:
            self._inbox.put(Refused(task=task, operation="tracing", reason=refusal.message))


class _Once:
    """A call that is made once."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call, self.was_called = call, False

    def __call__(self) -> None:
        """Make it, unless it was made."""
        if not self.was_called:
            self.was_called = True
            self._call()


def _late(task: str) -> EngineError:
    return EngineError(f"{task} had begun before it was traced: calls of it may have been missed.")


def held_in_words(task: str, call: str, answer: Mapping[str, Any]) -> str:
    """Return before what a task is held, from the answer of `held_call` (pure)."""
    size = f" of {answer['bytes']:,} bytes" if "bytes" in answer else ""
    by = " by a link" if answer["held"] in LINKS else ""
    return f"{task} was about to make {call} {answer['number']}{size}{by}: {answer['path']}"
