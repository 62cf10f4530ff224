"""Pods of a test's own: what they print, how they end, and what the watch says of them."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

from emulator.engines.base import EngineDown, Exited, Line
from emulator.errors import EngineError
from emulator.plugins.kubernetes.connection import ApiServer
from emulator.plugins.kubernetes.logs import LogFollower
from emulator.plugins.kubernetes.names import MAIN
from emulator.plugins.kubernetes.watching import Kind, Object, Watcher
from emulator.record.events import EngineNote
from tests.engines.inbox import EachLine


class Pods:
    """Starts Pods of a shell, and collects what is reported of them."""

    def __init__(self, cluster: ApiServer, image: str) -> None:
        self.cluster, self._image = cluster, image
        self.inbox = EachLine()
        self.output = LogFollower(cluster)
        self.output.report_to(self.inbox)
        self.seen: queue.SimpleQueue[tuple[Kind, Object]] = queue.SimpleQueue()
        self.last: dict[str, Object] = {}
        """What the watch said last of each Pod."""
        self.errors: queue.SimpleQueue[EngineError] = queue.SimpleQueue()
        self.path = cluster.namespaced("pods")
        self._watcher = Watcher(cluster, self.path, "", self._look, self.errors.put)
        self._watcher.start()
        self.lines: dict[str, list[Line]] = {}
        self.exits: dict[str, Exited] = {}
        self.notes: list[EngineNote] = []

    def close(self) -> None:
        self.output.close()
        self._watcher.close()

    def _look(self, kind: Kind, pod: Object) -> None:
        self.last[pod["metadata"]["name"]] = pod
        self.output.look_at(kind, pod)
        self.seen.put((kind, pod))

    def make(self, name: str, script: str, **more: Any) -> dict[str, Any]:
        spec = {"restartPolicy": "Never", "containers": [self.container(MAIN, script)], **more}
        metadata = {"name": name, "labels": {"app": name}}
        return self.cluster.post(self.path, {"metadata": metadata, "spec": spec})

    def container(self, name: str, script: str, shell: str = "bash") -> dict[str, Any]:
        image = {"image": self._image, "imagePullPolicy": "Never"}
        return {"name": name, "command": [shell, "-c", script], **image}

    def start(self, name: str, script: str, **more: Any) -> dict[str, Any]:
        pod = self.make(name, script, **more)
        self.output.follow(name, pod)
        return pod

    def delete(self, name: str, grace: int | None = None) -> None:
        body = None if grace is None else {"gracePeriodSeconds": grace}
        self.cluster.delete(f"{self.path}/{name}", body)

    def take(self) -> Line | Exited | EngineNote:
        event: Line | Exited | EngineNote | EngineDown = self.inbox.get(timeout=120)
        if isinstance(event, Line):
            assert event.task not in self.exits, "a line after the exit"
            self.lines.setdefault(event.task, []).append(event)
        elif isinstance(event, Exited):
            assert event.task not in self.exits, "two exits"
            self.exits[event.task] = event
        elif isinstance(event, EngineNote):
            self.notes.append(event)
        else:
            raise event.error
        return event

    def until_line(self, name: str, text: str) -> None:
        while self.texts(name)[-1:] != [text]:
            self.take()

    def until_exit(self, name: str) -> Exited:
        while name not in self.exits:
            self.take()
        return self.exits[name]

    def until(self, name: str, is_so: Callable[[Kind, Object], bool]) -> None:
        """Wait until the watch says so of a Pod."""
        while True:
            kind, pod = self.seen.get(timeout=120)
            if pod["metadata"]["name"] == name and is_so(kind, pod):
                return

    def until_gone(self, name: str) -> None:
        self.until(name, lambda kind, pod: kind == "DELETED")

    def until_failed(self, name: str) -> None:
        self.until(name, lambda kind, pod: pod["status"]["phase"] == "Failed")

    def texts(self, name: str) -> list[str]:
        return [line.text for line in self.lines.get(name, ())]
