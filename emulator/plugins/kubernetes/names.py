"""Names and labels of what a run makes on a cluster (pure).

Labels find things again, so their values are valid and short; full values are in annotations of the
same keys. https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.plugins.kubernetes.section import is_label_value
from emulator.runtime.host import this_host
from emulator.scenario.addresses import LABEL

if TYPE_CHECKING:
    from emulator.planning.plan import Plan, Task

RUN, TASK, SCENARIO = "emulator.run", "emulator.task", "emulator.scenario"
FOLDER, HOST = "emulator.folder", "emulator.host"
"""Labels or annotations on everything that we make, and the only way by which we find it again."""
ROLE = "emulator.role"
ASKED = "emulator.asked"
"""Annotation of a Pod: when the supervisor asked for it, in seconds since 1970."""
ARCHIVE, PART = "emulator.archive", "emulator.part"
"""Of a ConfigMap: the archive that it is a part of, such as `program-0`, and which, from 0."""
HOST_PATH, NODE = "emulator.host-path", "emulator.node"
IMAGE, SECRET = "emulator.image", "emulator.image-pull-secret"
"""Annotations of the Service: what a run leaves on a node, and what can remove it there."""
CLEANER = "emulator.cleaner"
"""The label of the Pod that does it."""

MAIN = "main"
"""The container with the task's own program."""
UNPACK, OPEN = "emulator-unpack", "emulator-open"
"""Our init containers: one unpacks the program, one lets every user write to a node's folder."""
_OURS = (MAIN, UNPACK, OPEN)
_HASH = 8
"""Characters of a hash in a name: of a run's few hundred names no two have the same."""


@dataclass(frozen=True)
class Common:
    """The metadata of everything that a run makes."""

    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    def metadata(self, name: str, **labels: str) -> dict[str, Any]:
        """Return the metadata of an object; `labels` are more of them, by key without prefix."""
        own = {f"emulator.{key}": value for key, value in labels.items()}
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": {**self.labels, **{key: label(value) for key, value in own.items()}},
            "annotations": {**self.annotations, **own},
        }


def common(plan: Plan, folder: Path, namespace: str) -> Common:
    """Return the metadata of everything that a run makes in a namespace."""
    full = {RUN: plan.resources, SCENARIO: plan.scenario.name}
    return Common(
        namespace=namespace,
        labels={
            **{key: label(value) for key, value in full.items()},
            "app.kubernetes.io/managed-by": "emulator",
        },
        annotations={**full, FOLDER: str(folder), HOST: this_host()},
    )


def selector(run_id: str | None = None) -> str:
    """Return the label selector for everything of a run, or of all runs."""
    return RUN if run_id is None else f"{RUN}={label(run_id)}"


def label(text: str) -> str:
    """Return the value of a label for a text: itself if it is valid, else a similar one.

    Different texts have different values.
    """
    if is_label_value(text):
        return text
    return _hashed(re.sub(r"[^A-Za-z0-9_.-]+", "-", text), text)


def dns_label(text: str) -> str:
    """Return a name of at most 63 characters for lower-case text: itself if it is short enough."""
    return text if len(text) <= LABEL else _hashed(text, text)


def _hashed(valid: str, text: str, room: int = LABEL) -> str:
    """Return the beginning of a valid name with a hash of the text, in `room` characters."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    start = valid.strip("-_.")[: room - _HASH - 1].rstrip("-_.")
    return f"{start}-{digest}" if start else digest


def pod(resources: str, task: str) -> str:
    """Return the name of a task's Pod; a replacement has the same.

    Where it would be too long, the run id is cut: the end says which task it is.
    """
    full = f"{resources}-{task}"
    if len(full) <= LABEL:
        return full
    room = LABEL - len(f"-{task}")
    return f"{_hashed(resources, resources, room)}-{task}"


def service(resources: str) -> str:
    """Return the name of the run's headless Service, which is a run id: a label of RFC 1035."""
    return resources


def claim(resources: str) -> str:
    """Return the name of the run's claim for the shared volume."""
    return resources


def config_map(resources: str, archive: str, part: int) -> str:
    """Return the name of a ConfigMap with one part of an archive, from 0."""
    return dns_label(f"{resources}-{archive}-{part}")


def address(resources: str, task: str) -> str:
    """Return the name by which the run's Pods find a task.

    Not the task's bare name, though that resolves too: this one is answered by the first search
    domain, and can't be that of another Service in the namespace.
    """
    return f"{dns_label(task)}.{service(resources)}"


def containers(task: Task) -> dict[str, Task]:
    """Return what runs in a task's Pod: itself and its init steps, by container."""
    found: dict[str, Task] = {MAIN: task}
    for part in task.init:
        name, number = part.part, 2
        while name in found or name in _OURS:
            name, number = dns_label(f"{part.part}-{number}"), number + 1
        found[name] = part
    return found
