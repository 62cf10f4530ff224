"""Whether we may do what every run has to, asked before anything is made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from emulator.engines.kubernetes.connection import ApiError, ApiServer
from emulator.engines.kubernetes.role import Permission, lacking, permissions, reviews, why_refused
from emulator.errors import EngineError

API = "/apis/authorization.k8s.io/v1"
RULES, ACCESS = f"{API}/selfsubjectrulesreviews", f"{API}/selfsubjectaccessreviews"
PARALLEL = 8


def require(cluster: ApiServer) -> None:
    """Refuse a run that could not be removed again, or not be watched. Raises EngineError."""
    wanted = permissions("run")
    try:
        missing = list(_missing(cluster, wanted))
    except ApiError as error:
        if error.status == 401:
            raise
        return  # whoever may not ask is told at the first request
    if missing:
        raise EngineError(*why_refused(missing, cluster.namespace))


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
