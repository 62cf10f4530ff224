"""The Docker engine: one container a task, on a network of the run.

Every request is made as data by a pure function in `requests.py`; this module sends them. Programs
are copied in, never mounted: the daemon may be on another machine. One thread a task follows its
output and then waits for its end (`logs.py`): lines and exit are in order, with the engine's
timestamps.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docker.errors import NotFound

from emulator.broker import Capacity
from emulator.engines.base import Resource
from emulator.engines.containers import home_of
from emulator.engines.docker import doctor
from emulator.engines.docker.addresses import Addresses, assigns_addresses, make_network
from emulator.engines.docker.connection import (
    Heartbeat,
    connect,
    ignore_missing,
    remove_container,
    translate_errors,
)
from emulator.engines.docker.freezing import Freezer
from emulator.engines.docker.images import Images
from emulator.engines.docker.network import Shaper, missing_parts
from emulator.engines.docker.oom import oom_kill
from emulator.engines.docker.ownership import (
    labels_of_volume,
    make_volume,
    require_no_volume,
    taken,
)
from emulator.engines.docker.requests import (
    FOLDER,
    HOST,
    LOOPBACK,
    LOST,
    RUN,
    SHARED,
    TASK,
    WORKDIR,
    all_requests,
    bindings,
    container_name,
    container_request,
    cpu_quota,
    files_archive,
    has_pod,
    labels,
    network_request,
    probe_labels,
    program_archive,
    volume_request,
)
from emulator.engines.ports import require_free
from emulator.errors import EngineError, ImageError, NameTaken, NotRunning
from emulator.files import FOR_IMAGES, FOR_RUNS, Disk, disk, shortages
from emulator.metrics import gpu
from emulator.planning.context import TASK_PORT, PlanContext
from emulator.planning.task_limits import of_machine, usual_pid_max

if TYPE_CHECKING:
    from emulator.engines.base import Exited, Finding, Inbox, KnownOutput
    from emulator.engines.docker.logs import Output
    from emulator.engines.docker.pods import Pods
    from emulator.engines.docker.usage import ContainerUsage
    from emulator.engines.docker.warm.answers import Answers
    from emulator.engines.docker.warm.cluster import WarmCluster
    from emulator.engines.docker.warm.pool import Waiting
    from emulator.engines.inside import Stdio
    from emulator.faults.netem import Link
    from emulator.metrics.catalog import Usage
    from emulator.planning.plan import Plan, Task
    from emulator.scenario.schema import AnyImage, Scenario

PARALLEL = 16
OF_KUBELET = "io.kubernetes.pod.uid"
"""A label of every container that a kubelet has made."""
ANY_PORT = "Leave its `host_port` out: the engine then chooses a free one."


class DockerEngine:
    """Runs tasks as containers."""

    name = "docker"
    capabilities = frozenset(
        {"limits", "gpus", "isolation", "replace", "new-address", "same-address", "pause"}
        | {"silent-loss", "throttle", "oom", "network", "usage", "reattach", "warm"}
        | {
            "process-limits",
            "scratch",
            "mounts",
            "ports",
            "port-mapping",
            "pods",
            "same-disk",
            "drawings",
            "exec",
        }
    )
    machine_needs: Mapping[str, str] = {
        "gpus": "gpu",
        "network": "network",
        "silent-loss": "network",
    }

    def __init__(self) -> None:
        self.api = connect()
        self.images = Images(self.api, gpus=lambda: self.gpus)
        self._plan: Plan | None = None
        self._labels: dict[str, str] = {}
        self._created: dict[str, str] = {}
        """Container ids by task."""
        self._lost: dict[str, str] = {}
        """Containers of tasks that have lost power, until the tasks are started again."""
        self._archives: dict[tuple[Path | None, str], bytes] = {}
        self._shaper: Shaper | None = None
        self._equipped = False
        self._heartbeat: Heartbeat | None = None
        self._addresses: Addresses | None = None
        self._has_ipv6 = False
        self._warm: WarmCluster | None = None
        self._pods: Pods | None = None
        """If a task of the run has more than its own container."""
        self._inbox: Inbox | None = None
        self._lock = threading.Lock()

    # Imported for a run: plans and lists need neither.

    @cached_property
    def _usage(self) -> ContainerUsage:
        from emulator.engines.docker.usage import ContainerUsage

        return ContainerUsage(self.api)

    @cached_property
    def _output(self) -> Output:
        from emulator.engines.docker.logs import Output

        return Output(self.api, self._usage)

    @cached_property
    def _freezer(self) -> Freezer:
        return Freezer(self.api)

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
            limits=lambda containers: of_machine(self.capacity().memory, self.pid_max, containers),
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

    @cached_property
    def _info(self) -> dict[str, Any]:
        """The engine's description of itself and its machine."""
        with translate_errors("describe itself"):
            return dict(self.api.info())

    def capacity(self) -> Capacity:
        """Return what the engine's machine has, which may be another than this one."""
        return Capacity(float(self._info["NCPU"]), int(self._info["MemTotal"]), tuple(self.gpus))

    @cached_property
    def gpus(self) -> Sequence[str]:
        """The ids of the GPUs that the engine can give to tasks."""
        return gpu.devices().ids if "nvidia" in self._info.get("Runtimes", {}) else ()

    def ensure_images(self, scenario: Scenario, say: Callable[[str], None]) -> None:
        """Find, build or pull each image; try what the kernel can do to a network."""
        for image in self._missing_images(scenario):
            for shortage in shortages(self._disk(FOR_IMAGES)):
                say(f"note: {shortage}")
            self.images.ensure(image, say)
        if parts := scenario.network_parts:
            helper = self.images.ensure("network", say)
            with translate_errors("try the network"):
                missing_parts(self.api, helper, parts, probe_labels(scenario.name))
            self._equipped = True

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
        return doctor.examine()

    def prepare(self, plan: Plan, folder: Path, inbox: Inbox) -> None:
        """Make the run's network and its shared volume, unless its warm cluster has them.

        Refuses ports that are in use, and volumes of other runs. Raises EngineError: NameTaken if
        there is a network or a volume of that name.
        """
        self._check_ports(plan)
        self._check_volumes(plan)
        self._set_run(plan, folder, inbox)
        warm = self._warm
        if warm is not None:
            warm.used = True
        if warm is None or not warm.cluster.waiting:
            self._make_shared(plan)
        with translate_errors(f"look at the network {plan.resources}"):
            self._inspect_network(plan)
        if warm is None:
            return
        for name, waiting in warm.cluster.waiting.items():
            self._created[name] = waiting.container
            self._output.read_from(name, waiting.after)
            if self._addresses:
                self._addresses.note(name, waiting.address)
        if not warm.cluster.waiting:
            self._make_spares(warm)

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
                raise NameTaken(*taken("volume", name))

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
        self._output.report_to(inbox, drawings=plan.scenario.metrics.may_draw)
        self._heartbeat = Heartbeat(self.api, inbox)
        self._inbox = inbox
        self._labels = labels(plan, self._warm.cluster.folder if self._warm else folder)

    def _inspect_network(self, plan: Plan) -> None:
        network = self.api.inspect_network(plan.resources)
        self._has_ipv6 = bool(network.get("EnableIPv6"))
        if assigns_addresses(plan):
            self._addresses = Addresses(network["IPAM"]["Config"][0]["Subnet"])
        if any(has_pod(task) for task in plan.tasks):
            from emulator.engines.docker.pods import Pods

            assert self._inbox is not None, "_set_run comes first"
            self._pods = Pods(
                self.api, self._output, self._inbox, plan, self._labels, ipv6=self._has_ipv6
            )

    def start(self, task: Task, *, same_address: bool = False) -> str:
        """Start the task's container, created first if necessary; return its short id.

        On a fresh disk its init steps come first, for which this waits.
        """
        pods = self._pods
        if pods is None or not has_pod(task):
            return self._start(task, same_address)
        with pods.starting(task) as start:
            if task.name not in self._created:
                with translate_errors(f"run the init steps of {task.name}"):
                    pods.make_scratches(task)
                    ended = pods.initialise(task, start, self._address_of_step)
                if ended is not None:
                    assert self._inbox is not None, "prepare comes first"
                    self._inbox.put(ended)
                    return start.container[:12]
            with pods.making() as may_make:
                if not may_make:
                    raise EngineError(f"{task.name} can't start: its run is being removed.")
                identity = self._start(task, same_address)
        if start.told:  # after its init steps, and before it ran
            self.signal(task.name, start.told)
        return identity

    def execute(
        self, plan: Plan, folder: Path, task: str, command: Sequence[str], stdio: Stdio
    ) -> int:
        """Run a command in the container of a task."""
        from emulator.engines.docker.execution import execute

        return execute(self.api, plan, task, command, stdio)

    def _address_of_step(self, step: str) -> str:
        return self._addresses.choose(step, same=True) if self._addresses else ""

    def _start(self, task: Task, same_address: bool) -> str:
        answers: Answers | None = None
        with translate_errors(f"start {task.name}"):
            warm = self._warm
            if warm and not warm.has(task.name):
                self._make_room(task.name, same_address)
                self._use_spare(warm, task, same_address)
            container = self._created.get(task.name) or self._create(task, same_address)
            if warm is None or not warm.has(task.name):
                self._make_room(task.name, same_address)
            with self._output.attached(container):
                if warm and warm.has(task.name):
                    self._usage.started(container, task.cpus, task.memory, warm=True)
                    answers = warm.start(task, container, self._archive(task.source))
                else:
                    self._freezer.forget(container)
                    self.api.start(container)
                    self._usage.started(container, task.cpus, task.memory)
                if self._shaper:
                    self._shaper.started(task.name, self._created)
                self._remove_lost(task.name)  # only now, so that its name is never unknown
            if self._pods and task.sidecars:
                self._pods.start_sidecars(task, container)
        self._output.follow(task.name, container, answers, then=self._then(task.name))
        return container[:12]

    def _then(self, task: str) -> Callable[[Exited], None] | None:
        """Return what is to be done at the end of a task; None: it is reported."""
        return self._pods.then(task) if self._pods else None

    def reattach(
        self, plan: Plan, folder: Path, inbox: Inbox, lives: Mapping[str, KnownOutput]
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
            ids = {
                task: container[:12]
                for task, container in self._created.items()
                if self._output.find_position(task, container, lives[task])
            }
        for task in ids:
            limits = plan.task(task)
            container_id = self._created[task]
            self._usage.started(container_id, limits.cpus, limits.memory)
            if self._pods:
                with translate_errors(f"find the side-cars of {task}"):
                    self._pods.resume(
                        task, lambda name, one: self._output.find_position(name, one, lives[name])
                    )
            self._output.follow(task, container_id, then=self._then(task))
            if container_id == self._lost.get(task):
                self._output.report_lost(container_id)
            else:
                with translate_errors(f"remove what {task} has lost"):
                    self._remove_lost(task)
        return ids

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
                raise _no_container(task) from None
        self._usage.set_cpu_limit(container, cpus)

    def _container(self, task: str) -> str:
        """Return the id of a task's container. Raises NotRunning while there is none."""
        container = self._created.get(task)
        if container is None:
            raise _no_container(task)
        return container

    def oom_kill(self, task: str) -> None:
        """Lower the task's memory limit until the kernel kills it."""
        assert self._plan is not None, "prepare comes first"
        if self._warm and self._warm.has(task):
            raise EngineError(
                f"{task} started warm: its memory is also its parent's, which the kernel may kill.",
                "Run the scenario without --warm.",
            )
        limit = self._plan.task(task).memory_limit
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

    def shape(self, links: Sequence[Link]) -> None:
        """Apply `links` to packets between tasks, and to no others."""
        if self._shaper is None:
            if not links:
                return
            assert self._plan is not None, "prepare comes first"
            image = self._helper()
            self._spoil()
            self._shaper = Shaper(self.api, image, self._plan.resources, self._labels)
        with translate_errors("change the network"):
            self._shaper.set(links, self._created)

    def cut_power(self, task: str) -> None:
        """Drop all packets of the task's container, and kill its processes; it stays."""
        from emulator.engines.docker.power import cut_power

        container = self._created.get(task)
        if container is None:
            return
        image = self._helper()
        self._spoil()
        with translate_errors(f"cut the power of {task}"):
            silent_since = cut_power(self.api, image, container, self._labels)
            if self._pods and silent_since is not None:
                self._pods.kill_sidecars(task)  # they are silent already, on the same network
        if silent_since is not None:
            self._lost[task] = container
            self._output.report_lost(container, silent_since)

    def _helper(self) -> str:
        """Return the helper image. Raises EngineError where it does not exist."""
        image = self.images.reference("network")
        if not self.images.has(image):
            raise EngineError(
                f"The image {image}, which network faults need, is gone.",
                "Run `emulate build network`.",
            )
        return image

    def usage(self) -> Mapping[str, Usage]:
        """Return what each container has used."""
        return self._usage.of(dict(self._created))

    def pids(self) -> Mapping[str, Collection[int]]:
        """Return each container's processes, where they run on this machine."""
        return self._usage.pids(dict(self._created))

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

    def remove(self, task: str) -> None:
        """Remove the task's container; the shared volume stays.

        A container that has lost power stays until the task is started again.
        """
        container = self._created.pop(task, None)
        self._output.forget(task)
        if self._warm:
            self._warm.drop(task)
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
            containers = self._containers(run_id)
            with ThreadPoolExecutor(PARALLEL) as pool:
                list(pool.map(self._remove_container, [c["Id"] for c in containers]))
            volumes = self.api.volumes(filters=chosen)["Volumes"] or []
            for volume in volumes:
                ignore_missing(partial(self.api.remove_volume, volume["Name"]))
            networks = self.api.networks(filters=chosen)
            for network in networks:
                ignore_missing(partial(self.api.remove_network, network["Id"]))
        return len(containers) + len(networks) + len(volumes)

    # --- Warm starts ----------------------------------------------------------------------------

    def lease_warm(self, plan: Plan) -> Plan:
        """Return the plan with a cluster of warm containers, one that waits if there is one."""
        from emulator.engines.docker.warm.cluster import lease

        with translate_errors("find warm containers"):
            self._warm = lease(self.api, plan, self._info, self.tear_down)
        return self._warm.plan

    def give_back(self, plan: Plan) -> int:
        """Let the run's warm cluster wait for the next run, or remove it if it can't be used again.

        Returns how many containers, networks and volumes were removed.
        """
        warm, removed = self._warm, 0
        assert warm is not None, "lease_warm comes first"
        if warm.usable:
            with translate_errors(f"put {plan.resources} back in order"):
                warm_names = {task.name for task in warm.tasks}
                for name in {*self._created} - warm_names - {*warm.spares}:
                    self._remove_container(self._created.pop(name))
                    removed += 1 + self._remove_pod(name)
                if warm.empty_shared(self._created, self._output):
                    with ThreadPoolExecutor(PARALLEL) as pool:
                        waiting = dict(pool.map(self._put_back, warm.tasks))
                    warm.renew_spares()
                    self._make_spares(warm)
                    waiting |= {name: self._waiting(warm, name) for name in warm.spares}
                    self._warm = None
                    warm.give_back(waiting)
                    return removed
        removed += self.tear_down(plan.resources)
        self._warm = None
        warm.forget()
        return removed

    def _put_back(self, task: Task) -> tuple[str, Waiting]:
        """Reset a task's warm container, or replace it if that can't be done."""
        warm = self._warm
        assert warm is not None, "lease_warm comes first"
        container, changed = self._created.get(task.name), None
        if container is not None and warm.has(task.name):
            changed = warm.reset(task, container, self._output)
        if container is None or changed is None:
            self.remove(task.name)
            warm.renew(task.name)
            container = self._create(task, same_address=False)
            self.api.start(container)
        return task.name, self._waiting(warm, task.name, changed or ())

    def _waiting(self, warm: WarmCluster, name: str, changed: Sequence[str] = ()) -> Waiting:
        address = self._addresses.of(name) if self._addresses else ""
        return warm.waiting(self._created[name], self._output.position(name), address, changed)

    def _make_spares(self, warm: WarmCluster) -> None:
        """Make the spare containers that are missing.

        They leave the network, where the engine names a container by its host name as well.
        """

        def make(spare: str) -> None:
            task = warm.plan.task(warm.spares[spare])
            container = self._create(task, same_address=False, spare=spare)
            self.api.start(container)
            self.api.disconnect_container_from_network(container, warm.plan.resources)

        missing = [name for name in warm.spares if name not in self._created]
        with translate_errors("make spare containers"), ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(make, missing))

    def _use_spare(self, warm: WarmCluster, task: Task, same_address: bool) -> None:
        """Give a task that was preempted a spare container, if there is one."""
        spare = warm.take_spare(task.name)
        if spare is None:
            return
        container = self._created.pop(spare)
        address = self._addresses.choose(task.name, same=same_address) if self._addresses else ""
        body = container_request(warm.plan, task, {}, address)
        endpoint = body["NetworkingConfig"]["EndpointsConfig"][warm.plan.resources]
        ipam = endpoint.get("IPAMConfig", {})
        self.api.connect_container_to_network(
            container,
            warm.plan.resources,
            ipv4_address=address or None,
            aliases=endpoint["Aliases"],
            link_local_ips=ipam.get("LinkLocalIPs"),
        )
        self.api.rename(container, container_name(warm.plan.resources, task.name))
        self._output.read_from(task.name, self._output.position(spare))
        self._created[task.name] = container

    @staticmethod
    def remove_waiting(session: str) -> None:
        """Remove the warm clusters of a test session."""
        from emulator.engines.docker.warm.cluster import remove_ended

        with contextlib.closing(DockerEngine()) as engine:
            remove_ended(engine._info, session, engine.tear_down)

    def _spoil(self) -> None:
        """A fault has changed what a later run could not tell: its cluster is not used again."""
        if self._warm:
            self._warm.usable = False

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

    def close(self) -> None:
        """Close the connections; containers keep running."""
        if self._heartbeat:
            self._heartbeat.stop()
        if self._warm:  # its run did not end as it should: what it has is left, as any run's
            self._warm.abandon()
            self._warm = None
        self.api.close()

    # --- Effects --------------------------------------------------------------------------------

    def _create(self, task: Task, same_address: bool, spare: str = "") -> str:
        """Create a task's container, or a `spare` one, which has another name for the engine."""
        plan = self._plan
        assert plan is not None, "prepare comes first"
        own = spare or task.name
        address = self._addresses.choose(own, same=same_address) if self._addresses else ""
        disk = self._pods.disk(task.name) if self._pods else 1
        config = container_request(
            plan, task, self._labels, address, ipv6=self._has_ipv6, disk=disk
        )
        warm = self._warm if self._warm and (spare or self._warm.has(task.name)) else None
        config = warm.request(config, task) if warm else config
        if spare:
            config["NetworkingConfig"]["EndpointsConfig"][plan.resources]["Aliases"] = []
        name = container_name(plan.resources, own)
        container: str = self.api.create_container_from_config(config, name)["Id"]
        self._created[own] = container
        if warm:
            warm.made(container)  # which puts the task's program there when it starts it
            return container
        if task.source is not None or task.name == plan.tasks[0].name or task in plan.helpers:
            archive = self._archive(task.source, home_of(task) or WORKDIR)
            self.api.put_archive(container, "/", archive)
        if files := files_archive(plan, task):
            self.api.put_archive(container, "/", files)
        return container

    def _archive(self, source: Path | None, home: str = WORKDIR) -> bytes:
        with self._lock:
            if (source, home) not in self._archives:
                self._archives[source, home] = program_archive(source, home)
            return self._archives[source, home]

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

    def _remove_container(self, container: str) -> None:
        remove_container(self.api, container)


def _no_container(task: str) -> NotRunning:
    return NotRunning(f"{task} has no container: it is being replaced, or was removed.")


def _labelled(run_id: str | None) -> dict[str, str]:
    """Return the engine's filter for what a run has made; None: all runs."""
    return {"label": RUN if run_id is None else f"{RUN}={run_id}"}


def _has_lost_power(container: Mapping[str, Any]) -> bool:
    """Say whether a container of the engine's list is one whose task has lost power."""
    return any(name.endswith(LOST) for name in container["Names"])


def _resource(kind: str, name: str, answer: Mapping[str, Any]) -> Resource:
    carried, state = answer["Labels"], answer.get("State", "")
    return Resource(carried[RUN], kind, name, state, carried.get(FOLDER, ""), carried.get(HOST, ""))
