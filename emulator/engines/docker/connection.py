"""The connection to the Docker engine: found, checked while it lasts, its errors translated."""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import docker
import requests
from docker.constants import DEFAULT_UNIX_SOCKET
from docker.context import ContextAPI
from docker.errors import APIError, DockerException, NotFound, create_api_error_from_http_exception
from docker.utils import kwargs_from_env
from docker.utils.config import load_general_config
from requests import HTTPError as Refusal
from requests import Response
from urllib3.exceptions import HTTPError

from emulator.engines.base import EngineDown, Inbox
from emulator.errors import EmulatorError, EngineError, EngineLost, EngineMissing
from emulator.runtime.sockets import accepts, close_unconnected

MINIMUM_API = (1, 41)
CONNECT_TIMEOUT = 5
"""Seconds that an engine has to answer the first request."""
CALL_TIMEOUT = 120
"""Seconds that an engine which has answered gets for one call."""
PARALLEL = 16
"""Requests to the engine at the same time."""
PING_EVERY = 30.0
"""Seconds between two pings of a heartbeat."""

REMOVAL_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds before each further attempt to remove a container that the engine could not kill. Each
attempt may take it ten seconds as well."""


HEADER = 8
"""Bytes before each frame of an answer: the stream, three zeros, and the length (Docker API,
attach)."""


@dataclass(frozen=True)
class _Address:
    """Where the docker command would look for an engine."""

    named_by: str
    """The variable or context that names it; empty: it is Docker's default."""
    settings: dict[str, Any]
    """Arguments of the SDK's client."""


def connect() -> docker.APIClient:
    """Connect to the engine that the docker command would use.

    That is DOCKER_HOST, else DOCKER_CONTEXT, else the current context, else the default socket.
    Raises EngineMissing where none answers within CONNECT_TIMEOUT, or only one that is too old.
    """
    address = _address()
    try:
        client = _within(CONNECT_TIMEOUT, lambda: docker.APIClient(**address.settings))
        version = tuple(int(part) for part in client.api_version.split("."))
    except TimeoutError:
        raise _missing(address, f"no answer within {CONNECT_TIMEOUT} s") from None
    except (DockerException, requests.RequestException, HTTPError, OSError, ValueError) as error:
        close_unconnected(error)
        raise _missing(address, why(error)) from None
    if version < MINIMUM_API:
        client.close()
        raise EngineMissing(
            f"The Docker engine speaks API {client.api_version}; this needs 1.41 (Docker 20.10).",
            "Update Docker.",
            configured=True,
        )
    client.timeout = CALL_TIMEOUT
    client.headers.update(load_general_config().get("HttpHeaders") or {})
    if client.base_url.startswith("http+docker://"):
        client.trust_env = False  # a tenth of a call: a socket has no proxy and no password
    return client


def _address() -> _Address:
    """Return the address of the engine. Raises EngineMissing where it can't be determined."""
    # The SDK makes a pool of this size for every URL of a socket: each takes as many calls to make.
    common = {"version": "auto", "timeout": 2 * CONNECT_TIMEOUT, "max_pool_size": 16}
    chosen = os.environ.get("DOCKER_CONTEXT", "")
    named_by = "DOCKER_CONTEXT" if chosen else ""
    try:
        if os.environ.get("DOCKER_HOST"):
            named_by = "DOCKER_HOST"
            return _Address(named_by, {**common, **kwargs_from_env()})
        context = ContextAPI.get_context(chosen or None)
        if context is None:  # it does not exist
            raise ValueError(f"no context {chosen or 'the current one'}")
    except (DockerException, OSError, ValueError) as error:
        raise _missing(_Address(named_by or "the current context", {}), why(error)) from None
    settings = {**common, "base_url": context.Host, "tls": context.TLSConfig}
    if context.Name == "default":
        return _Address("", settings)
    return _Address(named_by or f"the context {context.Name}", settings)


def _missing(address: _Address, reason: str) -> EngineMissing:
    """Return the error for an address where no engine answers."""
    if address.named_by:
        url = address.settings.get("base_url") or os.environ.get("DOCKER_HOST") or "its address"
        return EngineMissing(
            f"No Docker engine answers at {url}, which {address.named_by} names ({reason}).",
            "Start Docker there, or name another engine; without Docker use --engine process.",
            configured=True,
        )
    return EngineMissing(
        f"No Docker engine answers ({reason}).",
        "Start Docker Desktop or dockerd, or run `make docker` in the checkout (Debian, "
        "Ubuntu); without Docker use --engine process.",
        configured=bool(accepts(DEFAULT_UNIX_SOCKET.removeprefix("http+unix://"))),
    )


def _within(seconds: float, call: Callable[[], docker.APIClient]) -> docker.APIClient:
    """Return the result of a call that may take so many seconds in all. Raises TimeoutError.

    The SDK's own timeout is for each read, and there is none for resolving names. A call that is
    too late ends by itself on its own thread.
    """
    result: Future[docker.APIClient] = Future()

    def perform() -> None:
        try:
            client = call()
        except BaseException as error:  # raised where the result is awaited
            if result.set_running_or_notify_cancel():
                result.set_exception(error)
            else:
                close_unconnected(error)
        else:
            if result.set_running_or_notify_cancel():
                result.set_result(client)
            else:
                client.close()

    threading.Thread(target=perform, name="connect", daemon=True).start()
    try:
        return result.result(timeout=seconds)
    except TimeoutError:
        if result.cancel():
            raise
        return result.result()  # it was set just now


@contextmanager
def translate_errors(doing: str, kind: type[EmulatorError] = EngineError) -> Iterator[None]:
    """Turn a refusal by the engine into an error of `kind`; raises EngineLost if it is gone."""
    try:
        yield
    except APIError as error:
        raise kind(
            f"The Docker engine would not {doing}: {error.explanation or error}.", _advice(error)
        ) from None
    except (DockerException, requests.RequestException, HTTPError, OSError) as error:
        raise lost(doing, error) from None


def _advice(error: APIError) -> str:
    text = str(error.explanation)
    if "port is already allocated" in text or "bind: address already in use" in text:
        return "Another program has that port: leave `host_port` out for any free one."
    if "is already in use" in text or "already exists" in text:
        return "Something else has that name: choose another --run-id, or run `emulate clean`."
    if "error setting rlimit" in text:
        return (
            "Lower its `ulimits:`: the engine's kernel allows no more, for `nofile` not more than "
            "its fs.nr_open."
        )
    if "pool" in text and ("subnet" in text or "address" in text):
        return "Too many networks: `emulate clean` and `docker network prune` remove unused ones."
    if "active endpoints" in text:  # also of one that is gone, as after a hundred at once
        return "A container is still on it; if not, restart the engine, then run `emulate clean`."
    return "Build it with `emulate build`, or pull it." if "No such image" in text else ""


def lost(doing: str, error: Exception) -> EngineLost:
    """Return the error for an engine that no longer answers."""
    close_unconnected(error)
    return EngineLost(
        f"The Docker engine went away (trying to {doing}: {why(error)}).",
        "Once it is back, `emulate clean` removes what this run left.",
    )


def why(error: BaseException) -> str:
    """Return the innermost reason: the outer ones only repeat that a call failed.

    A NameError is none: the SDK catches it where a library is missing, and says which one.
    """
    while (inner := error.__cause__ or error.__context__) and not isinstance(inner, NameError):
        error = inner
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


def ignore_missing(call: Callable[[], object]) -> None:
    """Remove something; it is no error if it is gone or being removed."""
    try:
        call()
    except NotFound:
        pass
    except APIError as error:
        if error.status_code != 409 or "already in progress" not in str(error):
            raise


def remove_container(api: docker.APIClient, container: str) -> None:
    """Remove a container, which may run, and its anonymous volumes."""
    ignore_missing(
        lambda: until_killed(lambda: api.remove_container(container, force=True, v=True))
    )


def until_killed(
    remove: Callable[[], object], *, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Remove something, again and again while the engine says that it could not kill it.

    Thousands of processes end within seconds, for which the engine does not always wait.
    """
    for pause in REMOVAL_PAUSES:
        try:
            remove()
        except APIError as error:
            if "could not kill" not in str(error).lower():
                raise
            sleep(pause)
        else:
            return
    remove()


class Heartbeat:
    """Pings an engine until it is stopped; an engine that does not answer ends the run.

    Following a task's output has no timeout, because tasks may print nothing for hours.
    """

    def __init__(self, api: docker.APIClient, inbox: Inbox) -> None:
        self._api, self._inbox = api, inbox
        self._stopped = threading.Event()
        threading.Thread(target=self._ping, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        """Stop pinging; returns at once."""
        self._stopped.set()

    def _ping(self) -> None:
        while not self._stopped.wait(PING_EVERY):
            try:
                self._api.ping()
            except (DockerException, requests.RequestException, HTTPError, OSError) as error:
                if not self._stopped.is_set():
                    # The calls that then remove the run must not wait as long again.
                    self._api.timeout = CONNECT_TIMEOUT
                    self._inbox.put(EngineDown(lost("ping it", error)))
                return


def streamed(
    api: docker.APIClient,
    method: str,
    path: str,
    *,
    query: Mapping[str, str | int] | None = None,
    **options: Any,  # noqa: ANN401  of requests
) -> Response:
    """Send a request; return the answer with its body unread. Raises APIError for a refusal.

    The SDK's session, address and version are public.
    """
    options.setdefault("timeout", api.timeout)
    url = f"{api.base_url}/v{api.api_version}{path}"
    response = api.request(method, url, params=query, stream=True, **options)
    try:
        response.raise_for_status()
    except Refusal as error:
        raise create_api_error_from_http_exception(error) from None
    return response


def answer_behind(output: Generator[Any, None, None]) -> Response | None:
    """Return the answer that a generator of the SDK decodes; None once it has ended.

    This knows the inside of the generator; a test runs it with the installed SDK.
    """
    response: Response | None = inspect.getgeneratorlocals(output).get("response")
    return response


class Frames:
    """Cuts a stream of the engine into frames: what one output stream wrote, behind a header."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Take the next bytes; yield the frames that they complete, each with its stream."""
        waiting = self._waiting
        waiting += data
        at = 0
        while len(waiting) - at >= HEADER:
            end = at + HEADER + int.from_bytes(waiting[at + 4 : at + HEADER], "big")
            if len(waiting) < end:
                break
            yield waiting[at], bytes(waiting[at + HEADER : end])
            at = end
        del waiting[:at]
