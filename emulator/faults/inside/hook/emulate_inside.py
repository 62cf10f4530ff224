"""What faults do inside a Python program that has asked for it: `EMULATE_INSIDE=1`.

Python imports it at its start, by `sitecustomize.py`. A thread waits for orders of the emulator at
a socket of Linux that is in no folder; while there is none it costs nothing. A program may call

    import emulate_inside

    loss = emulate_inside.loss(loss)      # NaN while the fault `nan_loss` lasts
    batch = emulate_inside.batch(batch)   # late while the fault `slow_input` lasts

It needs only the standard library of Python 3.8 or later.
"""

from __future__ import annotations

import binascii
import contextlib
import ctypes
import json
import os
import socket
import struct
import threading
import time
from typing import Any, TypeVar

PREFIX = "emulate-inside"
PATIENCE = 30.0
"""Seconds for the main thread to raise an exception: it does so when it runs Python code next."""
_Value = TypeVar("_Value")
_state: dict[str, Any] = {"nan": False, "slow": 0.0}
_used: set[str] = set()
_raised = threading.Event()
_asking: socket.socket | None = None
"""Who has asked for an exception, and is told once it is raised."""
_listening: socket.socket | None = None


class EmulatedFault(RuntimeError):
    """Raised in the main thread by the fault `exception`."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(arguments or ("raised by the fault `exception` of the emulator",)))
        asking = None if _raised.is_set() else _asking
        _raised.set()
        if asking is not None:
            # Before the program can end of it: who asks ends once that has been reported.
            with contextlib.suppress(OSError):
                asking.settimeout(10)
                _answer(asking, {"did": "raised"})
                asking.recv(1)


def loss(value: Any) -> Any:  # noqa: ANN401  a number or tensor of any library
    """Return a loss, or NaN in its place while the fault `nan_loss` lasts.

    A number, or what can be multiplied by one: an array or tensor of any library.
    """
    _used.add("loss")
    if _state["nan"]:
        return value * float("nan")
    return value


def batch(value: _Value) -> _Value:
    """Return a batch of the input, later while the fault `slow_input` lasts."""
    _used.add("batch")
    if _state["slow"]:
        time.sleep(_state["slow"])
    return value


def _answer(connection: socket.socket, answer: dict[str, Any]) -> None:
    connection.sendall(json.dumps({"pid": os.getpid(), **answer}).encode() + b"\n")


def obey(order: dict[str, Any]) -> dict[str, Any]:
    """Enter a state, and return which functions the program has called."""
    for key in _state.keys() & order.keys():
        _state[key] = order[key]
    return {"did": "set", "used": sorted(_used)}


def _raise(asking: socket.socket) -> None:
    """Have the main thread raise an exception, which answers; or take it back, and say why."""
    global _asking
    _asking = asking
    thread = ctypes.c_ulong(threading.main_thread().ident or 0)
    set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
    _raised.clear()
    if not set_exception(thread, ctypes.py_object(EmulatedFault)):
        return _answer(asking, {"error": "its main thread has ended"})
    if not _raised.wait(PATIENCE):
        set_exception(thread, None)
        _raised.set()
        why = f"its main thread ran no Python code for {PATIENCE:.0f} s"
        return _answer(asking, {"error": why})
    asking.recv(1)  # the main thread has answered
    return None


def _serve(listening: socket.socket) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return  # of a process that was forked, whose parent has it
        with contextlib.suppress(OSError, ValueError), connection:
            who = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            if struct.unpack("3i", who)[1] not in (0, os.getuid()):
                continue
            with connection.makefile("rb") as asked:
                order = json.loads(asked.readline(10_000))
            if "raise" in order:
                _raise(connection)
            else:
                _answer(connection, obey(order))


def _is_helper() -> bool:
    """Say whether this process was started by Python's `multiprocessing`, for another one."""
    with contextlib.suppress(OSError), open("/proc/self/cmdline", "rb") as file:
        return any(b"multiprocessing" in word for word in file.read().split(b"\0")[1:8])
    return False


def socket_name(run: str, task: str, process: object, kind: str) -> str:
    """Return the name of a socket, which may have 107 bytes (pure)."""
    both = binascii.crc32(f"{run}/{task}".encode())
    return f"{PREFIX}/{both:08x}/{task[-40:]}/{process}/{kind}"


def listen(kind: str = "") -> None:
    """Wait for orders on another thread."""
    global _listening
    if _listening is not None:
        _listening.close()
        _listening = None
    run, task = os.environ.get("EMULATOR_RUN", ""), os.environ.get("EMULATOR_TASK", "")
    kind = kind or ("fork" if _is_helper() else "program")
    try:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind("\0" + socket_name(run, task, os.getpid(), kind))
        listening.listen()
    except OSError:
        return  # not Linux: nobody can tell it anything
    _listening = listening
    name = "emulate-inside"
    threading.Thread(target=_serve, args=(listening,), name=name, daemon=True).start()


def start() -> None:
    """Wait for orders, in this process and in those that it forks."""
    if os.environ.get("EMULATE_INSIDE") == "1":
        listen()
        os.register_at_fork(after_in_child=lambda: listen("fork"))
