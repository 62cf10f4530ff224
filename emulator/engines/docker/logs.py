"""Output and exits of containers, reported to the inbox.

All log streams are read by one thread (`streams.py`). What follows the end of a stream blocks, and
has a thread of its own: the exit code, and a second look at the log.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import docker
from docker.errors import APIError

from emulator.engines.base import EngineDown, Exited, Inbox, KnownOutput, Line
from emulator.engines.docker.connection import lost
from emulator.engines.docker.log_stream import ChunkedBody, LogLines, Printed, seconds
from emulator.engines.docker.usage import ContainerUsage
from emulator.engines.docker.warm.answers import Answers
from emulator.engines.lines import overlap
from emulator.engines.streams import AT_ONCE, PIECE, Arrived, Streams

OOM_WITHIN = 0.5
"""Seconds after an exit in which the engine reports that the kernel caused it."""
_KILLED = 128 + signal.SIGKILL


class Output:
    """Follows the containers of one run."""

    def __init__(self, api: docker.APIClient, usage: ContainerUsage) -> None:
        self._api, self._usage = api, usage
        self._last_stamp: dict[str, str] = {}
        self._killed = set[str]()
        self._inbox: Inbox | None = None
        self._streams: Streams | None = None
        self._clock_ahead = 0.0

    def report_to(self, inbox: Inbox) -> None:
        """Report to this inbox from now on, in the time of this machine's clock."""
        self._inbox, self._streams = inbox, Streams(inbox, stamped=True)
        if not self._api.base_url.startswith("http+docker://localhost"):
            self._clock_ahead = seconds(self._api.info()["SystemTime"]) - time.time()

    def follow(self, task: str, container: str, answers: Answers | None = None) -> None:
        """Report each line of one start of a container, then its end; returns soon.

        A warm task ends with its parent's `answers`; its container lives on.
        """
        assert self._streams is not None, "report_to comes first"
        after = self._last_stamp.get(task, "")
        try:
            response = self._log(container, after, follow=True)
        except Exception as error:  # any error: without its output the run must end
            self._report_failure(task, error)
            return
        log = LogLines(after)
        self._streams.add(
            _LogStream(
                response,
                log,
                lines=lambda printed: list(self._lines(task, printed, answers)),
                ended=lambda error: self._report_end(task, container, log, error, answers),
                answers=answers,
            )
        )

    def wait_for(self, task: str, container: str, answers: Answers, within: float) -> bool:
        """Wait for a parent's answers after a task has ended; return whether they have come."""
        streams, over = Streams(Inbox()), threading.Event()
        after = self._last_stamp.get(task, "")
        streams.add(
            _LogStream(
                self._log(container, after, follow=True),
                LogLines(after),
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

    def find_position(self, task: str, container: str, known: KnownOutput) -> bool:
        """Find where another supervisor stopped reading, so that `follow` continues there.

        Returns whether the container was started since that supervisor last requested it.
        """
        printed = list(self._printed(container, LogLines()))
        if count := overlap(known.printed, [line.text for line in printed]):
            self._last_stamp[task] = printed[count - 1].last_stamp
        state = self._api.inspect_container(container)["State"]
        return seconds(state["StartedAt"]) - self._clock_ahead >= known.since

    def forget(self, task: str) -> None:
        """Forget a task's position: its container is removed, and the next one has a new log."""
        self._last_stamp.pop(task, None)

    def _report_end(
        self,
        task: str,
        container: str,
        log: LogLines,
        error: Exception | None,
        answers: Answers | None = None,
    ) -> None:
        """Report the lines that the stream lacked, and the exit."""
        assert self._inbox is not None
        try:
            if error is not None:
                raise error
            if answers is not None and answers.complete:
                self._usage.ended(container)
                ended = seconds(answers.stamp) - self._clock_ahead
                code, oom = answers.answer["exit"], answers.answer["oom"]
                self._inbox.put(Exited(task, ended, code, oom))
                return
            state = self._api.inspect_container(container)["State"]
            if state["Running"]:  # or paused: the stream broke off, or its end came first
                self._api.wait(container, timeout=None)
                state = self._api.inspect_container(container)["State"]
            self._usage.ended(container)
            # Docker 20.10 loses a last line without newline on a followed stream about every
            # third time, but not on a second request.
            log.begin_again()
            for line in self._lines(task, self._printed(container, log), answers):
                self._inbox.put(line)
            ended = seconds(state["FinishedAt"]) - self._clock_ahead
            code = int(state["ExitCode"])
            oom = bool(state["OOMKilled"])
            if code == _KILLED and not oom and container not in self._killed:
                oom = self._ran_out(container, state)
            self._killed.discard(container)
            self._inbox.put(Exited(task, ended, code, oom))
        except Exception as failed:  # any error: without its output the run must end
            self._report_failure(task, failed)

    def _ran_out(self, container: str, state: Mapping[str, Any]) -> bool:
        """Return whether the kernel killed a container for its memory.

        The engine learns of that and of the exit in any order: its event may still be to come.
        """
        since, until = seconds(state["StartedAt"]), time.time() + self._clock_ahead + OOM_WITHIN
        api: Any = self._api  # its types know whole seconds only
        events = api.events(
            since=f"{since:.9f}",
            until=f"{until:.9f}",
            filters={"container": container, "event": "oom"},
            decode=True,
        )
        return any(True for _ in events)

    def _report_failure(self, task: str, error: Exception) -> None:
        assert self._inbox is not None
        if isinstance(error, APIError) and error.status_code in (404, 409):
            # It was removed, or is being removed, while it ran.
            self._inbox.put(Exited(task, time.time(), _KILLED))
        else:
            self._inbox.put(EngineDown(lost(f"follow {task}", error)))

    def _lines(
        self, task: str, printed: Iterable[Printed], answers: Answers | None = None
    ) -> Iterator[Line]:
        for one in printed:
            self._last_stamp[task] = one.last_stamp
            line = one if answers is None else answers.take(one)
            if line is not None:
                yield Line(task, seconds(line.first_stamp) - self._clock_ahead, line.text)

    def _printed(self, container: str, log: LogLines) -> Iterator[Printed]:
        """Yield the lines after what `log` has had, without waiting for more."""
        with contextlib.closing(self._log(container, log.after, follow=False)) as response:
            for data in response.iter_content(PIECE):
                yield from log.feed(data)
        yield from log.finish()

    def _log(self, container: str, after: str, *, follow: bool) -> Any:  # noqa: ANN401  requests'
        """Request a log from a stamp on."""
        since = f"&since={int(seconds(after))}" if after else ""
        api: Any = self._api  # its own `logs` has no socket to select on
        url = api._url("/containers/{0}/logs", container)
        query = f"stdout=1&stderr=1&timestamps=1&follow={int(follow)}{since}"
        response = api._get(f"{url}?{query}", stream=True)
        api._raise_for_status(response)
        return response


class _LogStream:
    """The followed log of one container, as a source of `Streams`.

    A line that is unfinished at its end may still be lacking its last piece: it stays in `log`.

    The engine's socket is read itself. What has none, such as a connection over SSH, is passed on
    by a thread.
    """

    def __init__(
        self,
        response: Any,  # noqa: ANN401  of requests
        log: LogLines,
        *,
        lines: Callable[[Iterable[Printed]], list[Line]],
        ended: Callable[[Exception | None], None],
        answers: Answers | None = None,
    ) -> None:
        self._response, self._log = response, log
        self._lines, self._ended, self._answers = lines, ended, answers
        self._body: ChunkedBody | None = None
        buffered = response.raw._fp.fp
        self._early = b""
        own = getattr(buffered.raw, "_sock", None)
        if isinstance(own, socket.socket):
            self._socket = own
            own.setblocking(False)
            self._early = buffered.peek()  # came with the headers
            if response.headers.get("Transfer-Encoding") == "chunked":
                self._body = ChunkedBody()
        else:
            self._socket, writing = socket.socketpair()
            self._socket.setblocking(False)
            threading.Thread(target=self._pass_on, args=(writing,), daemon=True).start()

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def read(self) -> Arrived:
        """Return the lines that have arrived, and whether the log has ended."""
        data, closed = self._receive()
        size = len(data)
        if self._body is not None:
            data = self._body.feed(data)
            closed = closed or self._body.ended
        lines = self._lines(self._log.feed(data))
        answered = self._answers is not None and self._answers.complete
        return Arrived(lines, size, has_ended=closed or answered)

    def ended(self, error: Exception | None) -> None:
        """Close the connection, and report the end."""
        self._response.close()
        self._socket.close()
        self._ended(error)

    def _receive(self) -> tuple[bytes, bool]:
        """Return the bytes that have arrived, and whether the connection is closed."""
        received, self._early = self._early, b""
        # TLS may have decrypted more than it returned, for which no selector would wake.
        while len(received) < AT_ONCE or self._is_pending():
            try:
                data = self._socket.recv(PIECE)
            except (BlockingIOError, ssl.SSLWantReadError):
                break
            received += data
            if not data:
                return received, True
            if len(data) < PIECE and not self._is_pending():
                break
        return received, False

    def _is_pending(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _pass_on(self, writing: socket.socket) -> None:
        with writing, contextlib.suppress(Exception):  # what ends the log closes the pair
            for data in self._response.iter_content(None):
                writing.sendall(data)
