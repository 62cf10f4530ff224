"""The warm containers of one run: made, leased, started, reset, and given back.

A cluster is what a run has on the engine: network, volume, and containers. A warm one has an id of
its own instead of the run's, because it serves several runs, one after the other. Its key says what
can't be changed in a container: two runs with one key can use the same cluster.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import secrets
import tarfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import docker
from docker.errors import APIError

from emulator.engines.docker.container_request import (
    RUN,
    SHARED,
    WORKDIR,
    container_request,
    network_request,
)
from emulator.engines.docker.ownership import assigns_addresses
from emulator.engines.docker.warm import parent
from emulator.engines.docker.warm.pool import IDLE, Pool, WaitingCluster
from emulator.errors import Unsupported
from emulator.faults.preempt import Preempt
from emulator.planning.plan import Plan, Task, WarmStart
from emulator.scenario.frameworks.registry import FRAMEWORKS

if TYPE_CHECKING:
    from emulator.engines.docker.logs import LogFollower
    from emulator.engines.kit.lines import PrintedLine
    from emulator.scenario.schema import Scenario

PYTHON = re.compile(r"python(3(\.\d+)?)?")
_WITH_VALUE = ("-W", "-X")
"""Options of the interpreter whose value may be the next argument."""
PER_RUN = ("EMULATOR_RUN", "EMULATOR_SEED")
"""Variables that differ from run to run; a task gets all others when its container is made."""
WAKE = "RTMIN+7"
"""The signal `parent.WAKE`, as the engine names it."""
RESET_TIMEOUT = 30.0
"""Seconds for a parent to remove what a task has left; else its container is replaced."""
BYTES_A_TASK = 2**30
"""Memory of a waiting container, at most: containers that take half of the engine's may wait."""
MODIFIED, ADDED = 0, 1
"""Kinds of a change in a container (Docker API, `GET /containers/{id}/changes`); 2: deleted."""


@dataclass(frozen=True)
class Interpreter:
    """The Python that a command starts, with its own options."""

    path: str
    options: tuple[str, ...]


def interpreter_of(command: Sequence[str]) -> Interpreter | None:
    """Return the interpreter of a command; None if it starts no Python program (pure)."""
    if not command or not PYTHON.fullmatch(command[0].rpartition("/")[2]):
        return None
    at = 1
    while at < len(command) and command[at].startswith("-") and command[at] not in ("-m", "-c"):
        at += 2 if command[at] in _WITH_VALUE else 1
    return Interpreter(command[0], tuple(command[1:at])) if at < len(command) else None


def cold_tasks(plan: Plan) -> dict[str, str]:
    """Return why a task can't start warm, for each that can't (pure)."""
    out_of_memory = {fault.target for fault in plan.faults if fault.spec.capability == "oom"}
    cold = {}
    for task in plan.tasks:
        if interpreter_of(task.command) is None:
            cold[task.name] = "its command starts no Python program"
        elif task.gpus:
            cold[task.name] = "it has a GPU"
        elif task.init:
            cold[task.name] = "it has init steps"
        elif task.working_dir or plan.files(task):
            cold[task.name] = "it has files or a working directory of its own"
        elif plan.scenario.shared_limit is not None:
            cold[task.name] = "its shared volume has a size"
        elif task.mounts:
            cold[task.name] = "it has mounts, which a container that waits would keep as they were"
        elif task.ports:
            cold[task.name] = "its ports would stay published between runs"
        elif task.name in out_of_memory:
            cold[task.name] = "it runs out of memory, which counts its parent's as well"
    return cold


@dataclass(frozen=True)
class Image:
    """What an image adds to a command."""

    id: str
    entrypoint: tuple[str, ...]


class ControlReplies:
    """Takes the answers to one request out of the lines of a container."""

    def __init__(self, mark: str, request: str) -> None:
        """`mark` begins each answer, wherever in a line; `request` is the id of this request."""
        self._mark, self._request = mark, request
        self._streams: set[int] = set()
        self.answer: dict[str, Any] = {}
        self.stamp = ""
        """The engine's stamp of the last one."""

    @property
    def complete(self) -> bool:
        """Whether both streams have answered: nothing that the task printed comes after that."""
        return self._streams == {1, 2}

    def take_reply(self, printed: PrintedLine) -> PrintedLine | None:
        """Return a line of the task, without the answer in it; None if it has nothing else."""
        text, mark, answer = printed.text.partition(self._mark)
        if not mark:
            return printed
        self._note(answer, printed.last_stamp)
        return printed._replace(text=text) if text else None  # a last line without its newline

    def _note(self, text: str, stamp: str) -> None:
        try:
            answer = json.loads(text)
        except ValueError:  # cut off, because it follows a line that is too long: it is repeated
            return
        if answer["request"] == self._request:
            self._streams.add(answer.pop("stream"))
            self.answer, self.stamp = answer, stamp


class WarmCluster:
    """The warm containers that one run uses."""

    def __init__(
        self,
        api: docker.APIClient,
        plan: Plan,
        images: Mapping[str, Image],
        pool: Pool,
        cluster: WaitingCluster,
    ) -> None:
        """`images` by reference."""
        assert plan.warm is not None, "a cold run has none"
        self.plan, self.cluster, self.pool = plan, cluster, pool
        self._api, self._images, self._preload = api, images, plan.warm.preload
        self.warm = set(self._preload)
        """The tasks whose container is warm now; one that replaces a removed container is cold."""
        self.all_spares = {
            spare_name(name, number): name
            for name, count in plan.warm.spares.items()
            for number in range(count)
        }
        self.spares = dict(self.all_spares)
        """The task of each spare container that was not used yet, by the spare's name."""
        self._has_program = set[str]()
        """Containers that have the program of this run."""
        self.used = False
        """Whether the run has begun to use it, or to make it."""
        self.usable = True
        """Whether a later run can use the cluster: no fault has changed a limit or the network."""

    @property
    def tasks(self) -> list[Task]:
        """The tasks that start warm."""
        return [self.plan.task(name) for name in self._preload]

    def take_spare(self, task: str) -> str | None:
        """Return the name of a spare that replaces a task's container; None: there is none."""
        name = next((spare for spare, of in self.spares.items() if of == task), None)
        if name is not None:
            del self.spares[name]
            self.warm.add(task)
        return name

    def request(self, body: dict[str, Any], task: Task) -> dict[str, Any]:
        """Return a task's request to create a container, with the parent instead of the task."""
        return warm_request(body, task, self._preload[task.name])

    def made(self, container: str) -> None:
        """Put the parent's program into a new container."""
        self._api.put_archive(container, "/", parent_archive())

    def start(self, task: Task, container: str, program: bytes) -> ControlReplies:
        """Have the parent fork the task; return what takes its answer."""
        if container not in self._has_program:
            self._api.put_archive(container, "/", program)
            self._has_program.add(container)
        request = {
            "argv": [*self._entrypoint(task), *task.command],
            "env": {name: task.env[name] for name in PER_RUN if name in task.env},
        }
        answers = self._request(task, container, request)
        if not self._wake(container):
            self._api.start(container)
        return answers

    def _entrypoint(self, task: Task) -> Sequence[str]:
        return () if task.entrypoint == "none" else self._images[task.image].entrypoint

    def reset(self, task: Task, container: str, output: LogFollower) -> tuple[str, ...] | None:
        """Remove what a task has left in its container; None: it can't be used again.

        Returns the folders of the image that were changed and put back.
        """
        before = self.cluster.waiting.get(task.name)
        known = before.changed if before else ()
        left = leftovers(self._api.diff(container) or [], known, [parent.FOLDER, SHARED])
        if left.spoiled or not self._clean(task, container, output, reset=left.remove):
            return None
        return left.folders

    def empty_shared(self, containers: Mapping[str, str], output: LogFollower) -> bool:
        """Have any parent empty the volume that the tasks shared; return whether one did."""
        return any(
            self._clean(task, containers[task.name], output, empty=[SHARED])
            for task in self.tasks
            if task.name in self.warm and task.name in containers
        )

    def abandon(self) -> None:
        """Leave the cluster: to the next run if it was not used, else to who removes leftovers."""
        if self.used:
            self.pool.abandon(self.cluster)
        elif self.cluster.waiting:
            self.pool.give_back(self.cluster, self.cluster.waiting)
        else:
            self.pool.forget(self.cluster)

    def _clean(
        self,
        task: Task,
        container: str,
        output: LogFollower,
        *,
        reset: Sequence[str] = (),
        empty: Sequence[str] = (),
    ) -> bool:
        """Have the parent remove paths; return whether all are gone."""
        answers = self._request(task, container, {"reset": list(reset), "empty": list(empty)})
        if not self._wake(container):
            return False
        came = output.wait_for(task.name, container, answers, RESET_TIMEOUT)
        return came and answers.answer["left"] == 0

    def _request(self, task: Task, container: str, request: Mapping[str, Any]) -> ControlReplies:
        """Put a request where the parent finds it; return what takes its answer."""
        number = secrets.token_hex(8)
        self._api.put_archive(container, "/", request_archive({"id": number, **request}))
        return ControlReplies(mark(task), number)

    def _wake(self, container: str) -> bool:
        """Signal the parent; return whether it runs."""
        try:
            self._api.kill(container, signal=WAKE)
        except APIError as error:
            if error.status_code == 409:  # it was killed, or has ended
                return False
            raise
        return True


def lease(
    api: docker.APIClient, plan: Plan, info: Mapping[str, Any], remove: Callable[[str], object]
) -> WarmCluster:
    """Return a cluster for a plan: one that waits, or one whose containers must be made.

    `info` describes the engine; `remove` removes what a cluster has there. Raises Unsupported if
    no task can start warm.
    """
    cold = cold_tasks(plan)
    warm = [task for task in plan.tasks if task.name not in cold]
    reasons = [f"{name} starts cold: {reason}" for name, reason in cold.items()]
    if not warm:
        raise Unsupported(f"No task can start warm. {reasons[0]}.", "Leave --warm out.")
    preload = {task.name: preload_of(plan.scenario, task.role) for task in warm}
    images = {task.image: _image(api, task.image) for task in warm}
    pool, engine = Pool(info["ID"]), str(info["ID"])
    for cluster_id in pool.ended(most=int(info["MemTotal"] / BYTES_A_TASK / 2)):
        remove(cluster_id)
    spares = spares_of(plan, preload)
    key = cluster_key(plan, preload, engine, images, spares)
    while (cluster := pool.take_cluster(key)) and not _runs(api, cluster):
        remove(cluster.id)
        pool.forget(cluster)
    cluster = cluster or pool.make(key)
    leased = plan.model_copy(
        update={
            "warm": WarmStart(cluster=cluster.id, preload=preload, spares=spares),
            "warnings": (*plan.warnings, *reasons),
        }
    )
    return WarmCluster(api, leased, images, pool, cluster)


def preload_of(scenario: Scenario, role: str) -> tuple[str, ...]:
    """Return the modules that the parent of a role's tasks imports (pure)."""
    image = scenario.cluster[role].image or scenario.image
    named = None if isinstance(image, str) else image.preload
    return FRAMEWORKS[scenario.framework].preload if named is None else tuple(named)


def _image(api: docker.APIClient, reference: str) -> Image:
    found = api.inspect_image(reference)
    return Image(found["Id"], tuple(found["Config"]["Entrypoint"] or ()))


def _runs(api: docker.APIClient, cluster: WaitingCluster) -> bool:
    """Return whether all containers of a waiting cluster still run."""
    found = api.containers(filters={"label": f"{RUN}={cluster.id}", "status": "running"})
    return {one["Id"] for one in found} >= {one.container for one in cluster.waiting.values()}


def spare_name(task: str, number: int) -> str:
    """Return the name of a spare container of a task, of which there is no task (pure)."""
    return f"{task}.spare-{number}"


def spares_of(plan: Plan, warm: Collection[str]) -> dict[str, int]:
    """Return how many replacements of each warm task the plan's faults want warm (pure)."""
    wanted = Counter(
        fault.target
        for fault in plan.faults
        if isinstance(fault.spec, Preempt) and fault.spec.warm and fault.target in warm
    )
    return dict(sorted(wanted.items()))


def mark(task: Task) -> str:
    """Return what begins the answers of a task's parent; no program prints it by chance."""
    return f"\x1eemulator-{task.name}:"


def cluster_key(
    plan: Plan,
    preload: Mapping[str, Sequence[str]],
    engine: str,
    images: Mapping[str, Image],
    spares: Mapping[str, int] = MappingProxyType({}),
) -> str:
    """Return what must be equal for two runs to use one cluster (pure)."""
    same = plan.model_copy(update={"warm": WarmStart(cluster="warm", preload={})})
    requests = [
        (warm_request(container_request(same, task, {}), task, preload[task.name]), task.image)
        for task in same.tasks
        if task.name in preload
    ]
    network = network_request(same, {})
    whole = [
        engine,
        [(body, images[image].id) for body, image in requests],
        network,
        assigns_addresses(plan),
        dict(spares),
        _source(),
    ]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def warm_request(body: dict[str, Any], task: Task, preload: Sequence[str]) -> dict[str, Any]:
    """Return a task's request to create a container, with the parent instead of the task (pure)."""
    interpreter = interpreter_of(task.command)
    assert interpreter is not None, "others are cold"
    settings = {
        "preload": list(preload),
        "options": list(interpreter.options),
        "idle": IDLE,
        "mark": mark(task),
    }
    file = f"{parent.FOLDER}/parent.py"
    return {
        **body,
        "Entrypoint": [interpreter.path, *interpreter.options, file, json.dumps(settings)],
        "Cmd": ["-" * parent.PADDING],
        "Env": [one for one in body["Env"] if one.partition("=")[0] not in PER_RUN],
        "HostConfig": {**body["HostConfig"], "Init": False},
    }


def _source() -> str:
    return Path(parent.__file__).read_text()


def parent_archive() -> bytes:
    """Return a tar with the parent's program, in a folder where any user may remove requests."""
    return _tar([("parent.py", _source().encode(), 0o644)], folder=True)


def request_archive(request: Mapping[str, Any]) -> bytes:
    """Return a tar with a request."""
    return _tar([(Path(parent.REQUEST).name, json.dumps(request).encode(), 0o666)])


def _tar(files: Iterable[tuple[str, bytes, int]], *, folder: bool = False) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        if folder:
            entry = tarfile.TarInfo(parent.FOLDER.lstrip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o777
            tar.addfile(entry)
        for name, content, mode_ in files:
            entry = tarfile.TarInfo(f"{parent.FOLDER}/{name}".lstrip("/"))
            entry.size, entry.mode = len(content), mode_
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


# --- Reset ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leftovers:
    """What a task has left in its container."""

    remove: tuple[str, ...]
    """Paths that were not in the image."""
    folders: tuple[str, ...]
    """Folders of the image that had something added."""
    spoiled: str = ""
    """A file of the image that was changed or deleted: the container can't be used again."""


def leftovers(
    changes: Iterable[Mapping[str, Any]], known: Iterable[str], own: Sequence[str]
) -> Leftovers:
    """Return what earlier tasks have left, of the engine's list of changes (pure).

    `known` are folders that were changed before; `own` are paths that we have added, of which
    WORKDIR itself stays, but not what is in it.
    """
    kinds = {str(one["Path"]): int(one["Kind"]) for one in changes}
    ours = {path for path in kinds if any(path == one or path.startswith(f"{one}/") for one in own)}
    parents = {path.rpartition("/")[0] for path in kinds}
    folders, remove = [], []
    for path, kind in sorted(kinds.items()):
        if path in ours or path == WORKDIR:
            continue
        if kind == ADDED:
            above = path.rpartition("/")[0]
            if kinds.get(above) != ADDED or above == WORKDIR:
                remove.append(path)
        elif kind == MODIFIED and (path in parents or path in known):
            folders.append(path)
        else:
            return Leftovers((), (), path)
    return Leftovers(tuple(remove), tuple(folders))
