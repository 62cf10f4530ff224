"""What faults do to containers: signals, freezing, throttling, memory, the network, power."""

from __future__ import annotations

import base64
import contextlib
import json
import signal
import socket
import tarfile
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import requests
from docker.errors import APIError, NotFound

from emulator.engines.base import no_metadata
from emulator.engines.docker import volumes
from emulator.engines.docker.connection import (
    Frames,
    remove_container,
    streamed,
    translate_errors,
)
from emulator.engines.docker.container_request import (
    LOST,
    SHARED,
    STDIN,
    cpu_quota,
    files_request,
    helper_request,
    tracer_request,
    witness_request,
)
from emulator.engines.docker.network import Shaper, missing_parts, run_helper
from emulator.engines.docker.ownership import make_anew
from emulator.engines.docker.task_containers import TaskContainers, no_container
from emulator.engines.kit.byte_stream import reader_of, socket_of
from emulator.engines.kit.containers import home_of
from emulator.engines.kit.lines import LineSplitter, seconds
from emulator.engines.kit.streams import PIECE
from emulator.errors import EngineError, ImageError, NotRunning
from emulator.faults.platforms.notices import Notice

if TYPE_CHECKING:
    from requests import Response

    from emulator.faults.netem import Link
    from emulator.faults.saved_files import File


PYTHON = (
    "sh",
    "-c",
    'command -v python3 > /dev/null || { echo "its image has no python3"; exit 1; }; '
    'exec python3 -I -S -c "$0" "$1"',
)
"""What a program and its argument follow."""
WITH_PACKAGES = (*PYTHON[:2], PYTHON[2].replace(" -I -S", ""))
"""The same, with the packages of the image."""
LEFT = "left"
"""The folder of a helper in which it has what a task has left on its own disk."""
TO_ALL = r"""
for folder in /proc/[0-9]*; do
    pid=${folder#/proc/} state= parent=
    while read -r key value _; do
        case $key in State:) state=$value ;; PPid:) parent=$value; break ;; esac
    done 2>/dev/null < "$folder/status"
    case $parent in ""|*[!0-9]*) continue ;; esac
    [ "$state" = Z ] || pids="$pids $pid"
    eval "parent_$pid=$parent"
done
for pid in $pids; do
    above=$pid
    while [ "$above" -gt 1 ]; do eval "above=\${parent_$above:-0}"; done
    if [ "$above" = 1 ] && [ "$pid" != 1 ]; then found="$found $pid" count=$((count + 1)); fi
done
for number; do [ -z "$found" ] || kill "-$number" $found 2>/dev/null; done
echo "${count:-0}"
"""
"""Signals all that descends from the init of a container; its arguments are the numbers.

Not the init, which is ours, and not what an engine or a user runs beside it (`docker exec`): the
parent of that is outside. `status` escapes the names of processes, which may have any characters.
"""
DELETED = 2
"""`Kind` of a change of a container's file system (Docker's API, ContainerChanges)."""
LOOKED_AT = 64
"""Files of a container that are looked at when it has ended; each is a request."""
SSH = "http+docker://ssh"
"""Where the SDK's requests go that it sends over SSH."""
FILES_TIMEOUT = 150
"""Seconds for a program that changes files, which may wait until nobody has one open."""


class Faults(TaskContainers):
    """The capabilities of the Docker engine that faults need."""

    @cached_property
    def _tracers(self) -> dict[str, dict[str, socket.socket]]:
        """The containers that trace a task, each with its standard input."""
        return {}

    @cached_property
    def _freezer(self) -> Freezer:
        return Freezer(self.api)

    def signal(self, task: str, number: int) -> None:
        """Signal the container's init, which passes it on."""
        if self._pods:
            with translate_errors(f"signal {task}"):
                if self._pods.signal(task, number):
                    return
        container = self._created.get(task)
        if container is None:
            return
        if number == signal.SIGKILL:
            self._output.expect_kill(container)
        with translate_errors(f"signal {task}"):
            self._freezer.signal(container, number)

    def signal_all(self, task: str, numbers: Sequence[int]) -> int | None:
        """Signal all that descends from the container's init, from inside."""
        container = self._created.get(task)
        if container is None or (self._pods and self._pods.starts(task)):
            for number in numbers:
                self.signal(task, number)
            return None
        return self._signal_all(task, container, numbers)

    def _signal_all(self, task: str, container: str, numbers: Sequence[int]) -> int | None:
        def later() -> None:
            self._freezer.thaw(container)
            self._signal_all(task, container, numbers)

        if self._freezer.put_off(container, later):
            return None
        self._spoil()
        command = ["sh", "-c", TO_ALL, "sh", *map(str, numbers)]
        with translate_errors(f"signal all processes of {task}"):
            if not self._freezer.runs(container):
                return 0
            found = self.api.exec_create(container, command)["Id"]
            output = self.api.exec_start(found).decode("utf-8", "replace").strip()
            code = self.api.exec_inspect(found)["ExitCode"]
            if code == 0 and output.isdecimal():
                return int(output)
            # It ended meanwhile, perhaps of the signal, and what runs in it was killed.
            if code is None or code > 128 or not self._freezer.runs(container):
                return None
        reason = "its image has no sh" if code in (126, 127) else output[-300:]
        raise EngineError(f"Can't signal all processes of {task}: {reason}.")

    def pause(self, task: str) -> None:
        """Freeze the container's processes by its cgroup."""
        self._spoil()
        container = self._container(task)
        with translate_errors(f"pause {task}"):
            if not self._freezer.freeze(container):
                raise NotRunning(f"Can't pause {task}: it does not run.")

    def resume(self, task: str) -> None:
        """Thaw the container; nothing happens if it is not frozen or no longer exists."""
        container = self._created.get(task)
        if container is not None:
            with translate_errors(f"resume {task}"):
                self._freezer.thaw(container)

    def throttle(self, task: str, cpus: float | None) -> None:
        """Change the container's CPU quota, while it runs or for when it is started again."""
        self._spoil()
        container = self._container(task)
        with translate_errors(f"limit the CPU of {task}"):
            try:
                self.api.update_container(container, cpu_quota=cpu_quota(cpus))
            except NotFound:
                raise no_container(task) from None
        self._usage.set_cpu_limit(container, cpus)

    def oom_kill(self, task: str) -> None:
        """Lower the task's memory limit until the kernel kills it."""
        limit = self._run.task(task).memory_limit
        container = self._container(task)
        with translate_errors(f"run {task} out of memory"):
            oom_kill(self.api, task, container, limit)

    @property
    def can_shape(self) -> bool:
        """Whether the helper image is known to exist."""
        return self._equipped

    def equip(self, say: Callable[[str], None]) -> None:
        """Build the helper image where it does not exist."""
        image = self.images.reference("network")
        if not self.images.has(image):
            say(f"the image {image} is built, which takes a while")
        try:
            self.images.ensure("network", lambda line: None)
        except (ImageError, OSError) as error:
            reason = str(error).partition("\n")[0].rstrip(":.")
            raise ImageError(f"{reason}; `emulate build network` shows more.") from None
        self._equipped = True

    def _equip_for(
        self, parts: Iterable[str], labels: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        """Build the helper image, and try what the kernel can do to a network."""
        helper = self.images.ensure("network", say)
        with translate_errors("try the network"):
            missing_parts(self.api, helper, parts, labels)
        self._equipped = True

    def shape(self, links: Sequence[Link]) -> None:
        """Apply `links` to packets between tasks, and to no others."""
        if self._shaper is None:
            if not links:
                return
            image = self._helper()
            self._spoil()
            self._shaper = Shaper(self.api, image, self._run.resources, self._labels)
        with translate_errors("change the network"):
            self._shaper.set(links, self._created)

    def cut_power(self, task: str) -> None:
        """Drop all packets of the task's container, and kill its processes; it stays."""
        container = self._created.get(task)
        if container is None:
            return
        image = self._helper()
        self._spoil()
        with translate_errors(f"cut the power of {task}"):
            silent_since = cut_power(self.api, image, container, self._labels)
        if silent_since is not None:
            self._lost[task] = container
            self._output.report_lost(container, silent_since)

    def run_at_files(self, where: str, program: str, request: Mapping[str, Any]) -> str:
        """Run a program in a task's container, or in one that has only the shared volume.

        The latter is of the image of the first task: it runs whether or not any task does.
        """
        if where == "shared":
            with translate_errors("run a program on the shared volume"):
                config = self._files_request(program, request)
                return run_helper(self.api, config, "Changing files failed", FILES_TIMEOUT)
        self._spoil()
        container = self._container(where)
        with translate_errors(f"run a program in {where}"):
            asked = self._asked_of(where, container, request)
            made = self.api.exec_create(container, [*PYTHON, program, asked])["Id"]
            output, errors = self.api.exec_start(made, demux=True)
            if self.api.exec_inspect(made)["ExitCode"]:
                text = (errors or output or b"").decode("utf-8", "replace")
                raise EngineError(f"Changing files failed: {text.strip()[-300:]}")
        return str((output or b"").decode("utf-8", "replace"))

    def talk_at_files(
        self, where: str, program: str, request: Mapping[str, Any], said: str
    ) -> Generator[str, str | None, None]:
        """Do so, and yield each line that it prints; it ends with the connection to its input.

        Over SSH there is no such connection: then it does not wait.
        """
        if str(self.api.base_url).startswith(SSH):
            yield self.run_at_files(where, program, {**request, "waits": False, "again": False})
            return
        self._spoil()
        with (
            translate_errors(f"run a program at the files of {where}"),
            contextlib.ExitStack() as end,
        ):
            if where == "shared":
                body = {**self._files_request(program, request), **STDIN}
                helper: str = self.api.create_container_from_config(body)["Id"]
                end.callback(remove_container, self.api, helper)
                response = attached(self.api, helper)
                self.api.start(helper)
            else:
                container = self._container(where)
                asked = self._asked_of(where, container, request)
                command = [*PYTHON, program, asked]
                made = self.api.exec_create(container, command, stdin=True)["Id"]
                response = executed(self.api, made)
            end.enter_context(contextlib.closing(response))
            text = yield from talk_through(response, said)
            if where == "shared":
                code = self.api.wait(helper)["StatusCode"]
            else:
                code = self.api.exec_inspect(made)["ExitCode"]
            if code:
                said = text.strip()[-300:] or f"exit code {code}"
                raise EngineError(f"Changing files failed: {said}")

    def _files_request(self, program: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a helper for a program that has the shared volume."""
        image, volume = self._run.tasks[0].image, self._run.resources
        asked = json.dumps({**request, "folder": SHARED, "since": self._began()})
        return files_request(image, volume, [*PYTHON, program, asked], self._labels)

    def _began(self) -> float:
        """Return when the shared volume was made, by the engine's clock (seconds since 1970).

        What is older there came with the program. `CreatedAt` of a volume is no such time: Docker's
        is when anything was last made or renamed in its uppermost folder. The run's network is made
        just before the volume.
        """
        return seconds(self.api.inspect_network(self._run.resources)["Created"])

    def _asked_of(self, task: str, container: str, request: Mapping[str, Any]) -> str:
        """Return what a program is asked that runs in a container. Raises NotRunning."""
        if not self._freezer.runs(container):
            raise NotRunning(f"{task} does not run.")
        # What is older came with the image.
        since = seconds(self.api.inspect_container(container)["Created"])
        folder = home_of(self._run.task(task)) or "."
        return json.dumps({**request, "folder": folder, "anywhere": True, "since": since})

    def look(self, where: str, since: float) -> Mapping[str, Any]:
        """Have a helper look at the shared volume; of a container the engine says what changed."""
        from emulator.faults import saved_files  # only a task that is started again needs it

        with translate_errors(f"look at the files of {where}"):
            if where != "shared":
                changed = self.api.diff(self._container(where)) or ()
                left = saved_files.listed([*self._own_files(where, changed, since)])
                return {
                    **left,
                    "saved": [{**one, "path": f"/{one['path']}"} for one in left["saved"]],
                }
            program = Path(saved_files.__file__).read_text("utf-8")
            asked = {"how": saved_files.LIST, "of": "latest", "folder": SHARED, "since": since}
            command = [*PYTHON, program, json.dumps(asked)]
            image = self._run.tasks[0].image
            config = files_request(image, self._run.resources, command, self._labels)
            printed = run_helper(self.api, config, "Looking at /shared failed", FILES_TIMEOUT)
        try:
            answer = json.loads(printed)
        except ValueError:
            raise EngineError(f"Looking at {SHARED} failed: {printed.strip()[-300:]}") from None
        if "error" in answer:
            raise EngineError(f"{answer['error']}.")
        return dict(answer)

    def read_files(self, where: str, program: str, request: Mapping[str, Any]) -> str:
        """Run a program in a helper of a task's image; it has copies of what a container has saved.

        Nothing but saves is copied: among the rest are the files of the image.
        """
        plan = self._run
        task = plan.task(where) if where != "shared" else next(iter(plan.in_training))
        with translate_errors(f"read the files of {where}"), contextlib.ExitStack() as end:
            if where == "shared":
                asked = json.dumps({**request, "folder": SHARED, "since": self._began()})
            else:
                asked = json.dumps({**request, "folder": f"/{LEFT}", "since": 0.0})
            command = [*WITH_PACKAGES, program, asked]
            body = files_request(task.image, plan.resources, command, self._labels, reads=True)
            helper: str = self.api.create_container_from_config(body)["Id"]
            end.callback(remove_container, self.api, helper)
            if where != "shared" and not self._copy_saves(where, helper, request["since"]):
                return json.dumps({"files": {}})
            self.api.start(helper)
            code = self.api.wait(helper, timeout=FILES_TIMEOUT)["StatusCode"]
            output: bytes = self.api.logs(helper, stdout=True, stderr=bool(code))
            text = output.decode("utf-8", "replace")
            if code:
                raise EngineError(f"Reading files failed: {text.strip()[-300:]}")
            return text

    def _copy_saves(self, task: str, helper: str, since: float) -> int:
        """Copy what a task has saved on its own disk into a helper; return how many files."""
        container = self._container(task)
        changed = self.api.diff(container) or ()
        saved = [file.path for file in self._own_files(task, changed, since)]
        for path in saved:
            pieces, _ = self.api.get_archive(container, f"/{path}")
            with tempfile.TemporaryFile() as whole, tempfile.TemporaryFile() as moved:
                whole.writelines(pieces)
                whole.seek(0)
                with (
                    tarfile.open(fileobj=whole) as old,
                    tarfile.open(fileobj=moved, mode="w") as new,
                ):
                    for one in old:
                        one.name = f"{LEFT}/{path}"
                        if one.isreg():
                            new.addfile(one, old.extractfile(one))
                moved.seek(0)
                self.api.put_archive(helper, "/", moved)
        return len(saved)

    def _own_files(
        self, task: str, changed: Sequence[Mapping[str, Any]], since: float
    ) -> Iterator[File]:
        """Yield those of the changed files of a task that may be of checkpoints."""
        from emulator.faults import saved_files

        paths = [one["Path"].lstrip("/") for one in changed if one["Kind"] != DELETED]
        own = [path for path in paths if path.split("/")[0] not in saved_files.NOT_ITS_OWN]
        folders = {path.rpartition("/")[0] for path in own}
        seen = [saved_files.File(path, is_folder=path in folders) for path in own]
        parts = [file.path for one in saved_files.checkpoints(seen) for file in one.files]
        container = self._container(task)
        for path in parts[:LOOKED_AT]:
            url = f"{self.api.base_url}/v{self.api.api_version}/containers/{container}/archive"
            answer = self.api.head(url, params={"path": f"/{path}"})
            if told := answer.headers.get("X-Docker-Container-Path-Stat"):
                status = json.loads(base64.b64decode(told))
                if (written := seconds(status["mtime"])) >= since:
                    yield saved_files.File(path, status["size"], int(written * 1e9))

    def watch_files(
        self,
        program: str,
        since: float,
        told: Callable[[str], object],
        opened: Callable[[Callable[[], object]], object],
    ) -> None:
        """Run a program that has the shared volume, in a container of the first task's image."""
        asked = json.dumps({"folders": {"shared": SHARED}, "since": since})
        command, image = [*PYTHON, program, asked], self._run.tasks[0].image
        body = witness_request(image, self._run.resources, command, self._labels)
        with translate_errors("watch the shared volume"):
            name = f"{self._run.resources}.witness"  # of no task: these have a dash
            witness = make_anew(self.api, name, body)
            try:
                for line in lines_of(
                    self.api, witness, lambda own: opened(partial(_end_input, own))
                ):
                    told(line)
            finally:
                remove_container(self.api, witness)

    def fill(self, volume: str) -> int:
        """Have a container of the first task's image fill the shared volume, which has a size."""
        # Only this needs them: what lists and removes runs does without the kinds of faults.
        from emulator.faults.disk import FILLED, FULL_NEEDS_SIZE, SIZE_HINT

        plan = self._run
        if plan.scenario.shared_limit is None:
            raise EngineError(f"It can't be filled: {FULL_NEEDS_SIZE}; {SIZE_HINT}.")
        self._spoil()
        program = FILLED.read_text("utf-8")
        command = [*PYTHON, program, json.dumps({"folder": SHARED})]
        with translate_errors(f"fill the volume {volume}"):
            image = plan.tasks[0].image
            return volumes.fill(self.api, image, plan.resources, command, self._labels)

    def give_room(self, volume: str) -> None:
        """Remove the container that fills the shared volume."""
        with translate_errors(f"give the volume {volume} room"):
            volumes.give_room(self.api, self._run.resources)

    def hold(
        self, task: str, program: str, request: Mapping[str, Any], told: Callable[[str], None]
    ) -> None:
        """Run a program that traces the processes of a container, in one of the same image."""
        self._spoil()
        container, image = self._container(task), self._run.task(task).image
        own = {"shared": SHARED, "home": self._home(task, container)}
        asked = json.dumps({**request, **own, "below": 1})
        body = tracer_request(
            image, f"container:{container}", [*PYTHON, program, asked], self._labels
        )
        with translate_errors(f"trace {task}"):
            if not self._freezer.runs(container):
                raise NotRunning(f"{task} does not run.")
            ended = partial(_wait_for_end, self.api, container, _started_at(self.api, container))
            helper: str = self.api.create_container_from_config(body)["Id"]
            tracers = self._tracers.setdefault(task, {})
            try:
                for line in lines_of(self.api, helper, partial(tracers.__setitem__, helper)):
                    told(line)
                if self._tracers.get(task) is tracers:  # nobody has let the task go
                    require_good_end(self.api, helper, task, ended)
            finally:
                tracers.pop(helper, None)
                remove_container(self.api, helper)

    def _home(self, task: str, container: str) -> str:
        """Return the working directory of a task, which its image may have set."""
        if home := home_of(self._run.task(task)):
            return home
        with translate_errors(f"look at {task}"):
            return self.api.inspect_container(container)["Config"]["WorkingDir"] or "/"

    def tell(self, task: str, line: str) -> None:
        """Write a line to the container that traces a task."""
        for own in list(self._tracers.get(task, {}).values()):
            with contextlib.suppress(OSError):  # it has ended
                own.sendall(f"{line}\n".encode())

    def let_go(self, task: str) -> None:
        """End the containers that trace a task, which then goes on."""
        for helper in list(self._tracers.pop(task, {})):
            with translate_errors(f"let {task} go on"):
                remove_container(self.api, helper)

    def announce(self, notice: Notice) -> None:
        """Have the run's metadata server tell a task."""
        if self._metadata is None:
            raise no_metadata(notice.task)
        with translate_errors(f"tell {notice.task}"):
            if not self._freezer.runs(self._container(notice.task)):
                raise NotRunning(f"{notice.task} can't be told: it does not run.")
            self._metadata.announce(notice)

    def withdraw(self, task: str) -> None:
        """Have it take back what it has told a task."""
        if self._metadata:
            with translate_errors(f"take back what {task} was told"):
                self._metadata.withdraw(task)

    def _helper(self) -> str:
        """Return the helper image. Raises EngineError where it does not exist."""
        image = self.images.reference("network")
        if not self.images.has(image):
            raise EngineError(
                f"The image {image}, which network faults and notices need, is gone.",
                "Run `emulate build network`.",
            )
        return image


def require_good_end(
    api: docker.APIClient, helper: str, task: str, ended: Callable[[], bool]
) -> None:
    """Raise EngineError where a helper that traced a task has ended neither by itself nor with it.

    The end of its first process kills what runs beside it, also a tracer that is about to end.
    """
    code = api.wait(helper)["StatusCode"]
    if code and not (code == 128 + signal.SIGKILL and ended()):
        raise EngineError(f"What traced {task} has ended with exit code {code}.")


UPGRADE = {"Connection": "Upgrade", "Upgrade": "tcp"}
"""The headers of a request whose connection is then that of a program."""


def attached(api: docker.APIClient, container: str) -> Response:
    """Connect to what a container reads and prints."""
    query: dict[str, str | int] = {"stream": 1, "stdin": 1, "stdout": 1, "stderr": 1}
    path = f"/containers/{container}/attach"
    return streamed(api, "POST", path, query=query, headers=UPGRADE, timeout=None)


def executed(api: docker.APIClient, made: str) -> Response:
    """Run a command in a container, and connect to what it reads and prints."""
    body = {"Tty": False, "Detach": False}
    return streamed(api, "POST", f"/exec/{made}/start", json=body, headers=UPGRADE, timeout=None)


def talk_through(response: Response, said: str) -> Generator[str, str | None, str]:
    """Yield each line that a program prints, and send it what is sent; return its errors."""
    own, frames, printed = socket_of(response.raw), Frames(), {1: b"", 2: b""}
    assert own is not None, "the connection is direct"
    own.settimeout(None)
    line: str | None = said
    while True:
        if line:
            own.sendall(f"{line}\n".encode())
        while b"\n" not in printed[1]:
            if not (data := reader_of(response.raw).read1(PIECE)):
                return (printed[2] or printed[1]).decode("utf-8", "replace")
            for stream, piece in frames.feed(data):
                printed[stream] += piece
        first, _, printed[1] = printed[1].partition(b"\n")
        line = yield first.decode("utf-8", "replace")


def lines_of(
    api: docker.APIClient, helper: str, opened: Callable[[socket.socket], object]
) -> Iterator[str]:
    """Start a container that ends with the connection, and yield what it prints, by lines.

    The connection is `opened` then: what is sent there is its standard input. Raises EngineError
    where the connection is not direct, as over SSH.
    """
    with contextlib.closing(attached(api, helper)) as response:
        own = socket_of(response.raw)
        if own is None:
            raise EngineError("Calls can be watched over a direct connection to Docker only.")
        own.settimeout(None)
        api.start(helper)
        opened(own)
        frames, lines = Frames(), LineSplitter()
        while data := reader_of(response.raw).read1(PIECE):
            for _, text in frames.feed(data):
                yield from lines.feed(text)


def _end_input(own: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended
        own.shutdown(socket.SHUT_WR)


# --- Freezing -------------------------------------------------------------------------------------

ATTEMPTS = 5
"""Requests before the refusal counts. One refusal in some thousand pauses was seen, at load 10."""


class Freezer:
    """Freezes, thaws and signals the containers of one run; it may be called on any thread.

    Docker thaws a frozen container when it is sent a signal. A frozen machine does not handle any,
    so signals other than SIGKILL are kept until the container is thawed.
    """

    def __init__(self, api: docker.APIClient) -> None:
        self._api = api
        self._kept: dict[str, list[Callable[[], None]]] = {}
        """What sends each frozen container the signals that it has not got yet, by its id."""
        self._lock = threading.Lock()

    def freeze(self, container: str) -> bool:
        """Freeze a container; return whether it runs. Raises APIError."""
        with self._lock:
            self._kept.setdefault(container, [])
        try:
            freeze(partial(self._api.pause, container))
        except APIError:
            self.thaw(container)
            if self.runs(container):
                raise
            return False
        return True

    def runs(self, container: str) -> bool:
        """Return whether a container runs: runc has many words for one that is just ending."""
        try:
            return bool(self._api.inspect_container(container)["State"]["Running"])
        except NotFound:
            return False

    def thaw(self, container: str) -> None:
        """Let a container run again, with the signals that it should have got. Raises APIError."""
        with self._lock:
            kept = self._kept.pop(container, [])
        for send in kept:
            send()  # which thaws it
        try:
            self._api.unpause(container)
        except APIError as error:
            if not is_awake(error):
                raise

    def forget(self, container: str) -> None:
        """A container is started, which was not frozen then."""
        with self._lock:
            self._kept.pop(container, None)

    def put_off(self, container: str, send: Callable[[], None]) -> bool:
        """Keep a call for when a frozen container is thawed; return whether it is frozen."""
        with self._lock:
            is_frozen = container in self._kept
            if is_frozen:
                self._kept[container].append(send)
            return is_frozen

    def signal(self, container: str, number: int) -> None:
        """Signal a container's init, which passes it on; a frozen one later. Raises APIError."""
        later = partial(self.signal, container, number)
        if number != signal.SIGKILL and self.put_off(container, later):
            return
        try:
            self._api.kill(container, signal=signal.Signals(number).name)
        except APIError as error:
            if not is_awake(error):
                raise


def freeze(pause: Callable[[], None]) -> None:
    """Call `pause` until the container is frozen. Raises the engine's last refusal.

    With cgroup v1, runc asks the kernel again and again until all processes of a container are
    frozen. On a busy machine it may give up ("unable to freeze"); it then thaws what it had frozen,
    so that the request can be made again.
    """
    for attempt in range(ATTEMPTS):
        try:
            return pause()
        except APIError as error:
            if is_frozen(error):
                return None
            if not may_succeed_later(error) or attempt == ATTEMPTS - 1:
                raise


def is_frozen(refusal: APIError) -> bool:
    """Whether the engine refuses because the container is frozen already."""
    return "already paused" in str(refusal.explanation)


def is_awake(refusal: APIError) -> bool:
    """Whether the engine refuses because the container is not frozen, no longer runs, or is gone.

    Docker 20.10 answers 500 for a container that is not paused, and for one that a signal which
    thawed it has ended, or has thawed, of which the engine itself does not know yet.
    """
    words = ("is not paused", "stopped container", "container not running", "a running process")
    return refusal.status_code in (404, 409) or any(word in str(refusal) for word in words)


def may_succeed_later(refusal: APIError) -> bool:
    """Whether runc gave up, and nothing speaks against another attempt."""
    return "unable to freeze" in str(refusal.explanation)


# --- Out of memory --------------------------------------------------------------------------------

EXIT_TIMEOUT = 30
"""Seconds that the engine has to report a container's exit; a busy one needs some."""
MARGIN = 32 * 2**20
"""Bytes above what a task uses at which its memory is limited before it is killed."""
USAGE = (
    "cat /sys/fs/cgroup/memory.current 2> /dev/null"
    " || cat /sys/fs/cgroup/memory/memory.usage_in_bytes"
)
# The kernel kills the process with the highest score: the task's is raised, and `tail` keeps one
# endless line in memory.
BALLOON = """
for file in /proc/[0-9]*/oom_score_adj; do
    process=${file#/proc/}; process=${process%%/*}
    [ $process = $$ ] || [ $process = 1 ] || echo 1000 > $file
done 2> /dev/null
tail /dev/zero
"""


def oom_kill(api: docker.APIClient, task: str, container: str, limit: int | None) -> None:
    """Have the kernel kill a container as on a full node, then restore its limit (in bytes).

    A cgroup's limit can't be set below what is used (cgroup v1), so it is set just above that, and
    another process in the container takes the rest. Raises EngineError where the task survives.
    """
    used = execute(api, container, USAGE)
    if not used.isdigit():
        reason = used or "it is ending"
        raise EngineError(f"The memory use of {task} can't be read in its container: {reason}.")
    low = int(used) + MARGIN
    started_at = _started_at(api, container)
    api.update_container(container, mem_limit=low, memswap_limit=low)
    try:
        execute(api, container, BALLOON)
        ended = _wait_for_end(api, container, started_at)
    finally:
        # A limit can't be removed; the machine's whole memory has the same effect.
        old = limit or int(api.info()["MemTotal"])
        api.update_container(container, mem_limit=old, memswap_limit=old if limit else -1)
    if not ended:
        raise EngineError(f"The kernel did not kill {task}, but the process that took its memory.")


def _wait_for_end(api: docker.APIClient, container: str, started_at: str) -> bool:
    """Wait for the end of a container whose process was killed; return whether it has ended.

    If it has been started again since, it has ended, and the new start must not be waited for.
    """
    try:
        if _started_at(api, container) == started_at:
            api.wait(container, timeout=EXIT_TIMEOUT)
    except NotFound:
        return True
    except (requests.Timeout, requests.ConnectionError):
        return False
    return True


def _started_at(api: docker.APIClient, container: str) -> str:
    return str(api.inspect_container(container)["State"]["StartedAt"])


def execute(api: docker.APIClient, container: str, script: str) -> str:
    """Run a shell script in the task's container; return what it printed."""
    made = api.exec_create(container, ["sh", "-c", script], stderr=False)
    output: bytes = api.exec_start(made["Id"])
    return output.decode("utf-8", "replace").strip()


# --- Without power --------------------------------------------------------------------------------

REMOVAL_TIMEOUT = 30
"""Seconds for killed processes to end; one that waits for a slow disk ends late."""
SCRIPT = f"""
silence() {{ printf '*filter\\n:INPUT %s\\n:FORWARD %s\\n:OUTPUT %s\\nCOMMIT\\n' $1 $1 $1; }}
[ -z "$(ip -6 address show scope global)" ] || silence DROP | ip6tables-restore || exit 1
silence DROP | iptables-restore || exit 1
date +%s.%N
running() {{
    for file in /proc/[0-9]*/status; do
        process=${{file#/proc/}}; process=${{process%/status}}
        [ $process != 1 ] && [ $process != $$ ] || continue
        while read -r key value rest; do
            [ "$key" = State: ] || continue
            case $value in [ZX]) break;; *) return 0;; esac
        done < $file
    done 2> /dev/null
    return 1
}}
kill -KILL -1 2> /dev/null
for _ in $(seq {REMOVAL_TIMEOUT * 50}); do
    running || exit 0
    sleep 0.02
done
silence ACCEPT | iptables-restore
echo 'a process does not end' >&2
exit 1
"""
"""Policies instead of rules: other network faults set the rules again. It prints when it began."""


def cut_power(
    api: docker.APIClient, image: str, container: str, labels: Mapping[str, str]
) -> float | None:
    """Silence a running container first, then end its processes.

    Docker removes the endpoint of a container that has ended: its name is gone at once, and its
    address answers with an error. Neither happens when a machine loses power. So the container does
    not end: a helper in its namespaces drops every packet and kills every process but the first, an
    init, which was stopped before so that it does not notice. The kernel still answers ARP for the
    address, so that connections to it time out. The container is removed when the task is started
    again.

    Returns when it fell silent (seconds since 1970, by the engine's clock); None: it does not run.
    Raises EngineError if a process of it does not end.
    """
    try:
        api.kill(container, signal="SIGSTOP")
    except APIError as error:
        if error.status_code in (404, 409):  # removed, or not running
            return None
        raise
    inside = f"container:{container}"
    try:
        request = helper_request(image, inside, SCRIPT, labels, processes=inside)
        silent_since = float(run_helper(api, request))
    except BaseException:
        with contextlib.suppress(APIError):
            api.kill(container, signal="SIGCONT")
        raise
    name: str = api.inspect_container(container)["Name"].lstrip("/")
    if not name.endswith(LOST):
        api.rename(container, name + LOST)  # its name is the replacement's
    return silent_since
