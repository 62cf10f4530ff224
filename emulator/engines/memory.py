"""A fake engine: a cluster in memory on a manual clock, for tests in milliseconds.

What a task does is a `Script`: lines at given times, then an exit code. Scripts are looked up by
task name or glob; `run` counts the starts of a task, so that a script can fail only once.
"""

from __future__ import annotations

import fnmatch
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.engines.base import Exited, Inbox, Line, Resource, ResumePoint
from emulator.engines.capabilities import capabilities
from emulator.engines.kit.lines import overlap
from emulator.errors import EngineError, NotRunning
from emulator.faults.spec import Cordoned
from emulator.metrics.catalog import Usage
from emulator.planning.claims import Capacity
from emulator.planning.context import TASK_PORT, PlanContext
from emulator.scenario.schema import AnyImage, Dockerfile, Scenario

if TYPE_CHECKING:
    from emulator.faults.netem import Link
    from emulator.faults.platforms.notices import Notice
    from emulator.faults.spec import Via
    from emulator.planning.plan import Plan, Task
    from emulator.runtime.clock import ManualClock
    from emulator.scenario.container import Port


@dataclass(frozen=True)
class Script:
    """What a task does each time it is started."""

    lines: Sequence[tuple[float, str]] = ()
    """(seconds since the task's start, what it prints)."""
    drawings: Sequence[tuple[float, str]] = ()
    """The same of what it draws on a line that it has not finished."""
    exits_at: float | None = 0.0
    """Seconds since the task's start; None: it runs until it is stopped."""
    exit_code: int = 0
    oom_killed: bool = False
    on_sigterm: float | None = 0.0
    """Seconds from SIGTERM to its exit; None: it ignores the signal."""
    sigterm_code: int = 128 + signal.SIGTERM
    """The code of that exit: 0 of a program that saves and ends in order."""
    reported_after: float = 0.0
    """Seconds by which the engine, on a busy machine, reports its exit late."""
    cpus: float = 0.0
    """Cores that it uses all the time."""
    memory: int = 0
    """Bytes that it uses all the time."""


Scripts = Mapping[str, Script | Callable[[int], Script]]


@dataclass
class _Task:
    """A task on its disk."""

    starts: int = 0
    """On this disk."""
    start: int = 0
    """The number of the last one, among all starts of all tasks."""
    began: float = 0.0
    """Its time (seconds since 1970)."""
    end: Exited | None = None
    """How it ended; None: it runs."""
    printed: list[str] = field(default_factory=list)
    """By all starts on this disk."""
    read: int = 0
    """How many of these lines are in the inbox."""
    cpus: float | None = None
    """The limit that a throttle has left to it, on this disk."""
    frozen: bool = False
    delayed: list[Callable[[], None]] = field(default_factory=list)
    """What it would have done while it was frozen."""
    node: str = ""
    """Where it runs, of a cluster's."""
    leaving: bool = False
    """It was asked to end by `preempt`."""


@dataclass
class _Run:
    folder: str
    tasks: dict[str, _Task] = field(default_factory=dict)


class MemoryEngine:
    """Runs scripts instead of programs; time is the clock's."""

    name = "memory"
    machine_needs: Mapping[str, str] = {}
    keeps_addresses = True
    kill_slack = 60.0

    def __init__(
        self,
        clock: ManualClock,
        scripts: Scripts | None = None,
        *,
        gpus: Sequence[str] = (),
        fails_to_start: Sequence[str] = (),
        measured: bool = False,
        nodes: Sequence[str] = (),
        budget: Sequence[str] = (),
    ) -> None:
        """`measured`: samples are taken, for which the clock stops at each interval.

        With `nodes` it acts as a cluster: a task is started on the node that has the fewest, and
        ends its own grace periods. A disruption budget forbids to evict the tasks of `budget`.
        """
        self._clock = clock
        self._scripts = dict(scripts or {})
        self._gpus = tuple(gpus)
        self._fails = frozenset(fails_to_start)
        self.cordoned: dict[str, str] = {}
        """The nodes that take no task now, and for which task."""
        self._nodes, self._budget = tuple(nodes), frozenset(budget)
        lacking = {"pods"}
        if not measured:
            lacking.add("usage")
        if not nodes:
            lacking |= {"own-grace", "eviction", "nodes"}
        known = capabilities().items()
        own = {name for name, methods in known if methods is None or isinstance(self, methods)}
        self.capabilities = frozenset(own - lacking)
        self._runs: dict[str, _Run] = {}
        self._starts = 0
        self._ports: dict[str, Sequence[Port]] = {}
        self._run_id = ""
        self._inbox: Inbox | None = None
        # For tests to look at: every change of a CPU limit or of the network, every signal, every
        # notice, and whose notices were withdrawn.
        self.cpus: list[tuple[str, float | None]] = []
        self.links: list[tuple[Link, ...]] = []
        self.signals: list[tuple[str, int]] = []
        self.notices: list[Notice] = []
        self.withdrawn: list[str] = []

    def plan_context(self, run_id: str, folder: Path) -> PlanContext:
        """Describe the engine to the plan."""

        def reference(image: AnyImage) -> str:
            if isinstance(image, str):
                return image
            return str(image.dockerfile) if isinstance(image, Dockerfile) else image.name

        return PlanContext(
            self.name,
            lambda task: (task, TASK_PORT),
            reference,
            lambda: self._gpus,
            "/shared",
            named=True,
        )

    def capacity(self) -> Capacity:
        """Return more than any test needs: scripts use nothing."""
        return Capacity(cpus=1000, memory=2**50, gpus=self._gpus)

    def ensure_images(self, scenario: Scenario, say: Callable[[str], None]) -> None:
        """Every image is there."""

    def prepare(self, plan: Plan, folder: Path, inbox: Inbox) -> None:
        """Add the run."""
        self._run_id, self._inbox = plan.run_id, inbox
        self._ports = {one.name: one.ports for one in plan.everything}
        self._runs[plan.run_id] = _Run(str(folder))

    def start(self, task: Task, *, same_address: bool = False) -> str:
        """Schedule everything that the task's script will do."""
        if task.name in self._fails:
            raise EngineError(f"{task.name} can't start here.", "The test has requested that.")
        one = self._tasks().setdefault(task.name, _Task())
        one.node, one.leaving = self._free_node(task.name), False
        one.starts += 1
        self._starts += 1
        one.start = start = self._starts
        one.frozen, one.delayed, one.end = False, [], None
        one.began = self._clock.wall()
        self._report_rest(task.name, one)
        script = self._script(task.name, one.starts)
        begin = self._clock.now()
        for after, text in script.lines:
            self._clock.call_at(begin + after, partial(self._print, task.name, start, text))
        for after, text in script.drawings:
            self._clock.call_at(begin + after, partial(self._draw, task.name, start, text))
        if script.exits_at is not None:
            end = Exited(task.name, 0, script.exit_code, script.oom_killed)
            self._clock.call_at(begin + script.exits_at, partial(self._end, start, end))
        return f"memory-{task.name}-{start}"

    def reattach(
        self, plan: Plan, folder: Path, inbox: Inbox, lives: Mapping[str, ResumePoint]
    ) -> dict[str, str]:
        """Report to the new inbox from now on, and what has happened meanwhile."""
        self._run_id, self._inbox = plan.run_id, inbox
        ids = {}
        for name, task in self._tasks().items():
            task.read = overlap(lives[name].printed, task.printed)
            if task.began >= lives[name].since:
                ids[name] = f"memory-{name}-{task.start}"
                self._report_rest(name, task)
                if task.end is not None:
                    inbox.put(task.end)
        return ids

    def signal(self, task: str, number: int) -> None:
        """End the task as its script says it takes the signal."""
        self.signals.append((task, number))
        one = self._running(task)
        if one and number != signal.SIGCONT:  # which ends no program
            script = self._script(task, one.starts)
            delay = 0.0 if number == signal.SIGKILL else script.on_sigterm
            if delay is not None:
                code = script.sigterm_code if number == signal.SIGTERM else 128 + number
                end = Exited(task, 0, code)
                self._clock.call_at(self._clock.now() + delay, partial(self._end, one.start, end))

    def signal_all(self, task: str, numbers: Sequence[int]) -> int | None:
        """Send the task the signals: a script has one process."""
        runs = self._running(task) is not None
        for number in numbers:
            self.signal(task, number)
        return int(runs)

    def pause(self, task: str) -> None:
        """Delay what the task would do."""
        one = self._running(task)
        if one is None:
            raise NotRunning(f"Can't pause {task}: it does not run.")
        one.frozen = True

    def resume(self, task: str) -> None:
        """Let the task do what was delayed, and continue."""
        one = self._tasks().get(task)
        if one is not None and one.frozen:
            one.frozen = False
            delayed, one.delayed = one.delayed, []
            for action in delayed:
                action()

    def throttle(self, task: str, cpus: float | None) -> None:
        """Record the limit; scripts take as long as before."""
        one = self._tasks().get(task)
        if one is None:
            raise NotRunning(f"Can't limit the CPU of {task}: there is no such task.")
        one.cpus = cpus
        self.cpus.append((task, cpus))

    def oom_kill(self, task: str) -> None:
        """End the task as the kernel does."""
        if one := self._running(task):
            self._end(one.start, Exited(task, 0, 128 + signal.SIGKILL, oom_killed=True))

    def cut_power(self, task: str) -> None:
        """End the task at once; scripts send nothing."""
        if one := self._running(task):
            self._end(one.start, Exited(task, 0, 128 + signal.SIGKILL))

    def announce(self, notice: Notice) -> None:
        """Record the notice; scripts ask nothing."""
        if self._running(notice.task) is None:
            raise NotRunning(f"{notice.task} can't be told: it does not run.")
        self.notices.append(notice)

    def withdraw(self, task: str) -> None:
        """Record it."""
        self.withdrawn.append(task)

    def preempt(self, task: str, grace: float, via: Via | None) -> str:
        """Send SIGTERM, and SIGKILL by the clock; a budget may forbid it."""
        one = self._running(task)
        if one is None or one.leaving:
            return ""
        if via == "eviction" and task in self._budget:
            raise EngineError(f"A disruption budget forbids to evict {task}.")
        one.leaving = True
        self.signal(task, signal.SIGTERM)
        killed = Exited(task, 0, 128 + signal.SIGKILL)
        self._clock.call_at(self._clock.now() + grace, partial(self._end, one.start, killed))
        return f"{task} was {'evicted' if via == 'eviction' else 'deleted'} with {grace:g} s"

    def cordon(self, task: str) -> Cordoned:
        """Start no task on the node of this one any more."""
        one = self._running(task)
        if one is None:
            raise EngineError(f"Can't cordon the node of {task}: it does not run.")
        if self.cordoned.setdefault(one.node, task) != task:
            raise EngineError(f"The node {one.node} is cordoned already.")
        tasks = [name for name, each in self._tasks().items() if each.node == one.node]
        return Cordoned(one.node, tuple(name for name in tasks if self._running(name)))

    def uncordon(self, task: str) -> None:
        """Start tasks there again."""
        self.cordoned = {node: by for node, by in self.cordoned.items() if by != task}

    def _free_node(self, task: str) -> str:
        """Return the node with the fewest running tasks; none without a cluster."""
        free = [node for node in self._nodes if node not in self.cordoned]
        if self._nodes and not free:
            raise EngineError(f"No node takes {task}: all are cordoned.")
        on = [each.node for name, each in self._tasks().items() if self._running(name)]
        return min(free, key=on.count, default="")

    @property
    def can_shape(self) -> bool:
        """Nothing has to be made."""
        return True

    def equip(self, say: Callable[[str], None]) -> None:
        """Nothing has to be made."""

    def shape(self, links: Sequence[Link]) -> None:
        """Record the links; scripts send nothing."""
        self.links.append(tuple(links))

    def usage(self) -> Mapping[str, Usage]:
        """Return what the scripts say that they use."""
        used = {}
        for name in self._tasks():
            if task := self._running(name):
                script = self._script(name, task.starts)
                seconds = self._clock.wall() - task.began
                used[name] = Usage(cpu=script.cpus * seconds, memory=script.memory, processes=1)
        return used

    def pids(self) -> Mapping[str, Collection[int]]:
        """Scripts have no processes."""
        return {}

    def published(self, task: str) -> Mapping[int, str]:
        """Return an address that nothing listens on: scripts have no ports."""
        one = self._running(task)
        ports = self._ports.get(task, ()) if one else ()
        return {port.port: f"127.0.0.1:{port.host_port or port.port}" for port in ports}

    def remove(self, task: str) -> None:
        """Forget the task; one that runs ends as if killed."""
        running = self._running(task) is not None
        self._tasks().pop(task, None)
        if running and self._inbox:
            self._inbox.put(Exited(task, self._clock.wall(), 128 + signal.SIGKILL))

    def tear_down(self, run_id: str) -> int:
        """Forget the run, its tasks first."""
        tasks = list(self._runs[run_id].tasks) if run_id in self._runs else []
        if run_id == self._run_id:
            for task in tasks:
                self.remove(task)
            self.cordoned.clear()
        self._runs.pop(run_id, None)
        return len(tasks)

    def find(self, run_id: str | None = None) -> list[Resource]:
        """Return the tasks of runs that were not torn down."""
        return [
            Resource(one, "task", name, "exited" if task.end else "running", run.folder, "memory")
            for one, run in self._runs.items()
            if run_id in (None, one)
            for name, task in run.tasks.items()
        ]

    def close(self) -> None:
        """There is nothing to close."""

    def _tasks(self) -> dict[str, _Task]:
        run = self._runs.get(self._run_id)
        return run.tasks if run else {}

    def _running(self, task: str, start: int | None = None) -> _Task | None:
        """Return a task that runs; with `start` only while that start of it does."""
        one = self._tasks().get(task)
        return one if one and one.end is None and start in (None, one.start) else None

    def _script(self, task: str, start: int) -> Script:
        for pattern, script in self._scripts.items():
            if fnmatch.fnmatchcase(task, pattern):
                return script if isinstance(script, Script) else script(start)
        return Script()

    def _print(self, task: str, start: int, text: str) -> None:
        if one := self._running(task, start):
            if one.frozen:
                one.delayed.append(partial(self._print, task, start, text))
            else:
                one.printed.append(text)
                self._report_rest(task, one)

    def _draw(self, task: str, start: int, text: str) -> None:
        if self._inbox and (one := self._running(task, start)) and not one.frozen:
            self._inbox.put(Line(task, self._clock.wall(), text, is_finished=False))

    def _report_rest(self, name: str, task: _Task) -> None:
        """Report lines that were printed and not read, as a followed log does."""
        for text in task.printed[task.read :]:
            if self._inbox:
                self._inbox.put(Line(name, self._clock.wall(), text))
        task.read = len(task.printed)

    def _end(self, start: int, end: Exited) -> None:
        """Report the exit of one start, once: by script, signal or removal, whichever is first."""
        one = self._running(end.task, start)
        if self._inbox is None or one is None:
            return
        if one.frozen and end.exit_code != 128 + signal.SIGKILL:
            one.delayed.append(partial(self._end, start, end))
            return
        one.frozen = False
        one.end = replace(end, wall=self._clock.wall())
        if late := self._script(end.task, one.starts).reported_after:
            self._clock.call_at(self._clock.now() + late, partial(self._inbox.put, one.end))
        else:
            self._inbox.put(one.end)
