"""The connection to the Docker engine, and its errors in our words."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import docker
import requests
from docker.context import ContextAPI
from docker.errors import APIError, DockerException, NotFound
from docker.utils import kwargs_from_env
from urllib3.exceptions import HTTPError

from emulator.errors import EngineError, EngineLost, EngineMissing
from emulator.sockets import close_unconnected

__all__ = ["connect", "lost", "saying", "unless_gone"]

MINIMUM_API = (1, 41)


def connect() -> docker.APIClient:
    """Connect to the engine that the docker command would use: DOCKER_HOST, else its context.

    Raises EngineMissing where none answers, or only one that is too old.
    """
    try:
        settings: dict[str, Any] = {}
        if os.environ.get("DOCKER_HOST"):
            settings = dict(kwargs_from_env())
        elif context := ContextAPI.get_current_context():
            settings = {"base_url": context.Host, "tls": context.TLSConfig}
        client = docker.APIClient(**settings, version="auto", timeout=120, max_pool_size=64)
    except (DockerException, requests.RequestException, HTTPError, OSError) as error:
        close_unconnected(error)
        raise EngineMissing(
            f"No Docker engine answers ({why(error)}).",
            "Start Docker Desktop or dockerd, or run `make docker` in the checkout (Debian, "
            "Ubuntu); without Docker use --engine process.",
        ) from None
    if tuple(int(part) for part in client.api_version.split(".")) < MINIMUM_API:
        raise EngineMissing(
            f"The Docker engine speaks API {client.api_version}; this needs 1.41 (Docker 20.10).",
            "Update Docker.",
        )
    return client


@contextmanager
def saying(doing: str) -> Iterator[None]:
    """Turn what the engine says into one sentence."""
    try:
        yield
    except APIError as error:
        raise EngineError(
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
    """Return the innermost reason, which is the one that says something."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


def unless_gone(call: Callable[[], object]) -> None:
    """Remove something; that somebody else is removing it as well is fine."""
    try:
        call()
    except NotFound:
        pass
    except APIError as error:
        if error.status_code != 409 or "already in progress" not in str(error):
            raise
