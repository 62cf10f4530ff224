"""A small client of the API server, for what these scripts ask of it."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from scripts.kubernetes.layout import API_PORT

TIMEOUT = 10.0
"""Seconds without a byte."""


class Refused(Exception):
    """The API server answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """The API server, asked as one of the cluster's users."""

    def __init__(self, pki: Path, user: str = "admin") -> None:
        self._tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._tls.load_cert_chain(pki / f"{user}.crt", pki / f"{user}.key")

    def call(self, method: str, path: str, body: Any = None, kind: str = "json") -> Any:  # noqa: ANN401
        """Return what it answers: an object, or text where it is no JSON.

        Raises Refused, and OSError where nobody answers.
        """
        with closing(self._open(TIMEOUT)) as connection:
            headers = {"Content-Type": f"application/{kind}", "Accept": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        if answer.status >= 400:
            raise Refused(answer.status, text)
        is_object = "json" in (answer.getheader("Content-Type") or "")
        return json.loads(text) if is_object else text

    def get(self, path: str) -> Any:  # noqa: ANN401
        """Return an object or a list."""
        return self.call("GET", path)

    def create(self, path: str, body: Any) -> None:  # noqa: ANN401
        """Create an object, unless there is one of this name."""
        try:
            self.call("POST", path, body)
        except Refused as refused:
            if refused.status != http.client.CONFLICT:
                raise

    def watch(self, path: str, version: str, timeout: float) -> Iterator[dict[str, Any]]:
        """Yield the changes after a resource version until the server ends it. Raises OSError."""
        with closing(self._open(timeout + TIMEOUT)) as connection:
            query = f"watch=true&resourceVersion={version}&timeoutSeconds={int(timeout)}"
            connection.request("GET", f"{path}?{query}", headers={"Accept": "application/json"})
            answer = connection.getresponse()
            if answer.status >= 400:
                raise Refused(answer.status, answer.read().decode())
            while line := answer.readline():
                yield json.loads(line)

    def _open(self, timeout: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "127.0.0.1", API_PORT, context=self._tls, timeout=timeout
        )
