"""The connection to the Docker engine, and its errors as ours."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import docker
import requests
from docker.constants import DEFAULT_UNIX_SOCKET
from docker.context import ContextAPI
from docker.errors import APIError, DockerException, NotFound
from docker.utils import kwargs_from_env
from urllib3.exceptions import HTTPError

from emulator.errors import EmulatorError, EngineError, EngineLost, EngineMissing
from emulator.runtime.sockets import close_unconnected

__all__ = ["ANSWERS_WITHIN", "CALL_WITHIN", "connect", "ignore_missing", "lost", "translate_errors"]

MINIMUM_API = (1, 41)
ANSWERS_WITHIN = 5
"""Seconds that an engine has to answer the first request."""
CALL_WITHIN = 120
"""Seconds that an engine which has answered gets for one call."""


@dataclass(frozen=True)
class _Place:
    """Where the docker command would look for an engine."""

    named_by: str
    """The variable or context that names it; empty: it is Docker's default."""
    settings: dict[str, Any]
    """Arguments of the SDK's client."""

    @property
    def url(self) -> str:
        """Where it is, as far as that is known."""
        return str(self.settings.get("base_url") or os.environ.get("DOCKER_HOST") or "its place")


def connect() -> docker.APIClient:
    """Connect to the engine that the docker command would use.

    That is DOCKER_HOST, else DOCKER_CONTEXT, else the current context, else the default socket.
    Raises EngineMissing where none answers within ANSWERS_WITHIN, or only one that is too old.
    """
    place = _place()
    try:
        client = _within(ANSWERS_WITHIN, lambda: docker.APIClient(**place.settings))
        version = tuple(int(part) for part in client.api_version.split("."))
    except TimeoutError:
        raise _missing(place, f"nothing came within {ANSWERS_WITHIN} s") from None
    except (DockerException, requests.RequestException, HTTPError, OSError, ValueError) as error:
        close_unconnected(error)
        raise _missing(place, why(error)) from None
    if version < MINIMUM_API:
        client.close()
        raise EngineMissing(
            f"The Docker engine speaks API {client.api_version}; this needs 1.41 (Docker 20.10).",
            "Update Docker.",
            configured=True,
        )
    client.timeout = CALL_WITHIN
    return client


def _place() -> _Place:
    """Return the place of the engine. Raises EngineMissing where it can't be determined."""
    common = {"version": "auto", "timeout": 2 * ANSWERS_WITHIN, "max_pool_size": 64}
    named_by = next(
        (name for name in ("DOCKER_HOST", "DOCKER_CONTEXT") if os.environ.get(name)), ""
    )
    try:
        if named_by == "DOCKER_HOST":
            return _Place(named_by, {**common, **kwargs_from_env()})
        context = ContextAPI.get_context(os.environ.get("DOCKER_CONTEXT") or None)
    except (DockerException, OSError, ValueError) as error:
        raise _missing(_Place(named_by or "the current context", {}), why(error)) from None
    if context is None:
        # The SDK returns None for a context that does not exist.
        name = os.environ.get("DOCKER_CONTEXT") or "the current one"
        raise _missing(_Place(named_by or "the current context", {}), f"no context {name}")
    settings = {**common, "base_url": context.Host, "tls": context.TLSConfig}
    if context.Name == "default":
        return _Place("", settings)
    return _Place(named_by or f"the context {context.Name}", settings)


def _missing(place: _Place, reason: str) -> EngineMissing:
    """Return the error for a place where no engine answers."""
    if place.named_by:
        return EngineMissing(
            f"No Docker engine answers at {place.url}, which {place.named_by} names ({reason}).",
            "Start Docker there, or name another engine; without Docker use --engine process.",
            configured=True,
        )
    return EngineMissing(
        f"No Docker engine answers ({reason}).",
        "Start Docker Desktop or dockerd, or run `make docker` in the checkout (Debian, "
        "Ubuntu); without Docker use --engine process.",
        configured=_accepts(_default_socket()),
    )


def _default_socket() -> str:
    return DEFAULT_UNIX_SOCKET.removeprefix("http+unix://").removeprefix("unix://")


def _accepts(path: str) -> bool:
    """Say whether a program listens on a unix socket, whatever it answers."""
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(1)
        try:
            one.connect(path)
        except TimeoutError:
            return True  # it listens, but is too slow to accept
        except OSError:
            return False
        return True


def _within(seconds: float, call: Callable[[], docker.APIClient]) -> docker.APIClient:
    """Make a call that gets so many seconds in all. Raises TimeoutError.

    The SDK's own timeout is for each read, and for none of names that have to be resolved. A call
    that is too late ends by itself on its own thread.
    """
    came: Future[docker.APIClient] = Future()

    def perform() -> None:
        try:
            client = call()
        except BaseException as error:  # raised where the result is awaited
            if came.set_running_or_notify_cancel():
                came.set_exception(error)
            else:
                close_unconnected(error)
        else:
            if came.set_running_or_notify_cancel():
                came.set_result(client)
            else:
                client.close()

    threading.Thread(target=perform, name="connect", daemon=True).start()
    try:
        return came.result(timeout=seconds)
    except TimeoutError:
        if came.cancel():
            raise
        return came.result()  # it arrived just now


@contextmanager
def translate_errors(doing: str, kind: type[EmulatorError] = EngineError) -> Iterator[None]:
    """Turn what the engine refuses into an error of this kind; raises EngineLost if it is gone."""
    try:
        yield
    except APIError as error:
        raise kind(
            f"The Docker engine would not {doing}: {error.explanation or error}.", _advice(error)
        ) from None
    except (DockerException, requests.RequestException, HTTPError, OSError) as error:
        raise lost(doing, error) from None


def _advice(error: APIError) -> str:
    said = str(error.explanation)
    if "is already in use" in said or "already exists" in said:
        return "Something else has that name: choose another --run-id, or run `emulate clean`."
    if "pool" in said and ("subnet" in said or "address" in said):
        return "Too many networks: `emulate clean` and `docker network prune` remove unused ones."
    if "No such image" in said:
        return "Build it with `emulate build`, or pull it."
    return ""


def lost(doing: str, error: Exception) -> EngineLost:
    """Return the error for an engine that does not answer any more."""
    close_unconnected(error)
    return EngineLost(
        f"The Docker engine went away (trying to {doing}: {why(error)}).",
        "Once it is back, `emulate clean` removes what this run left.",
    )


def why(error: BaseException) -> str:
    """Return the innermost reason: the outer ones only repeat that a call failed."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


def ignore_missing(call: Callable[[], object]) -> None:
    """Remove something; it is no error if it is gone or just being removed."""
    try:
        call()
    except NotFound:
        pass
    except APIError as error:
        if error.status_code != 409 or "already in progress" not in str(error):
            raise
