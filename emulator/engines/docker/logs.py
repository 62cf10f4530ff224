"""Output and exits of containers, reported to the inbox.

All log streams are read by one thread (`streams.py`). What follows the end of a stream blocks, and
has a thread of its own: the exit code, and a second look at the log.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import docker
from docker.errors import APIError
from requests import Response

from emulator.engines.base import LAST_LINES, EngineDown, Exited, Inbox, Line, ResumePoint
from emulator.engines.byte_stream import ByteStream
from emulator.engines.docker.connection import lost, streamed
from emulator.engines.docker.drawing import Drawing, DrawnStream, is_drawn
from emulator.engines.docker.log_stream import LogParser, PrintedLine, seconds
from emulator.engines.lines import overlap
from emulator.engines.streams import PIECE, Arrived, Streams
from emulator.record.events import OutputLeftOut

if TYPE_CHECKING:
    from emulator.engines.docker.usage import ContainerUsage
    from emulator.engines.docker.warm.cluster import ControlReplies

OOM_EVENT_TIMEOUT = 0.5
"""Seconds after an exit in which the engine reports that the kernel caused it."""
_KILLED = 128 + signal.SIGKILL


class LogFollower:
    """Follows the containers of one run."""

    def __init__(self, api: docker.APIClient, usage: ContainerUsage) -> None:
        self._api, self._usage = api, usage
        self._last_stamp: dict[str, str] = {}
        self._killed = set[str]()
        self._followed: dict[str, _LogStream] = {}
        """The streams by container."""
        self._lost: dict[str, float] = {}
        """When a container's task lost power, by the engine's clock (seconds since 1970)."""
        self._inbox: Inbox | None = None
        self._streams: Streams | None = None
        self._clock_ahead = 0.0
        self._reads_drawings = False
        self._attached: dict[str, ByteStream] = {}
        """By container, until it is followed."""

    def report_to(self, inbox: Inbox, *, drawings: bool = False) -> None:
        """Report to this inbox from now on, in the time of this machine's clock.

        `drawings`: also what progress bars draw on a line before it is finished.
        """
        self._inbox, self._streams = inbox, Streams(inbox, stamped=True)
        self._reads_drawings = drawings
        if not self._api.base_url.startswith("http+docker://localhost"):
            self._clock_ahead = seconds(self._api.info()["SystemTime"]) - time.time()

    @contextlib.contextmanager
    def attached(self, container: str) -> Iterator[None]:
        """Attach to a container while it is started, for `follow`."""
        if self._reads_drawings:
            with contextlib.suppress(Exception):  # any: the start fails too, or does without it
                self._attached[container] = self._attach(container)
        try:
            yield
        except BaseException:
            if attached := self._attached.pop(container, None):
                attached.close()
            raise

    def follow(
        self,
        task: str,
        container: str,
        answers: ControlReplies | None = None,
        *,
        then: Callable[[Exited], None] | None = None,
        drawings: bool = True,
    ) -> None:
        """Report each line of one start of a container, then its end; returns soon.

        A warm task ends with its parent's `answers`; its container lives on. `then` gets the end
        instead of the inbox, on a thread that may block. `drawings`: what it draws as well, where
        this run reads that.
        """
        assert self._streams is not None, "report_to comes first"
        after = self._last_stamp.get(task, "")
        try:
            response = self._log(container, after, follow=True)
        except Exception as error:  # any error: without its output the run must end
            if attached := self._attached.pop(container, None):
                attached.close()
            self._report_failure(task, error, then)
            return
        start = _Start(task, container, LogParser(after), answers, then)
        reads = self._reads_drawings and drawings
        drawn = _Drawn(self, self._streams, task, container, start.log) if reads else None

        def lines(printed: Iterable[PrintedLine]) -> list[Line]:
            found = list(self._lines(task, printed, answers))
            if drawn is not None:
                drawn.look_at(found)
                found += drawn.lines()
            return found

        def ended(error: Exception | None) -> None:
            if drawn is not None:
                drawn.finish()
            self._report_end(start, error, is_given_up=stream.is_given_up)

        self._followed[container] = stream = _LogStream(
            response, start.log, lines=lines, ended=ended, answers=answers
        )
        self._streams.add(stream)
        if drawn is not None:
            drawn.begin(self._attached.pop(container, None))

    def report_lost(self, container: str, silent_since: float | None = None) -> None:
        """Report the end of a followed container whose task has lost power: it runs on.

        `silent_since`: when that was, by the engine's clock (seconds since 1970) [default: now].
        """
        now = time.time() + self._clock_ahead
        self._lost[container] = now if silent_since is None else silent_since
        if (stream := self._followed.get(container)) is not None:
            stream.cut()

    def wait_for(self, task: str, container: str, answers: ControlReplies, within: float) -> bool:
        """Wait for a parent's answers after a task has ended; return whether they have come."""
        streams, over = Streams(Inbox()), threading.Event()
        after = self._last_stamp.get(task, "")
        streams.add(
            _LogStream(
                self._log(container, after, follow=True),
                LogParser(after),
                lines=lambda printed: list(self._lines(task, printed, answers)) and [],
                ended=lambda error: over.set(),
                answers=answers,
            )
        )
        return over.wait(within) and answers.complete

    def read_from(self, task: str, stamp: str) -> None:
        """Read a task's log after a stamp: what is before that is an earlier run's."""
        self._last_stamp[task] = stamp

    def position(self, task: str) -> str:
        """Return the stamp of the last line of a task that was read; empty if none was."""
        return self._last_stamp.get(task, "")

    def expect_kill(self, container: str) -> None:
        """A container is about to be sent SIGKILL: its exit is not the kernel's doing."""
        self._killed.add(container)

    def find_position(self, task: str, container: str, known: ResumePoint) -> bool:
        """Find where another supervisor stopped reading, so that `follow` continues there.

        Returns whether the container was started since that supervisor last requested it.
        """
        printed = list(self._printed(container, LogParser()))
        if count := overlap(known.printed, [line.text for line in printed]):
            self._last_stamp[task] = printed[count - 1].last_stamp
        state = self._api.inspect_container(container)["State"]
        return seconds(state["StartedAt"]) - self._clock_ahead >= known.since

    def forget(self, task: str) -> None:
        """Forget a task's position: its container is removed, and the next one has a new log."""
        self._last_stamp.pop(task, None)

    def _report_end(self, start: _Start, error: Exception | None, *, is_given_up: bool) -> None:
        """Report the lines that the stream lacked, and the exit.

        If it was given up, only the last of those lines.
        """
        assert self._inbox is not None
        task, container, log, answers, then = start
        report = then or self._inbox.put
        self._followed.pop(container, None)
        try:
            lost_power = self._lost.pop(container, None)
            if error is not None and lost_power is None:
                raise error
            if answers is not None and answers.complete:
                self._usage.ended(container)
                ended = seconds(answers.stamp) - self._clock_ahead
                code, oom = answers.answer["exit"], answers.answer["oom"]
                if is_given_up:
                    self._inbox.put(OutputLeftOut(task=task))
                report(Exited(task, ended, code, oom))
                return
            state = self._api.inspect_container(container)["State"]
            if state["Running"] and lost_power is None:
                # Or paused: the stream broke off, or its end came first.
                self._api.wait(container, timeout=None)
                state = self._api.inspect_container(container)["State"]
            self._usage.ended(container)
            if is_given_up:
                self._inbox.put(OutputLeftOut(task=task))
            # Docker 20.10 loses a last line without newline on a followed stream about every
            # third time, but not on a second request.
            last = LAST_LINES if is_given_up or log.is_whole else None
            log.begin_again()
            for line in self._lines(task, self._printed(container, log, last), answers):
                self._inbox.put(line)
            if lost_power is not None:
                report(Exited(task, lost_power - self._clock_ahead, _KILLED))
                return
            ended = seconds(state["FinishedAt"]) - self._clock_ahead
            code = int(state["ExitCode"])
            oom = bool(state["OOMKilled"])
            if code == _KILLED and not oom and container not in self._killed:
                oom = self._ran_out(container, state)
            self._killed.discard(container)
            report(Exited(task, ended, code, oom))
        except Exception as failed:  # any error: without its output the run must end
            self._report_failure(task, failed, then)

    def _ran_out(self, container: str, state: Mapping[str, Any]) -> bool:
        """Return whether the kernel killed a container for its memory.

        The engine learns of that and of the exit in any order: its event may still be to come.
        """
        since, until = (
            seconds(state["StartedAt"]),
            time.time() + self._clock_ahead + OOM_EVENT_TIMEOUT,
        )
        api: Any = self._api  # its types know whole seconds only
        events = api.events(
            since=f"{since:.9f}",
            until=f"{until:.9f}",
            filters={"container": container, "event": "oom"},
            decode=True,
        )
        return any(True for _ in events)

    def _report_failure(
        self, task: str, error: Exception, then: Callable[[Exited], None] | None = None
    ) -> None:
        assert self._inbox is not None
        killed = Exited(task, time.time(), _KILLED)
        if isinstance(error, APIError) and error.status_code in (404, 409):
            # It was removed, or is being removed, while it ran.
            (then or self._inbox.put)(killed)
            return
        self._inbox.put(EngineDown(lost(f"follow {task}", error)))
        if then is not None:
            then(killed)

    def _lines(
        self, task: str, printed: Iterable[PrintedLine], answers: ControlReplies | None = None
    ) -> Iterator[Line]:
        for one in printed:
            self._last_stamp[task] = one.last_stamp
            line = one if answers is None else answers.take_reply(one)
            if line is not None:
                yield Line(task, seconds(line.first_stamp) - self._clock_ahead, line.text)

    def _printed(
        self, container: str, log: LogParser, last: int | None = None
    ) -> Iterator[PrintedLine]:
        """Yield the lines after what `log` has had, without waiting for more.

        `last`: only so many records at the end of the log.
        """
        with contextlib.closing(
            self._log(container, log.after, follow=False, last=last)
        ) as response:
            for data in response.iter_content(PIECE):
                yield from log.feed(data)
        yield from log.finish()

    def _attach(self, container: str) -> ByteStream:
        # The SDK's own `attach` has no socket to select on, nor has its `logs`.
        query = {"stream": 1, "stdout": 1, "stderr": 1}
        response = streamed(self._api, "POST", f"/containers/{container}/attach", query=query)
        return ByteStream(response.raw, response.close)

    def _log(
        self, container: str, after: str, *, follow: bool, last: int | None = None
    ) -> Response:
        """Request a log from a stamp on, or no more of that than its last records."""
        query = {"stdout": 1, "stderr": 1, "timestamps": 1, "follow": int(follow)}
        if after:
            query["since"] = int(seconds(after))
        if last is not None:
            query["tail"] = last
        return streamed(self._api, "GET", f"/containers/{container}/logs", query=query)


class _Start(NamedTuple):
    """One start of a container that is followed."""

    task: str
    container: str
    log: LogParser
    answers: ControlReplies | None
    """Of the parent, if it started warm."""
    then: Callable[[Exited], None] | None
    """Gets its end instead of the inbox."""


class _Drawn:
    """What one start of a container draws, beside its log: attached only while that is of use."""

    def __init__(
        self, output: LogFollower, streams: Streams, task: str, container: str, log: LogParser
    ) -> None:
        self._output, self._streams, self._task = output, streams, task
        self._container, self._log = container, log
        self._drawing = Drawing(log, from_start=False)
        self._source: DrawnStream | None = None
        self._is_over = False

    def begin(self, attached: ByteStream | None) -> None:
        """Read what was attached before the start, or find its place in the log later."""
        if attached is not None:
            self._read(attached, from_start=True)
        else:
            self._attach()

    def look_at(self, lines: Iterable[Line]) -> None:
        """Attach again if the log has a line that was drawn, against expectation."""
        source, ended = self._source, self._drawing.is_needless
        if ended and source is not None and any(is_drawn(one.text) for one in lines):
            self._source = None
            threading.Thread(target=self._attach, name="attach", daemon=True).start()

    def lines(self) -> list[Line]:
        """Return what was drawn after the last line of the log."""
        if self._is_over:
            return []
        now = time.time()
        return [
            Line(self._task, now, text, is_finished=False) for text in self._drawing.take_drawn()
        ]

    def finish(self) -> None:
        """End: the log has ended, but the container of a warm task lives on."""
        self._is_over = True
        if self._source is not None and not self._source.has_ended:
            self._source.finish()
            self._streams.look_at(self._source)

    def _attach(self) -> None:
        with contextlib.suppress(Exception):  # any: the log decides
            self._read(self._output._attach(self._container), from_start=False)

    def _read(self, stream: ByteStream, *, from_start: bool) -> None:
        if self._is_over:
            stream.close()
            return
        self._drawing = drawing = Drawing(self._log, from_start=from_start)
        self._source = DrawnStream(
            stream, drawing, lambda: Arrived(self.lines(), 0, has_ended=False)
        )
        self._streams.add(self._source)
        if self._is_over:  # meanwhile
            self.finish()


class _LogStream:
    """The followed log of one container, as a source of `Streams`.

    A line that is unfinished at its end may still be lacking its last piece: it stays in `log`.
    Given up, it ends; that of a warm task goes on, but only for the parent's answers.
    """

    def __init__(
        self,
        response: Response,
        log: LogParser,
        *,
        lines: Callable[[Iterable[PrintedLine]], list[Line]],
        ended: Callable[[Exception | None], None],
        answers: ControlReplies | None = None,
    ) -> None:
        self._stream, self._log = ByteStream(response.raw, response.close), log
        self._lines, self._ended, self._answers = lines, ended, answers
        self.is_given_up = False

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._stream.fileno()

    def read(self) -> Arrived:
        """Return the lines that have arrived, and whether the log has ended."""
        data, size, closed = self._stream.receive()
        lines = self._lines(self._log.feed(data))
        answered = self._answers is not None and self._answers.complete
        return Arrived([] if self.is_given_up else lines, size, has_ended=closed or answered)

    def give_up(self) -> None:
        """Report no more lines: those at the end of the log are read when it has ended."""
        self.is_given_up = True
        if self._answers is None:
            self.cut()

    def cut(self) -> None:
        """Have the stream end now; may be called on any thread."""
        self._stream.cut()

    def ended(self, error: Exception | None) -> None:
        """Close the connection, and report the end."""
        self._stream.close()
        self._ended(error)
