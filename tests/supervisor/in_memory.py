"""Runs of a scenario on the memory engine, and what their histories say."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from emulator.engines.base import Inbox
from emulator.engines.memory import MemoryEngine, Script, Scripts
from emulator.faults import saved_files
from emulator.planning.requested import RunOptions
from emulator.record.events import Entry, FaultEvent, TaskStart
from emulator.record.reader import Record
from emulator.record.writer import RunWriter, Subscriber
from emulator.report.event_text import describe
from emulator.results import Result, RunCallbacks
from emulator.runtime.clock import AtOnce, ManualClock, Workers
from emulator.session.ready import make_ready
from emulator.session.run import up
from emulator.supervisor.control import Asked, RunControl
from emulator.supervisor.supervisor import Supervisor
from emulator.supervisor.takeover import RecoveredState, recover_run
from tests.asked import asked

BASE = "name: test\nframework: none\nimage: none\nprogram: {command: ['true']}\n"
SERVES = Script(exits_at=None)
DEAF = Script(exits_at=None, on_sigterm=None)
AT_ONCE = AtOnce()


class Late(AtOnce):
    """Makes such calls so many seconds late: of an operation, of a `Task`, or what goes `aside`."""

    def __init__(self, clock: ManualClock, operation: str, seconds: float) -> None:
        self._clock, self._operation, self._seconds = clock, operation, seconds

    def submit(self, call: Callable[..., Any], /, *args: object) -> None:
        given = (*getattr(call, "args", ()), *args)
        whose = type(given[0]).__name__ if given else "aside"
        operation = getattr(given[0], "operation", whose) if given else whose
        if self._seconds and operation == self._operation:
            self._clock.call_at(self._clock.now() + self._seconds, partial(call, *args))
        else:
            call(*args)

    aside = submit


class Files(MemoryEngine):
    """Notes the programs that are run where the files of tasks are."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    def run_at_files(self, where: str, program: str, request: Mapping[str, Any]) -> str:
        self.asked.append((where, request))
        return json.dumps({"answers": [{"pid": 7, "did": "it"}]})

    def talk_at_files(
        self, where: str, program: str, request: Mapping[str, Any], said: str
    ) -> Generator[str, str | None, None]:
        raise AssertionError("see Everything")
        yield


class Everything(Files):
    """Traces what it is asked to, fills volumes, and really changes the files of a folder."""

    def __init__(self, *args: Any, shared: Path, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.shared = shared
        self._talks: list[Generator[Any, None, Any]] = []

    def talk_at_files(
        self, where: str, program: str, request: Mapping[str, Any], said: str
    ) -> Generator[str, str | None, None]:
        self.asked.append((where, request))
        asked = {**request, "folder": str(self.shared)}
        self._talks.append(
            talk := saved_files.talk(asked | ({"plan": json.loads(said)} if said else {}))
        )
        try:
            yield json.dumps({"plan": next(talk)})
            next(talk)
        except StopIteration as end:
            yield json.dumps(end.value)

    def reattach(self, *args: Any) -> dict[str, str]:
        for talk in self._talks:  # they end with who has asked
            talk.close()
        return super().reattach(*args)

    def hold(self, task: str, program: str, request: Any, told: Callable[[str], None]) -> None:
        told(json.dumps({"attached": 2}))

    def tell(self, task: str, line: str) -> None: ...

    def let_go(self, task: str) -> None: ...

    def fill(self, volume: str) -> int:
        return 1

    def give_room(self, volume: str) -> None: ...


def step(number: int) -> str:
    return f'{{"emulate": "step", "step": {number}}}'


def scalars(task: str, number: int, wall: float, begun: float, **values: float) -> str:
    """Return what the reader of event files prints of a step."""
    of = {"emulate": "scalars", "task": task, "file": "events", "begun": begun, "wall": wall}
    return json.dumps({**of, "step": number, "values": values})


def trains(until: int = 40, *, first: float = 1.0, since: int = 0) -> Script:
    """A step a second from the one after `since` on, the first after so many."""
    lines = [(first + n, step(since + n + 1)) for n in range(until - since)]
    return Script(lines, exits_at=first + until - since)


def run(
    tmp_path: Path,
    extra: str,
    scripts: Scripts,
    callbacks: RunCallbacks = RunCallbacks(),
    **kwargs: Any,
) -> tuple[Result, MemoryEngine]:
    """Run the scenario BASE + `extra`; `kwargs` are the engine's."""
    engine = MemoryEngine(ManualClock(), scripts, **kwargs)
    return run_on(engine, tmp_path, extra, callbacks=callbacks), engine


def run_on(
    engine: MemoryEngine,
    tmp_path: Path,
    extra: str,
    *,
    base: str = BASE,
    callbacks: RunCallbacks = RunCallbacks(),
    **options: Any,
) -> Result:
    """Run the scenario `base` + `extra` on an engine; `options` are those of a run."""
    how = RunOptions(out=tmp_path, **options)
    result = up(asked(base + extra), engine, how, clock=engine._clock, callbacks=callbacks)
    assert engine.find() == []  # whatever happened, nothing is left
    return result


def inbox_of(engine: MemoryEngine) -> Inbox:
    """Return where a test has something happen to a run."""
    assert engine._inbox is not None
    return engine._inbox


def history(result: Result) -> list[Entry]:
    return list(Record(result.folder).history)


def times(entries: Iterable[Entry], event: str, task: str | None = None) -> list[float]:
    return [e.t for e in entries if e.event == event and task in (None, e.task)]


def starts(result: Result) -> list[tuple[str, float]]:
    return [(e.task, e.t) for e in history(result) if e.event == "start"]


def restarts(entries: Iterable[Entry]) -> list[tuple[str, float, bool]]:
    """Return when which task started again, and whether on a fresh disk."""
    begun = [(e.task, e.t, e.fresh) for e in entries if isinstance(e, TaskStart)]
    return [one for n, one in enumerate(begun) if one[0] in {task for task, *_ in begun[:n]}]


def faults(entries: Iterable[Entry], fault: str = "0") -> list[FaultEvent]:
    return [e for e in entries if isinstance(e, FaultEvent) and e.id == fault]


def stages(entries: Iterable[Entry], fault: str = "0") -> list[tuple[str, float]]:
    return [(e.stage, e.t) for e in faults(entries, fault)]


def in_words(entries: Iterable[Entry], fault: str = "0") -> list[tuple[str, float, str]]:
    return [(e.stage, e.t, describe(e)) for e in faults(entries, fault)]


class Job:
    """A run of which things are asked at some times; a supervisor may take it over from another."""

    supervisor: Supervisor
    """At work now."""

    def __init__(self, out: Path, text: str, engine: MemoryEngine) -> None:
        self.engine, self.clock = engine, engine._clock
        self.plan, self.folder = make_ready(asked(text), engine, RunOptions(out=out, run_id="run"))

    @property
    def history(self) -> list[Entry]:
        return list(Record(self.folder).history)

    def begin(self, told: Subscriber = RunCallbacks(), workers: Workers = AT_ONCE) -> str:
        """Supervise the run to its end; return its outcome."""
        record = RunWriter(self.folder, self.plan, "", self.clock)
        return self._supervise(record, told, workers, None)

    def take_over(self, told: Subscriber = RunCallbacks(), workers: Workers = AT_ONCE) -> str:
        """Do so after a supervisor that was killed."""
        record = RunWriter.reopen(Record(self.folder), self.clock)
        recovered = recover_run(self.plan, record, self.clock.now() - record.t)
        return self._supervise(record, told, workers, recovered)

    def _supervise(
        self,
        record: RunWriter,
        told: Subscriber,
        workers: Workers,
        recovered: RecoveredState | None,
    ) -> str:
        self.supervisor = Supervisor(
            self.plan,
            self.engine,
            record,
            clock=self.clock,
            workers=workers,
            recovered=recovered,
        )
        try:
            with record.telling(told):
                return self.supervisor.run().outcome
        finally:
            workers.close()
            record.close()

    def asks(self, when: float, what: Callable[[RunControl], Any]) -> Future[Any]:
        reply: Future[Any] = Future()

        def ask() -> None:
            control = self.supervisor.control
            self.supervisor.inbox.put(Asked(lambda: what(control), reply))

        self.clock.call_at(ManualClock.BEGAN + when, ask)
        return reply
