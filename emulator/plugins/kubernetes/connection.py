"""The connection to a cluster: found as kubectl does, kept through outages, its errors translated.

The official client reads the kubeconfig and logs in, by any of its ways. Requests and answers are
plain JSON: its models cost CPU, and refuse some answers of other versions.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError

from emulator.errors import EngineError, EngineLost, EngineMissing
from emulator.plugins.kubernetes.refusals import access, refusal, unreachable

if TYPE_CHECKING:
    import websocket
    from kubernetes.client import Configuration

    from emulator.plugins.kubernetes.section import Kubernetes

CONNECT_TIMEOUT = 5.0
"""Seconds that the API server has for its first answer, and for one after it was given up."""
CALL_TIMEOUT = 30.0
"""Seconds between two bytes of an answer."""
PAUSES = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds before each repetition of a request; the last one for all that follow."""
BUSY = frozenset({429, 502, 503, 504})
"""Statuses of a server that may answer the same request later."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
OF_THIS_POD = "(of this Pod)"
"""In place of a context's name, where the Pod's service account is used."""
CONNECTIONS = 64
PAGE = 500
"""Objects of a list that are requested at once."""

Data = Mapping[str, Any]
Answer = dict[str, Any]


class ApiError(EngineError):
    """The API server refused a request."""

    def __init__(
        self, message: str, hint: str = "", *, status: int, answer: Mapping[str, Any] = {}
    ) -> None:
        super().__init__(message, hint)
        self.status = status
        """Of HTTP: 403, 404, 409, 422, …"""
        self.reason = str(answer.get("reason") or "")
        """In one word: `Forbidden`, `NotFound`, `AlreadyExists`, …"""
        self.text = str(answer.get("message") or "")
        """What the server said of it."""
        self.details: Data = answer.get("details") or {}


class _Login(NamedTuple):
    """What a context of a kubeconfig names."""

    context: str
    namespace: str
    configuration: Configuration
    """The client's; its files of certificates are gone, and `tls` has them."""
    tls: ssl.SSLContext | None
    """None: the server's address is http."""


class ApiServer:
    """The API server of a context of a kubeconfig, or of the cluster in which this is a Pod.

    Any thread may call it. A request that is lost, or that the server is too busy for, is repeated
    for `outage_timeout`; at the start, and after it was in vain once, for CONNECT_TIMEOUT.
    """

    def __init__(self, login: _Login, outage_timeout: float) -> None:
        self.context, self.namespace = login.context, login.namespace
        self.outage_timeout = outage_timeout
        """Seconds."""
        self.requests = Counter[str]()
        """How often each `verb resource` was asked for."""
        self._configuration, self._tls = login.configuration, login.tls
        self._server = str(login.configuration.host).rstrip("/")
        self._pool = _pool(login)
        self._patience = CONNECT_TIMEOUT
        self._has_answered = False
        self._closed = threading.Event()
        self._login_lock = threading.Lock()

    @classmethod
    def open(cls, options: Kubernetes) -> ApiServer:
        """Find the cluster as kubectl does; no request is sent.

        KUBECONFIG or ~/.kube/config, with the context and namespace of `options` or the current
        ones; where there is none, the service account of this Pod. Raises EngineMissing.
        """
        return cls(_log_in(options.context or "", options.namespace or ""), options.outage_timeout)

    # --- Requests -------------------------------------------------------------------------------

    def get(self, path: str, **query: object) -> Answer:
        """Return an object or a list. Raises ApiError, EngineLost."""
        return self._call("GET", path, query)

    def list_all(self, path: str, **query: object) -> tuple[list[Answer], str]:
        """Return all objects of a kind, and the version from which a watch goes on.

        PAGE of them are requested at once. Raises ApiError, EngineLost.
        """
        items: list[Answer] = []
        query["limit"] = PAGE
        while True:
            try:
                page = self.get(path, **query)
            except ApiError as error:
                if "continue" not in query or error.status != HTTPStatus.GONE:
                    raise
                items = []  # it took too long: all at once
                del query["continue"], query["limit"]
                continue
            items += page.get("items") or ()
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return items, str(metadata.get("resourceVersion") or "")
            query["continue"] = metadata["continue"]

    def post(self, path: str, body: Data, **query: object) -> Answer:
        """Create an object; return it as the server has completed it. Raises ApiError, EngineLost.

        Repeated after a lost connection: what the lost request has made is then returned.
        """
        return self._call("POST", path, query, body)

    def made_before(self, path: str, body: Data, refused: ApiError) -> Answer:
        """Return the object that an earlier `post` has made; raise `refused` if it has not."""
        if refused.reason == "AlreadyExists":
            found = self.get(f"{path}/{body['metadata']['name']}")
            if has_made(body, found):
                return found
        raise refused

    def patch(self, path: str, body: Data, **query: object) -> Answer:
        """Change an object by a merge patch; return it. Raises ApiError, EngineLost."""
        return self._call("PATCH", path, query, body)

    def delete(self, path: str, body: Data | None = None, **query: object) -> Answer:
        """Delete an object, or all that a selector finds; `body` are DeleteOptions.

        Raises ApiError (404 if there is none), EngineLost.
        """
        return self._call("DELETE", path, query, body)

    def text(self, path: str, **query: object) -> str:
        """Return an answer that is no JSON, such as a log. Raises ApiError, EngineLost."""
        return self._send("GET", path, query).decode("utf-8", "replace")

    def stream(
        self, path: str, *, silent_for: float | None = None, **query: object
    ) -> urllib3.BaseHTTPResponse:
        """Return an answer whose body is not read: a watch, or a log that is followed.

        Its connection is its own: the caller closes it with `close()`. `silent_for` are the
        seconds after which reading fails if nothing came; None: never. Not repeated: who reads
        knows where to resume. Raises ApiError, EngineLost.
        """
        watches = str(query.get("watch", "")).lower() in ("true", "1")
        url, doing = self._url(path, query), access("GET", path, watches=watches)
        self.requests[f"{doing.verb} {doing.resource}"] += 1
        answer = self._request("GET", url, silent_for, preload_content=False)
        if answer.status >= 300:
            with contextlib.closing(answer):
                raise self.refused("GET", path, answer.status, self._data(answer))
        self._answered()
        return answer

    @contextlib.contextmanager
    def websocket(
        self,
        path: str,
        protocols: Sequence[str],
        timeout: float,
        late: EngineError | None = None,
        **query: object,
    ) -> Iterator[websocket.WebSocket]:
        """Open a websocket, such as that of a command, and close it after the block.

        The server has `timeout` seconds to accept it. Never repeated. Raises ApiError, and
        EngineLost, also for what the block raises of the connection; `late` if that took too long.
        """
        from websocket import (
            WebSocket,
            WebSocketBadStatusException,
            WebSocketException,
            WebSocketTimeoutException,
        )

        doing, url = access("POST", path), self._url(path, query)
        self.requests[f"{doing.verb} {doing.resource}"] += 1
        names = {"server_hostname": self._configuration.tls_server_name or None}
        connection = WebSocket(sslopt={"context": self._tls, **names} if self._tls else {})
        headers = [f"{key}: {one}" for key, one in self._headers().items() if key != "accept"]
        options: dict[str, Any] = {"http_no_proxy": ["*"]}
        if (proxy := urlsplit(proxy_of(self._configuration))).hostname:
            options = {"http_proxy_host": proxy.hostname, "http_proxy_port": proxy.port}
            options["proxy_type"] = proxy.scheme or "http"
        try:
            connection.settimeout(timeout)
            connection.connect(  # type: ignore[no-untyped-call]
                f"ws{url.removeprefix('http')}",
                header=headers,
                subprotocols=list(protocols),
                suppress_origin=True,
                **options,
            )
            yield connection
        except WebSocketBadStatusException as error:
            body = bytes(error.resp_body or b"")
            raise self.refused("POST", path, error.status_code, body) from None
        except (WebSocketException, OSError) as error:
            if late is not None and isinstance(error, WebSocketTimeoutException):
                raise late from None
            raise self._lost(error) from None
        finally:
            connection.close(timeout=1)

    def namespaced(self, kind: str, name: str = "", *, api: str = "api/v1") -> str:
        """Return the path of a kind of object in our namespace: `pods`, or of one with a name."""
        path = f"/{api}/namespaces/{self.namespace}/{kind}"
        return f"{path}/{name}" if name else path

    @cached_property
    def server_version(self) -> str:
        """The version of the API server: `v1.20.2`. Raises EngineError."""
        return str(self.get("/version").get("gitVersion", "unknown"))

    @property
    def server(self) -> str:
        """The address of the API server."""
        return self._server

    def refused(self, method: str, path: str, status: int, data: object) -> ApiError:
        """Return the error for a refusal; `data` is its body, or what that says."""
        answer: Any = data
        if isinstance(data, bytes):
            try:
                answer = json.loads(data)
            except ValueError:
                answer = {"message": data[:200].decode("utf-8", "replace").partition("\n")[0]}
        answer = answer if isinstance(answer, Mapping) else {}
        sentence = refusal(access(method, path), status, answer, self.context)
        return ApiError(*sentence, status=status, answer=answer)

    def close(self) -> None:
        """End what waits for an answer, and close connections; a second call does nothing."""
        self._closed.set()
        self._pool.clear()

    # --- How they are sent ----------------------------------------------------------------------

    def _call(self, method: str, path: str, query: Data, body: Data | None = None) -> Answer:
        try:
            answer = json.loads(self._send(method, path, query, body))
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise EngineError(
                f"What answers at {self._server} is no Kubernetes API server.",
                f"Check the context {self.context} of the kubeconfig.",
            )
        return answer

    def _send(self, method: str, path: str, query: Data, body: Data | None = None) -> bytes:
        """Send a request until it is answered; return the answer's body."""
        url, doing = self._url(path, query), access(method, path)
        sent = None if body is None else json.dumps(body).encode()
        kind = "merge-patch+json" if method == "PATCH" else "json"
        headers = {} if sent is None else {"Content-Type": f"application/{kind}"}
        began, was_lost, logged_in = time.monotonic(), False, False
        for pause in _pauses():
            self.requests[f"{doing.verb} {doing.resource}"] += 1
            error: EngineError
            try:
                answer = self._request(method, url, CALL_TIMEOUT, headers, body=sent)
            except EngineError as lost:
                error, was_lost = lost, True
            else:
                if answer.status < 300:
                    self._answered()
                    return answer.data
                refused = self.refused(method, path, answer.status, answer.data)
                if answer.status == 401 and not logged_in:
                    logged_in = True
                    if self._log_in_again():
                        continue
                if method == "POST" and refused.reason == "AlreadyExists" and was_lost:
                    assert body is not None
                    return json.dumps(self.made_before(path, body, refused)).encode()
                if not _may_repeat(doing.resource, answer.status, answer.headers, refused.text):
                    raise refused
                error = refused
            waited = time.monotonic() - began
            if waited + pause > self._patience or self._closed.wait(pause):
                self._patience = CONNECT_TIMEOUT  # who then removes the run must not wait as long
                raise error
        raise AssertionError("the pauses never end")

    def _request(
        self,
        method: str,
        url: str,
        silent_for: float | None,
        headers: Mapping[str, str] = {},
        **more: Any,  # noqa: ANN401  of urllib3
    ) -> urllib3.BaseHTTPResponse:
        """Send a request once. Raises EngineLost, EngineMissing."""
        try:
            return self._pool.request(
                method,
                url,
                headers={**self._headers(), **headers},
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=silent_for),
                **more,
            )
        except (HTTPError, OSError) as error:
            raise self._lost(error) from None

    def _url(self, path: str, query: Data) -> str:
        words = {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in query.items()
            if value is not None
        }
        return f"{self._server}{path}" + (f"?{urlencode(words, doseq=True)}" if words else "")

    def _headers(self) -> dict[str, str]:
        """Return the login, renewed if it expires soon."""
        with self._login_lock:
            settings: Data = {**self._configuration.auth_settings()}
        found = {
            one["key"].lower(): one["value"] for one in settings.values() if one["in"] == "header"
        }
        return {"accept": "application/json", "user-agent": "emulator", **found}

    def _log_in_again(self) -> bool:
        """Read the login again, as a token may have been renewed; return whether it is new."""
        before = self._headers()
        with contextlib.suppress(EngineMissing), self._login_lock:
            context = "" if self.context == OF_THIS_POD else self.context
            self._configuration = _log_in(context, self.namespace).configuration
        return self._headers() != before

    def _answered(self) -> None:
        self._has_answered, self._patience = True, max(self.outage_timeout, CONNECT_TIMEOUT)

    def _lost(self, error: BaseException) -> EngineError:
        sentence = unreachable(self._server, self.context, error)
        if self._has_answered:
            return EngineLost(
                sentence.message,
                "Once it is back, `emulate clean --engine kubernetes` removes what this run left.",
            )
        return EngineMissing(*sentence, configured=True)

    @staticmethod
    def _data(answer: urllib3.BaseHTTPResponse) -> bytes:
        try:
            return answer.read(2**16)
        except (HTTPError, OSError):
            return b""


def has_made(request: Data, found: Data) -> bool:
    """Say whether a request has made the object that has its name now (pure).

    Its labels say of which run it is, its annotations whose run that is.
    """
    wanted, carried = (one["metadata"] for one in (request, found))
    return bool(wanted.get("labels")) and all(
        (wanted.get(kind) or {}).items() <= (carried.get(kind) or {}).items()
        for kind in ("labels", "annotations")
    )


def _pauses() -> Iterator[float]:
    """Yield how long to wait before each repetition; a hundred threads wait differently long."""
    for pause in PAUSES:
        yield pause * random.uniform(0.8, 1.2)
    while True:
        yield PAUSES[-1] * random.uniform(0.8, 1.2)


def _may_repeat(resource: str, status: int, headers: Mapping[str, str], text: str) -> bool:
    """Say whether the server may answer the same request otherwise later (pure)."""
    if resource == "pods/eviction" and status == 429:
        return False  # that is the answer: a budget forbids it
    etcd = status == 500 and "etcdserver" in text
    return status in BUSY or etcd or (status == 500 and "Retry-After" in headers)


# --- Finding the cluster ------------------------------------------------------------------------


def _log_in(context: str, namespace: str) -> _Login:
    """Read the kubeconfig, or the service account of this Pod. Raises EngineMissing."""
    paths = _kubeconfigs()
    try:
        import kubernetes.client
        from kubernetes.config import ConfigException
    except ImportError:
        raise EngineMissing(
            "The engine kubernetes needs the package `kubernetes`.",
            "Install the emulator with its extra: in the checkout, `pip install '.[kubernetes]'`.",
        ) from None
    configuration = kubernetes.client.Configuration()
    try:
        if paths:
            return _from_kubeconfig(paths, context, namespace, configuration)
        if os.environ.get("KUBERNETES_SERVICE_HOST") and not context:
            return _from_service_account(namespace, configuration)
    except (ConfigException, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise EngineMissing(
            f"The kubeconfig {os.pathsep.join(paths) or OF_THIS_POD} can't be used: {what}.",
            "`kubectl config get-contexts` lists what it has.",
            configured=True,
        ) from None
    named = os.environ.get("KUBECONFIG")
    raise EngineMissing(
        f"No Kubernetes cluster is configured: there is no {named or '~/.kube/config'}.",
        "Point KUBECONFIG to the kubeconfig of your cluster; `make kubernetes` in the checkout "
        "starts one for tests.",
        configured=bool(named),
    )


def _kubeconfigs() -> list[str]:
    named = os.environ.get("KUBECONFIG") or "~/.kube/config"
    paths = (os.path.expanduser(one) for one in named.split(os.pathsep) if one)
    return [one for one in paths if os.path.exists(one)]


def _from_kubeconfig(
    paths: Sequence[str], context: str, namespace: str, configuration: Configuration
) -> _Login:
    import yaml
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    try:
        merged = KubeConfigMerger(os.pathsep.join(paths)).config  # type: ignore[no-untyped-call]
    except yaml.YAMLError as error:
        raise ValueError(f"it is not YAML ({' '.join(str(error).split())})") from None
    # The client writes keys to files, which a kill would leave: they are gone when it is loaded.
    with tempfile.TemporaryDirectory(prefix="emulator-") as folder:
        loader = KubeConfigLoader(  # type: ignore[no-untyped-call]
            merged,
            active_context=context or None,
            config_base_path=None,
            temp_file_path=folder,
        )
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        tls = _tls(configuration)
    chosen = loader.current_context
    of_context = chosen["context"].get("namespace")
    return _Login(chosen["name"], namespace or of_context or "default", configuration, tls)


def _from_service_account(namespace: str, configuration: Configuration) -> _Login:
    from kubernetes.config import load_incluster_config

    load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    own = (SERVICE_ACCOUNT / "namespace").read_text().strip()
    return _Login(OF_THIS_POD, namespace or own, configuration, _tls(configuration))


def _tls(configuration: Configuration) -> ssl.SSLContext | None:
    """Return the TLS settings, with what the files of certificates contain."""
    if not str(configuration.host).startswith("https"):
        return None
    ca_file = configuration.ssl_ca_cert or None
    context = ssl.create_default_context(cafile=ca_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif hasattr(ssl, "VERIFY_X509_STRICT"):
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # clusters' own CAs often lack extensions
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _pool(login: _Login) -> urllib3.PoolManager:
    """Return the pool of connections to the server, through its proxy if there is one."""
    configuration = login.configuration
    settings: dict[str, Any] = {"maxsize": CONNECTIONS, "socket_options": _keep_alive()}
    if login.tls is not None:
        settings["ssl_context"] = login.tls
        if login.configuration.tls_server_name:
            settings["server_hostname"] = configuration.tls_server_name
    if not (proxy := proxy_of(configuration)):
        return urllib3.PoolManager(**settings)
    if proxy.lower().startswith("socks"):
        from urllib3.contrib.socks import SOCKSProxyManager

        return SOCKSProxyManager(proxy, **settings)
    return urllib3.ProxyManager(proxy, proxy_headers=configuration.proxy_headers, **settings)


def proxy_of(configuration: Configuration) -> str:
    """Return the address of the proxy before the server; empty: there is none."""
    from requests.utils import should_bypass_proxies

    proxy, host = configuration.proxy, urlsplit(configuration.host).hostname or ""
    if not proxy or should_bypass_proxies(f"https://{host}", configuration.no_proxy or ""):
        return ""
    return str(proxy)


def _keep_alive() -> list[tuple[int, int, int]]:
    """Return options by which a connection that nobody answers any more ends within a minute.

    Watches and logs may be silent for hours, and proxies forget silent connections.
    """
    idle = getattr(socket, "TCP_KEEPALIVE" if sys.platform == "darwin" else "TCP_KEEPIDLE")
    return [
        *HTTPConnection.default_socket_options,
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, idle, 30),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    ]


def ignoring_missing(call: Callable[[], object]) -> bool:
    """Perform a call; return whether what it is about exists, and not another of its name."""
    try:
        call()
    except ApiError as error:
        if error.status == 404 or (error.status == 409 and "uid" in error.text.lower()):
            return False
        raise
    return True
