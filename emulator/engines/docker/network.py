"""Network faults with Docker: a short-lived helper container in a task's network namespace.

Only the helper has NET_ADMIN; tasks never get a capability. It runs a script of `faults/netem.py`
and is removed. A namespace exists while its container runs, so the rules are applied again whenever
a task starts.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import docker
from docker.errors import APIError, NotFound

from emulator.engines.docker.container_request import container_name, helper_request
from emulator.errors import EngineError, Unsupported
from emulator.faults.netem import Link, probe_script, script

PARALLEL = 16
PROBES = 3
"""Attempts to try the kernel."""
ADVICE = {
    "delay": "its kernel lacks sch_netem; `bandwidth`, `loss` and `partition` work without",
    "bandwidth": "its kernel lacks sch_htb",
    "loss": "its kernel lacks xt_statistic",
    "iptables": "iptables does not work in its containers",
}


def missing_parts(
    api: docker.APIClient, image: str, parts: Iterable[str], labels: Mapping[str, str]
) -> None:
    """Try on the engine's kernel what a scenario's network faults need.

    Raises Unsupported with every part that is missing.
    """
    needed = sorted(parts)
    working = _probe(api, helper_request(image, "none", probe_script(needed), labels)).split()
    if missing := [part for part in needed if part not in working]:
        reasons = "; ".join(ADVICE[part] for part in missing)
        raise Unsupported(
            f"This Docker engine can't do {' and '.join(missing)} on the network: {reasons}.",
            "Leave that out, or use an engine with another kernel.",
            lacks={"network"},
        )


def _probe(api: docker.APIClient, config: dict[str, Any]) -> str:
    """Run a helper that belongs to no run; again if `emulate clean` removes it meanwhile."""
    for _ in range(PROBES - 1):
        with contextlib.suppress(APIError, EngineError):
            return run_helper(api, config)
    return run_helper(api, config)


class Shaper:
    """Applies the links of one run in the namespace of each task."""

    def __init__(
        self, api: docker.APIClient, image: str, run_id: str, labels: Mapping[str, str]
    ) -> None:
        self._api, self._image, self._run_id, self._labels = api, image, run_id, labels
        self._links: tuple[Link, ...] = ()
        self._lock = threading.Lock()

    def set(self, links: Sequence[Link], containers: Mapping[str, str]) -> None:
        """Make these the links of the run; `containers` has the container ids by task."""
        with self._lock:
            changed = (*self._links, *links)
            self._links = tuple(links)
            self._apply(changed, containers)

    def started(self, task: str, containers: Mapping[str, str]) -> None:
        """Apply the rules of a task that has started, and of those that it has links with."""
        with self._lock:
            changed = [link for link in self._links if task in (link.source, link.target)]
            self._apply(changed, containers)

    def _apply(self, changed: Iterable[Link], containers: Mapping[str, str]) -> None:
        tasks = {task for link in changed for task in (link.source, link.target)}
        if not tasks:
            return
        containers = dict(containers)  # other threads may add some meanwhile
        addresses = self._addresses(containers)

        def apply(task: str) -> None:
            text = script(task, self._links, addresses)
            container = containers[task]
            started_at = _started_at(self._api, container)
            inside = f"container:{container}"
            try:
                run_helper(self._api, helper_request(self._image, inside, text, self._labels))
            except (APIError, EngineError):
                # The namespace of a task that has ended meanwhile no longer exists.
                if started_at and started_at == _started_at(self._api, container):
                    raise

        with ThreadPoolExecutor(PARALLEL) as pool:
            # A task that does not run has no namespace; its rules are applied when it starts.
            list(pool.map(apply, sorted(tasks & addresses.keys())))

    def _addresses(self, containers: Mapping[str, str]) -> dict[str, str]:
        """Return the address of each running task."""
        members = self._api.inspect_network(self._run_id)["Containers"].values()
        by_name = {member["Name"]: member["IPv4Address"].split("/")[0] for member in members}
        names = {task: container_name(self._run_id, task) for task in containers}
        return {task: by_name[name] for task, name in names.items() if name in by_name}


def _started_at(api: docker.APIClient, container: str) -> str:
    """Return when a running container was started; empty where it does not run."""
    try:
        state = api.inspect_container(container)["State"]
    except NotFound:
        return ""
    return str(state["StartedAt"]) if state["Running"] else ""


def run_helper(
    api: docker.APIClient,
    config: dict[str, Any],
    doing: str = "The network could not be changed",
    timeout: int = 60,
) -> str:
    """Run a helper to its end and remove it; return what it printed.

    `timeout`: seconds for it. Raises EngineError where its script failed, with what it was `doing`.
    """
    helper = api.create_container_from_config(config)["Id"]
    try:
        api.start(helper)
        code = api.wait(helper, timeout=timeout)["StatusCode"]
        output: bytes = api.logs(helper)
        text = output.decode("utf-8", "replace")
        if code:
            raise EngineError(f"{doing}: {text.strip()[-300:]}")
        return text
    finally:
        with contextlib.suppress(NotFound):
            api.remove_container(helper, force=True)
