"""A command inside a running task, with stdin, stdout, stderr and terminal of this process (POSIX).

Engines that reach a task over a connection give it as a `Channel`; `relay` passes bytes on both
ways until the command has ended.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import termios
import threading
import tty
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from emulator.errors import UsageError
from emulator.runtime import signals
from emulator.runtime.signals import Interruption

PIECE = 2**15


class Stdio(NamedTuple):
    """The descriptors that a command gets."""

    stdin: int = 0
    stdout: int = 1
    stderr: int = 2

    @property
    def is_terminal(self) -> bool:
        """Whether the command gets a terminal: only where both ends of it are one here."""
        return os.isatty(self.stdin) and os.isatty(self.stdout)


class Channel(Protocol):
    """The connection to a command. Any thread may call its methods."""

    def send(self, data: bytes) -> None:
        """Pass on what was read from stdin. Raises OSError if the connection has ended."""

    def finish(self) -> None:
        """Pass on that stdin has ended. Raises OSError."""

    def resize(self, rows: int, columns: int) -> None:
        """Pass on the size of the terminal. Raises OSError."""

    def receive(self) -> Iterator[tuple[int, bytes]]:
        """Yield what the command prints, with 1 for stdout and 2 for stderr, until it has ended."""

    def cut(self) -> None:
        """Have `receive` end now."""


def not_running(task: str, run_id: str) -> UsageError:
    """Return the error for a task in which nothing can be run."""
    return UsageError(f"{task} of {run_id} is not running.", f"`emulate ps {run_id}` shows tasks.")


def relay(channel: Channel, stdio: Stdio, *, terminal: bool) -> None:
    """Pass on both ways until the command has ended.

    Raises OSError if the connection is lost, Interruption after a signal.
    """
    received: list[signal.Signals] = []
    with signals.deferred() as deferral, contextlib.ExitStack() as cleanup:

        def interrupt(number: signal.Signals) -> None:
            received.append(number)
            channel.cut()

        deferral.hand_to(interrupt)
        if terminal:
            cleanup.enter_context(_raw(stdio.stdin))
            cleanup.enter_context(_resizing(channel, stdio.stdin))
        cleanup.enter_context(_sending(channel, stdio.stdin))
        try:
            for number, data in channel.receive():
                _write(stdio[number], data)
        except OSError:
            if not received:
                raise
    if received:
        raise Interruption(received[0])


@contextlib.contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """Have the terminal pass on every key, Ctrl-C too, and leave what is shown to the command."""
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSANOW)  # nothing that was typed before is lost
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # it was closed
            termios.tcsetattr(descriptor, termios.TCSANOW, before)


@contextlib.contextmanager
def _resizing(channel: Channel, descriptor: int) -> Iterator[None]:
    """Pass on the terminal's size, now and whenever it changes."""

    def resize(*_: object) -> None:
        with contextlib.suppress(OSError):  # the command has ended
            size = os.get_terminal_size(descriptor)
            channel.resize(size.lines, size.columns)

    resize()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGWINCH, resize)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


@contextlib.contextmanager
def _sending(channel: Channel, descriptor: int) -> Iterator[None]:
    """Pass on stdin on a thread of its own, until the block ends."""
    waking, wake = os.pipe()

    def send() -> None:
        with contextlib.suppress(OSError):  # the command has ended
            while descriptor in select.select([descriptor, waking], [], [])[0]:
                if not (data := os.read(descriptor, PIECE)):
                    channel.finish()
                    return
                channel.send(data)

    thread = threading.Thread(target=send, name="stdin", daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(wake)
        thread.join(1)  # it may be sending to a command that reads nothing any more
        os.close(waking)


def _write(descriptor: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError as error:
        if (
            error.errno == errno.EIO
        ):  # the terminal was closed, which its signal says a moment later
            raise Interruption(signal.SIGHUP) from None
        raise
