"""The log of one container, followed until its end is reported: the same for all engines.

One thread reads all logs (`streams.py`). What follows the end of a stream blocks, and has a thread
of its own: it follows the log again, or reads what the stream lacked and reports the exit. So lines
are always before the exit.
"""

from __future__ import annotations

import itertools
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from emulator.engines.base import EngineDown, Exited, Inbox, Line, Lines
from emulator.engines.kit.byte_stream import ByteStream
from emulator.engines.kit.streams import IN_AN_EVENT, PIECE, Arrived, Streams

if TYPE_CHECKING:
    from urllib3.response import BaseHTTPResponse

    from emulator.engines.kit.lines import PrintedLine
    from emulator.errors import EngineError

KILLED = 128 + signal.SIGKILL
"""The exit code of a program that was killed, and of one of which nothing else is known."""


class Reporter:
    """The inbox of a run, and the thread that reads the logs of its containers."""

    def __init__(self) -> None:
        self.report_to(Inbox())

    def report_to(self, inbox: Inbox) -> None:
        """Report to this inbox from now on."""
        self.inbox, self.streams = inbox, Streams(inbox, stamped=True)


class LogParser(Protocol):
    """Turns the bytes of a log into lines."""

    def feed(self, data: bytes) -> Iterator[PrintedLine]:
        """Take the next bytes; yield the lines that they finish."""

    def finish(self) -> Iterator[PrintedLine]:
        """Yield what lacks its newline at the end of the log."""


class ContainerLog(ABC):
    """The log of one container, as a source of `Streams`, until its end is reported.

    What differs between engines is in the abstract methods.
    """

    _parser: LogParser

    def __init__(
        self, name: str, reporter: Reporter, then: Callable[[Exited], None] | None
    ) -> None:
        """`name`: of the task; `then` gets the exit instead of the inbox, and may block."""
        self._name, self._then = name, then
        self._inbox, self._streams = reporter.inbox, reporter.streams
        self._stream: ByteStream | None = None
        self._is_given_up = False
        """Whether only the last lines of what is left are still wanted."""

    @abstractmethod
    def _request(self, *, follow: bool) -> tuple[BaseHTTPResponse, Callable[[], None]]:
        """Request the log from where it was read to, without `follow` only what there is.

        Returns the answer with its body unread, and what closes it.
        """

    @abstractmethod
    def _begin_again(self) -> None:
        """Expect the log from where it was read to."""

    @abstractmethod
    def _lines(self, printed: Iterable[PrintedLine]) -> list[Line]:
        """Return the lines that are new, by this machine's clock."""

    def _is_over(self) -> bool:
        """Say whether nothing that follows is wanted, though the stream goes on."""
        return False

    @abstractmethod
    def _stream_ended(self, error: Exception | None, *, is_complete: bool) -> None:
        """Follow the log again, or report its rest and the exit; on a thread that may block.

        `is_complete`: the server has said that this is all. Any error ends the run.
        """

    @abstractmethod
    def _lost(self, error: Exception) -> EngineError | None:
        """Return why the run must end after an error; None: the container was removed."""

    # --- A source of `Streams` ------------------------------------------------------------------

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        assert self._stream is not None, "it is followed"
        return self._stream.fileno()

    def read(self) -> Arrived:
        """Return the lines that have arrived, and whether the stream has ended.

        A line that is unfinished then is read again: it may lack its last piece.
        """
        assert self._stream is not None, "it is followed"
        data, size, closed = self._stream.receive()
        lines = self._lines(self._parser.feed(data))
        return Arrived(lines, size, has_ended=closed or self._is_over())

    def give_up(self) -> None:
        """End: the last lines of the log are read when the container has ended."""
        self._is_given_up = True
        self.cut()

    def cut(self) -> None:
        """Have the stream end now, if there is one; may be called on any thread."""
        if (stream := self._stream) is not None:
            stream.cut()

    def ended(self, error: Exception | None) -> None:
        """Close the connection, and do what follows."""
        stream, self._stream = self._stream, None
        assert stream is not None, "it was followed"
        stream.close()
        is_complete = error is None and stream.is_complete
        self._guarded(lambda: self._stream_ended(error, is_complete=is_complete))

    # --- For subclasses -------------------------------------------------------------------------

    def _guarded(self, what: Callable[[], None]) -> None:
        try:
            what()
        except Exception as error:  # any: without its output the run must end
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        killed = Exited(self._name, time.time(), KILLED)
        if (lost := self._lost(error)) is None:
            self._report(killed)
            return
        self._inbox.put(EngineDown(lost))
        if self._then is not None:
            self._then(killed)

    def _report(self, exited: Exited) -> None:
        (self._then or self._inbox.put)(exited)

    def follow(self) -> None:
        """Follow the log from where it was read to."""
        stream = ByteStream(*self._request(follow=True))
        self._begin_again()
        self._stream = stream
        self._streams.add(self)

    def _report_rest(self) -> None:
        """Report what the log has after what was read, not all of a long one at once."""
        printed = self.printed()
        while some := list(itertools.islice(printed, IN_AN_EVENT)):
            if lines := self._lines(some):
                self._inbox.put(Lines(lines))

    def printed(self) -> Iterator[PrintedLine]:
        """Yield what the log has after what was read, without waiting for more."""
        response, close = self._request(follow=False)
        try:
            self._begin_again()
            for data in response.stream(PIECE):
                yield from self._parser.feed(data)
            yield from self._parser.finish()
        finally:
            close()
