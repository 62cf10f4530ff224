"""A cluster as JSON: the value of CLUSTER_CONFIG, or of TF_CONFIG, as a scenario (pure).

`{"ps": ["ps-0.release.svc.cluster.local:8080", ...], "worker": [...]}`. Trailing commas are
accepted, which charts write and YAML allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from emulator.errors import Problem, ScenarioError, shown
from emulator.plugins.kubeflow.manifests.common import Images, Options, as_name, gathered, stem_of
from emulator.scenario.document import KeyPath
from emulator.scenario.frameworks.tensorflow import TENSORFLOW
from emulator.scenario.manifests import (
    Conversion,
    ConversionNote,
    Document,
    Format,
    OptionValues,
    SourceLocation,
)
from emulator.validation.limits import TASKS
from emulator.validation.similar import closest

ROLES = TENSORFLOW.roles.names
OF_TF_CONFIG = ("cluster", "task", "environment", "rpc_layer")
"""Keys of TF_CONFIG; all but the cluster are those of one task."""


def _recognises(documents: Sequence[Document]) -> bool:
    if len(documents) != 1 or not isinstance(documents[0].data, Mapping):
        return False
    data = documents[0].data
    if "cluster" in data and data.keys() <= {*OF_TF_CONFIG}:
        return True
    return any(isinstance(data.get(role), list) for role in (*ROLES, "master"))


def _convert(documents: Sequence[Document], given: OptionValues) -> Conversion:
    document = documents[0]
    at: KeyPath = ("cluster",) if "cluster" in document.data else ()
    roles = document.get(*at)
    if not isinstance(roles, dict):
        raise ScenarioError([document.problem(at, "is not a mapping of roles to addresses")])
    problems: list[Problem] = []
    places = {role: _addresses(document, (*at, role), problems) for role in roles}
    if not problems and not any(places.values()):
        problems.append(
            document.problem(at, "has no tasks", 'such as {"worker": ["worker-0:2222"]}')
        )
    if sum(map(len, places.values())) > TASKS:
        problems.append(document.problem(at, f"has more than {TASKS} tasks"))
    if problems:
        raise ScenarioError(problems)
    places = {role: found for role, found in places.items() if found}
    cluster: dict[str, Any] = {role: len(found) for role, found in places.items()}
    images = Images(Options.of(given).images)
    named = {role: images.instead("", role, role) for role in cluster}
    if unknown := list(images.problems()):
        raise ScenarioError(unknown)
    top, _, cluster = gathered(
        {
            role: {"replicas": count, **({"image": named[role]} if named[role] else {})}
            for role, count in cluster.items()
        }
    )
    addresses = _pattern(places)
    form = {} if at else {"rendezvous": "cluster-config"}
    made = {
        "name": as_name(stem_of(document.file)) or "cluster",
        "framework": "tensorflow",
        **form,
        **({"addresses": addresses} if addresses else {}),
        **top,
        "cluster": cluster,
    }
    first = next(f"{role}[0]" for role in places)
    text = "the tasks have other addresses, since these follow no pattern such as ps-0.name:2222"
    notes = () if addresses else (ConversionNote(first, "approximated", text),)
    origins: dict[KeyPath, SourceLocation] = {
        ("cluster", role): _origin(document, (*at, role)) for role in cluster
    }
    if addresses:
        origins["addresses",] = _origin(document, at)
    return Conversion(made, notes, origins)


def _origin(document: Document, path: KeyPath) -> SourceLocation:
    return SourceLocation(document.place(path), ".".join(map(str, path)))


def _addresses(document: Document, path: KeyPath, problems: list[Problem]) -> list[tuple[str, int]]:
    """Return hosts and ports of a role; add what is wrong."""
    role, found = path[-1], document.get(*path)
    if role not in ROLES:
        hint = "TF2 rejects 'master'; write chief" if role == "master" else ""
        known = f"roles: {', '.join(ROLES)}"
        problems.append(
            document.problem(path, "is no role", hint or closest(str(role), ROLES) or known)
        )
        return []
    if not isinstance(found, list):
        problems.append(document.problem(path, "is not a list of addresses, as host:port"))
        return []
    made = []
    for index, address in enumerate(found):
        host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
        if not (host and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536):
            message = f"{shown(repr(address), 60)} is not an address"
            hint = f"such as {role}-{index}:2222"
            problems.append(document.problem((*path, index), message, hint))
        else:
            made.append((host, int(port)))
    return made


def _pattern(places: Mapping[str, Sequence[tuple[str, int]]]) -> dict[str, Any] | None:
    """Return section `addresses` with the hosts and ports of all tasks; None: there is none."""
    hosts = {
        host.replace(f"{role}-{index}", "{task}", 1)
        for role, found in places.items()
        for index, (host, _) in enumerate(found)
    }
    ports = {role: {port for _, port in found} for role, found in places.items()}
    host = next(iter(hosts))
    if len(hosts) > 1 or "{task}" not in host or any(len(one) > 1 for one in ports.values()):
        return None
    by_role = {role: next(iter(one)) for role, one in ports.items()}
    is_same = len({*by_role.values()}) == 1
    return {"host": host, "port": next(iter(by_role.values())) if is_same else by_role}


CLUSTER_JSON = Format("cluster JSON", _recognises, _convert)
"""The addresses of a cluster by role."""
