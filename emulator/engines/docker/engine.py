"""The Docker engine: one container a task, on a network of the run.

Every request is made as data by a pure function in `container_request.py`; this module sends them.
Programs are copied in, never mounted: the daemon may be on another machine. `logs.py` follows the
output of each task and then waits for its end: lines and exit are in order, with the engine's
timestamps.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docker.errors import APIError, NotFound

from emulator.engines.docker import volumes
from emulator.engines.docker.connection import Heartbeat, translate_errors
from emulator.engines.docker.container_request import (
    LOOPBACK,
    LOST,
    METADATA,
    RUN,
    SHARED,
    TASK,
    all_requests,
    bindings,
    container_name,
    has_pod,
    labels,
    network_request,
    probe_labels,
    volume_request,
)
from emulator.engines.docker.faults import Faults, is_awake
from emulator.engines.docker.ownership import (
    Addresses,
    assigns_addresses,
    labels_of_volume,
    make_network,
    make_volume,
    name_taken,
    require_no_volume,
)
from emulator.errors import EngineError, NameTaken, NotRunning
from emulator.planning.claims import Capacity
from emulator.planning.context import TASK_PORT, PlanContext, machine_limits, usual_pid_max
from emulator.runtime.files import FOR_IMAGES, FOR_RUNS, Disk, disk, shortages
from emulator.runtime.sockets import require_free

if TYPE_CHECKING:
    from emulator.engines.base import Finding, Inbox, ResumePoint, TaskProcess
    from emulator.engines.docker.warm.cluster import ControlReplies
    from emulator.engines.kit.command_line import CommandLine
    from emulator.metrics.catalog import Usage
    from emulator.planning.plan import Plan, Task
    from emulator.scenario.schema import AnyImage, Scenario

ANY_PORT = "Leave its `host_port` out: the engine then chooses a free one."


class DockerEngine(Faults):
    """Runs tasks as containers."""

    name = "docker"
    capabilities = frozenset(
        {"limits", "gpus", "isolation", "replace", "new-address", "same-address", "pause"}
        | {"silent-loss", "throttle", "oom", "network", "usage", "reattach"}
        | {"process-limits", "scratch", "mounts", "ports", "port-mapping", "pods", "same-disk"}
        | {"drawings", "exec", "files", "calls", "volume-size", "fill", "notices"}
        | {"signal-all", "signals", "processes"}
    )
    machine_needs: Mapping[str, str] = {
        "gpus": "gpu",
        "network": "network",
        "silent-loss": "network",
    }

    @property
    def keeps_addresses(self) -> bool:
        """Whether this run's network lets a task request an address."""
        return self._addresses is not None

    def plan_context(self, run_id: str, folder: Path) -> PlanContext:
        """Describe the engine to the plan."""
        return PlanContext(
            engine=self.name,
            address=lambda task: (task, TASK_PORT),
            image=self.images.reference,
            gpus=lambda: self.gpus,
            shared=SHARED,
            limits=lambda containers: machine_limits(
                self.capacity().memory, self.pid_max, containers
            ),
            named=True,
            disks=self._disks,
        )

    def _disks(self, scenario: Scenario) -> Sequence[Disk]:
        return self._disk(FOR_IMAGES if any(self._missing_images(scenario)) else FOR_RUNS)

    def _missing_images(self, scenario: Scenario) -> Iterator[AnyImage]:
        for image in scenario.images:
            if not self.images.has(self.images.reference(image)):
                yield image

    def _disk(self, needed: int) -> Sequence[Disk]:
        """Return the engine's disk, if the engine runs on this machine."""
        return [one for root in self.storage() for one in disk("Docker", root, needed)]

    def storage(self) -> Sequence[Path]:
        """Return where the engine keeps containers and their logs, if it is on this machine."""
        root = Path(self._info["DockerRootDir"])
        return [root] if self._is_on_this_machine and root.exists() else []

    @property
    def _is_on_this_machine(self) -> bool:
        """Whether the engine runs on this machine, and not in a virtual machine of it."""
        return self._is_local and self._info["Name"] == socket.gethostname()

    @property
    def pid_max(self) -> int:
        """How many processes and threads the engine's machine can have.

        The engine does not tell. Of another machine, it is what its cores make likely.
        """
        if self._is_on_this_machine:
            with contextlib.suppress(OSError, ValueError):
                return int(Path("/proc/sys/kernel/pid_max").read_text())
        return usual_pid_max(int(self._info["NCPU"]))

    @property
    def _is_local(self) -> bool:
        """Whether the engine is reached by a socket of this machine."""
        return self.api.base_url.startswith("http+docker://localhost")

    def capacity(self) -> Capacity:
        """Return what the engine's machine has, which may be another than this one."""
        return Capacity(float(self._info["NCPU"]), int(self._info["MemTotal"]), tuple(self.gpus))

    def ensure_images(self, scenario: Scenario, say: Callable[[str], None]) -> None:
        """Find, build or pull each image; try what the kernel can do to a network."""
        for image in self._missing_images(scenario):
            for shortage in shortages(self._disk(FOR_IMAGES)):
                say(f"note: {shortage}")
            self.images.ensure(image, say)
        if parts := scenario.network_parts:
            self._equip_for(parts, probe_labels(scenario.name), say)
        elif scenario.platforms:
            self.images.ensure("network", say)

    def software(self, plan: Plan) -> Mapping[str, Mapping[str, str]]:
        """Return the id of each image, and what the image says that it is built on."""
        images = dict.fromkeys(task.image for task in plan.everything)
        return {image: self.images.identity(image) for image in images}

    def requests(self, plan: Plan, folder: Path) -> list[dict[str, Any]]:
        """Return exactly what will be sent: network, volume, then each container."""
        common = labels(plan, folder)
        return [
            {"request": "create network", **network_request(plan, common)},
            {"request": "create volume", **volume_request(plan, common)},
            *(
                {
                    "request": "create container",
                    "name": container_name(plan.run_id, one.name),
                    **body,
                }
                for task in plan.everything
                for one, body in all_requests(plan, task, common)
            ),
        ]

    def inspect_commands(self, run_id: str, folder: Path) -> Iterator[str]:
        """Yield commands that list the run's containers and show their output."""
        yield f"docker ps -a --filter label={RUN}={run_id}"
        names = [one.name for one in self.find(run_id) if one.kind == "container"]
        yield from (f"docker logs {name}" for name in sorted(names))

    @staticmethod
    def examine(scenario: Scenario | None = None) -> Iterator[Finding]:
        """Look at the engine, its machine, the kernel and the images."""
        from emulator.engines.docker.doctor import examine  # only `emulate doctor` asks

        return examine()

    def prepare(self, plan: Plan, folder: Path, inbox: Inbox) -> None:
        """Make the run's network and its shared volume.

        Refuses ports that are in use, and volumes of other runs. Raises EngineError: NameTaken if
        there is a network or a volume of that name.
        """
        self._check_ports(plan)
        self._check_volumes(plan)
        self._set_run(plan, folder, inbox)
        self._make_shared(plan)
        with translate_errors(f"look at the network {plan.resources}"):
            self._inspect_network(plan)
        if self._metadata:
            with translate_errors("serve metadata"):
                self._metadata.start(self._address_of_step(METADATA))

    def _make_shared(self, plan: Plan) -> None:
        """Make the network and the volume of all tasks; the network is the lock on their name.

        Raises NameTaken, EngineError.
        """
        name = plan.resources
        with translate_errors(f"look for the volume {name}"):
            require_no_volume(self.api, name)
        with translate_errors(f"make the network {name}"):
            network = make_network(self.api, plan, self._labels)
        with translate_errors(f"make the volume {name}"):
            if not make_volume(self.api, volume_request(plan, self._labels)):
                self.api.remove_network(network)  # it was made since it was looked for
                raise NameTaken(*name_taken("volume", name))
        if plan.scenario.shared_limit is not None:
            self._spoil()
            with translate_errors(f"keep the volume {name}"):
                volumes.hold(self.api, plan.tasks[0].image, name, self._labels)

    def _check_ports(self, plan: Plan) -> None:
        """Refuse ports of this machine that another program has. Raises EngineError."""
        for task in plan.everything if self._is_local else ():
            for port in task.ports:
                if port.host_port is not None:
                    require_free(port.host_port, task.name, ANY_PORT, LOOPBACK)

    def _check_volumes(self, plan: Plan) -> None:
        """Refuse to mount by name what a run made: it is removed with that run.

        Raises EngineError.
        """
        mounts = (mount for task in plan.everything for mount in task.mounts.values())
        for name in sorted({mount.volume for mount in mounts if mount.volume}):
            with translate_errors(f"look at the volume {name}"):
                labels = labels_of_volume(self.api, name)
            # Without any it is made with the first container that mounts it.
            if run := (labels or {}).get(RUN):
                raise EngineError(
                    f"The volume {name} is of the run {run}, and is removed with it.",
                    "Mount a volume with another name.",
                )

    def _set_run(self, plan: Plan, folder: Path, inbox: Inbox) -> None:
        self._plan = plan
        self._output.begin(inbox, drawings=plan.scenario.metrics.may_draw)
        self._heartbeat = Heartbeat(self.api, inbox)
        self._inbox = inbox
        self._labels = labels(plan, folder)

    def _inspect_network(self, plan: Plan) -> None:
        network = self.api.inspect_network(plan.resources)
        self._has_ipv6 = bool(network.get("EnableIPv6"))
        if assigns_addresses(plan):
            self._addresses = Addresses(network["IPAM"]["Config"][0]["Subnet"])
        if plan.metadata:
            from emulator.engines.docker.metadata import RunMetadata

            self._metadata = RunMetadata(self.api, self._helper(), plan, self._labels)
        if any(has_pod(task) for task in plan.tasks):
            from emulator.engines.docker.task_groups import TaskGroups

            self._pods = TaskGroups(self.api, self._output, plan, self._labels, ipv6=self._has_ipv6)

    def start(self, task: Task, *, same_address: bool = False) -> str:
        """Start the task's container, created first if necessary; return its short id.

        On a fresh disk its init steps come first, for which this waits.
        """
        with self._initialised(task) as ended:
            if ended is not None:
                return ended[:12]
            with translate_errors(f"start {task.name}"):
                container = self._ready(task, same_address)
                with self._output.attached(container):
                    answers = self._fork(task, container)
                    if answers is None:
                        self._freezer.forget(container)
                        self.api.start(container)
                        self._usage.started(container, task.cpus, task.memory)
                    if self._metadata:
                        self._metadata.started(task.name, container)
                    if self._shaper:
                        self._shaper.started(task.name, self._created)
                    self._remove_lost(task.name)  # only now, so that its name is never unknown
            self._output.follow(task.name, container, answers)
            return container[:12]

    @contextlib.contextmanager
    def _initialised(self, task: Task) -> Iterator[str | None]:
        """Run the init steps of a task; if it ended by them, yield the last one's container.

        Signals for the task are kept until its own container runs, at the end of the block.
        """
        pods = self._pods
        if pods is None or not has_pod(task):
            yield None
            return
        with pods.starting(task) as start:
            if task.name not in self._created:
                with translate_errors(f"run the init steps of {task.name}"):
                    pods.make_scratches(task)
                    ended = pods.initialise(task, start, self._address_of_step)
                if ended is not None:
                    assert self._inbox is not None, "prepare comes first"
                    self._inbox.put(ended)
                    yield start.container
                    return
            with pods.making() as may_make:
                if not may_make:
                    raise EngineError(f"{task.name} can't start: its run is being removed.")
                yield None
        if start.told:  # after its init steps, and before it ran
            self.signal(task.name, start.told)

    def command_line(
        self, plan: Plan, folder: Path, task: str, command: Sequence[str], *, terminal: bool
    ) -> CommandLine:
        """Return what runs a command in the container of a task."""
        from emulator.engines.docker.exec import command_line

        return command_line(self.api, plan, task, command, terminal=terminal)

    def _address_of_step(self, step: str) -> str:
        return self._addresses.choose(step, same=True) if self._addresses else ""

    def _ready(self, task: Task, same_address: bool) -> str:
        """Return the task's container, created if necessary, once nothing keeps it from a start."""
        container = self._created.get(task.name) or self._create(task, same_address)
        self._make_room(task.name, same_address)
        return container

    def _fork(self, task: Task, container: str) -> ControlReplies | None:
        """Fork a task in a container that runs; return what says when it ends. None: it is cold."""

    def reattach(
        self, plan: Plan, folder: Path, inbox: Inbox, lives: Mapping[str, ResumePoint]
    ) -> dict[str, str]:
        """Find the run's containers; read their output from where the last supervisor stopped."""
        self._set_run(plan, folder, inbox)
        with translate_errors(f"find what {plan.run_id} has made"):
            try:
                self._inspect_network(plan)
            except NotFound:
                return {}  # killed while it removed the run: containers are removed first
            found = self._containers(plan.run_id)
            # One that has lost power comes before its replacement.
            for container in sorted(found, key=_has_lost_power, reverse=True):
                if self._pods:
                    self._pods.adopt(container)
                if task := container["Labels"].get(TASK):
                    self._created[task] = container["Id"]
                    if _has_lost_power(container):
                        self._lost[task] = container["Id"]
                    if self._addresses:
                        self._addresses.remember(task, container)
                    if self._metadata:
                        self._metadata.remember(task, container)
            self._resume_metadata()
            ids = {
                task: container[:12]
                for task, container in self._created.items()
                if self._output.find_position(task, container, lives[task])
            }
        for task in ids:
            limits = plan.task(task)
            container_id = self._created[task]
            self._usage.started(container_id, limits.cpus, limits.memory)
            if self._metadata:
                with translate_errors(f"redirect what {task} asks"):
                    self._metadata.started(task, container_id)
            self._output.follow(task, container_id)
            if container_id == self._lost.get(task):
                self._output.report_lost(container_id)
            else:
                with translate_errors(f"remove what {task} has lost"):
                    self._remove_lost(task)
        return ids

    def _resume_metadata(self) -> None:
        """Go on with the metadata server that the last supervisor has made."""
        if self._metadata is None:
            return
        self._metadata.resume()
        with contextlib.suppress(NotFound):
            if self._addresses:
                self._addresses.remember(METADATA, self._metadata.description())

    def usage(self) -> Mapping[str, Usage]:
        """Return what each container has used."""
        return self._usage.usage_of(dict(self._created))

    def pids(self) -> Mapping[str, Collection[int]]:
        """Return each container's processes, where they run on this machine."""
        return self._usage.pids(dict(self._created))

    def processes(self, task: str) -> Sequence[TaskProcess]:
        """Return the processes of a container without its init, which passes signals on."""
        from emulator.engines.docker.usage import processes_of  # only this needs it

        container = self._container(task)
        with translate_errors(f"list the processes of {task}"):
            try:
                return processes_of(self.api, container)
            except APIError as refusal:
                if is_awake(refusal):
                    raise NotRunning(f"{task} does not run.") from None
                raise

    def watch_end(self, task: str) -> None:
        """Do nothing: the kernel ends everything in a container with its init."""

    def published(self, task: str) -> Mapping[int, str]:
        """Return where the container's ports are on the engine's machine."""
        container = self._created.get(task)
        if container is None:
            return {}
        with translate_errors(f"look up the ports of {task}"):
            try:
                found = self.api.inspect_container(container)
            except NotFound:
                return {}
        return bindings(found["NetworkSettings"]["Ports"])

    def _make_room(self, task: str, same_address: bool) -> None:
        """Remove a lost container whose address or ports its replacement needs to start."""
        if (container := self._lost.get(task)) is None:
            return
        host_config = self.api.inspect_container(container)["HostConfig"]
        if same_address or host_config.get("PortBindings"):
            self._remove_lost(task)

    def _remove_lost(self, task: str) -> None:
        """Remove the container in which a task lost power, if there is one."""
        if (container := self._lost.pop(task, None)) is not None:
            self._remove_container(container)


def _has_lost_power(container: Mapping[str, Any]) -> bool:
    """Say whether a container of the engine's list is one whose task has lost power."""
    return any(name.endswith(LOST) for name in container["Names"])
