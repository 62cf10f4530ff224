"""The process engine: the same scenarios on loopback, without Docker.

One process group a task. Its output goes through a named pipe that the task itself keeps open, so
that a task outlives a supervisor that was killed; its environment carries the run id, and by that
it is found again. A port belongs to a run as long as the run holds the port's lock.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from emulator import program
from emulator.broker import Capacity
from emulator.engines.base import Exited, Found, Inbox, Incapable, Line, Lost
from emulator.engines.process_output import open_pipe, read_until, split_lines
from emulator.errors import EngineError, EngineLost
from emulator.metrics.processes import Sessions
from emulator.metrics.samples import Usage
from emulator.plan import Plan, Site, Task
from emulator.scenario.model import Dockerfile, Scenario

__all__ = ["ProcessEngine", "exit_code"]

LOOPBACK = "127.0.0.1"
PORTS = range(20000, 29000)
"""Below the range from which Linux and macOS take ports for outgoing connections."""
GONE_WITHIN = 30.0
"""Seconds that killed processes get to be gone before we say that they are not."""
SECRET = "EMULATOR_API_TOKEN"
"""The token of every run's API, if the user has set one: nothing that a task should have."""


@dataclass
class _Started:
    process: subprocess.Popen[bytes]
    folder: Path


class ProcessEngine(Incapable):
    """Runs tasks as process groups on this machine."""

    name = "process"
    capabilities = frozenset({"replace", "same-address", "pause", "usage"})
    keeps_addresses = True

    def __init__(self) -> None:
        self._started: dict[str, _Started] = {}
        self._sessions = Sessions()
        self._locks: list[FileLock] = []
        self._ports: dict[str, int] = {}
        self._folder = Path()
        self._inbox: Inbox | None = None

    def site(self, run_id: str, folder: Path) -> Site:
        """Describe the engine to the plan; ports are reserved as they are asked for."""

        def image(wanted: str | Dockerfile) -> str:
            return ""

        return Site(
            engine=self.name,
            address=lambda task: (LOOPBACK, self._port(task)),
            image=image,
            gpus=lambda: (),
            shared=str(folder / "shared"),
        )

    def capacity(self) -> Capacity:
        """Return what this machine lets us use; tasks get no GPUs of their own."""
        return Capacity(_cores(), psutil.virtual_memory().total)

    def provide(self, scenario: Scenario, say: Callable[[str], None]) -> None:
        """Nothing to provide: tasks run with what this machine has installed."""

    def requests(self, plan: Plan, folder: Path) -> list[dict[str, Any]]:
        """Return command and environment of each process."""
        return [
            {"request": "start process", "task": t.name, "command": list(t.command), "env": t.env}
            for t in plan.tasks
        ]

    def prepare(self, plan: Plan, folder: Path, inbox: Inbox) -> None:
        """Make the shared folder."""
        self._folder, self._inbox = folder, inbox
        with _saying("make the shared folder"):
            (folder / "shared").mkdir(parents=True, exist_ok=True)

    def start(self, task: Task, *, same_address: bool = False) -> str:
        """Start the task in a process group of its own; return its pid."""
        home = self._folder / "work" / task.name
        with _saying(f"start {task.name}"):
            if not home.exists():
                program.copy(task.source, home)
            environment = _environment(task)
            pipe = open_pipe(home.with_suffix(".out"))
            try:
                process = subprocess.Popen(
                    _resolve(task, environment["PATH"]),
                    cwd=home,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=pipe,
                    stderr=pipe,
                    start_new_session=True,
                )
            except OSError as error:
                os.close(pipe)
                raise EngineError(
                    f"{task.name} can't run {task.command[0]!r}: {error.strerror}.",
                    "The process engine runs what is installed on this machine.",
                ) from None
        self._started[task.name] = _Started(process, home)
        follower = threading.Thread(
            target=self._follow,
            args=(task.name, process, pipe),
            name=f"follow-{task.name}",
            daemon=True,
        )
        follower.start()
        return str(process.pid)

    def signal(self, task: str, number: int) -> None:
        """Send the signal to the whole process group."""
        started = self._started.get(task)
        if started is not None and started.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.process.pid, number)

    def pause(self, task: str) -> None:
        """Stop the process group, which can't catch that; return once it stands still."""
        started = self._started.get(task)
        if started is None or started.process.poll() is not None:
            raise EngineError(f"Can't pause {task}: it does not run.")
        self.signal(task, signal.SIGSTOP)
        if not _stands_still(started.process.pid):
            raise EngineError(
                f"Can't pause {task}: it still runs {GONE_WITHIN:.0f} s after SIGSTOP."
            )

    def resume(self, task: str) -> None:
        """Let the process group go on."""
        self.signal(task, signal.SIGCONT)

    def usage(self) -> Mapping[str, Usage]:
        """Return what the processes of each task have used."""
        return self._sessions.usage(self._leaders())

    def pids(self) -> Mapping[str, Collection[int]]:
        """Return the processes of each task."""
        leaders = self._leaders()
        members = self._sessions.members(leaders.values())
        return {task: members.get(leader, []) for task, leader in leaders.items()}

    def _leaders(self) -> dict[str, int]:
        """Return the first process of each running task: the leader of its group and session."""
        started = list(self._started.items())
        return {task: s.process.pid for task, s in started if s.process.returncode is None}

    def remove(self, task: str) -> None:
        """Kill the task and delete its working directory."""
        self.signal(task, signal.SIGKILL)
        started = self._started.pop(task, None)
        if started is not None:
            started.process.wait()
            shutil.rmtree(started.folder, ignore_errors=True)

    def tear_down(self, run_id: str) -> int:
        """Kill every process of the run, and delete its working and shared folders."""
        killed, folders = set[int](), set[str]()
        until: float | None = None
        # Again and again: what is just being killed may have started another since we looked.
        while ours := [(p, labels) for p, labels in _labelled() if labels.run_id == run_id]:
            if until is None:
                until = time.monotonic() + GONE_WITHIN  # a first look takes as long as it takes
            elif time.monotonic() > until:
                raise _undying(run_id, [p for p, _ in ours])
            for process, labels in ours:
                with contextlib.suppress(psutil.Error):
                    process.kill()
                killed.add(process.pid)
                folders.add(labels.folder)
            alive = [p for p, _ in ours]
            while alive := [p for p in alive if not _is_over(p)]:
                if time.monotonic() > until:
                    raise _undying(run_id, alive)
                time.sleep(0.001)
        for started in self._started.values():
            if started.process.pid in killed:
                started.process.wait()  # it is over, and is no zombie any more either
        removed = len(killed)
        if self._folder.name == run_id:
            folders.add(str(self._folder))
        for folder in folders:
            removed += sum(_delete(Path(folder, part)) for part in ("work", "shared"))
        return removed

    def find(self, run_id: str | None = None) -> list[Found]:
        """Return the processes of this machine whose environment names a run."""
        host = socket.gethostname()
        return [
            Found(
                labels.run_id,
                "process",
                f"{labels.task} (pid {p.pid})",
                "running",
                labels.folder,
                host,
            )
            for p, labels in _labelled()
            if run_id in (None, labels.run_id)
        ]

    def close(self) -> None:
        """Give the ports back."""
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    # --- Effects --------------------------------------------------------------------------------

    def _port(self, task: str) -> int:
        """Reserve a port that no other run holds and no other program listens on."""
        if task in self._ports:
            return self._ports[task]
        folder = user_cache_path("emulator") / "ports"
        folder.mkdir(parents=True, exist_ok=True)
        for port in PORTS:
            lock = FileLock(folder / f"{port}.lock", thread_local=False)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            if _is_free(port):
                self._locks.append(lock)
                self._ports[task] = port
                return port
            lock.release()
        raise EngineError("No port is free between 20000 and 29000.", "Try `emulate clean`.")

    def _follow(self, task: str, process: subprocess.Popen[bytes], pipe: int) -> None:
        """Report each line, then the end; the pipe never ends by itself, since we hold it open."""
        inbox = self._inbox
        assert inbox is not None
        ended, tell_ended = os.pipe()

        def wait() -> None:
            process.wait()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # what it leaves behind ends with it
            os.close(tell_ended)

        threading.Thread(target=wait, name=f"wait-{task}", daemon=True).start()
        try:
            for text in split_lines(read_until(pipe, ended)):
                inbox.put(Line(task, time.time(), text))
            inbox.put(Exited(task, time.time(), exit_code(process.returncode)))
        except Exception as error:  # whatever it is, a task that nobody follows must end the run
            inbox.put(Lost(EngineLost(f"Reading the output of {task} failed: {error}.")))
        finally:
            os.close(pipe)
            os.close(ended)


def _cores() -> int:
    """Return how many cores this process may use; macOS can't limit that."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class _Labels:
    run_id: str
    task: str
    folder: str


def _labelled() -> Iterator[tuple[psutil.Process, _Labels]]:
    """Yield the processes that a run has started, and their children.

    The environment is the label: it is inherited, dies with the process and can't be forgotten.
    """
    for process in psutil.process_iter():
        try:
            env = process.environ()
            alive = process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, OSError):
            continue
        if alive and "EMULATOR_RUN" in env and "EMULATOR_FOLDER" in env:
            yield (
                process,
                _Labels(env["EMULATOR_RUN"], env.get("EMULATOR_TASK", ""), env["EMULATOR_FOLDER"]),
            )


def exit_code(returncode: int) -> int:
    """Return the code a shell would show: 128 + N for signal N (pure)."""
    return returncode if returncode >= 0 else 128 - returncode


def _stands_still(pid: int) -> bool:
    """Wait for a stopped process to stand still or to end; say whether it does.

    The kernel's own notice (waitid, WSTOPPED) is not enough: a shell that starts a command waits
    in vfork, beyond the reach of signals ("disk sleep"), for a child that has been stopped.
    """
    still = {psutil.STATUS_STOPPED, psutil.STATUS_DISK_SLEEP, psutil.STATUS_ZOMBIE}
    until = time.monotonic() + GONE_WITHIN
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        while process.status() not in still:
            if time.monotonic() > until:
                return False
            time.sleep(0.001)
    return True


def _undying(run_id: str, processes: Sequence[psutil.Process]) -> EngineError:
    pids = ", ".join(str(process.pid) for process in processes)
    return EngineError(f"{len(processes)} processes of {run_id} don't die: {pids}.")


def _is_over(process: psutil.Process) -> bool:
    """Say whether a process has ended, be it a zombie: its parent may never ask how it ended.

    Unlike psutil's own wait this takes no exit code from whoever asks for it.
    """
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _environment(task: Task) -> dict[str, str]:
    """Return the task's variables over this machine's; `python` is the one that runs us."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    folder = str(Path(task.env["EMULATOR_SHARED"]).parent)
    ours = {name: value for name, value in os.environ.items() if name != SECRET}
    return {**ours, "PATH": path, **task.env, "EMULATOR_FOLDER": folder}


def _resolve(task: Task, path: str) -> list[str]:
    first = task.command[0]
    if "/" not in first:
        first = shutil.which(first, path=path) or first
    return [first, *task.command[1:]]


def _delete(folder: Path) -> int:
    if not folder.exists():
        return 0
    shutil.rmtree(folder, ignore_errors=True)
    return 1


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


@contextlib.contextmanager
def _saying(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EngineError(f"Can't {doing}: {error.strerror or error}.") from None
