"""Whose process is at the other end of a connection: Linux tells it for those of this machine."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

_TABLE = Path("/proc/net/tcp")
"""All IPv4 connections, one a line: number, this end, the other end, state, ..., the user."""


def is_owner(client: tuple[str, int] | None, server: tuple[str, int | None] | None) -> bool | None:
    """Return whether a process of this user has the `client` end; None: this system does not tell.

    It is no one's once it was closed: a request without a reader is refused, since anybody may have
    sent it. Connections that ssh forwards belong to the user who has logged in.
    """
    try:
        with _TABLE.open(encoding="ascii") as lines:
            if client is None or server is None or server[1] is None:
                return False
            return owner(lines, client, (server[0], server[1])) == os.getuid()
    except (OSError, ValueError):
        return None


def owner(lines: Iterable[str], here: tuple[str, int], other: tuple[str, int]) -> int | None:
    """Return the user of the end `here` of a connection, from the kernel's table; None: unknown."""
    try:
        ends = f" {_end(*here)} {_end(*other)} "
    except OSError:  # no IPv4 address
        return None
    for line in lines:
        if ends in line:
            fields = line.split()
            return int(fields[7]) if fields[9] != "0" else None  # the inode: none once it is closed
    return None


def _end(address: str, port: int) -> str:
    """Return an address as the kernel writes it: the bytes as a number of this machine."""
    (number,) = struct.unpack("=I", socket.inet_aton(address))
    return f"{number:08X}:{port:04X}"
