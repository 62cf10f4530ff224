"""What a task has beside its own container: init steps and scratch volumes.

What belongs to a disk of the task has that disk's number; it is removed with the disk.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import docker
from docker.errors import APIError

from emulator.engines.base import Exited
from emulator.engines.docker.connection import remove_container
from emulator.engines.docker.container_request import (
    DISK,
    PART,
    container_name,
    files_archive,
    init_request,
    program_archive,
    scratch_volumes,
    task_of,
)
from emulator.engines.docker.ownership import make_volume, name_taken, remove_volume
from emulator.errors import EngineError

if TYPE_CHECKING:
    from emulator.engines.docker.logs import LogFollower
    from emulator.planning.plan import Plan, Task

_GONE = (404, 409)
"""Answers about a container that was removed, or does not run."""


@dataclass
class Start:
    """A start of a task that is under way."""

    container: str = ""
    """Of the init step that runs, or of the last one."""
    told: int = 0
    """The last signal for the task, as long as its own container does not run."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class TaskGroups:
    """The init steps and scratch volumes of one run."""

    def __init__(
        self,
        api: docker.APIClient,
        output: LogFollower,
        plan: Plan,
        labels: Mapping[str, str],
        *,
        ipv6: bool = False,
    ) -> None:
        self._api, self._output = api, output
        self._plan, self._labels, self._ipv6 = plan, labels, ipv6
        self._starts: dict[str, Start] = {}
        self._done: dict[str, int] = {}
        """Init steps that have succeeded on a task's disk."""
        self._disks: dict[str, int] = {}
        """The number of each task's disk, where it is not 1."""
        self._idle = threading.Condition()
        self._making = 0
        self._is_over = False

    def disk(self, task: str) -> int:
        """Return the number of a task's disk."""
        return self._disks.get(task, 1)

    # --- A start ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def starting(self, task: Task) -> Iterator[Start]:
        """Take signals for the task until its own container runs."""
        start = self._starts[task.name] = Start()
        try:
            yield start
        finally:
            with start.lock:
                del self._starts[task.name]

    def initialise(self, task: Task, start: Start, address: Callable[[str], str]) -> Exited | None:
        """Run the init steps that have not succeeded on this disk, one after the other.

        Returns None when all have succeeded, else how the task has ended by that. `address` gives a
        step its address, empty if the engine chooses it.
        """
        for step in task.init[self._done.get(task.name, 0) :]:
            ends: queue.SimpleQueue[Exited] = queue.SimpleQueue()
            with start.lock, self.making() as may_make:
                if start.told or not may_make:
                    return Exited(task.name, time.time(), 128 + (start.told or signal.SIGKILL))
                start.container = container = self._begin_step(step, task, address(step.name))
            self._output.follow(step.name, container, then=ends.put, drawings=False)
            end = ends.get()
            with start.lock:
                remove_container(self._api, container)
                self._output.forget(step.name)
            if end.exit_code:
                return Exited(task.name, end.wall, end.exit_code, end.oom_killed)
            self._done[task.name] = self._done.get(task.name, 0) + 1
        with start.lock:
            if start.told:
                return Exited(task.name, time.time(), 128 + start.told)
        return None

    def make_scratches(self, task: Task) -> None:
        """Make the scratch volumes of a task's disk. Raises EngineError if a name is taken."""
        with self.making() as may_make:
            for request in self._scratches(task) if may_make else ():
                if not make_volume(self._api, request):
                    raise EngineError(*name_taken("volume", request["name"]))

    @contextlib.contextmanager
    def making(self) -> Iterator[bool]:
        """Make something; say whether that is still allowed. `close` waits until it is made."""
        with self._idle:
            may_make = not self._is_over
            self._making += may_make
        try:
            yield may_make
        finally:
            with self._idle:
                self._making -= may_make
                self._idle.notify_all()

    def _begin_step(self, step: Task, task: Task, address: str) -> str:
        disk = self.disk(task.name)
        body = init_request(self._plan, step, self._labels, address, ipv6=self._ipv6, disk=disk)
        container = self._create(step, body)
        self._api.start(container)
        return container

    def starts(self, task: str) -> bool:
        """Return whether a task is being started: an init step runs, or is about to."""
        return task in self._starts

    def signal(self, task: str, number: int) -> bool:
        """Signal the init step that a task is at; return whether the task is being started.

        Its program gets the signal if it begins all the same.
        """
        start = self._starts.get(task)
        if start is None:
            return False
        with start.lock:
            start.told = number
            if start.container:
                if number == signal.SIGKILL:
                    self._output.expect_kill(start.container)
                self._kill(start.container, number)
        return True

    # --- Taking over, and the end -----------------------------------------------------------------

    def adopt(self, container: Mapping[str, Any]) -> None:
        """Take over what another supervisor has made: a container of the engine's list.

        An init step is removed: its task is started again from the first.
        """
        labels = container["Labels"]
        if (disk := labels.get(DISK)) is not None:
            task = task_of(labels)
            self._disks[task] = max(self.disk(task), int(disk))
        if PART in labels:
            remove_container(self._api, container["Id"])

    def remove(self, task: Task) -> int:
        """Remove the volumes of a task's disk; return how many there were.

        Its own container must be gone; if it has lost power, its volumes stay until the run ends.
        """
        removed = 0
        for volume in self._scratches(task):
            removed += remove_volume(self._api, volume["name"], self._plan.resources)
        self._disks[task.name] = self.disk(task.name) + 1
        self._done.pop(task.name, None)
        return removed

    def _scratches(self, task: Task) -> list[dict[str, Any]]:
        return scratch_volumes(self._plan, task, self._labels, self.disk(task.name))

    def close(self) -> None:
        """Make nothing from now on: everything of the run is about to be removed."""
        with self._idle:
            self._is_over = True
            self._idle.wait_for(lambda: not self._making)

    # --- Effects ----------------------------------------------------------------------------------

    def _create(self, part: Task, body: dict[str, Any]) -> str:
        name = container_name(self._plan.resources, part.name)
        container: str = self._api.create_container_from_config(body, name)["Id"]
        # With /shared, which must be writable for all users before the first of them writes there.
        self._api.put_archive(container, "/", program_archive(None))
        if files := files_archive(self._plan, part):
            self._api.put_archive(container, "/", files)
        return container

    def _kill(self, container: str, number: int) -> None:
        try:
            self._api.kill(container, signal=signal.Signals(number).name)
        except APIError as error:
            if error.status_code not in _GONE:
                raise
