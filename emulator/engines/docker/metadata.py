"""The metadata server of a run with Docker: a container on the run's network.

It has the address 169.254.169.254 there, and each task another one of that network, both from the
engine before a program begins: packets need no rule, and the server knows the task by its address.
On a network without internet the engine drops such packets. There a helper redirects them in each
task's namespace, just after its start, to a port of the server that is the task's alone.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docker.errors import APIError, NotFound

from emulator.engines.docker.container_request import (
    METADATA,
    helper_request,
    link_local_addresses,
    metadata_request,
    redirects_metadata,
)
from emulator.engines.docker.network import run_helper
from emulator.errors import EngineError
from emulator.faults.platforms import metadata

if TYPE_CHECKING:
    import docker

    from emulator.faults.platforms.notices import Notice
    from emulator.planning.plan import Plan

FIRST_PORT = 8001
"""Of the ports that are a task's alone."""
REDIRECT = """
set -e
rule() {{ iptables -t nat -C "$@" 2> /dev/null || iptables -t nat -A "$@"; }}
rule OUTPUT -p tcp -d {metadata} --dport 80 -j DNAT --to-destination {server}:{port}
rule POSTROUTING -p tcp -d {server} -j MASQUERADE
"""
"""The second: these packets come from the task's address, not from the one they were sent to."""


class RunMetadata:
    """The metadata server of one run, and the second addresses of its machines."""

    def __init__(
        self, api: docker.APIClient, image: str, plan: Plan, labels: Mapping[str, str]
    ) -> None:
        self._api, self._image, self._plan, self._labels = api, image, plan, labels
        self._name = f"{plan.resources}.metadata"  # a dot: no task or helper is called so
        self._tasks = [task.name for task in plan.tasks]
        self._redirects = redirects_metadata(plan)
        self._machines: dict[str, int] = {}
        self._lock = threading.Lock()

    def start(self, address: str) -> None:
        """Make the container, and return once it answers. Raises EngineError, APIError."""
        machines = {
            link_local: task
            for task in self._tasks
            for link_local in link_local_addresses(self._plan, task)
        }
        asked = {
            "run": self._plan.run_id,
            "platforms": list(self._plan.metadata),
            "tasks": self._tasks,
            "machines": machines,
            "ports": {str(self._port(task)): task for task in self._tasks if self._redirects},
        }
        command = _command({"serve": asked})
        body = metadata_request(self._plan, self._image, command, self._labels, address)
        container: str = self._api.create_container_from_config(body, self._name)["Id"]
        self._api.start(container)
        try:
            self._tell({"do": "begin"})
        except (APIError, EngineError):
            if self._api.inspect_container(container)["State"]["Running"]:
                raise
            reason = self._api.logs(container).decode("utf-8", "replace").strip()
            raise EngineError(f"The metadata server does not start: {reason[-300:]}.") from None

    def description(self) -> Mapping[str, Any]:
        """Return the engine's description of the container. Raises NotFound."""
        return dict(self._api.inspect_container(self._name))

    def next_machine(self, task: str) -> int:
        """Count another container of a task: a machine that was told nothing. Return its number.

        Always 1 of what is no task. Raises EngineError.
        """
        if task not in self._tasks:
            return 1
        with self._lock:
            self._machines[task] = number = self._machines.get(task, 0) + 1
        if number > 1:
            self._tell({"do": "replace", "task": task})
        return number

    def remember(self, task: str, container: Mapping[str, Any]) -> None:
        """Note which machine of a task a container is, by the engine's description."""
        if task not in self._tasks:
            return
        for endpoint in container["NetworkSettings"]["Networks"].values():
            own = (endpoint.get("IPAMConfig") or {}).get("LinkLocalIPs") or ()
            for number, address in enumerate(link_local_addresses(self._plan, task), 1):
                if address in own:
                    self._machines[task] = number

    def resume(self) -> None:
        """Every task that a run which was taken over makes from now on has had a machine before."""
        for task in self._tasks:
            self._machines.setdefault(task, 2)

    def started(self, task: str, container: str) -> None:
        """Redirect the packets of a task that has just started, where that is necessary.

        Raises APIError, EngineError.
        """
        if not self._redirects or task not in self._tasks:
            return
        networks = self.description()["NetworkSettings"]["Networks"]
        server = networks[self._plan.resources]["IPAddress"]
        script = REDIRECT.format(metadata=METADATA, server=server, port=self._port(task))
        inside = f"container:{container}"
        try:
            run_helper(self._api, helper_request(self._image, inside, script, self._labels))
        except (APIError, EngineError):
            with contextlib.suppress(NotFound):
                if self._api.inspect_container(container)["State"]["Running"]:
                    raise

    def announce(self, notice: Notice) -> None:
        """Have a task told. Raises EngineError."""
        self._tell({"do": "announce", "notice": asdict(notice)})

    def withdraw(self, task: str) -> None:
        """Take back what a task was told. Raises EngineError."""
        self._tell({"do": "withdraw", "task": task})

    def _port(self, task: str) -> int:
        return FIRST_PORT + self._tasks.index(task)

    def _tell(self, order: Mapping[str, Any]) -> None:
        made = self._api.exec_create(self._name, _command({"tell": order}))["Id"]
        output: bytes = self._api.exec_start(made)
        if self._api.exec_inspect(made)["ExitCode"]:
            text = output.decode("utf-8", "replace").strip()
            raise EngineError(f"The metadata server of the run was not told: {text[-300:]}.")


def _command(asked: Mapping[str, Any]) -> list[str]:
    program = Path(metadata.__file__).read_text(encoding="utf-8")
    return ["python3", "-I", "-S", "-c", program, json.dumps(asked)]
