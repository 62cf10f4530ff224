"""Notices an engine that hangs in the middle of a run.

Following a task's output has no timeout, as tasks may print nothing for hours. So the engine is
pinged from time to time; if it does not answer, the run ends.
"""

from __future__ import annotations

import threading

import docker
import requests
from docker.errors import DockerException
from urllib3.exceptions import HTTPError

from emulator.engines.base import EngineDown, Inbox
from emulator.engines.docker.connection import ANSWERS_WITHIN, lost

__all__ = ["Heartbeat"]

EVERY = 30.0
"""Seconds between two pings; each has as long as any call, `CALL_WITHIN`."""


class Heartbeat:
    """Pings one engine until it is stopped, or gets no answer."""

    def __init__(self, api: docker.APIClient, inbox: Inbox) -> None:
        self._api, self._inbox = api, inbox
        self._stopped = threading.Event()
        threading.Thread(target=self._ask, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        """Stop pinging; returns at once."""
        self._stopped.set()

    def _ask(self) -> None:
        while not self._stopped.wait(EVERY):
            try:
                self._api.ping()
            except (DockerException, requests.RequestException, HTTPError, OSError) as error:
                if not self._stopped.is_set():
                    # The calls that then remove the run must not wait as long again.
                    self._api.timeout = ANSWERS_WITHIN
                    self._inbox.put(EngineDown(lost("ping it", error)))
                return
