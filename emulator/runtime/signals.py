"""Ctrl-C, SIGTERM and SIGHUP: a command handles them from its start to its end.

SIGHUP says that the terminal is gone. One that was ignored at the start stays ignored: this is what
`nohup` does.

A command calls `own` first. A signal raises no exception at the point where it arrives: Python's C
handler writes its number into a pipe (`signal.set_wakeup_fd`), and a thread reads it from there,
independently of the main thread:

    initially             prints one line and exits with 130: there is nothing to clean up yet
    in a `deferred()` block   records it; `check` raises Interruption at a safe point
    after `hand_to`       passes it on, e.g. to the supervisor's inbox
    after `settle`        prints that it no longer has an effect, until the process ends

In another program (pytest, a notebook) the signals stay with that program, except between `hand_to`
and the end of its block.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections import deque

TYPE_CHECKING = False  # `typing` takes as long to load as all of the rest
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    Receiver = Callable[[signal.Signals], object]

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WRITE_TIMEOUT = 1.0
"""Seconds to wait until stderr accepts the last line of a process that exits."""


class Interruption(BaseException):
    """A signal has asked the command to end; raised at a safe point of the work.

    A BaseException like KeyboardInterrupt, so that code which catches errors does not catch it.
    """

    exit_code = 130

    def __init__(self, number: signal.Signals, what: str = "") -> None:
        """`what` follows the signal's name in the message: the state of the work."""
        super().__init__(number, what)
        self.number, self.what = number, what

    def __str__(self) -> str:
        return f"interrupted by {self.number.name}" + (f"; {self.what}" if self.what else "")


def install() -> None:
    """Handle these signals until this process ends. Call it on the main thread."""
    global _owner
    for number in handled():
        signal.signal(number, _handle)
    _owner = _Owner()


def handled() -> list[signal.Signals]:
    """Return the signals to handle: all, except a SIGHUP that is ignored."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [one for one in NUMBERS if not (ignored and one is signal.SIGHUP)]


def ignore() -> None:
    """Ignore signals while Python exits, which would restore the default handlers that kill it."""
    for number in NUMBERS:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def deferred(text: str = "") -> Iterator[Deferral]:
    """Defer signals within this block; `text` is printed for each.

    Raises Interruption on entry if a signal is pending, and at the end of the block if one has
    arrived and was not handed on. After `settle` signals are deferred until the process ends.
    """
    if _owner is None:
        with contextlib.ExitStack() as restoring:
            yield Deferral(restoring)
        return
    check()
    deferral = _OwnedDeferral(_owner, text)
    try:
        yield deferral
    finally:
        deferral.end()
    if not deferral.settled:
        check()


def check() -> None:
    """Raise Interruption if a signal is pending; never in a process that does not own signals."""
    if _owner is not None and _owner.pending:
        raise Interruption(_owner.pending[0])


class Deferral:
    """How a `deferred()` block handles signals, in another program."""

    def __init__(self, restoring: contextlib.ExitStack) -> None:
        """`restoring` puts back the previous handlers when it closes."""
        self._restoring = restoring
        self._handed = False
        self._late: signal.Signals | None = None

    def hand_to(self, receive: Receiver) -> None:
        """Pass each signal to `receive`, pending ones first; it may be called on any thread."""
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may set a handler

        def handler(number: int, frame: FrameType | None) -> None:
            self._handed = True
            receive(signal.Signals(number))

        self._restoring.callback(self._raise_late)
        for one in handled():
            self._restoring.callback(signal.signal, one, signal.signal(one, handler))

    def settle(self, write: Callable[[str], None], text: str) -> None:
        """Ignore signals from now on; call `write(text)` for each."""
        if threading.current_thread() is not threading.main_thread():
            return

        def handler(number: int, frame: FrameType | None) -> None:
            self._late = signal.Signals(number)
            with contextlib.suppress(OSError, RuntimeError, ValueError):  # in the middle of a print
                write(text)

        for one in handled():
            signal.signal(one, handler)

    def pass_on(self, number: signal.Signals) -> None:
        """Leave a signal that arrived too late for this block to the code after it."""
        self._handed, self._late = False, number

    def _raise_late(self) -> None:
        """Raise a late signal again, for the program's own handler."""
        if self._late is not None and not self._handed:
            signal.raise_signal(self._late)


class _OwnedDeferral(Deferral):
    """How it does so in a command, which owns its signals."""

    def __init__(self, owner: _Owner, text: str) -> None:
        self._owner, self._text = owner, text
        self.settled = False
        self._before = owner.switch(self._note)

    def end(self) -> None:
        if not self.settled:
            self._owner.switch(self._before)

    def hand_to(self, receive: Receiver) -> None:
        pending = self._owner.pending

        def drain() -> None:
            with contextlib.suppress(IndexError):  # both this thread and the owner's remove items
                while True:
                    receive(pending.popleft())

        def hand(number: signal.Signals) -> None:
            pending.append(number)
            drain()

        self._owner.switch(hand)
        drain()

    def settle(self, write: Callable[[str], None], text: str) -> None:
        self.settled = True

        def note(number: signal.Signals) -> None:
            self._owner.pending.append(number)
            write(text)

        self._owner.switch(note)

    def pass_on(self, number: signal.Signals) -> None:
        self._owner.pending.append(number)

    def _note(self, number: signal.Signals) -> None:
        self._owner.pending.append(number)
        if self._text:
            _say(f"emulate: {self._text}\n")


class _Owner:
    """Reads signals from a pipe on a separate thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._receive: Receiver = _leave
        self.pending = deque[signal.Signals]()
        """Signals that were not handed on."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        threading.Thread(target=self._follow, args=[reading], name="signals", daemon=True).start()

    def switch(self, receive: Receiver) -> Receiver:
        """Call `receive` for each signal from now on; return the previous callable."""
        with self._lock:  # not while a signal is processed
            before, self._receive = self._receive, receive
        return before

    def _follow(self, reading: int) -> None:
        expected = set(NUMBERS)
        while numbers := os.read(reading, 64):
            for number in numbers:
                if number in expected:
                    with self._lock, contextlib.suppress(Exception):  # printing may fail
                        self._receive(signal.Signals(number))
                if number == signal.SIGHUP:
                    expected.discard(signal.SIGHUP)  # the shell and the kernel each send one


_owner: _Owner | None = None


def _handle(number: int, frame: FrameType | None) -> None:
    """Do nothing once there is an owner, whose thread handles the signal."""
    if _owner is None:
        _leave(signal.Signals(number))


def _leave(number: signal.Signals) -> None:
    """End the process at once; it has created nothing to remove."""
    error = Interruption(number)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        last = os.dup(sys.stderr.fileno())
        for file in (1, 2):  # what the main thread still prints must not come after the last line
            os.dup2(os.open(os.devnull, os.O_WRONLY), file)
        _say(f"emulate: {error}\n", last)
    os._exit(error.exit_code)


def _say(text: str, file: int | None = None) -> None:
    """Write to stderr, bypassing its buffer, which the main thread may use; never block."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        file = sys.stderr.fileno() if file is None else file
        text = f"\n{text}" if os.isatty(file) else text  # the terminal shows ^C before it
        if select.select([], [file], [], WRITE_TIMEOUT)[1]:
            os.write(file, text.encode())
