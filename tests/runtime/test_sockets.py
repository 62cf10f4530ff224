"""Sockets that libraries forget: real ones, of the libraries that do."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable
from pathlib import Path

import docker
import httpx
import pytest

from emulator.runtime.sockets import close_unconnected
from tests.conftest import python


def over_httpx(path: Path) -> None:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
        client.get("http://run/")


def over_docker(path: Path) -> None:
    docker.APIClient(f"unix://{path}", version="auto")


def open_ones() -> set[socket.socket]:
    return {s for s in gc.get_objects() if isinstance(s, socket.socket) and s.fileno() >= 0}


@pytest.mark.parametrize("ask", [over_httpx, over_docker])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_socket_without_a_listener_is_closed(
    tmp_path: Path, ask: Callable[[Path], None], is_there: bool
) -> None:
    path = tmp_path / "closed.sock"
    if is_there:
        with socket.socket(socket.AF_UNIX) as was:
            was.bind(str(path))
    before = open_ones()
    with pytest.raises(Exception, match=r"refused|No such file") as raised:
        ask(path)
    assert len(open_ones() - before) > 0, "the library has learned to do it itself"
    close_unconnected(raised.value)
    assert open_ones() - before == set()


def test_one_that_could_not_be_made_changes_no_error(tmp_path: Path) -> None:
    """Without descriptors the constructor fails, and the object that it leaves can't be closed."""
    code = """
import resource, socket, sys
from emulator.runtime.sockets import close_unconnected
class Forgotten(socket.socket):
    def __init__(self):
        kept = self
        super().__init__(socket.AF_UNIX)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
try:
    Forgotten()
except OSError as error:
    close_unconnected(error)
    print(error.strerror)
"""
    assert python(code).ended().stdout == "Too many open files\n"


def test_one_that_is_connected_is_left_alone() -> None:
    def fail() -> None:
        mine = one
        raise ValueError(mine)

    one, other = socket.socketpair()
    with one, other:
        with pytest.raises(ValueError, match="socket") as raised:
            fail()
        close_unconnected(raised.value)
        one.sendall(b"x")
        assert other.recv(1) == b"x"
