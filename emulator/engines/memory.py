"""The shipped fake: a cluster in memory on a manual clock, for tests in milliseconds.

What a task does is a `Script`: lines at given times, then an exit code. Scripts are looked up by
task name or glob; `run` counts the starts of a task, so that a script can fail only once.
"""

from __future__ import annotations

import fnmatch
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from emulator.broker import Capacity
from emulator.engines.base import CAPABILITIES, Exited, Inbox, KnownOutput, Line, Resource
from emulator.engines.lines import overlap
from emulator.errors import EngineError
from emulator.faults.netem import Link
from emulator.metrics.samples import Usage
from emulator.planning.plan import TASK_PORT, Plan, PlanContext, Task
from emulator.runtime.clock import ManualClock
from emulator.scenario.schema import Dockerfile, Scenario

__all__ = ["MemoryEngine", "Script"]


@dataclass(frozen=True)
class Script:
    """What a task does each time it is started."""

    lines: Sequence[tuple[float, str]] = ()
    """(seconds since the task's start, what it prints)."""
    exits_at: float | None = 0.0
    """Seconds since the task's start; None: it runs until it is stopped."""
    exit_code: int = 0
    oom_killed: bool = False
    on_sigterm: float | None = 0.0
    """Seconds from SIGTERM to its exit with 143; None: it ignores the signal."""
    cpus: float = 0.0
    """Cores that it uses all the time."""
    memory: int = 0
    """Bytes that it uses all the time."""


Scripts = Mapping[str, Script | Callable[[int], Script]]


@dataclass
class _Running:
    starts: int = 0
    """On this disk."""
    alive: int = 0
    """The number of the start that is running now, 0 for none."""
    life: int = 0
    """The last one."""
    began: float = 0.0
    end: Exited | None = None
    """How its last start ended."""
    printed: list[str] = field(default_factory=list)
    """By all starts on this disk."""
    read: int = 0
    """How many of these lines the inbox has got."""
    frozen: bool = False
    missed: list[Callable[[], None]] = field(default_factory=list)
    """What it would have done while it was frozen."""


@dataclass
class _World:
    """What exists outside an engine object and survives it, as containers do."""

    tasks: dict[str, dict[str, _Running]] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    lives: int = 0


class MemoryEngine:
    """Runs scripts instead of programs; time is the clock's."""

    name = "memory"
    machine_needs: Mapping[str, str] = {}
    keeps_addresses = True

    def __init__(
        self,
        clock: ManualClock,
        scripts: Scripts | None = None,
        *,
        gpus: Sequence[str] = (),
        fails_to_start: Sequence[str] = (),
        measured: bool = False,
    ) -> None:
        """`measured`: samples are taken, which gives the clock an appointment at each interval."""
        self._clock = clock
        self._scripts = dict(scripts or {})
        self._gpus = tuple(gpus)
        self._fails = frozenset(fails_to_start)
        self.capabilities = frozenset(CAPABILITIES) - (set() if measured else {"usage"})
        self._world = _World()
        self._run_id = ""
        self._inbox: Inbox | None = None
        self.cpus: list[tuple[str, float | None]] = []
        """Every change of a CPU limit, for tests to look at."""
        self.links: list[tuple[Link, ...]] = []
        """Every change of the network, for tests to look at."""
        self.signals: list[tuple[str, int]] = []
        """Every signal that was sent, for tests to look at."""

    def plan_context(self, run_id: str, folder: Path) -> PlanContext:
        """Describe the engine to the plan."""

        def image(wanted: str | Dockerfile) -> str:
            return wanted if isinstance(wanted, str) else str(wanted.dockerfile)

        return PlanContext(
            self.name, lambda task: (task, TASK_PORT), image, lambda: self._gpus, "/shared"
        )

    def capacity(self) -> Capacity:
        """Return plenty: scripts use nothing."""
        return Capacity(cpus=1000, memory=2**50, gpus=self._gpus)

    def ensure_images(self, scenario: Scenario, say: Callable[[str], None]) -> None:
        """Every image is there."""

    def prepare(self, plan: Plan, folder: Path, inbox: Inbox) -> None:
        """Make the run known."""
        self._run_id, self._inbox = plan.run_id, inbox
        self._world.tasks[plan.run_id] = {}
        self._world.folders[plan.run_id] = str(folder)

    def start(self, task: Task, *, same_address: bool = False) -> str:
        """Schedule everything that the task's script will do."""
        if task.name in self._fails:
            raise EngineError(f"{task.name} can't start here.", "It was told not to.")
        running = self._tasks().setdefault(task.name, _Running())
        running.starts += 1
        self._world.lives += 1
        running.frozen, running.missed, running.end = False, [], None
        running.alive = running.life = life = self._world.lives
        running.began = self._clock.wall()
        self._tell_rest(task.name, running)
        script = self._script(task.name, running.starts)
        begin = self._clock.now()
        for after, text in script.lines:
            self._clock.call_at(begin + after, lambda text=text: self._say(task.name, life, text))  # type: ignore[misc]
        if script.exits_at is not None:
            end = Exited(task.name, 0, script.exit_code, script.oom_killed)
            self._clock.call_at(begin + script.exits_at, lambda: self._end(life, end))
        return f"memory-{task.name}-{life}"

    def reattach(
        self, plan: Plan, folder: Path, inbox: Inbox, lives: Mapping[str, KnownOutput]
    ) -> dict[str, str]:
        """Report to the new inbox from now on, and what has happened meanwhile."""
        self._run_id, self._inbox = plan.run_id, inbox
        ids = {}
        for task, running in self._tasks().items():
            running.read = overlap(lives[task].printed, running.printed)
            if running.began >= lives[task].since:
                ids[task] = f"memory-{task}-{running.life}"
                self._tell_rest(task, running)
                if running.end is not None:
                    inbox.put(running.end)
        return ids

    def signal(self, task: str, number: int) -> None:
        """End the task as its script says it takes the signal."""
        self.signals.append((task, number))
        running = self._tasks().get(task)
        if running is None or not running.alive:
            return
        life = running.alive
        script = self._script(task, running.starts)
        delay = 0.0 if number == signal.SIGKILL else script.on_sigterm
        if delay is not None:
            end = Exited(task, 0, 128 + number)
            self._clock.call_at(self._clock.now() + delay, lambda: self._end(life, end))

    def pause(self, task: str) -> None:
        """Delay what the task would do."""
        running = self._tasks().get(task)
        if running is None or not running.alive:
            raise EngineError(f"Can't pause {task}: it does not run.")
        running.frozen = True

    def resume(self, task: str) -> None:
        """Let the task do what it has missed, and continue."""
        running = self._tasks().get(task)
        if running is not None and running.frozen:
            running.frozen = False
            missed, running.missed = running.missed, []
            for action in missed:
                action()

    def throttle(self, task: str, cpus: float | None) -> None:
        """Note the limit; scripts keep their time."""
        self.cpus.append((task, cpus))

    def oom_kill(self, task: str) -> None:
        """End the task as the kernel does."""
        running = self._tasks().get(task)
        if running is not None and running.alive:
            self._end(running.alive, Exited(task, 0, 128 + signal.SIGKILL, oom_killed=True))

    @property
    def can_shape(self) -> bool:
        """Nothing has to be made."""
        return True

    def equip(self, say: Callable[[str], None]) -> None:
        """Nothing has to be made."""

    def shape(self, links: Sequence[Link]) -> None:
        """Note the links; scripts send nothing."""
        self.links.append(tuple(links))

    def usage(self) -> Mapping[str, Usage]:
        """Return what the scripts say that they use."""
        used = {}
        for name, running in self._tasks().items():
            if running.alive:
                script = self._script(name, running.starts)
                seconds = self._clock.wall() - running.began
                used[name] = Usage(cpu=script.cpus * seconds, memory=script.memory, processes=1)
        return used

    def pids(self) -> Mapping[str, Collection[int]]:
        """Scripts have no processes."""
        return {}

    def remove(self, task: str) -> None:
        """Forget the task; one that runs ends as if killed."""
        running = self._tasks().pop(task, None)
        if running and running.alive and self._inbox:
            self._inbox.put(Exited(task, self._clock.wall(), 128 + signal.SIGKILL))

    def tear_down(self, run_id: str) -> int:
        """Forget the run, its tasks first."""
        tasks = list(self._world.tasks.get(run_id, {}))
        if run_id == self._run_id:
            for task in tasks:
                self.remove(task)
        self._world.tasks.pop(run_id, None)
        return len(tasks)

    def find(self, run_id: str | None = None) -> list[Resource]:
        """Return the tasks of runs that were not torn down."""
        return [
            Resource(run, "task", name, "running" if task.alive else "exited", folder, "memory")
            for run, tasks in self._world.tasks.items()
            if run_id in (None, run)
            for folder in [self._world.folders[run]]
            for name, task in tasks.items()
        ]

    def close(self) -> None:
        """There is nothing to close."""

    def _tasks(self) -> dict[str, _Running]:
        return self._world.tasks.get(self._run_id, {})

    def _script(self, task: str, start: int) -> Script:
        for pattern, script in self._scripts.items():
            if fnmatch.fnmatchcase(task, pattern):
                return script if isinstance(script, Script) else script(start)
        return Script()

    def _say(self, task: str, life: int, text: str) -> None:
        running = self._tasks().get(task)
        if running is None or running.alive != life:
            return
        if running.frozen:
            running.missed.append(lambda: self._say(task, life, text))
        else:
            running.printed.append(text)
            self._tell_rest(task, running)

    def _tell_rest(self, task: str, running: _Running) -> None:
        """Report lines that were printed and not read, as a followed log does."""
        for text in running.printed[running.read :]:
            if self._inbox:
                self._inbox.put(Line(task, self._clock.wall(), text))
        running.read = len(running.printed)

    def _end(self, life: int, end: Exited) -> None:
        """Report the exit of one start, once: by script, signal or removal, whichever is first."""
        running = self._tasks().get(end.task)
        if self._inbox is None or running is None or running.alive != life:
            return
        if running.frozen and end.exit_code != 128 + signal.SIGKILL:
            running.missed.append(lambda: self._end(life, end))
            return
        running.frozen = False
        running.alive = 0
        running.end = Exited(end.task, self._clock.wall(), end.exit_code, end.oom_killed)
        self._inbox.put(running.end)
