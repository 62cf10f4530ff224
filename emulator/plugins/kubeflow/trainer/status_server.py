"""Trainer's status endpoint for the tasks of one run: a program of its own.

It runs next to a job as a helper, from a copy of this one file: it needs only the standard library
of Python 3.8 or later. `answer` decides; the rest is sockets. Each task has a token of its own, by
which it is known. What a task has posted is printed, and read by `status.py`:

    {"emulate": "trainer-status", "task": "node-0", "wall": 1700000003.5,
     "status": {"progressPercentage": 37, "metrics": [{"name": "current_step", "value": "12"}]}}

Source: kubeflow/trainer v2.3.0, pkg/statusserver (answers, sizes), and the schema of the TrainJob
in manifests/base/crds (what is valid).
"""

from __future__ import annotations

import hmac
import json
import os
import re
import signal
import ssl
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

FOLDER = ".trainer-status"
"""Where the files are, in the shared volume."""
CA, SERVER, SECRET, TOKEN = "ca.crt", "server.pem", "secret", "token"
"""Its files; each task has a folder with its token."""
LARGEST_BODY = 2**16
"""Bytes of a request; larger ones are refused."""
DRAINED = 2**18
"""Bytes of such a request that are read: a client that is still sending does not read the answer.
Go's server, which is Trainer's, does the same."""
IDLE = 120.0
"""Seconds after which a connection without a request is closed."""
LARGEST = 2**31 - 1
METRICS, LENGTH = 256, 64
"""Metrics at most, and the characters of a name or a value."""
_PATH = re.compile(r"/apis/trainer\.kubeflow\.org/v1alpha1/namespaces/[^/]+/trainjobs/[^/]+/status")
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,]\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII
)  # RFC 3339


@dataclass(frozen=True)
class Own:
    """What a server knows: the path of its job, and what tokens are made from."""

    path: str
    secret: str

    @property
    def job(self) -> str:
        """The name of the job."""
        return self.path.split("/")[-2]


@dataclass(frozen=True)
class Answer:
    """What a request is answered, and what is known by it."""

    code: int
    body: Mapping[str, Any]
    task: str = ""
    """Whose token it has."""
    status: Mapping[str, Any] | None = None
    """What it says of the task, if it is valid and says something."""


class _Invalid(ValueError):
    """A field has a value that is not allowed."""


def token_of(task: str, secret: str) -> str:
    """Return the token of a task."""
    return f"{task}.{hmac.new(secret.encode(), task.encode(), 'sha256').hexdigest()}"


def answer(method: str, target: str, authorization: str, body: str, own: Own) -> Answer:
    """Return the answer to a request (pure)."""
    path = urlsplit(target).path
    if method != "POST" or not _PATH.fullmatch(path):
        return _refused(HTTPStatus.NOT_FOUND, "NotFound", "Not found")
    task = _task_of(authorization, own.secret)
    # A token is for one TrainJob. Trainer has no 401: whatever is wrong with it is forbidden.
    if not task or path != own.path:
        return _refused(HTTPStatus.FORBIDDEN, "Forbidden", "Forbidden", task)
    try:
        status = _decoded(body)
    except (ValueError, OverflowError, RecursionError):
        return _refused(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", "Invalid payload", task)
    if status is None:
        return Answer(HTTPStatus.OK, {}, task)
    try:
        _check(status)
    except _Invalid as error:
        message = f'TrainJob.trainer.kubeflow.org "{own.job}" is invalid: status.{error}'
        return _refused(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message, task)
    return Answer(HTTPStatus.OK, {"trainerStatus": status}, task, status)


def _refused(code: int, reason: str, message: str, task: str = "") -> Answer:
    status = {"metadata": {}, "status": "Failure", "message": message, "reason": reason}
    return Answer(code, {**status, "code": int(code)}, task)


def _task_of(authorization: str, secret: str) -> str:
    """Return the task with the token in a header; empty if there is none."""
    words = authorization.split()
    if len(words) != 2 or words[0].lower() != "bearer":
        return ""
    task = words[1].rpartition(".")[0]
    return task if hmac.compare_digest(token_of(task, secret).encode(), words[1].encode()) else ""


def _decoded(body: str) -> dict[str, Any] | None:
    """Return the status in a body, with the fields that there are; None: it says nothing.

    What follows the first value is not looked at, as in Trainer. Raises ValueError for what is not
    of the types of its API.
    """
    decoder = json.JSONDecoder(parse_constant=_no_number)
    given = decoder.raw_decode(body.lstrip(" \t\r\n"))[0]
    status = _typed(given, dict, {}).get("trainerStatus")
    if status is None:
        return None
    _typed(status, dict, {})
    found: dict[str, Any] = {}
    for name in ("progressPercentage", "estimatedRemainingSeconds"):
        number = _typed(status.get(name), int, None)
        if number is not None:
            if not -LARGEST - 1 <= number <= LARGEST:
                raise ValueError(name)
            found[name] = number
    metrics = [_typed(one, dict, {}) for one in _typed(status.get("metrics"), list, [])]
    if metrics:
        keys = ("name", "value")
        found["metrics"] = [{key: _typed(one.get(key), str, "") for key in keys} for one in metrics]
    updated = _typed(status.get("lastUpdatedTime"), str, None)
    if updated is not None:
        found["lastUpdatedTime"] = _utc(updated)
    return found


def _no_number(text: str) -> None:
    raise ValueError(text)


def _typed(value: Any, kind: type, default: Any) -> Any:  # noqa: ANN401  JSON
    if value is None:
        return default
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{value!r} is not of the type {kind.__name__}")
    return value


def _utc(text: str) -> str:
    """Return a time as the API writes it. Raises ValueError."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(text)
    when = datetime.fromisoformat(found[1] + ("+00:00" if found[2] == "Z" else found[2]))
    utc = timezone.utc  # noqa: UP017  `datetime.UTC` is of Python 3.11
    return f"{when.astimezone(utc):%Y-%m-%dT%H:%M:%SZ}"


def _check(status: Mapping[str, Any]) -> None:
    """Raise _Invalid for what the schema of the TrainJob does not allow."""
    limits = {"progressPercentage": 100, "estimatedRemainingSeconds": LARGEST}
    for name, most in limits.items():
        if name in status and not 0 <= status[name] <= most:
            raise _Invalid(
                f"trainerStatus.{name}: Invalid value: {status[name]}: "
                f"should be between 0 and {most}"
            )
    metrics = status.get("metrics", [])
    if len(metrics) > METRICS:
        raise _Invalid(f"trainerStatus.metrics: Too many: {len(metrics)}: at most {METRICS} items")
    for number, one in enumerate(metrics):
        for key, text in one.items():
            if not 1 <= len(text) <= LENGTH:
                raise _Invalid(
                    f"trainerStatus.metrics[{number}].{key}: Invalid value: "
                    f"should have 1 to {LENGTH} characters"
                )
    if "lastUpdatedTime" not in status:
        raise _Invalid("trainerStatus: lastUpdatedTime is required when trainerStatus is present")


# --- Sockets --------------------------------------------------------------------------------------


class StatusServer(ThreadingHTTPServer):
    """Answers the tasks of a run."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, host: str, port: int, own: Own, certificate: str) -> None:
        super().__init__((host, port), _Handler)
        self.own = own
        self._output = threading.Lock()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        # The thread of a connection shakes hands, when it first reads: a silent client keeps no
        # other one from being answered.
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )

    def say(self, **fields: object) -> None:
        """Print a line of JSON."""
        with self._output:
            print(json.dumps({"emulate": "trainer-status", **fields}), flush=True)  # noqa: T201

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client has gone, or does not trust the certificate."""


class _Handler(BaseHTTPRequestHandler):
    server: StatusServer
    protocol_version = "HTTP/1.1"
    timeout = IDLE

    def _respond(self) -> None:
        if "Transfer-Encoding" in self.headers:  # chunks: no client of the endpoint sends these
            code = HTTPStatus.LENGTH_REQUIRED
            self.close_connection = True
            self._send(_refused(code, "BadRequest", "Content-Length is required"))
            return
        size = self.headers.get("Content-Length") or "0"
        if not re.fullmatch("[0-9]{1,9}", size) or int(size) > LARGEST_BODY:
            code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            self.close_connection = True
            if size.isdecimal():
                self.rfile.read(DRAINED if len(size) > 9 else min(int(size), DRAINED))
            self._send(_refused(code, "RequestEntityTooLarge", "Payload too large"))
            return
        body = self.rfile.read(int(size)).decode("utf-8", "replace")
        authorization = self.headers.get("Authorization") or ""
        given = answer(self.command, self.path, authorization, body, self.server.own)
        if given.status is not None:  # before its task can go on, and end
            self.server.say(task=given.task, wall=time.time(), status=given.status)
        self._send(given)

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _respond

    def _send(self, given: Answer) -> None:
        if given.code != HTTPStatus.OK:
            message = given.body["message"]
            self.server.say(refused=int(given.code), task=given.task, message=message)
        data = json.dumps(given.body).encode() + b"\n"
        self.send_response(given.code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


# --- As a program ---------------------------------------------------------------------------------


def put(asked: Mapping[str, Any]) -> None:
    """Write what tasks and server need to the shared volume, readable by all users there."""
    folder = os.path.join(asked["folder"], FOLDER)
    texts = {CA: asked["ca"], SERVER: asked["server"], SECRET: asked["secret"]}
    for task in asked["tasks"]:
        texts[os.path.join(task, TOKEN)] = token_of(task, asked["secret"])
    for name, text in texts.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def serve(host: str, port: int, path: str) -> None:
    """Answer until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    folder = os.path.join(os.environ["EMULATOR_SHARED"], FOLDER)
    with open(os.path.join(folder, SECRET), encoding="utf-8") as file:
        own = Own(path, file.read())
    server = StatusServer(host, port, own, os.path.join(folder, SERVER))
    server.say(serves=f"https://{host}:{port}{path}")
    server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) == 2:
        put(json.loads(sys.argv[1]))
    else:
        serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])
