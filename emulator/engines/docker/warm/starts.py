"""What a run takes from a warm cluster, and what it gives back for the next run."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from emulator.engines.docker.connection import translate_errors
from emulator.engines.docker.requests import container_name, container_request
from emulator.engines.docker.task_containers import PARALLEL, TaskContainers

if TYPE_CHECKING:
    from emulator.engines.docker.warm.cluster import WarmCluster
    from emulator.engines.docker.warm.pool import Waiting
    from emulator.planning.plan import Plan, Task


class WarmStarts(TaskContainers):
    """The capability `warm` of the Docker engine."""

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

        with contextlib.closing(TaskContainers()) as engine:
            remove_ended(engine._info, session, engine.tear_down)
