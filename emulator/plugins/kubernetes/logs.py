"""Output and exits of containers in Pods, reported to the inbox.

A log may end because the container did or because the connection did: only the Pod's status tells
which, so it is followed until that says `Ended`. Then it is read once more, from its last line on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from urllib3.exceptions import HTTPError

from emulator.engines.base import LAST_LINES, Exited, Line, Lines, ResumePoint
from emulator.engines.kit.container_log import ContainerLog, Reporter
from emulator.engines.kit.lines import PrintedLine, overlap, seconds
from emulator.errors import EngineError, EngineLost
from emulator.plugins.kubernetes.log_lines import LogParser, Position
from emulator.plugins.kubernetes.names import MAIN
from emulator.plugins.kubernetes.status import Ended, State, Waiting, removed, state_of
from emulator.record.events import EngineNote, OutputLeftOut

if TYPE_CHECKING:
    from urllib3.response import BaseHTTPResponse

    from emulator.plugins.kubernetes.connection import ApiServer
    from emulator.plugins.kubernetes.watching import Kind, Object

DELAYS = (0.0, 0.5, 1.0, 2.0, 5.0)
"""Seconds before each attempt to read a log again that brought nothing; the last one repeats."""
ATTEMPTS = 5
"""To read the end of a log, while the API server answers."""
WHOLE_SECONDS = 1.0
"""The precision of the stamps of a cluster."""
AFTER_LAST_LINE = 1.0
"""Seconds in which a Pod's status should say so once its container has ended."""
AFTER_END = 10.0
"""Seconds after a container's end in which its log must end too."""
AFTER_REMOVAL = 2.0
"""The same once its Pod is gone."""
_BUSY = frozenset({401, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed; 500 is also what the API server answers while
the node's kubelet is away."""
_NO_LOG = frozenset({400, 404})
"""Statuses of a log that is not there: the container has not started, or is gone."""


class LogFollower(Reporter):
    """Follows the containers of one run. `look_at` must be told each change of its Pods."""

    def __init__(self, cluster: ApiServer) -> None:
        super().__init__()
        self.cluster = cluster
        self._lock = threading.Lock()
        self._pods: dict[str, tuple[Object, bool]] = {}
        """The Pods as they were last seen, and whether they are gone, by unique id."""
        self._followers: dict[tuple[str, str], _PodLog] = {}
        """By unique id of the Pod and name of the container."""

    def look_at(self, kind: Kind, pod: Object) -> None:
        """Take what the watch says of a Pod; never blocks."""
        identity, is_gone = pod["metadata"]["uid"], kind == "DELETED"
        with self._lock:
            self._pods[identity] = pod, is_gone
            followers = [one for (uid, _), one in self._followers.items() if uid == identity]
        for follower in followers:
            follower.look_at(pod, is_gone=is_gone)

    def follow(
        self,
        name: str,
        pod: Object,
        container: str = MAIN,
        *,
        known: ResumePoint | None = None,
        then: Callable[[Exited], None] | None = None,
    ) -> None:
        """Report each line of a container once it runs, then its exit; returns at once.

        `name` is the task's, or that of an init step: `worker-0.fetch`. `pod` is the Pod as it was
        created, or as it is. `known`: what another supervisor has read of the log,
        which is not reported again. `then` gets the exit instead of the inbox, on a thread that
        may block.
        """
        identity = pod["metadata"]["uid"]
        follower = _PodLog(self, name, pod, container, known, then)
        with self._lock:
            self._followers[identity, container] = follower
            seen, is_gone = self._pods.get(identity, (pod, False))
        follower.look_at(seen, is_gone=is_gone)

    def forget(self, pod: Object) -> None:
        """Report nothing more of a Pod: neither lines nor exits."""
        identity = pod["metadata"]["uid"]
        with self._lock:
            self._pods.pop(identity, None)
            known = [key for key in self._followers if key[0] == identity]
            followers = [self._followers.pop(key) for key in known]
        for follower in followers:
            follower.close()

    def close(self) -> None:
        """Follow nothing any more; what is not reported yet never is."""
        with self._lock:
            followers = [*self._followers.values()]
            self._followers.clear()
        for follower in followers:
            follower.close()

    def done(self, follower: _PodLog) -> None:
        """Take it that a follower has reported an exit."""
        with self._lock:
            key = follower.uid, follower.container
            if self._followers.get(key) is follower:
                del self._followers[key]
                if not any(uid == follower.uid for uid, _ in self._followers):
                    self._pods.pop(follower.uid, None)


class _PodLog(ContainerLog):
    """The log of one container of a Pod, until its exit is reported."""

    def __init__(
        self,
        output: LogFollower,
        name: str,
        pod: Object,
        container: str,
        known: ResumePoint | None,
        then: Callable[[Exited], None] | None,
    ) -> None:
        self.container = container
        self.uid: str = pod["metadata"]["uid"]
        super().__init__(name, output, then)
        self._output, self._cluster, self._known = output, output.cluster, known
        self._pod_name: str = pod["metadata"]["name"]
        self._changed = threading.Condition()
        """Of the next four."""
        self._state: State = Waiting("")
        self._is_gone = self._is_closed = self._has_begun = False
        self._cutting: threading.Timer | None = None
        self._parser, self._position = LogParser(), Position()
        self._unfinished: list[PrintedLine] = []
        """What lacked its newline when the server last ended a stream with such a line."""
        self._was_complete = False
        """Whether the server ended the last stream: most likely nothing came after it."""
        self._fruitless = 0
        """How often the log was followed since it had a new line."""
        self._away_since: float | None = None
        """Since when the API server does not answer (monotonic)."""
        self._wall = 0.0
        """Of the last line (seconds since 1970)."""
        self._noted = set[str]()

    def look_at(self, pod: Object, *, is_gone: bool) -> None:
        """Take the Pod's state: begin to read once it runs, end some time after its end."""
        with self._changed:
            has_ended = isinstance(self._state, Ended)
            if self._is_closed or (has_ended and not is_gone):
                return
            if not has_ended:
                self._state = (
                    removed(pod, self.container) if is_gone else state_of(pod, self.container)
                )
            self._is_gone = is_gone
            if isinstance(self._state, Ended) and self._stream is not None:
                self._cut_within(_patience(pod, self._state, is_gone=is_gone))
            begins = not self._has_begun and not isinstance(self._state, Waiting)
            self._has_begun = self._has_begun or begins
            self._changed.notify_all()
        if begins:
            threading.Thread(
                target=self._guarded, args=(self._begin,), name=f"follow {self._name}", daemon=True
            ).start()

    def close(self) -> None:
        """Report nothing more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self.cut()

    def _cut_within(self, patience: float) -> None:
        """Have the stream end in some seconds, if it has not by then; needs the lock."""
        if self._cutting is not None:
            self._cutting.cancel()
        self._cutting = threading.Timer(patience, self.cut)
        self._cutting.daemon = True
        self._cutting.start()

    # --- On threads of its own, which may block -----------------------------------------------

    def _fail(self, error: Exception) -> None:
        if not self._is_closed:
            super()._fail(error)

    def _lost(self, error: Exception) -> EngineError:
        if isinstance(error, EngineError):
            return error
        return EngineLost(f"Reading the output of {self._name} failed: {error!r}.")

    def _begin(self) -> None:
        if self._known is not None:
            self._find_position(self._known)
        self._go_on()

    def _stream_ended(self, error: Exception | None, *, is_complete: bool) -> None:
        """Take it that the stream has ended, for whatever reason."""
        with self._changed:
            if self._cutting is not None:
                self._cutting.cancel()
        self._was_complete = is_complete
        if is_complete and (unfinished := [one for one in self._parser.finish() if one.stamp]):
            self._unfinished = unfinished  # the next stream may find the container removed
        self._go_on(pause=AFTER_LAST_LINE if is_complete else 0.0)

    def _go_on(self, pause: float = 0.0) -> None:
        """Follow the log until the container has ended; then report that.

        `pause`: seconds to wait for the container's end before that.
        """
        while not self._has_ended_within(max(pause, _delay(self._fruitless))):
            if self._is_given_up:
                self._has_ended_within(None)
                break
            pause = 0.0
            self._fruitless += 1
            try:
                self.follow()
            except EngineError as error:
                self._survive(error)
                continue
            with self._changed:
                if isinstance(self._state, Ended) or self._is_closed:  # meanwhile
                    self.cut()
            return
        if not self._is_closed:
            self._report_end()

    def _has_ended_within(self, pause: float | None) -> bool:
        """Wait for the end of the container, or of our interest in it; return whether it came.

        `pause`: for so many seconds at most; None: until it comes.
        """
        with self._changed:
            return self._changed.wait_for(
                lambda: isinstance(self._state, Ended) or self._is_closed, timeout=pause
            )

    def _survive(self, error: EngineError) -> None:
        """Raise an error unless the same request may succeed later."""
        status = getattr(error, "status", 0)
        if status == 401:  # a request that is no stream logs in again
            self._cluster.get(self._cluster.namespaced("pods", self._pod_name))
        elif status:
            self._away_since = None
            if status not in _BUSY and status not in _NO_LOG:
                raise error
        else:
            now = time.monotonic()
            self._away_since = self._away_since or now
            if now - self._away_since > self._cluster.outage_timeout:
                raise error

    def _report_end(self) -> None:
        """Report the lines that the stream lacked, and the exit."""
        if self._is_given_up:
            self._inbox.put(OutputLeftOut(task=self._name))
        self._read_rest()
        end = self._state
        assert isinstance(end, Ended)
        wall = max(end.wall if end.is_reported else time.time(), self._wall)
        exited = Exited(
            self._name,
            wall,
            end.exit_code,
            end.oom_killed,
            end.reason,
            precision=WHOLE_SECONDS if end.is_reported else 0.0,
        )
        self._output.done(self)
        if not self._is_closed:
            self._report(exited)

    def _read_rest(self) -> None:
        """Report what follows the last line, also one that lacks its newline.

        The kubelet may have removed the container and its log already: then what the stream had of
        that line is all of it.
        """
        if not self._succeeds(self._report_rest, ATTEMPTS):
            self._note("The end of the log could not be read: the node's kubelet does not answer.")
        newest = self._position.newest
        if lines := self._lines(one for one in self._unfinished if one.stamp > newest):
            self._inbox.put(Lines(lines))

    def _find_position(self, known: ResumePoint) -> None:
        """Find where another supervisor stopped reading."""

        def find() -> None:
            printed = [one for one in self.printed() if one.stamp]
            read = overlap(known.printed, [line.text for line in printed])
            self._lines(printed[:read])

        self._succeeds(find)

    def _succeeds(self, read: Callable[[], None], attempts: int | None = None) -> bool:
        """Read a log until that succeeds or there is none; return False if the kubelet is away.

        `attempts`: how often the API server may say that it is.
        """
        cuts = refusals = 0
        while True:
            try:
                read()
            except (HTTPError, OSError):
                cuts += 1
            except EngineError as error:
                status = getattr(error, "status", 0)
                if status in _NO_LOG:
                    return True
                self._survive(error)
                refusals += bool(status)
                cuts += not status
            else:
                return True
            if refusals == attempts:
                return False
            with self._changed:
                if self._changed.wait_for(
                    lambda: self._is_gone or self._is_closed, timeout=_delay(cuts + refusals)
                ):
                    return True

    # --- Reading ------------------------------------------------------------------------------

    def _request(self, *, follow: bool) -> tuple[BaseHTTPResponse, Callable[[], None]]:
        query: dict[str, Any] = {"container": self.container, "timestamps": True}
        if follow:
            query["follow"] = True
        if since := self._position.since:
            query["sinceTime"] = since
        if self._is_given_up:
            query["tailLines"] = LAST_LINES
        path = self._cluster.namespaced("pods", f"{self._pod_name}/log")
        response = self._cluster.stream(path, **query)
        self._away_since = None
        return response, response.close

    def _begin_again(self) -> None:
        self._parser = LogParser()
        self._position.begin_again()

    def printed(self) -> Iterator[PrintedLine]:
        """Yield what the log has after what was read; nothing once the Pod is gone."""
        if not self._is_gone:  # another Pod may have its name by now
            yield from super().printed()

    def _lines(self, printed: Iterable[PrintedLine]) -> list[Line]:
        """Return the lines that are new; the stamps of a container never go back."""
        lines = []
        for one in printed:
            if not one.stamp:
                self._note(one.text)
            elif self._position.passes(one):
                self._wall = max(self._wall, seconds(one.stamp))
                lines.append(Line(self._name, self._wall, one.text))
        if lines:
            self._fruitless = 0
        return lines

    def _note(self, text: str) -> None:
        """Report what the kubelet says in place of the log, once.

        That it has removed the log of a container that has ended is no news.
        """
        is_over = self._was_complete and isinstance(self._state, Ended)
        if text and text not in self._noted and not is_over:
            self._noted.add(text)
            note = EngineNote(task=self._name, reason="Log", message=text, stamp=time.time())
            self._inbox.put(note)


def _patience(pod: Object, end: Ended, *, is_gone: bool) -> float:
    """Return the seconds after a container's end in which its log must end too (pure)."""
    if is_gone:
        return AFTER_REMOVAL
    if end.is_reported:
        return AFTER_END
    grace = (pod.get("spec") or {}).get("terminationGracePeriodSeconds", 30)
    return float(grace) + AFTER_END


def _delay(attempt: int) -> float:
    return DELAYS[min(attempt, len(DELAYS) - 1)]
