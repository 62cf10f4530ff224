"""What add-ons do in other clusters, in one small process: names, and the API for Pods.

* A resolver on the node's address answers the names of Services, and nothing else: a headless one
  has the addresses of its Pods, others have their cluster IP. It watches both kinds.
* A forwarder listens on the cluster IP of the service `kubernetes` and passes on to the API
  server. No other cluster IP leads anywhere: that would need kube-proxy, and iptables.

usage: python3 -m scripts.kubernetes.node_services PKI_FOLDER NODE_IP
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.kubernetes.api import Api, Refused
from scripts.kubernetes.layout import API_PORT, API_SERVICE_IP, CLUSTER_DOMAIN

DNS_PORT = 53
TTL = 1
"""Seconds: a task that comes back has another address."""
MOST_ADDRESSES = 28
"""What fits in an answer of 512 bytes, the limit without extensions."""
A, IN = 1, 1
AUTHORITATIVE, NO_SUCH_NAME = 0x8580, 3
WATCH = 300.0
"""Seconds that a watch lasts."""
AGAIN = 0.5
"""Seconds between two tries while the API server is away."""
CHUNK = 1 << 16

Names = Mapping[str, Sequence[str]]


# --- Names (pure) --------------------------------------------------------------------------------


def names_of_endpoints(endpoints: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names that a headless Service gives, each with its IPv4 addresses."""
    base = _service_name(endpoints)
    names: dict[str, list[str]] = {base: []}
    for subset in endpoints.get("subsets") or []:
        # A Service that publishes addresses which are not ready has all of them in `addresses`.
        for address in subset.get("addresses") or []:
            names[base].append(address["ip"])
            if hostname := address.get("hostname"):
                names.setdefault(f"{hostname}.{base}", []).append(address["ip"])
    return names


def names_of_service(service: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the name of a Service with a cluster IP; none of a headless one."""
    address = service.get("spec", {}).get("clusterIP") or "None"
    return {} if address == "None" else {_service_name(service): [address]}


def _service_name(item: Mapping[str, Any]) -> str:
    meta = item["metadata"]
    return f"{meta['name']}.{meta['namespace']}.svc.{CLUSTER_DOMAIN}"


def question_of(query: bytes) -> tuple[str, int, int]:
    """Return the name that a DNS query asks for, the type, and where the question ends.

    Raises IndexError or UnicodeError or struct.error where it is no query.
    """
    labels, place = [], 12
    while length := query[place]:
        labels.append(query[place + 1 : place + 1 + length].decode("ascii").lower())
        place += 1 + length
    (kind,) = struct.unpack(">H", query[place + 1 : place + 3])
    return ".".join(labels), kind, place + 5


def answer_to(query: bytes, names: Names) -> bytes:
    """Return the answer to a DNS query (RFC 1035): addresses, or that there is no such name."""
    name, kind, end = question_of(query)
    addresses = names.get(name)
    found = list(addresses or [])[:MOST_ADDRESSES] if kind == A else []
    flags = AUTHORITATIVE | (0 if addresses is not None else NO_SUCH_NAME)
    header = query[:2] + struct.pack(">HHHHH", flags, 1, len(found), 0, 0)
    records = [
        b"\xc0\x0c" + struct.pack(">HHIH", A, IN, TTL, 4) + socket.inet_aton(address)
        for address in found
    ]
    return header + query[12:end] + b"".join(records)


# --- Effects -------------------------------------------------------------------------------------


class Book:
    """The names that there are now, of all watched objects."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], dict[str, list[str]]] = {}
        self.names: Names = {}

    def replace(self, kind: str, items: Iterable[tuple[str, dict[str, list[str]]]]) -> None:
        """Take a complete list of one kind."""
        others = {key: value for key, value in self._of.items() if key[0] != kind}
        self._of = others | {(kind, uid): value for uid, value in items}
        self._write()

    def put(self, kind: str, uid: str, names: dict[str, list[str]]) -> None:
        """Take a change; no names where the object is gone."""
        self._of = self._of | {(kind, uid): names}
        if not names:
            del self._of[kind, uid]
        self._write()

    def _write(self) -> None:
        # One assignment: the resolver reads it meanwhile. A headless Service has its name from
        # Endpoints, others have it from the Service, which comes last here.
        merged: dict[str, Sequence[str]] = {}
        for _, names in sorted(self._of.items()):
            merged |= names
        self.names = merged


KINDS = {"endpoints": names_of_endpoints, "services": names_of_service}
"""Sorted as it matters to `Book`."""


def follow(api: Api, kind: str, book: Book, lock: threading.Lock) -> None:
    """Keep the names of one kind of object up to date, for ever."""
    names_of = KINDS[kind]
    while True:
        try:
            listed = api.get(f"/api/v1/{kind}")
            found = [(item["metadata"]["uid"], names_of(item)) for item in listed["items"]]
            with lock:
                book.replace(kind, found)
            version = listed["metadata"]["resourceVersion"]
            for change in api.watch(f"/api/v1/{kind}", version, WATCH):
                if change["type"] == "ERROR":
                    break
                item = change["object"]
                names = {} if change["type"] == "DELETED" else names_of(item)
                with lock:
                    book.put(kind, item["metadata"]["uid"], names)
        except (OSError, Refused, ValueError) as error:
            print(f"{kind}: {error}", flush=True)
            time.sleep(AGAIN)


def serve_names(address: str, book: Book) -> None:
    """Answer queries, for ever."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, DNS_PORT))
        while True:
            query, sender = server.recvfrom(4096)
            try:
                answer = answer_to(query, book.names)
            except (IndexError, UnicodeError, struct.error):
                continue
            try:
                server.sendto(answer, sender)
            except OSError as error:  # the Pod that asked is gone
                print(f"{sender}: {error}", flush=True)


def forward(listen: tuple[str, int], target: tuple[str, int]) -> None:
    """Pass connections on, for ever."""
    with socket.create_server(listen) as server:
        while True:
            client, _ = server.accept()
            threading.Thread(target=_connect, args=(client, target), daemon=True).start()


def _connect(client: socket.socket, target: tuple[str, int]) -> None:
    with client:
        try:
            api = socket.create_connection(target)
        except OSError:
            return
        with api:
            back = threading.Thread(target=_copy, args=(api, client), daemon=True)
            back.start()
            _copy(client, api)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(CHUNK):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def main(pki: Path, node_ip: str) -> None:
    """Serve both until the process is ended."""
    book, lock = Book(), threading.Lock()
    work: list[threading.Thread] = [
        threading.Thread(target=follow, args=(Api(pki, "node-services"), kind, book, lock))
        for kind in KINDS
    ]
    api = ("127.0.0.1", API_PORT)
    work.append(threading.Thread(target=forward, args=((API_SERVICE_IP, 443), api)))
    for thread in work:
        thread.daemon = True
        thread.start()
    serve_names(node_ip, book)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
