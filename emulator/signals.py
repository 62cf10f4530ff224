"""Ctrl-C and SIGTERM: one owner for the whole life of a command.

`own` takes them as the first thing that a command does. Nothing is raised where a signal happens to
arrive. Python's C handler writes its number into a pipe, whatever the main thread waits for
(`signal.set_wakeup_fd`), and a thread of our own takes it from there:

    at first              one line, and the process ends with 130: it has made nothing yet
    in a `held()` block   it is noted; `check` raises Interruption where the work may stop
    after `hand_to`       somebody is told: the supervisor, by its inbox
    after `settle`        nothing changes any more, until the process ends; the user is told so

In a program that is not ours (pytest, a notebook) nothing is owned: signals do what they did there,
but for the time between `hand_to` and the end of its block.
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

    Take = Callable[[signal.Signals], object]

__all__ = ["Held", "Interruption", "check", "held", "ignore", "own"]

NUMBERS = (signal.SIGINT, signal.SIGTERM)
WRITABLE_WITHIN = 1.0
"""Seconds that a terminal or pipe gets to take the last line of a process that ends."""


class Interruption(BaseException):
    """A signal asked the command to end, and it ends where it may.

    Like KeyboardInterrupt it is not caught by code that catches errors, libraries included.
    """

    exit_code = 130

    def __init__(self, number: signal.Signals, what: str = "") -> None:
        """`what` is said behind the signal: what became of the work."""
        super().__init__(number, what)
        self.number, self.what = number, what

    def __str__(self) -> str:
        return f"interrupted by {self.number.name}" + (f"; {self.what}" if self.what else "")


def own() -> None:
    """Take SIGINT and SIGTERM for as long as this process lives. Only the main thread may."""
    global _owner
    for number in NUMBERS:
        signal.signal(number, _handle)
    _owner = _Owner()


def ignore() -> None:
    """Take signals no more: Python's own end would restore what kills, and is over in a moment."""
    for number in NUMBERS:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def held(text: str = "") -> Iterator[Held]:
    """Within this block a signal does not end the process; `text` is said when one comes.

    Raises Interruption on entry where one has come before, and at the end of the block where one
    has come and nobody was told. After `settle` signals are held until the process ends.
    """
    if _owner is None:
        with contextlib.ExitStack() as restoring:
            yield Held(restoring)
        return
    check()
    one = _Owned(_owner, text)
    try:
        yield one
    finally:
        one.end()
    if not one.settled:
        check()


def check() -> None:
    """Raise Interruption where a signal has come and nobody was told; never where none is owned."""
    if _owner is not None and _owner.pending:
        raise Interruption(_owner.pending[0])


class Held:
    """What a `held()` block says about signals: here in a program that is not ours."""

    def __init__(self, restoring: contextlib.ExitStack) -> None:
        """What was there before comes back with `restoring`."""
        self._restoring = restoring
        self._handed = False
        self._late: signal.Signals | None = None

    def hand_to(self, take: Take) -> None:
        """From now on pass each signal to `take`, and first what has come; on any thread."""
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may set a handler

        def handler(number: int, frame: FrameType | None) -> None:
            self._handed = True
            take(signal.Signals(number))

        self._restoring.callback(self._raise_late)
        for one in NUMBERS:
            self._restoring.callback(signal.signal, one, signal.signal(one, handler))

    def settle(self, say: Callable[[str], None], text: str) -> None:
        """From now on a signal changes nothing, and `text` is said for each."""
        if threading.current_thread() is not threading.main_thread():
            return

        def handler(number: int, frame: FrameType | None) -> None:
            self._late = signal.Signals(number)
            with contextlib.suppress(OSError, RuntimeError, ValueError):  # in the middle of a print
                say(text)

        for one in NUMBERS:
            signal.signal(one, handler)

    def pass_over(self, number: signal.Signals) -> None:
        """Have a signal that came too late for this block end what comes after it."""
        self._handed, self._late = False, number

    def _raise_late(self) -> None:
        """Do what that program wants of a signal that came too late for us."""
        if self._late is not None and not self._handed:
            signal.raise_signal(self._late)


class _Owned(Held):
    """A block of a command, which owns its signals."""

    def __init__(self, owner: _Owner, text: str) -> None:
        self._owner, self._text = owner, text
        self.settled = False
        self._before = owner.switch(self._note)

    def end(self) -> None:
        if not self.settled:
            self._owner.switch(self._before)

    def hand_to(self, take: Take) -> None:
        pending = self._owner.pending

        def drain() -> None:
            with contextlib.suppress(IndexError):  # this thread and the owner's both take them
                while True:
                    take(pending.popleft())

        def hand(number: signal.Signals) -> None:
            pending.append(number)
            drain()

        self._owner.switch(hand)
        drain()

    def settle(self, say: Callable[[str], None], text: str) -> None:
        self.settled = True

        def note(number: signal.Signals) -> None:
            self._owner.pending.append(number)
            say(text)

        self._owner.switch(note)

    def pass_over(self, number: signal.Signals) -> None:
        self._owner.pending.append(number)

    def _note(self, number: signal.Signals) -> None:
        self._owner.pending.append(number)
        if self._text:
            _say(f"emulate: {self._text}\n")


class _Owner:
    """Takes signals from a pipe, on a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._take: Take = _leave
        self.pending = deque[signal.Signals]()
        """Signals that nobody was told of."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        threading.Thread(target=self._follow, args=[reading], name="signals", daemon=True).start()

    def switch(self, take: Take) -> Take:
        """Have each signal taken so from now on; return how it was before."""
        with self._lock:  # not in the middle of one
            before, self._take = self._take, take
        return before

    def _follow(self, reading: int) -> None:
        while numbers := os.read(reading, 64):
            for number in numbers:
                if number in NUMBERS:
                    with self._lock, contextlib.suppress(Exception):  # nobody reads what is said
                        self._take(signal.Signals(number))


_owner: _Owner | None = None


def _handle(number: int, frame: FrameType | None) -> None:
    """Do nothing: the owner's thread does what there is to do, once there is one."""
    if _owner is None:
        _leave(signal.Signals(number))


def _leave(number: signal.Signals) -> None:
    """End the process, which has made nothing that would have to be removed."""
    error = Interruption(number)
    _say(f"emulate: {error}\n")
    os._exit(error.exit_code)


def _say(text: str) -> None:
    """Write to stderr past its buffer, which the main thread may be at; never for ever."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        file = sys.stderr.fileno()
        text = f"\n{text}" if os.isatty(file) else text  # which shows ^C in front of it
        if select.select([], [file], [], WRITABLE_WITHIN)[1]:
            os.write(file, text.encode())
