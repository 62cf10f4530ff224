"""Addresses, and faults of the network, with Docker.

Faults are the work of a helper container, for a moment, in a task's network namespace. The helper
alone has NET_ADMIN; tasks never get a capability. It runs a script of `emulator/netem.py` and is
gone again. A namespace lives as long as its container runs, so rules are made anew whenever a task
starts.
"""

from __future__ import annotations

import contextlib
import ipaddress
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import docker
from docker.errors import APIError, NotFound

from emulator.engines.docker_requests import container_name, helper_request, network_request
from emulator.errors import EngineError, Unsupported
from emulator.netem import Link, probe_script, script
from emulator.plan import Plan

__all__ = ["Addresses", "Shaper", "missing_parts"]

PARALLEL = 16
ATTEMPTS = 5
ADVICE = {
    "delay": "its kernel lacks sch_netem; `bandwidth`, `loss` and `partition` work without",
    "bandwidth": "its kernel lacks sch_htb",
    "loss": "its kernel lacks xt_statistic",
    "iptables": "iptables does not work in its containers",
}


def missing_parts(api: docker.APIClient, image: str, parts: Iterable[str]) -> None:
    """Try on the engine's kernel what a scenario's network faults need.

    Raises Unsupported with every part that is missing.
    """
    wanted = sorted(parts)
    said = _run(api, helper_request(image, "none", probe_script(wanted), {}))
    lacking = [part for part in wanted if part not in said.split()]
    if lacking:
        raise Unsupported(
            f"This Docker engine can't do {' and '.join(lacking)} on the network: "
            + "; ".join(ADVICE[part] for part in lacking)
            + ".",
            "Leave that out, or use an engine with another kernel.",
        )


class Addresses:
    """Gives replacements of preempted tasks an address of our choice.

    Left to itself, Docker gives a replacement the address that was freed last: its own. On a cloud
    it gets a new one, and clients that have resolved the name before must notice.
    """

    def __init__(self, api: docker.APIClient, plan: Plan) -> None:
        self._api, self._plan = api, plan
        self._chosen = any(fault.kind == "preempt" for fault in plan.faults)
        self._now: dict[str, str] = {}
        self._used: set[str] = set()
        self._lock = threading.Lock()

    def make_network(self, common: Mapping[str, str]) -> None:
        """Make the network; to choose addresses, in the subnet that Docker has found free."""
        plan = self._plan
        self._api.create_network(**network_request(plan, common))
        for attempt in range(ATTEMPTS if self._chosen else 0):
            subnet = self._described()["Subnet"]
            self._api.remove_network(plan.run_id)
            try:
                self._api.create_network(**network_request(plan, common, subnet))
                return
            except APIError as error:
                if "overlap" not in str(error.explanation) or attempt == ATTEMPTS - 1:
                    raise  # else another run has taken it in between
                self._api.create_network(**network_request(plan, common))

    def remember(self, task: str, container: str) -> None:
        """Note where a task lives now; a container that has ended already lives nowhere."""
        if not self._chosen:
            return
        networks = self._api.inspect_container(container)["NetworkSettings"]["Networks"]
        if address := networks[self._plan.run_id]["IPAddress"]:
            self._now[task] = address
            self._used.add(address)

    def choose(self, task: str, *, same: bool) -> str:
        """Return the address for a task that is made; empty where Docker may choose.

        Raises EngineError where it can't be the same.
        """
        before = self._now.get(task, "")
        if same and not before:
            raise EngineError(
                f"{task} can't have its address again: this run's network gives what it likes.",
                "Some fault of the scenario has to be a preemption from the start.",
            )
        return before if same or not before else self._new()

    def _new(self) -> str:
        """Return an address that no task of the run has had, from the far end of the subnet."""
        described = self._described()
        hosts = ipaddress.ip_network(described["Subnet"])
        with self._lock:
            for number in range(2, hosts.num_addresses - 1):
                address = str(hosts[-number])
                if address not in self._used | {described.get("Gateway")}:
                    self._used.add(address)
                    return address
        raise EngineError("The run's network has no address left that no task has had.")

    def _described(self) -> dict[str, str]:
        network = self._api.inspect_network(self._plan.run_id)
        return dict(network["IPAM"]["Config"][0])


class Shaper:
    """Keeps the links of one run as they should be, task by task."""

    def __init__(
        self, api: docker.APIClient, image: str, run_id: str, common: Mapping[str, str]
    ) -> None:
        self._api, self._image, self._run_id = api, image, run_id
        self._common = dict(common)
        self._links: tuple[Link, ...] = ()
        self._lock = threading.Lock()

    def set(self, links: Sequence[Link], containers: Mapping[str, str]) -> None:
        """Make these the links of the run; `containers` maps tasks to theirs."""
        with self._lock:
            touched = (*self._links, *links)
            self._links = tuple(links)
            self._apply(touched, containers)

    def started(self, task: str, containers: Mapping[str, str]) -> None:
        """Make the rules of a task that has started, and of those that it has links with."""
        with self._lock:
            touched = [link for link in self._links if task in (link.source, link.target)]
            self._apply(touched, containers)

    def _apply(self, touched: Iterable[Link], containers: Mapping[str, str]) -> None:
        tasks = {task for link in touched for task in (link.source, link.target)}
        if not tasks:
            return
        addresses = self._addresses(containers)

        def apply(task: str) -> None:
            text = script(task, self._links, addresses)
            inside = f"container:{containers[task]}"
            _run(self._api, helper_request(self._image, inside, text, self._common))

        with ThreadPoolExecutor(PARALLEL) as pool:
            # A task that does not run has no namespace; it gets its rules when it starts.
            list(pool.map(apply, sorted(tasks & addresses.keys())))

    def _addresses(self, containers: Mapping[str, str]) -> dict[str, str]:
        """Return the address of each task that runs now."""
        members = self._api.inspect_network(self._run_id)["Containers"]
        by_name = {member["Name"]: member["IPv4Address"] for member in members.values()}
        names = {task: container_name(self._run_id, task) for task in containers}
        return {
            task: by_name[name].split("/")[0] for task, name in names.items() if name in by_name
        }


def _run(api: docker.APIClient, config: dict[str, Any]) -> str:
    """Run a helper to its end and remove it; return what it printed.

    Raises EngineError where its script failed; a task that has ended meanwhile is no failure.
    """
    helper = api.create_container_from_config(config)["Id"]
    try:
        try:
            api.start(helper)
        except APIError as error:
            if error.status_code in (404, 409):  # the task's namespace is gone with the task
                return ""
            raise
        code = api.wait(helper, timeout=60)["StatusCode"]
        said = str(api.logs(helper).decode("utf-8", "replace"))
        if code:
            raise EngineError(f"The network could not be changed: {said.strip()[-300:]}")
        return said
    finally:
        with contextlib.suppress(NotFound):
            api.remove_container(helper, force=True)
