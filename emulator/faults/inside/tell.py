"""Tell the hook in the processes of a task what to do, and print what they have answered.

A program of its own: it runs where the processes of a task are, from a copy of this one file, and
needs only the standard library of Python 3.8 or later. Its one argument is a request, whose `order`
goes to each process of the task in which `emulate_inside.py` listens; `once: true`: only to those
that do the work, see `workers`. It prints the answers, or why there are none:

    {"answers": [{"pid": 7, "did": "raised"}]}
"""

from __future__ import annotations

import binascii
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

PREFIX = "emulate-inside"
TIMEOUT = 60
"""Seconds for the answer of a process, which waits 30 s for its main thread."""


def listeners(table: str, run: str, task: str) -> dict[int, tuple[str, bool]]:
    """Return the processes of a task that listen (pure): their sockets, and whether they forked.

    `table`: the text of /proc/net/unix, where `@` begins a name that is in no folder.
    """
    both = binascii.crc32(f"{run}/{task}".encode())
    wanted, found = [f"@{PREFIX}", f"{both:08x}", task[-40:]], {}
    for line in table.splitlines():
        name = line.split()[-1] if line.strip() else ""
        parts = name.split("/")
        if parts[:3] == wanted and len(parts) == 5 and parts[3].isdigit():
            found[int(parts[3])] = (name[1:], parts[4] == "fork")
    return found


def workers(found: Mapping[int, bool], parents: Mapping[int, int]) -> list[int]:
    """Return the processes that do the work (pure): of programs, those that have started no other.

    `found`: processes, and whether each is a fork of a program and no program of its own.
    """
    programs = [one for one, is_fork in found.items() if not is_fork]
    above: set[int] = set()
    for one in programs:
        parent = parents.get(one, 0)
        while parent > 1 and parent not in above:
            above.add(parent)
            parent = parents.get(parent, 0)
    return [one for one in programs if one not in above] or sorted(found)[:1]


def parents_of(processes: Sequence[int]) -> dict[int, int]:
    """Return the parents of processes, and theirs, as far as they are seen here."""
    found: dict[int, int] = {}
    waiting = list(processes)
    while waiting:
        process = waiting.pop()
        try:
            with open(f"/proc/{process}/stat", "rb") as file:
                found[process] = int(file.read().rpartition(b") ")[2].split()[1])
        except (OSError, ValueError):
            continue
        if found[process] not in found:
            waiting.append(found[process])
    return found


_connections: list[socket.socket] = []
"""Open until this program ends: a process that has raised an exception goes on then."""


def ask(name: str, order: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of a process. Raises OSError, ValueError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    _connections.append(connection)
    connection.settimeout(TIMEOUT)
    connection.connect(f"\0{name}")
    connection.sendall(json.dumps(order).encode() + b"\n")
    with connection.makefile("rb") as answer:
        return dict(json.loads(answer.readline()))


def answers(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the answers of the processes. Raises OSError."""
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
        table = file.read()
    run, task = os.environ.get("EMULATOR_RUN", ""), os.environ.get("EMULATOR_TASK", "")
    found = listeners(table, run, task)
    chosen = list(found)
    if request.get("once"):
        forks = {one: is_fork for one, (_, is_fork) in found.items()}
        chosen = workers(forks, parents_of(chosen))
    for process in chosen:
        try:
            yield ask(found[process][0], request["order"])
        except ConnectionError:
            continue  # it has just ended
        except (OSError, ValueError) as error:
            yield {"pid": process, "error": f"it does not answer ({error})"}


def main(arguments: Sequence[str]) -> None:
    """Answer one request."""
    try:
        said: dict[str, Any] = {"answers": list(answers(json.loads(arguments[0])))}
    except OSError as error:
        said = {"error": f"who listens can't be seen here ({error.strerror})"}
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
