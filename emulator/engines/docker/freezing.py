"""Freezing containers, and the signals that they get meanwhile.

With cgroup v1, runc asks the kernel again and again until all processes of a container are frozen.
On a busy machine it may give up ("unable to freeze"); it then thaws what it had frozen, so that the
request can be made again.

Docker thaws a frozen container when it is sent a signal. A frozen machine does not handle any, so
signals other than SIGKILL are kept until the container is thawed.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial

import docker
from docker.errors import APIError, NotFound

ATTEMPTS = 5
"""Requests before the refusal counts. One refusal in some thousand pauses was seen, at load 10."""


class Freezer:
    """Freezes, thaws and signals the containers of one run; it may be called on any thread."""

    def __init__(self, api: docker.APIClient) -> None:
        self._api = api
        self._kept: dict[str, list[int]] = {}
        """The signals that each frozen container has not got yet, by its id."""
        self._lock = threading.Lock()

    def freeze(self, container: str) -> bool:
        """Freeze a container; return whether it runs. Raises APIError."""
        with self._lock:
            self._kept.setdefault(container, [])
        try:
            freeze(partial(self._api.pause, container))
        except APIError:
            self.thaw(container)
            if self._runs(container):
                raise
            return False
        return True

    def _runs(self, container: str) -> bool:
        """Return whether a container runs: runc has many words for one that is just ending."""
        try:
            return bool(self._api.inspect_container(container)["State"]["Running"])
        except NotFound:
            return False

    def thaw(self, container: str) -> None:
        """Let a container run again, with the signals that it should have got. Raises APIError."""
        with self._lock:
            kept = self._kept.pop(container, [])
        for number in kept:
            self._kill(container, number)  # which thaws it
        try:
            self._api.unpause(container)
        except APIError as error:
            if not is_awake(error):
                raise

    def forget(self, container: str) -> None:
        """A container is started, which was not frozen then."""
        with self._lock:
            self._kept.pop(container, None)

    def signal(self, container: str, number: int) -> None:
        """Signal a container's init, which passes it on; a frozen one later. Raises APIError."""
        with self._lock:
            if number != signal.SIGKILL and container in self._kept:
                self._kept[container].append(number)
                return
        self._kill(container, number)

    def _kill(self, container: str, number: int) -> None:
        try:
            self._api.kill(container, signal=signal.Signals(number).name)
        except APIError as error:
            if not is_awake(error):
                raise


def freeze(pause: Callable[[], None]) -> None:
    """Call `pause` until the container is frozen. Raises the engine's last refusal."""
    for attempt in range(ATTEMPTS):
        try:
            return pause()
        except APIError as error:
            if is_frozen(error):
                return None
            if not may_succeed_later(error) or attempt == ATTEMPTS - 1:
                raise


def is_frozen(refusal: APIError) -> bool:
    """Whether the engine refuses because the container is frozen already."""
    return "already paused" in str(refusal.explanation)


def is_awake(refusal: APIError) -> bool:
    """Whether the engine refuses because the container is not frozen, no longer runs, or is gone.

    Docker 20.10 answers 500 for a container that is not paused, and for one that a signal which
    thawed it has ended, of which the engine itself does not know yet.
    """
    words = ("is not paused", "stopped container", "container not running")
    return refusal.status_code in (404, 409) or any(word in str(refusal) for word in words)


def may_succeed_later(refusal: APIError) -> bool:
    """Whether runc gave up, and nothing speaks against another attempt."""
    return "unable to freeze" in str(refusal.explanation)
