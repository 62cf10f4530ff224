"""A body without an end: the same bytes, in whatever pieces they arrive."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from emulator.engines.docker.logs import LogFollower, _StartLog
from emulator.engines.kit import byte_stream
from emulator.engines.kit.byte_stream import ByteStream, reader_of, socket_of
from tests.engines.certificates import certificate
from tests.engines.docker.test_logs import frame
from tests.engines.test_lines import cut


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


class Answer:
    """An answer as urllib3 has it, whose body comes from a socket, or from nowhere."""

    def __init__(self, source: object, coding: str = "", *body: bytes) -> None:
        self._fp = SimpleNamespace(fp=source)
        self.headers = {"Transfer-Encoding": coding} if coding else {}
        self.body, self.asked, self.closed = body, list[object](), 0

    def stream(self, amount: int | None, *, decode_content: bool) -> Iterator[bytes]:
        self.asked += [amount, decode_content]
        yield from self.body

    def close(self) -> None:
        self.closed += 1


@given(st.lists(st.binary(min_size=1)), st.lists(st.integers(min_value=0)))
def test_chunks_hold_the_same_bytes_however_they_arrive(
    pieces: list[bytes], places: list[int]
) -> None:
    data, received = b"".join(map(chunk, pieces)) + b"0\r\n\r\n", b""
    client, server = socket.socketpair()
    with client, server:
        stream = ByteStream(Answer(client.makefile("rb"), "chunked"))
        for part in cut(data, places):
            server.sendall(part)
            received += stream.receive()[0]
    assert received == b"".join(pieces)
    assert stream.is_complete


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The client's and the server's end of a connection."""
    client, server = socket.socketpair()
    with client, server:
        yield client, server


def test_bytes_are_those_that_came_with_the_headers_and_then_those_that_have_arrived(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_stream, "AT_ONCE", 8)
    monkeypatch.setattr(byte_stream, "PIECE", 4)
    client, server = ends
    stream = ByteStream(Answer(client.makefile("rb")))
    assert stream.fileno() == client.fileno()
    assert stream.receive() == (b"", 0, False)  # nothing has come, and it does not block
    for sent, pieces in ((20, [8, 8, 4]), (4, [4]), (7, [7]), (9, [8, 1])):
        server.sendall(b"x" * sent)
        assert [stream.receive() for _ in pieces] == [(b"x" * n, n, False) for n in pieces]
    server.sendall(b"end")
    server.close()
    assert stream.receive() == (b"end", 3, False)
    assert stream.receive() == (b"", 0, True)
    assert not stream.is_complete


def test_the_chunks_of_an_answer_end_it(ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = ends
    early = chunk(b"early")
    server.sendall(early)
    closed: list[str] = []
    reader = client.makefile("rb")
    answer = Answer(reader, "chunked")

    def close() -> None:
        closed.append("owner")
        reader.close()

    stream = ByteStream(answer, close)
    server.sendall(chunk(b"late")[:-1])
    assert stream.receive() == (b"early", len(early) + len(chunk(b"late")) - 1, False)
    server.sendall(b"\n0\r\n")
    assert (stream.receive(), stream.is_complete) == ((b"late", 4, False), False)
    server.sendall(b"\r\n")
    assert (stream.receive(), stream.is_complete) == ((b"", 2, True), True)
    stream.close()
    assert (closed, answer.closed, client.fileno()) == (["owner"], 0, -1)


def test_what_had_arrived_when_a_log_was_given_up_is_not_lost(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    client, server = ends
    nothing: Any = None
    log = _StartLog(LogFollower(nothing, nothing), "worker-0", "container")
    log._stream = ByteStream(Answer(client.makefile("rb")))
    server.sendall(frame(1, b"2026-01-02T03:04:05.000000001Z last words\n"))
    log.give_up()
    assert [line.text for line in log.read().lines] == ["last words"]


def test_an_answer_without_a_socket_is_passed_on_and_a_cut_ends_it(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    answer = Answer(None, "chunked", b"one ", b"two")
    stream = ByteStream(answer)
    assert not os.get_blocking(stream.fileno())
    received, has_ended = b"", False
    while not has_ended:
        assert select.select([stream], [], [], 60)[0]
        data, size, has_ended = stream.receive()
        received += data
        assert size == len(data)
    assert (received, answer.asked) == (b"one two", [None, True])
    assert not stream.is_complete  # it is not said by this connection
    stream.close()
    assert answer.closed == 1
    stream.cut()  # no error: it is closed
    client, server = ends
    open_one = ByteStream(Answer(client.makefile("rb")))
    open_one.cut()
    assert open_one.receive() == (b"", 0, True)
    assert server.recv(1) == b""


LINES = 200
Server = tuple[str, Path, threading.Event]


class Plain:
    """The server's side of a connection; what is written arrives together."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def read(self) -> None:
        self._connection.recv(65536)

    def write(self, pieces: list[bytes]) -> None:
        self._connection.sendall(b"".join(pieces))


class Tls:
    """The same over TLS: each piece is a record of its own."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        self._connection = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._do(self._tls.do_handshake)

    def read(self) -> None:
        self._do(self._tls.read)

    def _do(self, what: Callable[[], object]) -> None:
        while True:
            try:
                what()
                return
            except ssl.SSLWantReadError:
                self._connection.sendall(self._outgoing.read())
                self._incoming.write(self._connection.recv(65536))

    def write(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self._tls.write(piece)
        self._connection.sendall(self._outgoing.read())


@pytest.fixture(params=["http", pytest.param("https", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server that answers one request with lines, each in a chunk, and over TLS a record."""
    context, bundle = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), Path()
    if request.param == "https":
        bundle, key = certificate(tmp_path, "127.0.0.1")
        context.load_cert_chain(bundle, key)
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(60)
    sent = threading.Event()

    def answer() -> None:
        connection, _ = listening.accept()
        connection.settimeout(60)
        with connection, contextlib.suppress(OSError):  # it was cut
            side = Plain(connection) if request.param == "http" else Tls(connection, context)
            side.read()
            side.write([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"])
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            side.write([chunk(b"%d\n" % number) for number in range(LINES)])
            sent.set()
            connection.recv(65536)  # until the client closes

    thread = threading.Thread(target=answer)
    thread.start()
    yield f"{request.param}://127.0.0.1:{listening.getsockname()[1]}", bundle, sent
    thread.join()
    listening.close()


@contextlib.contextmanager
def answer(server: Server) -> Iterator[urllib3.BaseHTTPResponse]:
    address, bundle, _ = server
    with urllib3.PoolManager() as pool:
        if address.startswith("https"):
            pool.connection_pool_kw["ca_certs"] = str(bundle)
        with contextlib.closing(pool.request("GET", address, preload_content=False)) as response:
            yield response


@contextlib.contextmanager
def streaming(server: Server) -> Iterator[ByteStream]:
    with answer(server) as response, contextlib.closing(ByteStream(response)) as stream:
        yield stream


def test_the_installed_urllib3_has_its_socket_where_it_is_looked_for(server: Server) -> None:
    with answer(server) as response:
        own = socket_of(response)
        assert type(own) is (ssl.SSLSocket if server[0].startswith("https") else socket.socket)
        assert reader_of(response).peek().startswith(b"2\r\n0\n\r\n")
        response.close()
        assert socket_of(response) is None


def test_short_pieces_do_not_come_one_by_one(server: Server) -> None:
    """A server that flushes each line sends a record of TLS for each."""
    with streaming(server) as stream:
        assert server[2].wait(60)
        data, _, has_ended = stream.receive()
        assert not has_ended
        assert not stream.is_complete
    assert data == b"".join(b"%d\n" % number for number in range(LINES))


def test_a_stream_that_was_cut_has_ended_and_is_not_complete(server: Server) -> None:
    with streaming(server) as stream:
        stream.cut()
        has_ended = False
        while not has_ended:
            select.select([stream], [], [], 60)
            try:
                _, _, has_ended = stream.receive()
            except ConnectionResetError:  # the server was sending
                has_ended = True
        assert not stream.is_complete
