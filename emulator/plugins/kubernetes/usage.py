"""What Pods use: from metrics.k8s.io where the cluster has it, else from the nodes themselves.

The nodes' agents measure every 10 to 20 s, so a sample is taken only when there is something new in
it, and says when it was measured. What neither source gives stays empty.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from urllib3.exceptions import HTTPError

from emulator.errors import EngineError
from emulator.plugins.kubernetes.connection import CONNECT_TIMEOUT, ApiError, ApiServer
from emulator.plugins.kubernetes.readings import METRICS, accumulated, rates, usage_in_summary

if TYPE_CHECKING:
    from emulator.metrics.catalog import Usage

EVERY = 5.0
"""Seconds between two questions to a source, so that an answer is hardly older than its stamp."""
NODES_PER_SECOND = 2.0
"""So many nodes are asked at most; with more than ten of them each is asked more rarely."""
AGAIN = 60.0
"""Seconds until sources that refused are asked once more."""
PARALLEL = 8


@dataclass(frozen=True)
class MeasuredPod:
    """A running Pod of a task, as far as its measurement needs it."""

    name: str
    uid: str
    node: str
    since: float
    """When its program was started, in seconds since 1970."""
    cpus: float | None = None
    """The limit of the task, in cores."""
    memory: int | None = None
    """The limit of the task, in bytes."""


def measured_pod(
    pod: Mapping[str, Any], since: float, cpus: float | None, memory: int | None
) -> MeasuredPod:
    """Return what a measurement needs of a Pod as the API has it (pure)."""
    metadata, node = pod["metadata"], pod["spec"]["nodeName"]
    return MeasuredPod(metadata["name"], metadata["uid"], node, since, cpus, memory)


def newer(before: Usage | None, now: Usage | None) -> Usage | None:
    """Return the later measurement, the earlier one if both are of the same moment (pure)."""
    if before is None or now is None:
        return before or now
    return now if (now.measured or 0.0) > (before.measured or 0.0) else before


class Measurement:
    """Measures the Pods of a run.

    `selector` finds the Pods by label; `now` is a monotonic clock in seconds.
    """

    def __init__(
        self,
        cluster: ApiServer,
        selector: str,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._selector, self._now = cluster, selector, now
        self._source: Callable[[Mapping[str, MeasuredPod]], dict[str, Usage]] | None = None
        self._ask_at = -math.inf
        self._why = ""
        """Why nothing could be measured last time."""
        self._latest: dict[str, Usage] = {}
        """By uid."""
        self._lock = threading.Lock()

    def usage(self, pods: Mapping[str, MeasuredPod]) -> dict[str, Usage]:
        """Return the usage of each task's Pod; nothing if there is nothing new since last time.

        Raises EngineError where it can't be measured, or we are not allowed to.
        """
        with self._lock:
            if pods and self._now() >= self._ask_at:
                return self._measure(pods)
            if self._why:
                raise EngineError(self._why)
            return {}

    def _measure(self, pods: Mapping[str, MeasuredPod]) -> dict[str, Usage]:
        nodes = len({pod.node for pod in pods.values()})
        self._ask_at = self._now() + max(EVERY, nodes / NODES_PER_SECOND)
        try:
            readings = self._readings(pods)
        except EngineError as error:
            self._why = error.message
            raise
        self._why = ""
        before = {pod.uid: self._latest.get(pod.uid) for pod in pods.values()}
        # What is gone is forgotten; what is late keeps its last reading.
        found = {uid: newer(one, readings.get(uid)) for uid, one in before.items()}
        self._latest = latest = {uid: one for uid, one in found.items() if one is not None}
        is_new = any(one is not before[uid] for uid, one in latest.items())
        return {
            task: replace(latest[pod.uid], cpus=pod.cpus, memory_limit=pod.memory)
            for task, pod in pods.items()
            if is_new and pod.uid in latest
        }

    def _readings(self, pods: Mapping[str, MeasuredPod]) -> dict[str, Usage]:
        """Ask the source; the first time, find the one that answers. Raises EngineError."""
        if self._source is not None:
            return self._source(pods)
        reasons = []
        for source, why in (
            (self._usage_from_metrics, why_no_metrics),
            (self._usage_from_nodes, why_no_summary),
        ):
            try:
                found = source(pods)
            except ApiError as error:
                reasons.append(why(error.status, error.message))
            else:
                self._source = source
                return found
        self._ask_at = self._now() + AGAIN
        raise EngineError(f"CPU and memory are not measured: {', and '.join(reasons)}.")

    def _usage_from_metrics(self, pods: Mapping[str, MeasuredPod]) -> dict[str, Usage]:
        answer = ask(
            self._cluster,
            f"{METRICS}/namespaces/{self._cluster.namespace}/pods",
            labelSelector=self._selector,
        )
        by_name = rates(json.loads(answer))
        found = {
            pod.uid: accumulated(self._latest.get(pod.uid), by_name[pod.name], pod.since)
            for pod in pods.values()
            if pod.name in by_name
        }
        return {uid: used for uid, used in found.items() if used is not None}

    def _usage_from_nodes(self, pods: Mapping[str, MeasuredPod]) -> dict[str, Usage]:
        nodes = sorted({pod.node for pod in pods.values()})
        found: dict[str, Usage] = {}
        with ThreadPoolExecutor(PARALLEL) as pool:
            for answer in pool.map(self._summary, nodes):
                found |= usage_in_summary(json.loads(answer))
        return found

    def _summary(self, node: str) -> bytes:
        return ask(self._cluster, f"/api/v1/nodes/{node}/proxy/stats/summary")


def why_no_metrics(status: int, message: str) -> str:
    """Say why metrics.k8s.io gives nothing (pure)."""
    match status:
        case HTTPStatus.NOT_FOUND:
            return "the cluster has no metrics.k8s.io (metrics-server)"
        case HTTPStatus.FORBIDDEN:
            return "we may not read metrics.k8s.io (list pods), if there is one"
        case HTTPStatus.SERVICE_UNAVAILABLE:
            return "metrics.k8s.io does not answer"
    return f"metrics.k8s.io: {message.rstrip('.')}"


def why_no_summary(status: int, message: str) -> str:
    """Say why the nodes give nothing (pure)."""
    if status == HTTPStatus.FORBIDDEN:
        return "we may not ask its nodes (get nodes/proxy)"
    return f"its nodes do not answer ({message.rstrip('.')})"


def ask(cluster: ApiServer, path: str, **query: object) -> bytes:
    """Return an answer, without trying again: the next sample asks anew.

    Raises ApiError, EngineLost.
    """
    with contextlib.closing(cluster.stream(path, silent_for=CONNECT_TIMEOUT, **query)) as answer:
        try:
            return answer.read()
        except (HTTPError, OSError) as error:
            raise EngineError(f"The answer of {path} broke off ({error}).") from None
