"""Checks of the names that a scenario gives its tasks on the network (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from emulator.errors import shown
from emulator.scenario.addresses import HOST, LABEL, Naming, is_host, is_label, naming
from emulator.scenario.document import KeyPath
from emulator.scenario.schema import Scenario
from emulator.validation.limits import GIVEN_BYTES
from emulator.validation.similar import closest
from emulator.validation.units import format_size

_PORT = 8
"""Characters of a port and what surrounds an address in a list, at most."""


def name_errors(scenario: Scenario) -> Iterator[tuple[KeyPath, str, str]]:
    """Yield each mistake: its path, what is wrong, and what to write instead."""
    named = naming(scenario)
    if named is None:
        return
    if scenario.operator and scenario.addresses:
        message = "can't be given with `operator`, which names the tasks itself"
        yield ("addresses",), message, "leave one of them out"
        return
    path: KeyPath = ("operator", "job") if scenario.operator else ("addresses", "host")
    if not scenario.operator:  # whose ports and pods have checks of their own
        yield from _missing_ports(scenario)
        if wrong := list(_bad_host_names(scenario, named)):
            yield from wrong
            return
    tasks, total = dict[str, str](), 0
    for role, spec in scenario.cluster.items():
        for index in range(spec.replicas):
            place = named.place(role, index)
            name, total = f"{role}-{index}", total + len(place.host) + _PORT
            if other := tasks.get(place.pod):
                message = f"{other} and {name} have the same host name, {place.pod}"
                yield path, message, "its first part needs {task}, or {role} and {index}"
                return
            tasks |= dict.fromkeys(named.aliases(role, index), name)
    # A variable with all of them is then also one that the kernel can pass to a program.
    if (size := total * sum(spec.replicas for spec in scenario.cluster.values())) > GIVEN_BYTES:
        message = f"gives the tasks, which know each other, {format_size(size)} of addresses"
        yield path, message, f"{format_size(GIVEN_BYTES)} are the most; write a shorter name"
    for helper in scenario.helpers:
        if task := tasks.get(helper):
            message = f"is a name of the task {task} on the network"
            yield ("helpers", helper), message, "choose another name"


def _missing_ports(scenario: Scenario) -> Iterator[tuple[KeyPath, str, str]]:
    """Yield ports of roles that the cluster does not have."""
    port = scenario.addresses.port if scenario.addresses else None
    for role in port if isinstance(port, dict) else ():
        if role not in scenario.cluster:
            hint = closest(role, scenario.cluster) or f"roles: {', '.join(scenario.cluster)}"
            yield ("addresses", "port", role), f"the cluster has no {shown(role)}", hint


def _bad_host_names(scenario: Scenario, named: Naming) -> Iterator[tuple[KeyPath, str, str]]:
    """Yield roles whose last task has no host name, such as one that is too long."""
    for role, spec in scenario.cluster.items():
        host = named.place(role, spec.replicas - 1).host
        if is_label(role) and not is_host(host):  # another role is a mistake of its own
            message = f"{shown(host)} is not a host name"
            hint = f"{HOST} characters at most, and {LABEL} between two dots"
            yield ("addresses", "host"), message, hint
