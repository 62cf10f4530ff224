"""The process engine: the same scenarios on loopback, without Docker.

Each task is a process group, and its parent is a keeper that owns every process the task starts
(`keeper.py`). Output goes through a named pipe that the task itself keeps open, so that a task
survives a supervisor that was killed. The keeper's environment has the run id, by which all
processes of a run are found again (`process_table.py`). A run owns a port while it has its lock.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from emulator.engines.base import (
    EngineDown,
    Exited,
    Finding,
    Inbox,
    Line,
    Resource,
    TaskProcess,
    no_metadata,
)
from emulator.engines.kit.gate import gated
from emulator.engines.kit.lines import DrawnLine, EndOfOutput, LineSplitter
from emulator.engines.kit.streams import PIECE, Arrived, Streams
from emulator.engines.process import doctor, interpreter, keeper, process_table
from emulator.engines.process.process_table import KEEPER, has_ended, labelled, owned
from emulator.errors import EngineError, EngineLost, NotRunning
from emulator.faults.platforms.metadata import MetadataServer, State, Told
from emulator.faults.platforms.notices import Notice, variables_at
from emulator.planning.claims import Capacity
from emulator.planning.context import PlanContext
from emulator.record.scratch import Scratch
from emulator.runtime.files import FOR_OWNER, cache_dir, os_errors
from emulator.runtime.sockets import is_free, require_free
from emulator.scenario import program

if TYPE_CHECKING:
    from filelock import FileLock

    from emulator.engines.kit.command_line import CommandLine
    from emulator.metrics.catalog import Usage
    from emulator.metrics.processes import ProcessSampler
    from emulator.planning.plan import Plan, Task
    from emulator.scenario.schema import Scenario

LOOPBACK = "127.0.0.1"
PORTS = range(20000, 29000)
"""Below the range from which Linux and macOS take ports for outgoing connections."""
REMOVAL_TIMEOUT = 30.0
"""Seconds to wait for killed processes to end, before that is an error."""
WITNESS = "witness"
"""The name of the program that watches files, in place of a task's."""
READER = "reader"
"""The same of that which reads what tasks have left."""
READING_TIMEOUT = 150.0
"""Seconds for it."""
SECRET = "EMULATOR_API_TOKEN"
"""The token of every run's API, if the user sets one; tasks must not get it."""


@dataclass(frozen=True)
class _Started:
    """A task that was started."""

    keeper: subprocess.Popen[bytes]
    """Its parent; the exit code is the task's."""
    pid: int
    """Of the task, the leader of its process group and session."""
    left: int
    """The descriptor from which to read what has outlived the task, once the keeper has ended."""


class ProcessEngine:
    """Runs tasks as process groups on this machine."""

    name = "process"
    capabilities = frozenset(
        {"replace", "same-disk", "drawings", "same-address", "pause", "usage", "ports", "exec"}
        | {"files", "calls", "notices", "signal-all", "signals", "processes"}
    )
    machine_needs: Mapping[str, str] = {}
    keeps_addresses = True

    def __init__(self) -> None:
        self._started: dict[str, _Started] = {}
        self._locks: list[FileLock] = []
        self._ports: dict[str, int] = {}
        self._published: dict[str, list[int]] = {}
        self._holders: dict[str, list[subprocess.Popen[str]]] = {}
        """The programs that trace a task."""
        self._metadata: MetadataServer | None = None
        self._metadata_at: dict[str, str] = {}
        """Where each task asks, as host:port."""
        self._python = sys.executable
        """Of the tasks."""
        self._scratch: Scratch | None = None
        self._inbox: Inbox | None = None
        self._streams: Streams | None = None

    @cached_property
    def _sampler(self) -> ProcessSampler:
        from emulator.metrics.processes import ProcessSampler  # only runs are sampled

        return ProcessSampler()

    def plan_context(self, run_id: str, folder: Path) -> PlanContext:
        """Describe the engine to the plan; a port is reserved when the plan requests it."""
        return PlanContext(
            engine=self.name,
            address=lambda task: (LOOPBACK, self._port(task)),
            image=lambda image: "",
            gpus=lambda: (),
            shared=str(folder / "shared"),
            python=interpreter.of_caller(os.environ),
            python_of=interpreter.named,
            has_module=interpreter.has_module,
        )

    def capacity(self) -> Capacity:
        """Return what this machine lets us use; tasks get no GPUs of their own."""
        return Capacity(_cores(), psutil.virtual_memory().total)

    def ensure_images(self, scenario: Scenario, say: Callable[[str], None]) -> None:
        """Do nothing: tasks run with what this machine has installed."""

    def software(self, plan: Plan) -> Mapping[str, Mapping[str, str]]:
        """Return the versions of the tasks' Python and its packages."""
        return {"": interpreter.versions(_python(plan))}

    def requests(self, plan: Plan, folder: Path) -> list[dict[str, Any]]:
        """Return command and environment of each process."""
        return [
            {"request": "start process", "task": t.name, "command": list(t.command), "env": t.env}
            for t in plan.everything
        ]

    def inspect_commands(self, run_id: str, folder: Path) -> Sequence[str]:
        """Return the command that lists the folders of the tasks and their output."""
        return [shlex.join(["ls", *(str(folder / name) for name in ("work", "shared", "logs"))])]

    @staticmethod
    def examine(scenario: Scenario | None = None) -> Iterator[Finding]:
        """Look at this machine's Python, and at the frameworks that it has."""
        return doctor.examine(scenario)

    def prepare(self, plan: Plan, folder: Path, inbox: Inbox) -> None:
        """Make the folders of the tasks.

        Raises UsageError where the run folder has such folders already, EngineError, also where a
        port that a task should listen on is in use.
        """
        ports = [(one.name, [port.port for port in one.ports]) for one in plan.everything]
        for name, numbers in ports:
            for number in numbers:
                require_free(number, name, "Another program listens there: end it.")
        self._published = dict(ports)
        self._python = _python(plan)
        self._inbox, self._streams = inbox, Streams(inbox)
        with os_errors(EngineError, "Can't make the shared folder"):
            folder.mkdir(FOR_OWNER, parents=True, exist_ok=True)
            self._scratch = Scratch.make(folder, plan.run_id)
        if plan.metadata:
            self._serve_metadata(plan)

    def _serve_metadata(self, plan: Plan) -> None:
        """Serve metadata at a port of each task; the server ends with this program."""
        tasks = [task.name for task in plan.tasks]
        self._metadata = MetadataServer(State(plan.run_id, plan.metadata, tasks))
        with os_errors(EngineError, "Can't serve metadata"):
            for task in tasks:
                port = self._metadata.listen(LOOPBACK, 0, task)
                self._metadata_at[task] = f"{LOOPBACK}:{port}"

    def start(self, task: Task, *, same_address: bool = False) -> str:
        """Start the task in a process group of its own; return its pid."""
        scratch = self._scratch
        assert scratch is not None, "prepare comes first"
        with os_errors(EngineError, f"Can't start {task.name}"):
            home = scratch.home(task.name)
            if not home.exists():
                program.copy(task.copied, home, scratch.shared())
            pipe = _open_pipe(home.with_suffix(".out"))
            try:
                told, of_run = self._told(task), (scratch.run_id, scratch.folder)
                started = _spawn(told, *of_run, home, pipe, self._python)
            except BaseException:
                os.close(pipe)
                raise
        self._started[task.name] = started
        assert self._inbox is not None
        assert self._streams is not None
        output = _Output(task.name, started, pipe, self._inbox)
        self._streams.add(output)
        name = f"wait-{task.name}"
        threading.Thread(target=output.wait, args=(self._streams,), name=name, daemon=True).start()
        return str(started.pid)

    def _told(self, task: Task) -> Task:
        """Return a task with the variables that name its metadata server."""
        if (at := self._metadata_at.get(task.name)) is None:
            return task
        return task.model_copy(update={"env": {**variables_at(at), **task.env}})

    def announce(self, notice: Notice) -> None:
        """Tell a task, at its own port."""
        if self._metadata is None:
            raise no_metadata(notice.task)
        if notice.task not in self._leaders():
            raise NotRunning(f"{notice.task} can't be told: it does not run.")
        told = asdict(notice)
        self._metadata.tell(lambda state: state.announce(Told(**told)))

    def withdraw(self, task: str) -> None:
        """Take back what a task was told."""
        if self._metadata:
            self._metadata.tell(lambda state: state.withdraw(task))

    def signal(self, task: str, number: int) -> None:
        """Signal the task's own command; SIGKILL ends all that its keeper has started."""
        started = self._running(task)
        if started is None:
            return
        send = os.killpg if number == signal.SIGKILL else os.kill
        with contextlib.suppress(ProcessLookupError):
            send(started.pid, number)
        if number == signal.SIGKILL:
            # Before its keeper does it: a daemon may be held, and is let go after this.
            process_table.bring_all(started.keeper.pid, number, lambda process: True)

    def _running(self, task: str) -> _Started | None:
        started = self._started.get(task)
        return started if started is not None and started.keeper.poll() is None else None

    def signal_all(self, task: str, numbers: Sequence[int]) -> int | None:
        """Signal the task's process group, and what has left that group."""
        started = self._running(task)
        if started is None:
            return 0
        return process_table.signal_descendants(started.keeper.pid, numbers)

    def pause(self, task: str) -> None:
        """Stop all that its keeper has started with SIGSTOP; return once none of it runs."""
        started = self._running(task)
        if started is None:
            raise NotRunning(f"Can't pause {task}: it does not run.")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGSTOP)  # at once, before what has left the group
        keeper = started.keeper.pid
        if runs := process_table.bring_all(keeper, signal.SIGSTOP, _wait_until_stopped):
            self.resume(task)
            raise EngineError(f"Can't pause {task}: {runs}.")

    def resume(self, task: str) -> None:
        """Continue all that its keeper has started."""
        started = self._running(task)
        if started is not None:
            process_table.signal_descendants(started.keeper.pid, [signal.SIGCONT])

    def usage(self) -> Mapping[str, Usage]:
        """Return what the processes of each task have used."""
        return self._sampler.usage(self._leaders())

    def pids(self) -> Mapping[str, Collection[int]]:
        """Return the processes of each task."""
        return self._sampler.pids(self._leaders())

    def processes(self, task: str) -> Sequence[TaskProcess]:
        """Return the processes below the task's keeper."""
        if (leader := self._leaders().get(task)) is None:
            raise NotRunning(f"{task} does not run.")
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in psutil.Process(self._started[task].keeper.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error, OSError):
                    if one.status() != psutil.STATUS_ZOMBIE:
                        handled = process_table.handled(one.pid)
                        found.append(TaskProcess(one.pid, one.name(), one.pid == leader, handled))
        return sorted(found, key=lambda one: not one.main)

    def watch_end(self, task: str) -> None:
        """Have the task's keeper report what outlives it."""
        started = self._started.get(task)
        if started is not None:
            started.keeper.send_signal(signal.SIGUSR1)  # which does nothing if it has ended

    def _leaders(self) -> dict[str, int]:
        """Return the first process of each running task: the leader of its group and session."""
        started = list(self._started.items())
        return {task: s.pid for task, s in started if s.keeper.returncode is None}

    def published(self, task: str) -> Mapping[int, str]:
        """Return the ports of a task: it listens on this machine itself, if it does."""
        if task not in self._leaders():
            return {}
        return {port: f"{LOOPBACK}:{port}" for port in self._published.get(task, ())}

    def command_line(
        self, plan: Plan, folder: Path, task: str, command: Sequence[str], *, terminal: bool
    ) -> CommandLine:
        """Return a command with the environment of a task, in its folder; it ends with the run."""
        from emulator.engines.kit.command_line import CommandLine, not_running

        found = [one for one in owned() if one.labels.run_id == plan.run_id]
        if not any(one.labels.keeper and one.labels.task == task for one in found):
            raise not_running(task, plan.run_id)
        folder = folder.resolve()
        environment = _environment(plan.task(task), plan.run_id, folder, _python(plan))[1]
        home = Scratch(folder, plan.run_id).home(task)
        return CommandLine(command, environment, home)

    def run_at_files(self, where: str, program: str, request: Mapping[str, Any]) -> str:
        """Run a program for the folder of a task, or for the shared one; it ends with the run."""
        command, environment = self._at_files(where, program, request)
        return _output(command, environment, "Changing files failed")

    def talk_at_files(
        self, where: str, program: str, request: Mapping[str, Any], said: str
    ) -> Generator[str, str | None, None]:
        """Do so, and yield each line that it prints; it ends with its standard input."""
        command, environment = self._at_files(where, program, request)
        with subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            line: str | None = said
            try:
                while True:
                    if line:
                        process.stdin.write(f"{line}\n")
                        process.stdin.flush()
                    if not (printed := process.stdout.readline()):
                        break
                    line = yield printed
                if process.wait():
                    said = process.stderr.read().strip()
                    raise EngineError(f"Changing files failed: {said[-300:]}")
            except BrokenPipeError:
                said = process.stderr.read().strip()
                raise EngineError(f"Changing files failed: {said[-300:]}") from None

    def _at_files(
        self, where: str, program: str, request: Mapping[str, Any]
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command and environment of a program for the folder of a task."""
        assert self._scratch is not None, "prepare comes first"
        if where != "shared" and where not in self._leaders():
            raise NotRunning(f"{where} does not run.")
        run_id, run_folder = self._scratch.run_id, self._scratch.folder
        folder = self._scratch.shared() if where == "shared" else self._scratch.home(where)
        asked = json.dumps({**request, "folder": str(folder)})
        command = [sys.executable, "-I", "-S", "-c", program, asked]
        return command, {**os.environ, **labelled(run_id, where, run_folder)}

    def read_files(self, where: str, program: str, request: Mapping[str, Any]) -> str:
        """Run a program, with the Python of the tasks, for the folder of one or the shared one."""
        scratch = self._scratch
        assert scratch is not None, "prepare comes first"
        folder = scratch.shared() if where == "shared" else scratch.home(where)
        inherited = {name: value for name, value in os.environ.items() if name != SECRET}
        environment = {**inherited, **labelled(scratch.run_id, READER, scratch.folder)}
        asked = json.dumps({**request, "folder": str(folder)})
        command = [self._python, "-c", program, asked]
        return _output(command, environment, "Reading files failed", READING_TIMEOUT)

    def look(self, where: str, since: float) -> Mapping[str, Any]:
        """Look into the folder of a task, or into the shared one."""
        from emulator.faults import saved_files  # only a task that is started again needs it

        assert self._scratch is not None, "prepare comes first"
        folder = self._scratch.shared() if where == "shared" else self._scratch.home(where)
        with (
            os_errors(EngineError, f"Can't look into {folder}"),
            contextlib.closing(saved_files.Folder(str(folder))) as opened,
        ):
            return saved_files.listed(opened.files(since))

    def watch_files(
        self,
        program: str,
        since: float,
        told: Callable[[str], object],
        opened: Callable[[Callable[[], object]], object],
    ) -> None:
        """Run a program that watches the shared folder, and those of all tasks."""
        scratch = self._scratch
        assert scratch is not None, "prepare comes first"
        folders = {"shared": str(scratch.shared()), "own": str(scratch.home("."))}
        asked = json.dumps({"folders": folders, "since": since})
        witness = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", program, asked],
            env={**os.environ, **labelled(scratch.run_id, WITNESS, scratch.folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        with witness:
            assert witness.stdin is not None
            assert witness.stdout is not None
            opened(witness.stdin.close)  # of which nothing was written: it does not fail
            for line in witness.stdout:
                told(line)

    def hold(
        self, task: str, program: str, request: Mapping[str, Any], told: Callable[[str], None]
    ) -> None:
        """Run a program that traces a task, where this machine allows that."""
        started = self._running(task)
        if started is None or self._scratch is None:
            raise NotRunning(f"{task} does not run.")
        own = {"shared": str(self._scratch.shared()), "home": str(self._scratch.home(task))}
        # Also a daemon that has left its session is its keeper's.
        asked = json.dumps({**request, **own, "below": started.keeper.pid})
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", program, asked],
            env={**os.environ, **labelled(self._scratch.run_id, task, self._scratch.folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._holders.setdefault(task, []).append(process)
        with process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    told(line)
                if process.wait() and process in self._holders.get(task, ()):
                    code = exit_code(process.returncode)
                    raise EngineError(f"What traced {task} has ended with exit code {code}.")
            finally:
                process.kill()
                with contextlib.suppress(KeyError, ValueError):  # it was let go
                    self._holders[task].remove(process)

    def tell(self, task: str, line: str) -> None:
        """Write a line to the program that traces a task."""
        for process in self._holders.get(task, ()):
            with contextlib.suppress(OSError, ValueError):  # it has ended
                assert process.stdin is not None
                os.write(process.stdin.fileno(), f"{line}\n".encode())

    def let_go(self, task: str) -> None:
        """End the programs that trace a task, which then goes on."""
        for process in self._holders.pop(task, ()):
            process.kill()
            process.wait()  # only then can another one trace it

    def remove(self, task: str) -> None:
        """Kill the task with all that it has started, and delete its working directory.

        Raises RecordError where something is mounted in there.
        """
        tracing = self._holders.pop(task, ())  # which ends with it, and that is no error then
        self.signal(task, signal.SIGKILL)
        for process in tracing:
            process.kill()
        started = self._started.pop(task, None)
        if started is not None and self._scratch is not None:
            started.keeper.wait()
            self._scratch.remove_home(task)
            if self._metadata:
                self._metadata.tell(lambda state: state.replace(task))

    def tear_down(self, run_id: str) -> int:
        """Kill every process of the run; delete its folders if this engine has made them.

        Another run may have that id, in another folder: the engine of a run kills only its own. No
        folder that a process names is deleted. Raises EngineError where a process does not die,
        RecordError where something is mounted in a folder.
        """
        if self._scratch is None or self._scratch.run_id != run_id:
            removed = _kill_all(run_id)
        else:
            removed = _kill_all(run_id, self._scratch.folder)
            for started in self._started.values():
                started.keeper.wait()  # it has ended, and must not stay a zombie
            removed += self._scratch.remove()
        return removed

    def find(self, run_id: str | None = None) -> list[Resource]:
        """Return the processes of this machine that belong to a run, see `process_table.py`."""
        return [
            Resource(
                run_id=labels.run_id,
                kind="process",
                name=f"{labels.task} (pid {pid})",
                state="running",
                folder=labels.folder,
                host=labels.host,
            )
            for one in owned()
            for labels, pid in [(one.labels, one.process.pid)]
            if run_id in (None, labels.run_id) and one.is_killed_directly
        ]

    def close(self) -> None:
        """Give the ports back."""
        if self._metadata:
            self._metadata.close()
            self._metadata = None
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    # --- Effects --------------------------------------------------------------------------------

    def _port(self, task: str) -> int:
        """Reserve a port that no other run has reserved and no other program listens on."""
        if task in self._ports:
            return self._ports[task]
        from filelock import FileLock, Timeout  # not needed to find or remove a run

        folder = cache_dir("ports")
        folder.mkdir(FOR_OWNER, parents=True, exist_ok=True)
        for port in PORTS:
            lock = FileLock(folder / f"{port}.lock", thread_local=False)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            if is_free(port):
                self._locks.append(lock)
                self._ports[task] = port
                return port
            lock.release()
        raise EngineError("No port is free between 20000 and 29000.", "Try `emulate clean`.")


class _Output:
    """What one start of a task prints, as a source of `Streams`.

    The pipe has no end of file, since the task and what it has started keep it open: the end is
    when the task has ended and the pipe is empty.
    """

    def __init__(self, task: str, started: _Started, pipe: int, inbox: Inbox) -> None:
        self._task, self._started, self._pipe, self._inbox = task, started, pipe, inbox
        self._lines, self._drawn = LineSplitter(), DrawnLine()
        self._poll = select.poll()
        self._poll.register(pipe, select.POLLIN)
        self._has_ended = False
        self._rest: EndOfOutput | None = None
        """Takes what is read after the output was given up."""

    def fileno(self) -> int:
        """Return the pipe's descriptor."""
        return self._pipe

    def wait(self, streams: Streams) -> None:
        """Wait for the end of the task, and have the rest of its output read."""
        if self._started.keeper.wait() < 0:  # the keeper was killed, and the task must end with it
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._started.pid, signal.SIGKILL)
        self._has_ended = True
        streams.look_at(self)

    def read(self) -> Arrived:
        """Return the lines that have arrived, and whether this was the end."""
        has_ended = self._has_ended  # before the pipe is found empty
        # Does not block if something is there. The pipe holds no more, and the task goes on filling
        # it: meanwhile the other tasks have their turn.
        data = os.read(self._pipe, PIECE) if self._poll.poll(0) else b""
        lines = self._lines_in(data)
        if not has_ended or self._poll.poll(0):
            return Arrived(lines, len(data), has_ended=False)
        texts = self._lines.finish() if self._rest is None else self._rest.lines()
        lines += [Line(self._task, time.time(), text) for text in texts]
        return Arrived(lines, len(data), has_ended=True)

    def give_up(self) -> None:
        """Go on reading, since the task may have to print to end, but keep the last lines only."""
        self._rest = EndOfOutput(is_between_lines=self._lines.is_between_lines)

    def _lines_in(self, data: bytes) -> list[Line]:
        """Return the lines that some bytes finish, and what they have drawn."""
        if self._rest is not None:
            self._rest.feed(data)
            return []
        now = time.time()
        lines = [Line(self._task, now, text) for text in self._lines.feed(data)]
        self._drawn.feed(data)
        if self._drawn.is_drawn:
            lines.append(Line(self._task, now, self._drawn.take_drawn(), is_finished=False))
        return lines

    def ended(self, error: Exception | None) -> None:
        """Report the exit."""
        os.close(self._pipe)
        left = _left(self._started.left)
        if error is None:
            if self._rest is not None and (size := self._rest.left_out):
                from emulator.record.events import OutputLeftOut  # commands do without

                self._inbox.put(OutputLeftOut(task=self._task, size=size))
            code = exit_code(self._started.keeper.returncode)
            ended, outlived = left or (0.0, None)
            wall = ended if outlived else time.time()
            self._inbox.put(Exited(self._task, wall, code, outlived=outlived))
        else:  # without its output the run must end
            failed = EngineLost(f"Reading the output of {self._task} failed: {error}.")
            self._inbox.put(EngineDown(failed))


def _left(report: int) -> tuple[float, Sequence[Mapping[str, Any]]] | None:
    """Return when a task ended and what has outlived it; None where its end was not watched.

    Its keeper has ended, and nothing else can write there.
    """
    with os.fdopen(report, "rb") as file:
        return keeper.left_of(file.read())


def _cores() -> int:
    """Return how many cores this process may use; macOS can't limit that."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _output(
    command: Sequence[str], environment: Mapping[str, str], doing: str, timeout: float | None = None
) -> str:
    """Return what a program prints. Raises EngineError if it fails, or has not ended in time."""
    try:
        found = subprocess.run(
            command,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise EngineError(f"{doing}: it takes more than {timeout:g} s.") from None
    if found.returncode:
        raise EngineError(f"{doing}: {found.stderr.strip()[-300:]}")
    return found.stdout


def _python(plan: Plan) -> str:
    """Return the Python of a run's tasks."""
    return plan.python or sys.executable


def _spawn(task: Task, run_id: str, folder: Path, home: Path, output: int, python: str) -> _Started:
    """Start a task in its working directory; what it prints goes to the descriptor `output`.

    Returns once its program runs. Raises EngineError where it can't be run, OSError.
    """
    labels = labelled(run_id, task.name, folder)
    inherited, environment = _environment(task, run_id, folder, python)
    name, *words = task.command
    # By its path: its folder may have no `python`, or that of another version.
    command = [python if name in interpreter.NAMES else name, *words]
    executable, *arguments = command
    if task.held:
        executable, *arguments = gated(command, sys.executable, filtered=task.filtered)
    if "/" not in executable:
        executable = shutil.which(executable, path=environment["PATH"]) or executable
    order = keeper.order([executable, *arguments], environment)
    reading, writing = os.pipe()
    left, leaving = os.pipe()
    names = [str(writing), str(leaving), run_id, task.name]
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__, *names],
            cwd=home,
            env={**inherited, **labels, KEEPER: "1"},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=[writing, leaving],
            start_new_session=True,
        )
    except BaseException:
        os.close(reading)
        os.close(left)
        raise
    finally:
        os.close(writing)
        os.close(leaving)
    with os.fdopen(reading, "rb") as report:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as orders:
            orders.write(order)
        pid, error = keeper.pid_or_error(report.read())
    if pid is None or error is not None:
        os.close(left)
        code = process.wait()
        reason = f"its keeper ended with exit code {code}" if error is None else os.strerror(error)
        raise EngineError(
            f"{task.name} can't run {task.command[0]!r}: {reason}.",
            "The process engine runs what is installed on this machine.",
        )
    return _Started(process, pid, left)


def _environment(
    task: Task, run_id: str, folder: Path, python: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Return what of our environment tasks may have, and the whole environment of a task."""
    from emulator.scenario.values import VARIABLES  # only runs start tasks

    shared = {"EMULATOR_SHARED": str(folder / "shared")}
    # Not those of a task in which `emulate` itself runs: a task that does not train has no rank.
    ours = {SECRET, *VARIABLES}
    inherited = {name: value for name, value in os.environ.items() if name not in ours}
    path = os.pathsep.join([str(Path(python).parent), inherited.get("PATH", os.defpath)])
    # The labels come last: if a scenario could set them, the processes would not be found again.
    labels = labelled(run_id, task.name, folder)
    return inherited, {**inherited, "PATH": path, **task.env, **shared, **labels}


def _open_pipe(path: Path) -> int:
    """Open a named pipe for reading and writing: a writer never gets EPIPE.

    Raises OSError, also where something else has been put in its place.
    """
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileExistsError(errno.EEXIST, "its output pipe was replaced")
    os.set_blocking(descriptor, True)
    return descriptor


def _kill_all(run_id: str, folder: Path | None = None) -> int:
    """Kill every process of a run; return how many. Raises EngineError where one does not die.

    `folder` is that of the run; None: of all runs with this id.
    """
    killed = set[int]()
    deadline: float | None = None
    # Repeatedly: a process that is being killed may have started another since the last look.
    while members := [
        one
        for one in owned()
        if one.labels.run_id == run_id and folder in (None, Path(one.labels.folder))
    ]:
        if deadline is None:
            # The time of the first look does not count.
            deadline = time.monotonic() + REMOVAL_TIMEOUT
        elif time.monotonic() > deadline:
            raise _undying(run_id, [one.process for one in members])
        alive = [one.process for one in members if one.is_killed_directly]
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
            killed.add(process.pid)
        while alive := [process for process in alive if not has_ended(process)]:
            if time.monotonic() > deadline:
                raise _undying(run_id, alive)
            time.sleep(0.001)
    return len(killed)


def exit_code(returncode: int) -> int:
    """Return the code a shell would show: 128 + N for signal N (pure)."""
    return returncode if returncode >= 0 else 128 - returncode


def _wait_until_stopped(process: psutil.Process) -> bool:
    """Wait until a process no longer runs after SIGSTOP, or has ended; return whether that is so.

    waitid with WSTOPPED is not enough: a shell that starts a command waits in vfork, beyond the
    reach of signals ("disk sleep"), for a child that has been stopped.
    """
    stopped = {psutil.STATUS_STOPPED, psutil.STATUS_DISK_SLEEP, psutil.STATUS_ZOMBIE}
    stopped.add(psutil.STATUS_TRACING_STOP)  # held before a call: it stops as soon as it is let go
    deadline = time.monotonic() + REMOVAL_TIMEOUT
    with contextlib.suppress(psutil.NoSuchProcess):
        while process.status() not in stopped:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
    return True


def _undying(run_id: str, processes: Sequence[psutil.Process]) -> EngineError:
    pids = ", ".join(str(process.pid) for process in processes)
    return EngineError(f"{len(processes)} processes of {run_id} don't die: {pids}.")
