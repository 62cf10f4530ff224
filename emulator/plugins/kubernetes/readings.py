"""What metrics.k8s.io and a kubelet's summary say that Pods use (pure).

Of a Pod, only the container of the task counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from emulator.metrics.catalog import Usage
from emulator.plugins.kubernetes.names import MAIN
from emulator.validation.quantities import parse_quantity

METRICS = "/apis/metrics.k8s.io/v1beta1"
"""The path of the API's version that all metrics-servers have."""


# --- metrics.k8s.io -------------------------------------------------------------------------------


class Rate(NamedTuple):
    """What a container used per second in a window of time."""

    stamp: float
    """The end of the window, in seconds since 1970."""
    cores: float
    memory: int


def rates(answer: Mapping[str, Any]) -> dict[str, Rate]:
    """Return the use of each Pod's task, by the Pod's name, in an answer of metrics.k8s.io (pure).

    https://github.com/kubernetes/metrics/blob/master/pkg/apis/metrics/v1beta1/types.go
    """
    found: dict[str, Rate] = {}
    for pod in answer.get("items") or ():
        for container in pod.get("containers") or ():
            if container.get("name") == MAIN:
                usage = container.get("usage") or {}
                found[pod["metadata"]["name"]] = Rate(
                    seconds_of(pod["timestamp"]),
                    float(parse_quantity(usage.get("cpu", 0))),
                    int(parse_quantity(usage.get("memory", 0))),
                )
    return found


def accumulated(before: Usage | None, rate: Rate, since: float) -> Usage | None:
    """Add a window to what was used before it (pure); None: it says nothing about this start.

    Windows may leave a gap, for which the later one stands. What was used before the first one is
    taken to be as much per second.
    """
    began = since if before is None or before.measured is None else before.measured
    if rate.stamp <= began:
        return before
    used = (before.cpu if before else 0.0) + rate.cores * (rate.stamp - began)
    return Usage(cpu=used, memory=rate.memory, measured=rate.stamp)


# --- The kubelet's summary ------------------------------------------------------------------------


def usage_in_summary(answer: Mapping[str, Any]) -> dict[str, Usage]:
    """Return what each Pod's task has used, by the Pod's uid, in a kubelet's summary (pure).

    https://github.com/kubernetes/kubelet/blob/master/pkg/apis/stats/v1alpha1/types.go
    """
    found: dict[str, Usage] = {}
    for pod in answer.get("pods") or ():
        for container in pod.get("containers") or ():
            cpu = container.get("cpu") or {}
            if container.get("name") != MAIN or "usageCoreNanoSeconds" not in cpu:
                continue  # not measured yet
            received, sent = _traffic(pod.get("network") or {})
            found[pod["podRef"]["uid"]] = Usage(
                cpu=cpu["usageCoreNanoSeconds"] / 1e9,
                memory=(container.get("memory") or {}).get("workingSetBytes"),
                received=received,
                sent=sent,
                measured=seconds_of(cpu["time"]),
            )
    return found


def _traffic(network: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the bytes received and sent on all interfaces; None where they are not counted."""
    interfaces = [one for one in network.get("interfaces") or () if one.get("name") != "lo"]
    counted: Sequence[Mapping[str, Any]] = interfaces or [network]
    received = [one["rxBytes"] for one in counted if "rxBytes" in one]
    sent = [one["txBytes"] for one in counted if "txBytes" in one]
    return (sum(received) if received else None), (sum(sent) if sent else None)


def seconds_of(stamp: str) -> float:
    """Return a time of the API as seconds since 1970."""
    return datetime.fromisoformat(stamp).timestamp()
