"""The containers of a run's tasks: created, found, removed; what each part of the engine needs."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from docker.errors import APIError

from emulator.engines.base import Resource
from emulator.engines.docker.connection import (
    PARALLEL,
    Heartbeat,
    connect,
    ignore_missing,
    remove_container,
    translate_errors,
)
from emulator.engines.docker.container_request import (
    FOLDER,
    HOST,
    RUN,
    WORKDIR,
    container_name,
    container_request,
    files_archive,
    has_pod,
    program_archive,
)
from emulator.engines.kit.containers import home_of
from emulator.errors import NotRunning
from emulator.metrics import gpu

if TYPE_CHECKING:
    from emulator.engines.base import Inbox
    from emulator.engines.docker.images import Images
    from emulator.engines.docker.logs import LogFollower
    from emulator.engines.docker.metadata import RunMetadata
    from emulator.engines.docker.network import Shaper
    from emulator.engines.docker.ownership import Addresses
    from emulator.engines.docker.task_groups import TaskGroups
    from emulator.engines.docker.usage import ContainerUsage
    from emulator.planning.plan import Plan, Task
    from emulator.scenario.program import Copied

OF_KUBELET = "io.kubernetes.pod.uid"
"""A label of every container that a kubelet has made."""


class TaskContainers:
    """What an engine has of one run, and its connection."""

    def __init__(self) -> None:
        self.api = connect()
        self._plan: Plan | None = None
        self._labels: dict[str, str] = {}
        self._created: dict[str, str] = {}
        """Container ids by task."""
        self._lost: dict[str, str] = {}
        """Containers of tasks that have lost power, until the tasks are started again."""
        self._archives: dict[tuple[Copied | None, str], bytes] = {}
        self._shaper: Shaper | None = None
        self._equipped = False
        self._heartbeat: Heartbeat | None = None
        self._addresses: Addresses | None = None
        self._has_ipv6 = False
        self._metadata: RunMetadata | None = None
        """If a fault of the run is announced by a platform."""
        self._pods: TaskGroups | None = None
        """If a task of the run has more than its own container."""
        self._inbox: Inbox | None = None
        self._lock = threading.Lock()

    @cached_property
    def images(self) -> Images:
        """The images of this engine; what needs none, such as `ps`, does not load how to build."""
        from emulator.engines.docker.images import Images

        return Images(self.api, gpus=lambda: self.gpus)

    @cached_property
    def _usage(self) -> ContainerUsage:
        from emulator.engines.docker.usage import ContainerUsage

        return ContainerUsage(self.api)

    @cached_property
    def _output(self) -> LogFollower:
        from emulator.engines.docker.logs import LogFollower

        return LogFollower(self.api, self._usage)

    @cached_property
    def _info(self) -> dict[str, Any]:
        """The engine's description of itself and its machine."""
        with translate_errors("describe itself"):
            return dict(self.api.info())

    @cached_property
    def gpus(self) -> Sequence[str]:
        """The ids of the GPUs that the engine can give to tasks."""
        return gpu.devices().ids if "nvidia" in self._info.get("Runtimes", {}) else ()

    def find(self, run_id: str | None = None) -> list[Resource]:
        """Return every container, network and volume that carries our label."""
        chosen = _labelled(run_id)
        with translate_errors("list what runs have left"):
            containers = self._containers(run_id)
            networks = self.api.networks(filters=chosen)
            volumes = self.api.volumes(filters=chosen)["Volumes"] or []
        return [
            *(_resource("container", c["Names"][0].lstrip("/"), c) for c in containers),
            *(_resource("network", n["Name"], n) for n in networks),
            *(_resource("volume", v["Name"], v) for v in volumes),
        ]

    def _containers(self, run_id: str | None) -> list[dict[str, Any]]:
        """Return the containers of a run, or of all runs, whether they run or not.

        Not those of a kubelet on this engine, which have the labels of their Pods: they are the
        cluster's, and of a run of the engine `kubernetes`.
        """
        found = self.api.containers(all=True, filters=_labelled(run_id))
        return [one for one in found if OF_KUBELET not in one["Labels"]]

    def remove(self, task: str) -> None:
        """Remove the task's container; the shared volume stays.

        A container that has lost power stays until the task is started again.
        """
        container = self._created.pop(task, None)
        self._output.forget(task)
        if container is not None and container != self._lost.get(task):
            with translate_errors(f"remove {task}"):
                self._remove_container(container)
        self._remove_pod(task)

    def _remove_pod(self, task: str) -> int:
        """Remove what a task has beside its container; return how much that was."""
        if self._pods is None or self._plan is None or not has_pod(self._plan.task(task)):
            return 0
        with translate_errors(f"remove what {task} has"):
            return self._pods.remove(self._plan.task(task))

    def tear_down(self, run_id: str) -> int:
        """Remove the run's containers, all at once, then its volume and network."""
        chosen = _labelled(run_id)
        if self._pods and self._plan and self._plan.resources == run_id:
            self._pods.close()
        with translate_errors(f"remove what {run_id} made"):
            containers = self._remove_containers(run_id)
            volumes = self.api.volumes(filters=chosen)["Volumes"] or []
            for volume in volumes:
                containers += self._remove_volume(volume["Name"], run_id)
            networks = self.api.networks(filters=chosen)
            for network in networks:
                ignore_missing(partial(self.api.remove_network, network["Id"]))
        return containers + len(networks) + len(volumes)

    def _remove_containers(self, run_id: str) -> int:
        containers = self._containers(run_id)
        with ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(self._remove_container, [c["Id"] for c in containers]))
        return len(containers)

    def _remove_volume(self, name: str, run_id: str) -> int:
        """Remove a volume, and containers that were created since; return how many they were.

        An engine that was busy or hung answers requests late, also those of a client that is gone.
        """
        remove, late = partial(self.api.remove_volume, name), 0
        try:
            ignore_missing(remove)
        except APIError as error:
            if error.status_code != HTTPStatus.CONFLICT:
                raise
            late = self._remove_containers(run_id)
            ignore_missing(remove)
        return late

    def close(self) -> None:
        """Close the connections; containers keep running."""
        if self._heartbeat:
            self._heartbeat.stop()
        self.api.close()

    def _container(self, task: str) -> str:
        """Return the id of a task's container. Raises NotRunning while there is none."""
        container = self._created.get(task)
        if container is None:
            raise no_container(task)
        return container

    def _create(self, task: Task, same_address: bool) -> str:
        """Create a task's container, with its program."""
        plan, container = self._run, self._make(task.name, self._request(task, same_address))
        if task.source is not None or task.name == plan.tasks[0].name or task in plan.helpers:
            archive = self._archive(task.copied, home_of(task) or WORKDIR)
            self.api.put_archive(container, "/", archive)
        if files := files_archive(plan, task):
            self.api.put_archive(container, "/", files)
        return container

    def _request(self, task: Task, same_address: bool, name: str = "") -> dict[str, Any]:
        """Return the request to create a task's container, or one of another name."""
        address = ""
        if self._addresses:
            address = self._addresses.choose(name or task.name, same=same_address)
        disk = self._pods.disk(task.name) if self._pods else 1
        machine = self._metadata.next_machine(task.name) if self._metadata else 1
        body = container_request(
            self._run,
            task,
            self._labels,
            address,
            ipv6=self._has_ipv6,
            disk=disk,
            machine=machine,
        )
        return {**body, "Cmd": self._words_of(task)} if task.held else body

    def _words_of(self, task: Task) -> list[str]:
        """Return all that a container runs, as the engine would put it together itself."""
        image = self.api.inspect_image(task.image)["Config"]
        words = (image.get("Entrypoint") or []) if task.entrypoint == "image" else []
        return [*words, *(task.command or image.get("Cmd") or [])]

    def _make(self, name: str, request: Mapping[str, Any]) -> str:
        """Create a container of that name; return its id."""
        called = container_name(self._run.resources, name)
        container: str = self.api.create_container_from_config(request, called)["Id"]
        self._created[name] = container
        return container

    @property
    def _run(self) -> Plan:
        assert self._plan is not None, "prepare comes first"
        return self._plan

    def _archive(self, copied: Copied | None, home: str = WORKDIR) -> bytes:
        with self._lock:
            if (copied, home) not in self._archives:
                self._archives[copied, home] = program_archive(copied, home)
            return self._archives[copied, home]

    def _remove_container(self, container: str) -> None:
        remove_container(self.api, container)

    def _spoil(self) -> None:
        """A fault has changed a container for good: it can't serve another run."""


def no_container(task: str) -> NotRunning:
    """Return the error of a request that needs a task's container."""
    return NotRunning(f"{task} has no container: it is being replaced, or was removed.")


def _labelled(run_id: str | None) -> dict[str, str]:
    """Return the engine's filter for what a run has made; None: all runs."""
    return {"label": RUN if run_id is None else f"{RUN}={run_id}"}


def _resource(kind: str, name: str, answer: Mapping[str, Any]) -> Resource:
    carried, state = answer["Labels"], answer.get("State", "")
    return Resource(carried[RUN], kind, name, state, carried.get(FOLDER, ""), carried.get(HOST, ""))
