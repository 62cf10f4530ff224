"""What the emulator may do on a cluster: the smallest Role, as data, and whether we have it.

Every request of the engine is allowed by one of these permissions, and a test runs it with exactly
these. `emulate doctor` asks the cluster for each, and prints the Role.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from emulator.errors import EngineError, Unsupported
from emulator.scenario.dump import dump

if TYPE_CHECKING:
    from emulator.plugins.kubernetes.connection import ApiServer

NAME = "emulator"
RBAC = "rbac.authorization.k8s.io"
Use = Literal["run", "signals", "notes", "eviction", "usage", "usage of nodes", "nodes", "look"]


@dataclass(frozen=True)
class Permission:
    """Verbs on one resource, and what they are for."""

    resource: str
    """With its subresource: `pods/log`."""
    verbs: tuple[str, ...]
    why: str
    use: Use = "run"
    """`run`: needed by every run. The others are needed for what `USES` says."""
    group: str = ""
    """The API group; empty: the core."""
    of_cluster: bool = False
    """The resource is in no namespace, so that only a ClusterRole can allow it."""

    @property
    def place(self) -> str:
        """The resource with its group, as kubectl names it."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


USES: Mapping[Use, str] = {
    "run": "every run",
    "signals": "signals other than SIGTERM and SIGKILL, `terminate`, and `emulate exec`",
    "notes": "what the cluster says of a task, in the record of a run",
    "eviction": "preemptions with `via: eviction`, and drains",
    "usage": "usage of tasks, where the cluster has metrics.k8s.io (metrics-server)",
    "usage of nodes": "usage of tasks from the nodes, where it has not; lets one into their Pods",
    "nodes": "the faults `drain` and `cordon`",
    "look": "checks before a run: the shared volume, nodes, GPUs, quota",
}
"""What each use is, in words."""

_MAKE = ("create", "get", "list", "delete")

PERMISSIONS: Sequence[Permission] = (
    Permission("pods", (*_MAKE, "watch"), "one Pod a task"),
    Permission("pods/log", ("get",), "the tasks' output"),
    Permission("services", _MAKE, "the tasks' names"),
    Permission("configmaps", _MAKE, "the program"),
    Permission("persistentvolumeclaims", (*_MAKE, "watch"), "the shared volume"),
    # A websocket is opened by a GET; newer versions ask for `create` as well.
    Permission("pods/exec", ("get", "create"), "kill, sent from inside; commands", "signals"),
    Permission("events", ("list", "watch"), "why a Pod was ended", "notes"),
    Permission("pods/eviction", ("create",), "to ask, not to delete", "eviction"),
    Permission("pods", ("list",), "cores and memory in use", "usage", "metrics.k8s.io"),
    Permission("nodes/proxy", ("get",), "the kubelet's summary", "usage of nodes", of_cluster=True),
    Permission("nodes", ("get", "list", "patch"), "to cordon", "nodes", of_cluster=True),
    Permission("nodes", ("list",), "how many nodes and GPUs there are", "look", of_cluster=True),
    Permission(
        "storageclasses",
        ("list",),
        "what a shared volume can be",
        "look",
        "storage.k8s.io",
        of_cluster=True,
    ),
    Permission("namespaces", ("get",), "whether it is there", "look"),
    Permission("resourcequotas", ("list",), "what is left of the quota", "look"),
)
"""Everything, in the order in which doctor shows it."""


def permissions(*uses: Use) -> list[Permission]:
    """Return the permissions for these uses."""
    return [one for one in PERMISSIONS if one.use in uses]


def rules(allowed: Iterable[Permission]) -> list[dict[str, Any]]:
    """Return the rules of a Role; resources of a group with the same verbs are one rule."""
    by_key: dict[tuple[str, str], list[str]] = {}
    for one in allowed:
        by_key.setdefault((one.group, one.resource), []).extend(one.verbs)
    merged: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), verbs in by_key.items():
        merged.setdefault((group, tuple(dict.fromkeys(verbs))), []).append(resource)
    return [
        {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}
        for (group, verbs), resources in merged.items()
    ]


def lacking(
    allowed: Iterable[Mapping[str, Any]], wanted: Iterable[Permission]
) -> list[tuple[Permission, str]]:
    """Return the permissions and verbs that no rule allows.

    `allowed` are rules as a SelfSubjectRulesReview has them. One for objects with certain names is
    not enough.
    """
    open_rules = [one for one in allowed if not one.get("resourceNames")]
    return [
        (one, verb)
        for one in wanted
        for verb in one.verbs
        if not any(_allows(rule, one, verb) for rule in open_rules)
    ]


def _allows(rule: Mapping[str, Any], wanted: Permission, verb: str) -> bool:
    _, slash, part = wanted.resource.partition("/")
    names = {"*", wanted.resource, *([f"*/{part}"] if slash else [])}
    return (
        not {"*", wanted.group}.isdisjoint(rule.get("apiGroups") or ())
        and not names.isdisjoint(rule.get("resources") or ())
        and not {"*", verb}.isdisjoint(rule.get("verbs") or ())
    )


def why_refused(missing: Sequence[tuple[Permission, str]], namespace: str) -> tuple[str, str]:
    """Return what a login may not do, and what to try."""
    by_place: dict[str, list[str]] = {}
    for one, verb in missing:
        by_place.setdefault(one.place, []).append(verb)
    found = ", ".join(f"{'/'.join(verbs)} {place}" for place, verbs in by_place.items())
    hint = "`emulate doctor --engine kubernetes` prints the Role that is needed."
    if len(missing) == 1:
        one, verb = missing[0]
        hint = f'A Role with the verb "{verb}" for "{one.resource}" allows it; {hint}'
    return f"This login may not {found} in the namespace {namespace}, as every run has to.", hint


def role(namespace: str, *uses: Use, name: str = NAME) -> dict[str, Any]:
    """Return the Role for a namespace; without uses the smallest: runs, with signals and notes."""
    wanted: tuple[Use, ...] = uses or ("run", "signals", "notes")
    allowed = [one for one in permissions(*wanted) if not one.of_cluster]
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "metadata": {"name": name, "namespace": namespace},
        "rules": rules(allowed),
    }


def cluster_role(*uses: Use, name: str = NAME) -> dict[str, Any]:
    """Return the ClusterRole for what these uses need outside namespaces."""
    allowed = [one for one in permissions(*uses) if one.of_cluster]
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules(allowed),
    }


def manifest(namespace: str) -> str:
    """Return YAML for `kubectl apply -f -`: the smallest Role, and two for what is optional."""
    optional = tuple(use for use in USES if use not in ("run", "signals", "notes"))
    more = f"{NAME}-more"
    documents = (
        ("Every run needs this.", role(namespace)),
        ("Optional:", role(namespace, *optional, name=more)),
        ("Optional, and about the whole cluster:", cluster_role(*optional, name=more)),
    )
    texts = [
        "\n".join([f"# {about}", *_comments(one, optional), dump(one, short=True)])
        for about, one in documents
    ]
    give = (
        f"# Give them to somebody: kubectl -n {namespace} create rolebinding {NAME} "
        f"--role={NAME} --user=NAME (or --serviceaccount={namespace}:NAME); the last one with\n"
        f"# kubectl create clusterrolebinding {more} --clusterrole={more} --user=NAME\n"
    )
    return give + "---\n".join(texts)


def _comments(document: Mapping[str, Any], uses: Iterable[Use]) -> Iterator[str]:
    if document["metadata"]["name"] == NAME:
        return
    of_cluster = document["kind"] == "ClusterRole"
    for use in uses:
        if places := [one.place for one in permissions(use) if one.of_cluster == of_cluster]:
            yield f"# - {', '.join(dict.fromkeys(places))}: {USES[use]}"


def reviews(
    namespace: str, wanted: Iterable[Permission]
) -> Iterator[tuple[Permission, str, dict[str, Any]]]:
    """Yield each verb of the permissions with the SelfSubjectAccessReview that asks for it."""
    for one in wanted:
        resource, _, subresource = one.resource.partition("/")
        for verb in one.verbs:
            attributes = {
                "namespace": "" if one.of_cluster else namespace,
                "verb": verb,
                "group": one.group,
                "resource": resource,
                "subresource": subresource,
            }
            if resource == "namespaces":  # a namespace is in itself
                attributes["name"] = namespace
            body = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            }
            yield one, verb, body


# --- Asking the cluster ---------------------------------------------------------------------------

API = "/apis/authorization.k8s.io/v1"
RULES, ACCESS = f"{API}/selfsubjectrulesreviews", f"{API}/selfsubjectaccessreviews"
PARALLEL = 8


def require(cluster: ApiServer) -> None:
    """Refuse a run that could not be removed again, or not be watched. Raises EngineError."""
    from emulator.plugins.kubernetes.connection import ApiError  # not to print a Role

    wanted = permissions("run")
    try:
        missing = list(_missing(cluster, wanted))
    except ApiError as error:
        if error.status == 401:
            raise
        return  # whoever may not ask is told at the first request
    if missing:
        raise EngineError(*why_refused(missing, cluster.namespace))


def require_nodes(cluster: ApiServer) -> None:
    """Refuse faults of nodes before the start where our role does not allow them.

    Raises Unsupported, EngineError.
    """
    from emulator.plugins.kubernetes.connection import ApiError

    try:
        answers = reviewed(cluster, permissions("nodes"))
    except ApiError as error:
        if error.status == 403:
            return  # whoever may not ask is told by the fault
        raise
    if denied := [f"{verb} {one.resource}" for one, verb, allowed in answers if not allowed]:
        raise Unsupported(
            f"You may not {', '.join(denied)} of the cluster {cluster.context}, which `drain` and "
            "`cordon` need.",
            "`emulate doctor --engine kubernetes` shows the ClusterRole that allows it; or leave "
            "these faults out.",
        )


def _missing(cluster: ApiServer, wanted: Sequence[Permission]) -> Iterator[tuple[Permission, str]]:
    """Yield what is not allowed: one request, where the cluster knows all our rules."""
    body = {"spec": {"namespace": cluster.namespace}}
    status = cluster.post(RULES, body).get("status") or {}
    missing = lacking(status.get("resourceRules") or (), wanted)
    if not status.get("incomplete"):
        yield from missing
        return
    # Somebody else than RBAC decides too, and is asked for each.
    doubtful = dict.fromkeys(missing)
    for one, verb, allowed in reviewed(cluster, dict.fromkeys(one for one, _ in missing)):
        if not allowed and (one, verb) in doubtful:
            yield one, verb


def reviewed(
    cluster: ApiServer, wanted: Iterable[Permission]
) -> list[tuple[Permission, str, bool]]:
    """Return each verb of the permissions, and whether we have it. Raises EngineError."""

    def ask(one: tuple[Permission, str, Mapping[str, Any]]) -> tuple[Permission, str, bool]:
        permission, verb, body = one
        status = cluster.post(ACCESS, body).get("status") or {}
        return permission, verb, bool(status.get("allowed"))

    with ThreadPoolExecutor(PARALLEL) as pool:
        return list(pool.map(ask, reviews(cluster.namespace, wanted)))
