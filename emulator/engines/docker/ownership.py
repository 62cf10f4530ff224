"""What a run makes under its names is never something that was there before: network and volumes.

The engine answers a request for a volume that exists with that volume, whosever it is. So its
labels are compared with those that were requested.

Docker forgets the address of a container that has ended, and gives the first free one to the next:
often the same, but not always. On a cloud a replacement has a new address, and a program that
resolved the name before must notice. So where tasks are preempted this module assigns the addresses
of the run's network. They are in each container's configuration; a supervisor that takes over the
run reads them there.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from http import HTTPStatus
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any

import docker
from docker.errors import APIError, NotFound

from emulator.engines.docker.connection import remove_container
from emulator.engines.docker.container_request import RUN, network_request
from emulator.errors import EngineError, NameTaken

if TYPE_CHECKING:
    from emulator.planning.plan import Plan


def require_no_volume(api: docker.APIClient, name: str) -> None:
    """Raise NameTaken if there is a volume of that name, whosever it is."""
    if labels_of_volume(api, name) is not None:
        raise NameTaken(*name_taken("volume", name))


def make_volume(api: docker.APIClient, request: Mapping[str, Any]) -> bool:
    """Make a volume; False: there is one of that name, which this run has not made."""
    made: dict[str, Any] = api.create_volume(**request)
    return bool(made["Labels"] == request["labels"])


def remove_volume(api: docker.APIClient, name: str, run_id: str) -> bool:
    """Remove a volume if the run has made it and no container has it; return whether it was."""
    if (labels_of_volume(api, name) or {}).get(RUN) != run_id:
        return False
    try:
        api.remove_volume(name)
    except APIError as error:
        if error.status_code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
            raise
        return False
    return True


def labels_of_volume(api: docker.APIClient, name: str) -> dict[str, str] | None:
    """Return the labels of a volume; None: there is none of that name."""
    try:
        return dict(api.inspect_volume(name)["Labels"] or {})
    except NotFound:
        return None


def make_anew(api: docker.APIClient, name: str, request: Mapping[str, Any]) -> str:
    """Make a helper of a run; return its id. One that an emulator of the run has left is removed.

    Raises NameTaken if there is one of that name which the run did not make, APIError.
    """
    try:
        return str(api.create_container_from_config(request, name)["Id"])
    except APIError as error:
        if error.status_code != HTTPStatus.CONFLICT:
            raise
    with contextlib.suppress(NotFound):
        found = api.inspect_container(name)
        if (found["Config"]["Labels"] or {}).get(RUN) != request["Labels"][RUN]:
            raise NameTaken(*name_taken("container", name))
        remove_container(api, found["Id"])
    return str(api.create_container_from_config(request, name)["Id"])


def name_taken(kind: str, name: str) -> tuple[str, str]:
    """Return the message and the hint for a name that the engine has already (pure)."""
    return (
        f"The Docker engine has a {kind} {name} already, which this run did not make.",
        "Choose another --run-id; if a run has left it, `emulate clean` removes it.",
    )


# --- The network, and the addresses of tasks ------------------------------------------------------


ATTEMPTS = 5
"""Attempts to make the network again before another run has taken its subnet."""


class Addresses:
    """Assigns the addresses of a subnet; the first is the gateway's."""

    def __init__(self, subnet: str) -> None:
        self._subnet = ip_network(subnet)
        self._of: dict[str, str] = {}
        self._last = 1
        self._lock = threading.Lock()

    def choose(self, task: str, *, same: bool) -> str:
        """Return the address for a task's next container: the one it had, or an unused one."""
        with self._lock:
            if not (same and task in self._of):
                self._of[task] = self._next()
            return self._of[task]

    def remember(self, task: str, container: Mapping[str, Any]) -> None:
        """Note the address in the description of a task's container."""
        for endpoint in container["NetworkSettings"]["Networks"].values():
            if address := (endpoint.get("IPAMConfig") or {}).get("IPv4Address"):
                self.note(task, address)

    def note(self, task: str, address: str) -> None:
        """Note the address that a task's container has."""
        self._of[task] = address
        number = int(ip_address(address)) - int(self._subnet.network_address)
        self._last = max(self._last, number)

    def address_of(self, task: str) -> str:
        """Return the address of a task's container."""
        return self._of[task]

    def _next(self) -> str:
        """Return the first free one after the last assigned, so that none is reused soon."""
        numbers = range(2, self._subnet.num_addresses - 1)
        in_use = set(self._of.values())
        for _ in numbers:
            self._last = self._last + 1 if self._last + 1 in numbers else numbers.start
            if (address := str(self._subnet[self._last])) not in in_use:
                return address
        raise EngineError(f"{self._subnet} has no address left.")


def assigns_addresses(plan: Plan) -> bool:
    """Say whether a run's addresses are assigned here: where a fault replaces its target (pure)."""
    return any(fault.spec.replaces_target for fault in plan.faults)


def make_network(api: docker.APIClient, plan: Plan, common: Mapping[str, str]) -> str:
    """Make a run's network; to assign addresses, in the subnet that Docker finds free.

    Return its id. Raises NameTaken if there is one of that name.
    """
    made = _create(api, network_request(plan, common))
    if not assigns_addresses(plan):
        return made
    for _ in range(ATTEMPTS):
        subnet = str(api.inspect_network(made)["IPAM"]["Config"][0]["Subnet"])
        # Only in a subnet that was requested may a container request an address.
        api.remove_network(made)
        try:
            return _create(api, network_request(plan, common, subnet))
        except APIError as error:
            if "overlap" not in str(error.explanation):
                raise  # an overlap: another run has taken it in between
            made = _create(api, network_request(plan, common))
    raise EngineError(
        f"Other runs took every subnet that was found for {plan.run_id}.", "Try again."
    )


def _create(api: docker.APIClient, request: Mapping[str, Any]) -> str:
    """Make a network; return its id. Raises NameTaken if there is one of that name."""
    name = request["name"]
    try:
        made = str(api.create_network(**request)["Id"])
    except APIError as error:
        if error.status_code == HTTPStatus.CONFLICT:
            raise NameTaken(*name_taken("network", name)) from None
        raise
    # The engine checks names only as well as it can: of two at once, both may be made.
    if sum(one["Name"] == name for one in api.networks(names=[name])) > 1:
        api.remove_network(made)
        raise NameTaken(*name_taken("network", name))
    return made
