"""Fill a file system to its last byte, and keep it full until this program ends.

A program of its own: it runs where the file system is mounted, from a copy of this one file, and
needs only the standard library of Python 3.8 or later, and Linux. Its one argument is a request:

    {"folder": "/shared"}

It prints one line, and then does nothing:

    {"full": 4096}

The room is taken by a file that has no name: no other program sees it, or can remove it, and the
kernel removes it with this program, however that ends. What others remove meanwhile is room for
them again, as on any full disk.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

PIECE = 2**20
"""Bytes that are written at once, at most."""


def fill(file: int) -> int:
    """Write to a file until its file system has no room for another byte; return how many.

    No piece is larger than the room that is left: what a too large one takes is given back when it
    fails, and whoever writes next finds room. Raises OSError, other than for the end of the room.
    """
    written = 0
    while True:
        found = os.fstatvfs(file)
        piece = min(max(found.f_bavail * found.f_frsize, 1), PIECE)
        try:
            written += os.write(file, bytes(piece))
        except OSError as error:
            # Another program may have been quicker. That even one byte has no room is the proof.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            if piece == 1:
                return written


def main(arguments: Sequence[str]) -> None:
    """Fill a file system until this program is ended."""
    request: dict[str, Any] = json.loads(arguments[0])
    try:
        file = os.open(request["folder"], os.O_TMPFILE | os.O_RDWR, 0o600)
        answer: dict[str, Any] = {"full": fill(file)}
    except OSError as error:
        answer = {"error": f"it can't be filled ({error.strerror})"}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    while "full" in answer:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
