"""The Docker engine whose tasks can start warm: what a run takes from a cluster, and gives back."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.engines.docker.connection import PARALLEL, translate_errors
from emulator.engines.docker.container_request import container_name
from emulator.engines.docker.engine import DockerEngine
from emulator.engines.docker.warm import pool
from emulator.errors import EngineError

if TYPE_CHECKING:
    from emulator.engines.base import Inbox
    from emulator.engines.docker.warm.cluster import ControlReplies, WarmCluster
    from emulator.planning.plan import Plan, Task


class WarmStarts(DockerEngine):
    """The Docker engine with the capability `warm`; without a lease, all its tasks start cold."""

    capabilities = DockerEngine.capabilities | {"warm"}

    def __init__(self) -> None:
        super().__init__()
        self._warm: WarmCluster | None = None

    def lease_warm(self, plan: Plan) -> Plan:
        """Return the plan with a cluster of warm containers, one that waits if there is one."""
        from emulator.engines.docker.warm.cluster import lease

        if plan.metadata:  # the addresses of its machines are the run's alone
            cold = "all tasks start cold: a fault of the scenario is announced by a platform"
            return plan.model_copy(update={"warnings": (*plan.warnings, cold)})
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
                    with ThreadPoolExecutor(PARALLEL) as threads:
                        waiting = dict(threads.map(self._put_back, warm.tasks))
                    warm.spares = dict(warm.all_spares)
                    self._make_spares(warm)
                    waiting |= {name: self._waiting(warm, name) for name in warm.spares}
                    self._warm = None
                    warm.pool.give_back(warm.cluster, waiting)
                    return removed
        removed += self.tear_down(plan.resources)
        self._warm = None
        warm.pool.forget(warm.cluster)
        return removed

    def prepare(self, plan: Plan, folder: Path, inbox: Inbox) -> None:
        """Make what the cluster lacks, labelled with the folder of the cluster."""
        warm = self._warm
        super().prepare(plan, warm.cluster.folder if warm else folder, inbox)
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
        if self._warm:
            self._warm.used = True
        if self._warm is None or not self._warm.cluster.waiting:
            super()._make_shared(plan)

    def _cluster_of(self, task: str) -> WarmCluster | None:
        """Return the cluster that a task's container is of; None: it is cold."""
        return self._warm if self._warm and task in self._warm.warm else None

    def _create(self, task: Task, same_address: bool, spare: str = "") -> str:
        """Create a container, warm if it is one of the cluster's, or a `spare` one."""
        warm = self._warm if spare else self._cluster_of(task.name)
        if warm is None:
            return super()._create(task, same_address)
        request = warm.request(self._request(task, same_address, spare), task)
        if spare:
            request["NetworkingConfig"]["EndpointsConfig"][warm.plan.resources]["Aliases"] = []
        container = self._make(spare or task.name, request)
        warm.made(container)  # which puts the task's program there when it starts it
        return container

    def _ready(self, task: Task, same_address: bool) -> str:
        if self._warm and not self._cluster_of(task.name):
            self._make_room(task.name, same_address)
            self._use_spare(self._warm, task, same_address)
        if not self._cluster_of(task.name):
            return super()._ready(task, same_address)
        return self._created.get(task.name) or self._create(task, same_address)

    def _fork(self, task: Task, container: str) -> ControlReplies | None:
        if (warm := self._cluster_of(task.name)) is None:
            return None
        self._usage.started(container, task.cpus, task.memory, warm=True)
        return warm.start(task, container, self._archive(task.copied))

    def oom_kill(self, task: str) -> None:
        """Refuse it for a task that started warm."""
        if self._cluster_of(task):
            raise EngineError(
                f"{task} started warm: its memory is also its parent's, which the kernel may kill.",
                "Run the scenario without --warm.",
            )
        super().oom_kill(task)

    def _spoil(self) -> None:
        if self._warm:
            self._warm.usable = False

    def remove(self, task: str) -> None:
        """Remove the task's container; its replacement is cold."""
        if self._warm:
            self._warm.warm.discard(task)
        super().remove(task)

    def close(self) -> None:
        """Close the connections; the cluster of a run that did not end as it should is left."""
        if self._warm:
            self._warm.abandon()
            self._warm = None
        super().close()

    def _put_back(self, task: Task) -> tuple[str, pool.Waiting]:
        """Reset a task's warm container, or replace it if that can't be done."""
        warm = self._warm
        assert warm is not None, "lease_warm comes first"
        container, changed = self._created.get(task.name), None
        if container is not None and task.name in warm.warm:
            changed = warm.reset(task, container, self._output)
        if container is None or changed is None:
            self.remove(task.name)
            warm.warm.add(task.name)
            container = self._create(task, same_address=False)
            self.api.start(container)
        return task.name, self._waiting(warm, task.name, changed or ())

    def _waiting(self, warm: WarmCluster, name: str, changed: Sequence[str] = ()) -> pool.Waiting:
        address = self._addresses.address_of(name) if self._addresses else ""
        after = self._output.position(name)
        return pool.Waiting(self._created[name], after, address, tuple(changed))

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
        with translate_errors("make spare containers"), ThreadPoolExecutor(PARALLEL) as threads:
            list(threads.map(make, missing))

    def _use_spare(self, warm: WarmCluster, task: Task, same_address: bool) -> None:
        """Give a task that was preempted a spare container, if there is one."""
        spare = warm.take_spare(task.name)
        if spare is None:
            return
        container = self._created.pop(spare)
        body = self._request(task, same_address)
        endpoint = body["NetworkingConfig"]["EndpointsConfig"][warm.plan.resources]
        ipam = endpoint.get("IPAMConfig", {})
        self.api.connect_container_to_network(
            container,
            warm.plan.resources,
            ipv4_address=ipam.get("IPv4Address"),
            aliases=endpoint["Aliases"],
            link_local_ips=ipam.get("LinkLocalIPs"),
        )
        self.api.rename(container, container_name(warm.plan.resources, task.name))
        self._output.read_from(task.name, self._output.position(spare))
        self._created[task.name] = container

    waits = staticmethod(pool.waits)

    @staticmethod
    def remove_waiting(session: str) -> None:
        """Remove the clusters of a test session, and those that have waited too long."""
        with contextlib.closing(DockerEngine()) as engine:
            for cluster_id in pool.Pool(engine._info["ID"]).ended(session=session):
                engine.tear_down(cluster_id)
