"""A metadata server for the tasks of one run: what Google, Amazon and Microsoft tell a machine.

A program of its own, which needs only Python's standard library: an engine copies it to where tasks
reach it. `State.answer` decides; the rest is sockets. Each task is a machine, known by the address
that it asks from, or by the port that it asks at, and is told of what happens to it alone; only
Azure tells all machines of a set. Nothing here has credentials. docs/notices.md says what is served
and from which pages of the vendors it is.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import re
import secrets
import selectors
import socket
import socketserver
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Union
from urllib.parse import parse_qsl, urlsplit

PROJECT, ZONE, REGION = "emulator", "emulator-a", "us-east-1"
"""Where its machines are said to be: a project and a zone of Google's, a region of Amazon's."""
LARGEST_BODY = 64 * 2**10
"""Bytes of a request; others are refused."""
IDLE = 60.0
"""Seconds after which a connection without a request is closed."""


@dataclass(frozen=True)
class Request:
    """What a task asks."""

    task: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """With names in lower case."""
    method: str = "GET"
    body: str = ""


@dataclass(frozen=True)
class Answer:
    """What it is answered."""

    body: str = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media: str = "text/plain"

    @property
    def etag(self) -> str:
        """What tells this value from others; of Google's only."""
        return hashlib.sha256(self.body.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Told:
    """A notice that was given; times are seconds since 1970."""

    platform: str
    action: str
    task: str
    announced: float
    deadline: float

    @property
    def event(self) -> str:
        """Its id, the same if it is given again."""
        text = f"{self.platform} {self.action} {self.task} {self.announced}"
        return str(uuid.uuid5(uuid.NAMESPACE_URL, text)).upper()


NOT_FOUND = Answer("Not found\n", HTTPStatus.NOT_FOUND)
Tree = Mapping[str, Union[str, "Tree"]]


class State:
    """What is true for each machine of a run now, and what they are answered."""

    def __init__(
        self, run: str, platforms: Sequence[str], tasks: Sequence[str], secret: bytes = b""
    ) -> None:
        """`secret` signs Amazon's tokens; by default nobody knows it."""
        self.run, self.platforms, self.tasks = run, tuple(platforms), tuple(tasks)
        self._secret = secret or secrets.token_bytes(32)
        self._machine = dict.fromkeys(tasks, 1)
        self._told: list[Told] = []
        self._started: set[str] = set()
        """The ids of Azure's events that have begun."""
        self._changes = 1
        """Of Azure's document."""

    def announce(self, told: Told) -> None:
        """Tell a task; what it has been told already stays, with its time."""
        if any(one.action == told.action for one in self._of(told.task, told.platform)):
            return
        self._told.append(told)
        self._changes += told.platform == "azure"

    def withdraw(self, task: str) -> None:
        """Take back all that a task was told."""
        gone = [one for one in self._told if one.task == task]
        self._told = [one for one in self._told if one.task != task]
        self._started -= {one.event for one in gone}
        self._changes += any(one.platform == "azure" for one in gone)

    def replace(self, task: str) -> None:
        """Another machine is in a task's place: it was told nothing, and has its own id."""
        self.withdraw(task)
        if task in self._machine:
            self._machine[task] += 1

    def answer(self, request: Request, now: float) -> Answer:
        """Return the answer to a request at a time (seconds since 1970)."""
        top = request.path.split("/")[1] if request.path.startswith("/") else ""
        if request.task not in self._machine:
            return Answer("This address is no machine of the run.\n", HTTPStatus.FORBIDDEN)
        if top == "computeMetadata" and "gce" in self.platforms:
            return _google(self._google_tree(request.task), request)
        if top == "metadata" and "azure" in self.platforms:
            return self._azure(request, now)
        if "ec2" in self.platforms and (top == "latest" or re.fullmatch(r"[0-9-]{3,10}", top)):
            return self._amazon(request, now)
        if not top and "gce" in self.platforms:
            return Answer("computeMetadata/\n", headers={"Metadata-Flavor": "Google"})
        return Answer("latest\n") if not top and "ec2" in self.platforms else NOT_FOUND

    def _of(self, task: str, platform: str) -> list[Told]:
        return [one for one in self._told if (one.task, one.platform) == (task, platform)]

    def _id(self, task: str) -> str:
        text = f"{self.run} {task} {self._machine[task]}"
        return hashlib.sha256(text.encode()).hexdigest()

    # --- Google ---------------------------------------------------------------------------------

    def _google_tree(self, task: str) -> Tree:
        told = {one.action for one in self._of(task, "gce")}
        event = "NONE"
        if told & {"terminate", "maintenance"}:
            event = "TERMINATE_ON_HOST_MAINTENANCE"
        elif "freeze" in told:
            event = "MIGRATE_ON_HOST_MAINTENANCE"
        return {
            "instance": {
                "attributes": {},
                "hostname": f"{task}.c.{PROJECT}.internal",
                "id": str(int(self._id(task)[:15], 16)),
                "machine-type": f"projects/1/machineTypes/{PROJECT}",
                "maintenance-event": event,
                "name": task,
                "preempted": "TRUE" if "preempt" in told else "FALSE",
                "scheduling": {
                    "automatic-restart": "FALSE",
                    "on-host-maintenance": "TERMINATE",
                    "preemptible": "TRUE",
                },
                "zone": f"projects/1/zones/{ZONE}",
            },
            "project": {"numeric-project-id": "1", "project-id": PROJECT},
        }

    # --- Amazon ---------------------------------------------------------------------------------

    def _amazon_tree(self, task: str) -> Tree:
        told = {one.action: one for one in self._of(task, "ec2")}
        ending = [told[action] for action in ("terminate", "stop", "hibernate") if action in told]
        tree: dict[str, str | Tree] = {
            "autoscaling": {
                "target-lifecycle-state": "Terminated" if "terminate" in told else "InService"
            },
            "hostname": task,
            "instance-id": f"i-{self._id(task)[:17]}",
            "instance-life-cycle": "spot",
            "instance-type": PROJECT,
            "local-hostname": task,
            "placement": {"availability-zone": f"{REGION}a", "region": REGION},
        }
        if "rebalance" in told:
            notice = {"noticeTime": _utc(told["rebalance"].announced)}
            tree["events"] = {"recommendations": {"rebalance": json.dumps(notice)}}
        if ending:
            when = _utc(ending[0].deadline)
            spot = {"instance-action": json.dumps({"action": ending[0].action, "time": when})}
            if ending[0].action != "hibernate":
                spot["termination-time"] = when
            tree["spot"] = spot
        return tree

    def _amazon(self, request: Request, now: float) -> Answer:
        if "x-forwarded-for" in request.headers:
            return Answer(status=HTTPStatus.FORBIDDEN)
        if request.path == "/latest/api/token":
            return self._new_token(request, now)
        if request.method != "GET":
            return Answer(status=HTTPStatus.METHOD_NOT_ALLOWED)
        token = request.headers.get("x-aws-ec2-metadata-token")
        left = None if token is None else self._seconds_left(request.task, token, now)
        if left == 0:
            return Answer(status=HTTPStatus.UNAUTHORIZED)
        headers = {} if left is None else {"X-aws-ec2-metadata-token-ttl-seconds": str(left)}
        identity = {
            "accountId": "000000000000",
            "availabilityZone": f"{REGION}a",
            "instanceId": f"i-{self._id(request.task)[:17]}",
            "instanceType": PROJECT,
            "region": REGION,
        }
        dynamic = {"instance-identity": {"document": json.dumps(identity, indent=2)}}
        tree = {"dynamic": dynamic, "meta-data": self._amazon_tree(request.task)}
        found = _find(tree, request.path.split("/")[2:])
        if found is None:
            return NOT_FOUND
        return Answer(found if isinstance(found, str) else "\n".join(_entries(found)), 200, headers)

    def _new_token(self, request: Request, now: float) -> Answer:
        if request.method != "PUT":
            return Answer(status=HTTPStatus.METHOD_NOT_ALLOWED)
        wanted = request.headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
        if not re.fullmatch("[0-9]{1,5}", wanted) or not 1 <= int(wanted) <= 21600:
            return Answer(status=HTTPStatus.BAD_REQUEST)
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(int(wanted))}
        return Answer(self._token(request.task, now + int(wanted)), 200, headers)

    def _token(self, task: str, end: float) -> str:
        until = f"{end:.0f}"
        signed = hmac.new(self._secret, f"{task} {until}".encode(), "sha256").hexdigest()
        return base64.urlsafe_b64encode(f"{until}.{signed}".encode()).decode()

    def _seconds_left(self, task: str, token: str, now: float) -> int:
        """Return for how long a token of a task is valid; 0: it is not."""
        try:
            end = float(base64.urlsafe_b64decode(token.encode()).decode().partition(".")[0])
        except ValueError:
            return 0
        is_ours = hmac.compare_digest(self._token(task, end).encode(), token.encode())
        return max(0, int(end - now)) if is_ours else 0

    # --- Azure ----------------------------------------------------------------------------------

    def _azure(self, request: Request, now: float) -> Answer:
        if request.headers.get("metadata", "").lower() != "true":
            return _refused("Bad request. The header 'Metadata: true' is required")
        if "x-forwarded-for" in request.headers:
            return _refused("Bad request. X-Forwarded-For is not allowed")
        if not re.fullmatch(r"20\d\d-\d\d-\d\d", request.query.get("api-version", "")):
            return _refused("Bad request. api-version is invalid or was not specified")
        if request.path.rstrip("/") == "/metadata/scheduledevents":
            if request.method == "POST":
                return self._approve(request)
            return _as_json(self._document(now)) if request.method == "GET" else NOT_FOUND
        if request.method != "GET":
            return NOT_FOUND
        tree = {"instance": {"compute": self._azure_tree(request.task)}}
        found = _find(tree, request.path.split("/")[2:])
        if found is None:
            return NOT_FOUND
        is_text = request.query.get("format") == "text" and isinstance(found, str)
        return Answer(str(found)) if is_text else _as_json(found)

    def _azure_tree(self, task: str) -> Tree:
        return {
            "location": ZONE,
            "name": task,
            "priority": "Spot",
            "vmId": str(uuid.uuid5(uuid.NAMESPACE_URL, self._id(task))),
            "vmScaleSetName": self.run,
        }

    def _document(self, now: float) -> Mapping[str, Any]:
        told = [one for one in self._told if one.platform == "azure"]
        due = {one.event for one in told if one.deadline <= now} - self._started
        self._started |= due
        self._changes += len(due)
        return {"DocumentIncarnation": self._changes, "Events": [*map(self._event, told)]}

    def _event(self, one: Told) -> Mapping[str, Any]:
        started = one.event in self._started
        return {
            "EventId": one.event,
            "EventStatus": "Started" if started else "Scheduled",
            "EventType": one.action.capitalize(),
            "ResourceType": "VirtualMachine",
            "Resources": [one.task],
            "NotBefore": "" if started else formatdate(one.deadline, usegmt=True),
            "Description": "",
            "EventSource": "Platform",
            "DurationInSeconds": 9 if one.action == "freeze" else -1,
        }

    def _approve(self, request: Request) -> Answer:
        """Let events begin, whichever machine of the set says so."""
        try:
            asked = {str(one["EventId"]) for one in json.loads(request.body)["StartRequests"]}
        except (ValueError, TypeError, KeyError):
            return _refused("Bad request. StartRequests is missing, or has no EventId")
        known = {one.event for one in self._told if one.platform == "azure"}
        if not asked <= known:
            return _refused("Bad request. There is no such event")
        self._changes += len(asked - self._started)
        self._started |= asked
        return Answer()


def _google(tree: Tree, request: Request) -> Answer:
    """Return the answer of Google's server from all of its values (pure)."""
    if request.headers.get("metadata-flavor") != "Google":
        refusal = "Missing Metadata-Flavor:Google header.\n"
        return Answer(refusal, HTTPStatus.FORBIDDEN)
    if "x-forwarded-for" in request.headers:
        return Answer("X-Forwarded-For is not allowed.\n", HTTPStatus.FORBIDDEN)
    headers = {"Metadata-Flavor": "Google"}
    if request.method != "GET":
        return Answer("", HTTPStatus.METHOD_NOT_ALLOWED, headers)
    below = request.path.split("/")[2:]
    found = _find({"v1": tree}, below)
    if found is None:
        return Answer("Not found\n", HTTPStatus.NOT_FOUND, headers)
    if isinstance(found, str):
        if request.query.get("alt") == "json":
            return Answer(json.dumps(found), 200, headers, "application/json")
        return Answer(found, 200, headers, "application/text")
    if request.query.get("recursive", "").lower() == "true":
        return Answer(json.dumps(_camel(found)), 200, headers, "application/json")
    if below[-1:] != [""]:
        moved = {**headers, "Location": f"{request.path}/"}
        return Answer("", HTTPStatus.MOVED_PERMANENTLY, moved)
    return Answer("".join(f"{one}\n" for one in _entries(found)), 200, headers, "application/text")


def _find(tree: Tree, path: Sequence[str]) -> str | Tree | None:
    """Return what is at a path, whose last word may be empty; None: there is nothing (pure)."""
    found: str | Tree = tree
    for word in path[:-1] if path[-1:] == [""] else path:
        if isinstance(found, str) or word not in found:
            return None
        found = found[word]
    return found


def _entries(tree: Tree) -> list[str]:
    return [name if isinstance(one, str) else f"{name}/" for name, one in tree.items()]


def _camel(tree: Tree) -> Mapping[str, Any]:
    """Return Google's values as their names are in JSON: `maintenanceEvent` (pure)."""
    return {
        re.sub("-(.)", lambda found: found[1].upper(), name): (
            one if isinstance(one, str) else _camel(one)
        )
        for name, one in tree.items()
    }


def _utc(wall: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall))


def _as_json(value: object, status: int = 200) -> Answer:
    return Answer(json.dumps(value), status, media="application/json")


def _refused(reason: str) -> Answer:
    return _as_json({"error": reason}, HTTPStatus.BAD_REQUEST)


def seconds_to_wait(request: Request) -> float | None:
    """Return for how long Google's server waits for another value; None: it does not (pure).

    Raises ValueError where the request says it wrongly.
    """
    if request.query.get("wait_for_change", "").lower() != "true":
        return None
    if not request.path.startswith("/computeMetadata/"):
        return None
    seconds = float(request.query.get("timeout_sec") or 86400)
    if not 0 <= seconds <= 86400:
        raise ValueError(f"timeout_sec is {seconds}")
    return seconds


# --- Sockets --------------------------------------------------------------------------------------


class MetadataServer:
    """Answers the tasks of a run until it is closed; it may be told on any thread."""

    def __init__(self, state: State, machines: Mapping[str, str] | None = None) -> None:
        """`machines`: tasks by the address that they ask from."""
        self._state, self._machines = state, dict(machines or {})
        self._changed = threading.Condition()
        self._listeners = selectors.DefaultSelector()
        self._end, self._ended = socket.socketpair()
        self._listeners.register(self._ended, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._accept, name="metadata", daemon=True)

    def listen(self, host: str, port: int, task: str = "") -> int:
        """Answer at a port (0: a free one), which is a task's alone if one is given.

        Returns the port. Raises OSError.
        """
        listener = _Listener((host, port), _Handler)
        listener.answer, listener.task = self.answer, task
        self._listeners.register(listener, selectors.EVENT_READ)
        if not self._thread.ident:
            self._thread.start()
        return int(listener.server_address[1])

    def close(self) -> None:
        """Listen no more. A second call does nothing."""
        if self._end.fileno() < 0:
            return
        self._end.close()
        if self._thread.ident:
            self._thread.join()
        for key in list(self._listeners.get_map().values()):
            if isinstance(key.fileobj, _Listener):
                key.fileobj.server_close()
        self._listeners.close()
        self._ended.close()

    def _accept(self) -> None:
        """Accept connections, each of which has a thread, until the server is closed."""
        while True:
            for key, _ in self._listeners.select():
                if not isinstance(key.fileobj, _Listener):
                    return
                with contextlib.suppress(OSError):  # it has gone already
                    key.fileobj.process_request(*key.fileobj.get_request())

    def tell(self, change: Callable[[State], None]) -> None:
        """Change what is true, and answer those that wait for it."""
        with self._changed:
            change(self._state)
            self._changed.notify_all()

    def answer(self, request: Request, source: str) -> Answer:
        """Return the answer for a machine, after it has changed if it is asked to wait for that."""
        if not request.task:
            request = Request(**{**vars(request), "task": self._machines.get(source, "")})
        try:
            seconds = seconds_to_wait(request)
        except ValueError:
            return Answer("Invalid timeout_sec.\n", HTTPStatus.BAD_REQUEST)
        with self._changed:
            found = self._state.answer(request, time.time())
            if seconds is None or found.status != HTTPStatus.OK:
                return found
            seen = request.query.get("last_etag") or found.etag
            end = time.monotonic() + seconds
            while found.etag == seen and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
                found = self._state.answer(request, time.time())
            return found


class _Listener(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    answer: Callable[[Request, str], Answer]
    task: str

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client has gone."""


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    protocol_version = "HTTP/1.1"
    timeout = IDLE

    def _respond(self) -> None:
        parts = urlsplit(self.path)
        size = self.headers.get("Content-Length") or "0"
        if not re.fullmatch("[0-9]{1,9}", size) or int(size) > LARGEST_BODY:
            self.close_connection = True
            self._send(Answer(status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE))
            return
        body = self.rfile.read(int(size)).decode("utf-8", "replace")
        headers = {name.lower(): value for name, value in self.headers.items()}
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        asked = Request(self.server.task, parts.path, query, headers, self.command, body)
        self._send(self.server.answer(asked, self.client_address[0]))

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _respond

    def _send(self, answer: Answer) -> None:
        data = answer.body.encode()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if "Metadata-Flavor" in answer.headers:
            self.send_header("ETag", answer.etag)
        self.send_header("Content-Type", answer.media)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


# --- As a program ---------------------------------------------------------------------------------


def serve(asked: Mapping[str, Any]) -> None:
    """Answer at port 80 and at the ports of tasks, and be told at a socket, until it is killed.

    The socket has a name that only processes on the same network namespace can reach.
    """
    state = State(asked["run"], asked["platforms"], asked["tasks"])
    server = MetadataServer(state, asked["machines"])
    server.listen("0.0.0.0", 80)
    for port, task in asked["ports"].items():
        server.listen("0.0.0.0", int(port), task)
    with socket.socket(socket.AF_UNIX) as control:
        control.bind(CONTROL)
        control.listen()
        while True:
            with control.accept()[0] as caller, caller.makefile("rw") as lines:
                try:
                    change = change_of(json.loads(lines.readline()))
                except (ValueError, TypeError, KeyError) as error:
                    lines.write(f"refused: {error!r}\n")
                else:
                    server.tell(change)
                    lines.write("told\n")


CONTROL = "\0emulator-metadata"
PATIENCE = 300.0
"""Seconds for a server to begin, on the busiest machine."""


def change_of(order: Mapping[str, Any]) -> Callable[[State], None]:
    """Return what an order changes. Raises ValueError, TypeError, KeyError where it is none."""
    if order["do"] == "announce":
        told = Told(**order["notice"])
        return lambda state: state.announce(told)
    if order["do"] == "begin":
        return lambda state: None
    task = str(order["task"])
    if order["do"] == "withdraw":
        return lambda state: state.withdraw(task)
    if order["do"] == "replace":
        return lambda state: state.replace(task)
    raise ValueError(order["do"])


def tell(order: Mapping[str, Any]) -> str:
    """Give an order to the server of this network namespace; return what it says.

    It may just have been started, so that it is waited for. Raises OSError.
    """
    with socket.socket(socket.AF_UNIX) as control:
        for attempts_left in range(round(PATIENCE / 0.02), -1, -1):
            try:
                control.connect(CONTROL)
                break
            except ConnectionRefusedError:
                if not attempts_left:
                    raise
                time.sleep(0.02)
        with control.makefile("rw") as lines:
            lines.write(json.dumps(order) + "\n")
            lines.flush()
            return lines.readline()


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    if "tell" in asked:
        sys.exit(0 if (said := tell(asked["tell"])) == "told\n" else said)
    serve(asked["serve"])
