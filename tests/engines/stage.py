"""An engine with a prepared plan, without a supervisor: what its tasks print, and their ends."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from emulator.engines.base import Configuring, Engine, Exited, Line, Measuring
from emulator.engines.capabilities import capable
from emulator.metrics.catalog import Usage
from emulator.planning.plan import Plan, new_run_id
from emulator.planning.planner import make_plan
from emulator.record.events import EngineNote, OutputLeftOut
from emulator.runtime.clock import Clock, RealClock
from emulator.scenario.schema import Scenario
from tests.conftest import going_on
from tests.engines.inbox import EachLine


class Stage:
    """An engine with a prepared plan, and its events so far."""

    def __init__(self, engine: Engine, clock: Clock, plan: Plan, folder: Path) -> None:
        self.engine, self.clock, self.plan, self.folder = engine, clock, plan, folder
        self.inbox = EachLine()
        self.lines: dict[str, list[str]] = {}
        self.drawn: list[tuple[str, int]] = []
        """What was drawn, and how many lines its task had printed by then."""
        self.exits: dict[str, list[Exited]] = {}
        self.unread: list[OutputLeftOut] = []
        engine.prepare(plan, folder, self.inbox)

    def start(self, task: str = "worker-0", until: str = "") -> str:
        """Start a task, and wait until it has printed a line."""
        started = self.engine.start(self.plan.task(task))
        if until:
            self.until_line(task, until)
        return started

    def until_line(self, task: str, text: str) -> None:
        self._until(lambda: text in self.lines.get(task, []), f"{task} printing {text!r}")

    def until_line_that_begins(self, task: str, begin: str) -> None:
        def printed() -> bool:
            return any(line.startswith(begin) for line in self.lines.get(task, []))

        self._until(printed, f"{task} printing {begin!r}")

    def until_found(self, task: str, holds: Callable[[str], bool]) -> str:
        """Wait for a line of which that holds; forget it and those before it."""
        found: list[str] = []

        def look() -> bool:
            lines = self.lines.get(task, [])
            found.extend(line for line in lines if holds(line))
            del lines[: lines.index(found[0]) + 1 if found else len(lines)]
            return bool(found)

        self._until(look, f"a line of {task}")
        return found[0]

    def until_exit(self, task: str = "worker-0", number: int = 1) -> Exited:
        self._until(lambda: len(self.exits.get(task, [])) >= number, f"the end of {task}")
        return self.exits[task][number - 1]

    def until_quiet(self) -> None:
        """Take the lines that are on their way, until none comes for a while."""
        while event := self.clock.next_event(self.inbox, self.clock.now() + 0.3):
            assert isinstance(event, Line)
            self.lines.setdefault(event.task, []).append(event.text)

    def measured(self, task: str = "worker-0") -> Usage:
        """Return what a task uses; an engine may measure only every some seconds."""
        deadline = self.clock.now() + 90
        while task not in (found := capable(self.engine, Measuring).usage()):
            event = self.clock.next_event(self.inbox, self.clock.now() + 1)
            assert event is None or isinstance(event, EngineNote), event
            assert self.clock.now() < deadline
        return found[task]

    def _until(self, reached: Callable[[], bool], what: str) -> None:
        deadline = self.clock.now() + 240
        while not reached():
            match self.clock.next_event(self.inbox, deadline):
                case Line(task=task, text=text, is_finished=False):
                    self.drawn.append((text, len(self.lines.get(task, []))))
                case Line(task=task, text=text):
                    self.lines.setdefault(task, []).append(text)
                case EngineNote():
                    pass  # nothing follows from it
                case OutputLeftOut() as unread:
                    self.unread.append(unread)
                case Exited() as exited:
                    self.exits.setdefault(exited.task, []).append(exited)
                case other:
                    raise AssertionError(f"waiting for {what}, got {other}; so far {self.lines}")


@contextlib.contextmanager
def staged(
    engine: Engine, scenario: Scenario, folder: Path, clock: Clock | None = None, **options: Any
) -> Iterator[Stage]:
    """Prepare a run of a scenario below a folder; at the end nothing is left of it."""
    if isinstance(engine, Configuring):
        engine.configure(scenario)
    run_id = new_run_id(scenario.name)
    own = folder / run_id
    own.mkdir()
    plan = make_plan(scenario, run_id, engine.plan_context(run_id, own), **options)
    (own / "plan.json").write_text(plan.model_dump_json())  # as `RunWriter` does
    with going_on(own), contextlib.closing(engine):
        try:
            yield Stage(engine, clock or RealClock(), plan, own)
        finally:
            engine.tear_down(run_id)
        assert engine.find(run_id) == []


def shells(scripts: Mapping[str, str], image: str = "none", **keys: Any) -> Scenario:
    """Return a scenario whose roles run shell scripts."""
    return Scenario.model_validate(
        {
            "name": "stage",
            "framework": "none",
            "image": image,
            "program": {"command": ["true"]},
            "cluster": {role: {"command": ["sh", "-c", one]} for role, one in scripts.items()},
            **keys,
        }
    )


def free_port() -> int:
    """Return a port of this machine that nothing listened on a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
