"""Section `addresses` of a scenario: the names of its tasks on the network (pure).

Programs and charts for Kubernetes expect names such as `ps-0.release.svc.cluster.local`. An engine
whose tasks have names of their own gives them these; with others the addresses are the engine's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, Tag

from emulator.validation.fields import Model

if TYPE_CHECKING:
    from emulator.scenario.schema import Scenario

FIELDS = ("task", "role", "index")
"""What a host may have in braces."""
DEFAULT_NAMESPACE = "default"
CLUSTER_DOMAIN = "cluster.local"
"""Of a cluster, unless it was set up with another; the operator's addresses lack it."""
DEFAULT_PORT = 2222
"""Kubeflow's, as where a scenario has no names."""
LABEL, HOST = 63, 253
"""Characters of a part of a host name, and of all of it (RFC 1035, 2.3.4; without the last dot)."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_FIELD = re.compile(r"\{(\w*)\}", re.ASCII)


def is_label(text: str) -> bool:
    """Say whether a text can be a part of a host name, in lower case."""
    return len(text) <= LABEL and _LABEL.fullmatch(text) is not None


def is_host(text: str) -> bool:
    """Say whether a text is a host name in lower case whose first and last part are no numbers.

    With a number in the end it would be an address (RFC 1123, 2.1).
    """
    parts = text.split(".")
    return (
        len(text) <= HOST
        and all(map(is_label, parts))
        and not (parts[0].isdigit() or parts[-1].isdigit())
    )


def aliases(host: str) -> tuple[str, ...]:
    """Return all beginnings of a host, the shortest first: of `a.b.c` also `a` and `a.b`.

    On a cluster's network the search domains make them; here they are names of their own.
    """
    return tuple(accumulate(host.split("."), "{}.{}".format))


def _host(text: str) -> str:
    for name in _FIELD.findall(text):
        if name not in FIELDS:
            known = ", ".join(f"{{{field}}}" for field in FIELDS)
            raise ValueError(f"there is no {{{name}}}; a host may have {known}")
    if not is_host(_filled(text, "a", 0)):
        example = "{task}.release.svc.cluster.local"
        raise ValueError(f"{text!r} is not a host name in lower case, such as {example}")
    return text


def _filled(template: str, role: str, index: int) -> str:
    values = {"{task}": f"{role}-{index}", "{role}": role, "{index}": str(index)}
    return _FIELD.sub(lambda found: values[found[0]], template)


Port = Annotated[int, Field(strict=True, ge=1, le=65535)]


def _kind_of_port(value: object) -> str:
    return "of-roles" if isinstance(value, Mapping) else "of-all"


class Addresses(Model):
    """The names and ports of the tasks on the network."""

    host: Annotated[
        str,
        Field(max_length=HOST, examples=["{task}.release.svc.cluster.local"]),
        AfterValidator(_host),
    ]
    """The name of a task, with {task}, {role} and {index}; its first part is the host name."""
    port: Annotated[
        Annotated[Port, Tag("of-all")] | Annotated[dict[str, Port], Tag("of-roles")],
        # Not a plain union: that would report the errors of both kinds.
        Discriminator(_kind_of_port),
        Field(examples=[8080, {"ps": 8080, "worker": 9090}]),
    ] = DEFAULT_PORT
    """Where the tasks listen: one number, or one by role; a role without has the default."""


@dataclass(frozen=True)
class Place:
    """Where a task is on the network."""

    host: str
    port: int

    @property
    def pod(self) -> str:
        """The first part of the name: that of the pod, and the host name of the task itself."""
        return self.host.partition(".")[0]


@dataclass(frozen=True)
class Naming:
    """How the tasks of a scenario are named."""

    host: str
    """As `Addresses.host`."""
    ports: tuple[tuple[str, int], ...]
    """By role."""
    port: int
    """Of the other roles."""
    namespace: str = DEFAULT_NAMESPACE
    """The namespace of the pods that the tasks stand for."""
    domain: str = ""
    """With which the host is a name too."""

    def aliases(self, role: str, index: int) -> tuple[str, ...]:
        """Return all names of a task, the shortest first."""
        host = self.place(role, index).host
        return (*aliases(host), *((f"{host}.{self.domain}",) if self.domain else ()))

    def place(self, role: str, index: int) -> Place:
        """Return where a task is."""
        return Place(_filled(self.host, role, index), dict(self.ports).get(role, self.port))


def naming(scenario: Scenario) -> Naming | None:
    """Return how the tasks are named; None: as the engine does it."""
    if rules := scenario.rules:
        return rules.naming([*scenario.cluster])
    if addresses := scenario.addresses:
        of_roles: dict[str, Any] = addresses.port if isinstance(addresses.port, dict) else {}
        port = DEFAULT_PORT if isinstance(addresses.port, dict) else addresses.port
        return Naming(addresses.host, tuple(of_roles.items()), port)
    return None
