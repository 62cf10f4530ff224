"""Output and exits of containers, reported to the inbox.

What follows the end of a stream is a second look at the log, and the exit code.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import docker
from docker.errors import APIError

from emulator.engines.base import LAST_LINES, Exited, Line, ResumePoint
from emulator.engines.docker.connection import Frames, lost, streamed
from emulator.engines.docker.drawing import Drawings
from emulator.engines.kit.byte_stream import ByteStream
from emulator.engines.kit.container_log import KILLED, ContainerLog, Reporter
from emulator.engines.kit.lines import PrintedLine, UnfinishedLine, overlap, seconds
from emulator.record.events import OutputLeftOut

if TYPE_CHECKING:
    from urllib3.response import BaseHTTPResponse

    from emulator.engines.base import Inbox
    from emulator.engines.docker.usage import ContainerUsage
    from emulator.engines.docker.warm.cluster import ControlReplies
    from emulator.errors import EngineError

OOM_EVENT_TIMEOUT = 0.5
"""Seconds after an exit in which the engine reports that the kernel caused it."""
LATEST = 4
"""Finished lines of a stream that are kept."""


class LogFollower(Reporter):
    """Follows the containers of one run."""

    def __init__(self, api: docker.APIClient, usage: ContainerUsage) -> None:
        super().__init__()
        self.api, self.usage = api, usage
        self.clock_ahead = 0.0
        """Seconds by which the engine's clock is ahead of this machine's."""
        self.killed = set[str]()
        """Containers that were sent SIGKILL: their exit is not the kernel's doing."""
        self.followed: dict[str, _StartLog] = {}
        """By container."""
        self.lost: dict[str, float] = {}
        """When a container's task lost power, by the engine's clock (seconds since 1970)."""
        self._last_stamp: dict[str, str] = {}
        self._reads_drawings = False
        self._attached: dict[str, ByteStream] = {}
        """By container, until it is followed."""

    def begin(self, inbox: Inbox, *, drawings: bool) -> None:
        """Report to this inbox from now on, in the time of this machine's clock.

        `drawings`: also what progress bars draw on a line before it is finished.
        """
        self.report_to(inbox)
        self._reads_drawings = drawings
        if not self.api.base_url.startswith("http+docker://localhost"):
            self.clock_ahead = seconds(self.api.info()["SystemTime"]) - time.time()

    @contextlib.contextmanager
    def attached(self, container: str) -> Iterator[None]:
        """Attach to a container while it is started, for `follow`."""
        if self._reads_drawings:
            with contextlib.suppress(Exception):  # any: the start fails too, or does without it
                self._attached[container] = self.attach(container)
        try:
            yield
        except BaseException:
            if attached := self._attached.pop(container, None):
                attached.close()
            raise

    def attach(self, container: str) -> ByteStream:
        """Read what a container prints from now on, whether or not a line is finished."""
        # The SDK's own `attach` has no socket to select on, nor has its `logs`.
        query = {"stream": 1, "stdout": 1, "stderr": 1}
        response = streamed(self.api, "POST", f"/containers/{container}/attach", query=query)
        return ByteStream(response.raw, response.close)

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
        log = self.followed[container] = _StartLog(self, task, container, answers, then)
        log.begin(self._attached.pop(container, None), draws=self._reads_drawings and drawings)

    def report_lost(self, container: str, silent_since: float | None = None) -> None:
        """Report the end of a followed container whose task has lost power: it runs on.

        `silent_since`: when that was, by the engine's clock (seconds since 1970) [default: now].
        """
        now = time.time() + self.clock_ahead
        self.lost[container] = now if silent_since is None else silent_since
        if (log := self.followed.get(container)) is not None:
            log.cut()

    def wait_for(self, task: str, container: str, answers: ControlReplies, within: float) -> bool:
        """Wait for a parent's answers after a task has ended; return whether they have come."""
        log = _Replies(self, task, container, answers)
        log.follow()
        return log.over.wait(within) and answers.complete

    def read_from(self, task: str, stamp: str) -> None:
        """Read a task's log after a stamp: what is before that was read, or is an earlier run's."""
        self._last_stamp[task] = stamp

    def position(self, task: str) -> str:
        """Return the stamp of the last line of a task that was read; empty if none was."""
        return self._last_stamp.get(task, "")

    def expect_kill(self, container: str) -> None:
        """A container is about to be sent SIGKILL: its exit is not the kernel's doing."""
        self.killed.add(container)

    def find_position(self, task: str, container: str, known: ResumePoint) -> bool:
        """Find where another supervisor stopped reading, so that `follow` continues there.

        Returns whether the container was started since that supervisor last requested it.
        """
        printed = list(_StartLog(self, task, container).printed())
        if count := overlap(known.printed, [line.text for line in printed]):
            self.read_from(task, printed[count - 1].last_stamp)
        state = self.api.inspect_container(container)["State"]
        return seconds(state["StartedAt"]) - self.clock_ahead >= known.since

    def forget(self, task: str) -> None:
        """Forget a task's position: its container is removed, and the next one has a new log."""
        self._last_stamp.pop(task, None)


class _StartLog(ContainerLog):
    """What one start of a container prints and draws, and its exit."""

    _parser: LogParser

    def __init__(
        self,
        output: LogFollower,
        task: str,
        container: str,
        answers: ControlReplies | None = None,
        then: Callable[[Exited], None] | None = None,
    ) -> None:
        """`answers`: of the parent, if it started warm."""
        super().__init__(task, output, then)
        self._output, self._container, self._answers = output, container, answers
        self._parser = LogParser(output.position(task))
        self._drawings: Drawings | None = None
        self._tail = 0
        """Records at the end of the log that are still wanted; 0: all."""
        self._is_for_answers = False
        """Whether no line is wanted any more, but the parent's answers."""

    def begin(self, attached: ByteStream | None, *, draws: bool) -> None:
        """Report from now on; `attached`: to the container, since before it was started."""
        if draws:
            attach = partial(self._output.attach, self._container)
            self._drawings = Drawings(self._name, self._parser, self._streams, attach)
        try:
            self.follow()
        except Exception as error:  # any error: without its output the run must end
            if attached is not None:
                attached.close()
            self._fail(error)
            return
        if self._drawings is not None:
            self._drawings.begin(attached)

    def give_up(self) -> None:
        """End, unless a warm task's answers are still to come."""
        if self._answers is None:
            super().give_up()
        else:
            self._is_given_up = self._is_for_answers = True

    def _request(self, *, follow: bool) -> tuple[BaseHTTPResponse, Callable[[], None]]:
        query = {"stdout": 1, "stderr": 1, "timestamps": 1, "follow": int(follow)}
        if after := self._parser.after:
            query["since"] = int(seconds(after))
        if self._tail:
            query["tail"] = self._tail
        path = f"/containers/{self._container}/logs"
        response = streamed(self._output.api, "GET", path, query=query)
        return response.raw, response.close

    def _begin_again(self) -> None:
        self._parser.begin_again()

    def _lines(self, printed: Iterable[PrintedLine]) -> list[Line]:
        ahead, lines = self._output.clock_ahead, []
        for one in printed:
            self._output.read_from(self._name, one.last_stamp)
            line = one if self._answers is None else self._answers.take_reply(one)
            if line is not None:
                lines.append(Line(self._name, seconds(line.stamp) - ahead, line.text))
        if self._drawings is not None:
            lines += self._drawings.lines_after(lines)
        return [] if self._is_for_answers else lines

    def _is_over(self) -> bool:
        return self._answers is not None and self._answers.complete

    def _lost(self, error: Exception) -> EngineError | None:
        if isinstance(error, APIError) and error.status_code in (404, 409):
            return None  # it was removed, or is being removed, while it ran
        return lost(f"follow {self._name}", error)

    def _stream_ended(self, error: Exception | None, *, is_complete: bool) -> None:
        output, container, is_answered = self._output, self._container, self._is_over()
        self._is_for_answers = False
        if self._drawings is not None:
            self._drawings.finish()
        output.followed.pop(container, None)
        lost_power = output.lost.pop(container, None)
        if error is not None and lost_power is None:
            raise error
        state = {} if is_answered else output.api.inspect_container(container)["State"]
        if state.get("Running") and lost_power is None:
            # Or paused: the stream broke off, or its end came first.
            output.api.wait(container, timeout=None)
            state = output.api.inspect_container(container)["State"]
        output.usage.ended(container)
        if self._is_given_up:
            self._inbox.put(OutputLeftOut(task=self._name))
        if not is_answered:
            # Docker 20.10 loses a last line without newline on a followed stream about every
            # third time, but not on a second request.
            self._tail = LAST_LINES if self._is_given_up or self._parser.is_whole else 0
            self._report_rest()
        self._report(self._exit(state, lost_power))

    def _exit(self, state: Mapping[str, Any], lost_power: float | None) -> Exited:
        """Return the end of a task: its container's, that of its power, or its parent's answer.

        `state`: of the container; empty: the parent has answered.
        """
        ahead, answers = self._output.clock_ahead, self._answers
        if answers is not None and not state:
            wall = seconds(answers.stamp) - ahead
            return Exited(self._name, wall, answers.answer["exit"], answers.answer["oom"])
        if lost_power is not None:
            return Exited(self._name, lost_power - ahead, KILLED)
        code, oom = int(state["ExitCode"]), bool(state["OOMKilled"])
        if code == KILLED and not oom and self._container not in self._output.killed:
            oom = self._ran_out(state)
        self._output.killed.discard(self._container)
        return Exited(self._name, seconds(state["FinishedAt"]) - ahead, code, oom)

    def _ran_out(self, state: Mapping[str, Any]) -> bool:
        """Return whether the kernel killed the container for its memory.

        The engine learns of that and of the exit in any order: its event may still be to come.
        """
        until = time.time() + self._output.clock_ahead + OOM_EVENT_TIMEOUT
        api: Any = self._output.api  # its types know whole seconds only
        events = api.events(
            since=f"{seconds(state['StartedAt']):.9f}",
            until=f"{until:.9f}",
            filters={"container": self._container, "event": "oom"},
            decode=True,
        )
        return any(True for _ in events)


class _Replies(_StartLog):
    """A container that is read for its parent's answers alone: its task has ended."""

    def __init__(
        self, output: LogFollower, task: str, container: str, answers: ControlReplies
    ) -> None:
        super().__init__(output, task, container, answers)
        self._streams, self._is_for_answers = Reporter().streams, True
        self.over = threading.Event()

    def _stream_ended(self, error: Exception | None, *, is_complete: bool) -> None:
        self.over.set()


class LogParser:
    """Turns the bytes of a log stream, which are frames with stamps, into lines (pure).

    Frames with stamps up to `after` are dropped. Stamps have nine digits and one zone, so they
    compare as text. The engine cuts lines at 16 KiB; the pieces have stamps of their own or all the
    first one's, and only the last ends with a newline. Pieces of standard output and standard error
    come in any order. Lines that are too long are cut and marked, see `lines.py`.
    """

    def __init__(self, after: str = "") -> None:
        self._frames = Frames()
        self._lines: defaultdict[int, _Line] = defaultdict(lambda: _Line(after))
        """The last line of each stream."""
        self._start = after

    def last(self, stream: int) -> tuple[int, Sequence[str]]:
        """Return how many lines of a stream were finished here, and the last of them."""
        line = self._lines.get(stream)
        return (line.count, line.latest) if line else (0, ())

    @property
    def after(self) -> str:
        """The stamp after which a log must be read to go on with `begin_again`."""
        return min((line.finished for line in self._lines.values()), default=self._start)

    @property
    def is_whole(self) -> bool:
        """Whether all that has come are whole lines."""
        return not any(line.first_stamp for line in self._lines.values())

    def begin_again(self) -> None:
        """Expect the log again, from `after` on: the unfinished lines, and what follows them."""
        self._frames = Frames()
        for stream, line in self._lines.items():
            self._lines[stream] = _Line(line.finished)

    def feed(self, data: bytes) -> Iterator[PrintedLine]:
        """Take the next bytes of the stream; yield the lines that they finish."""
        for stream, frame in self._frames.feed(data):
            head, _, text = frame.partition(b" ")
            line = self._lines[stream]
            if (stamp := head.decode("utf-8", "surrogateescape")) <= line.after:
                continue
            line.last_stamp = stamp
            line.first_stamp = line.first_stamp or stamp
            if not text.endswith(b"\n"):
                line.text.add(text)
                continue
            printed = PrintedLine(line.first_stamp, line.text.finish(text[:-1]), stamp)
            line.first_stamp, line.finished = "", stamp
            line.count += 1
            line.latest.append(printed.text)
            yield printed

    def finish(self) -> Iterator[PrintedLine]:
        """Yield the lines that lack their newline at the end of the stream."""
        for line in self._lines.values():
            if line.first_stamp:
                yield PrintedLine(line.first_stamp, line.text.finish(), line.last_stamp)
                line.first_stamp = ""


class _Line:
    """The line that a stream has not finished; no first stamp: nothing of it has come."""

    def __init__(self, after: str) -> None:
        self.after = self.finished = after
        """Frames up to `after` are dropped; `finished` is the stamp of the last whole line."""
        self.first_stamp = self.last_stamp = ""
        self.text = UnfinishedLine()
        self.count, self.latest = 0, deque[str](maxlen=LATEST)
