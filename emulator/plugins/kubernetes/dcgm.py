"""GPUs as NVIDIA's DCGM exporter describes them, in Prometheus' text (pure).

One exporter runs on each node, and its lines name the Pod that has the device:
https://docs.nvidia.com/datacenter/dcgm/latest/gpu-telemetry/dcgm-exporter.html
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from emulator.metrics.catalog import GpuShare, GpuUsage

_LINE = re.compile(r"(DCGM_FI_\w+)\{(.*)\}\s+(\S+)(?:\s+\d+)?\s*")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_MIB = 2**20
_BLANK = 2**46
"""DCGM writes what it can't tell as a huge number, from 140737488355328 on (dcgm_structs.h)."""


class Field(NamedTuple):
    """One field of DCGM as a column of GpuUsage."""

    column: str
    factor: float
    """What one of its unit is in the column's."""


FIELDS: Mapping[str, Field] = {
    "DCGM_FI_DEV_GPU_UTIL": Field("utilisation", 0.01),
    "DCGM_FI_DEV_FB_USED": Field("memory", _MIB),
    "DCGM_FI_DEV_POWER_USAGE": Field("power", 1),
    "DCGM_FI_DEV_GPU_TEMP": Field("temperature", 1),
    "DCGM_FI_DEV_SM_CLOCK": Field("sm_clock", 1),
    "DCGM_FI_DEV_MEM_CLOCK": Field("memory_clock", 1),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": Field("ecc_errors", 1),
    "DCGM_FI_DEV_XID_ERRORS": Field("xid", 1),
}
BUSY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
"""0..1; the only utilisation of a MIG instance, and used where there is no other."""
ROOM = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED")
"""In MiB; together they are the device's memory."""
WHOLE = ("power", "temperature", "sm_clock", "memory_clock", "ecc_errors", "xid")
"""Columns of a whole device, which the exporter repeats for each MIG instance."""
_COUNTS = ("memory", "ecc_errors", "xid")


@dataclass(frozen=True)
class Device:
    """A device or a MIG instance on a node, and its task."""

    node: str
    number: str
    """The node's number of the device."""
    uuid: str
    """Of an instance: the device's, with the instance's number after a slash."""
    parent: str
    """The device's uuid, if this is an instance of it."""
    model: str
    profile: str
    """Of an instance: `1g.5gb`."""
    task: str
    """Empty: no Pod of ours has it."""
    values: Mapping[str, float]
    """By DCGM's names."""

    @property
    def name(self) -> str:
        """The model, with an instance's profile."""
        return f"{self.model} MIG {self.profile}" if self.parent else self.model


class Exporter(NamedTuple):
    """The Pod that measures the devices of a node."""

    node: str
    pod: str
    port: int


def exporters(endpoints: Mapping[str, Any], port: int, nodes: Collection[str]) -> list[Exporter]:
    """Return the exporters behind a service on these nodes.

    `port` is the service's; its Pods may listen on another one.
    """
    found = []
    for subset in endpoints.get("subsets") or ():
        ports = [one["port"] for one in subset.get("ports") or ()]
        listens = ports[0] if len(ports) == 1 else port
        for address in subset.get("addresses") or ():
            target = address.get("targetRef") or {}
            if target.get("kind") == "Pod" and address.get("nodeName") in nodes:
                found.append(Exporter(address["nodeName"], target["name"], listens))
    return found


def parse(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield name, labels and value of each line; what DCGM can't tell is left out."""
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        if math.isfinite(value) and value < _BLANK:
            labels = {key: _ESCAPED.sub(r"\1", text) for key, text in _LABEL.findall(found[2])}
            yield found[1], labels, value


def devices(text: str, node: str, owners: Mapping[tuple[str, str], str]) -> list[Device]:
    """Return the devices in an exporter's answer.

    `owners`: tasks by namespace and name of their Pods. Devices that no Pod has are included.
    """
    found: dict[str, Device] = {}
    values: dict[str, dict[str, float]] = {}
    for name, labels, value in parse(text):
        device = _device(labels, node, owners)
        if device is None:
            continue
        # Time-slicing has a row for each Pod on the device; all have the same values.
        key = f"{device.uuid} {device.task}"
        found.setdefault(key, device)
        values.setdefault(key, {})[name] = value
    return [replace(device, values=values[key]) for key, device in found.items()]


def _device(
    labels: Mapping[str, str], node: str, owners: Mapping[tuple[str, str], str]
) -> Device | None:
    uuid = labels.get("UUID") or labels.get("uuid")
    if not uuid:
        return None
    instance = labels.get("GPU_I_ID", "")
    return Device(
        node,
        labels.get("gpu", ""),
        f"{uuid}/{instance}" if instance else uuid,
        uuid if instance else "",
        labels.get("modelName", ""),
        labels.get("GPU_I_PROFILE", instance),
        _owner(labels, owners),
        {},
    )


def _owner(labels: Mapping[str, str], owners: Mapping[tuple[str, str], str]) -> str:
    # A Prometheus in between calls them `exported_`, and old exporters wrote `pod_name`.
    for namespace, pod in (
        ("exported_namespace", "exported_pod"),
        ("namespace", "pod"),
        ("pod_namespace", "pod_name"),
    ):
        if labels.get(pod):
            return owners.get((labels.get(namespace, ""), labels[pod]), "")
    return ""


def numbered(
    found: Iterable[Device], known: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str], int]:
    """Return a number for each device by node and the node's number; known ones keep theirs."""
    numbers = dict(known)
    for key in sorted({(device.node, device.number) for device in found if device.task}):
        numbers.setdefault(key, len(numbers))
    return numbers


def gpu_usage(found: Iterable[Device], indices: Mapping[tuple[str, str], int]) -> list[GpuUsage]:
    """Return the devices that tasks have, as rows of a sample.

    `indices` numbers the devices of all nodes, see `numbered`. A divided device (MIG) has a row of
    the columns of the whole device before those of its instances. What a task uses is known where
    it has the device alone.
    """
    by_uuid: dict[str, list[Device]] = {}
    for device in found:
        if device.task:
            by_uuid.setdefault(device.uuid, []).append(device)
    rows: dict[str, GpuUsage] = {}
    for uuid, same in sorted(by_uuid.items()):
        first, columns = same[0], _columns(same[0].values)
        index = indices[first.node, first.number]
        if first.parent:
            whole = {key: columns.pop(key) for key in WHOLE if key in columns}
            rows.setdefault(first.parent, GpuUsage(index, first.parent, first.model, **whole))
        alone = len(same) == 1
        known = (columns.get("memory"), columns.get("utilisation")) if alone else ()
        tasks = {device.task: GpuShare(*known) for device in same}
        rows[uuid] = GpuUsage(index, uuid, first.name, tasks=tasks, **columns)
    return list(rows.values())


def _columns(values: Mapping[str, float]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name, (column, factor) in FIELDS.items():
        if name in values:
            value = values[name] * factor
            columns[column] = int(value) if column in _COUNTS else value
    if "utilisation" not in columns and BUSY in values:
        columns["utilisation"] = values[BUSY]
    if not columns.get("xid"):
        columns.pop("xid", None)  # 0: there was none
    if {*ROOM[:2]} <= values.keys():
        columns["memory_total"] = int(sum(values.get(one, 0) for one in ROOM) * _MIB)
    return columns
