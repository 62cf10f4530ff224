"""Output and exits of containers: one thread for each start reports them to the inbox."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import docker
from docker.errors import APIError

from emulator.engines.base import EngineDown, Exited, Inbox, KnownOutput, Line
from emulator.engines.docker.connection import lost
from emulator.engines.docker.usage import ContainerUsage
from emulator.engines.lines import UnfinishedLine, overlap

__all__ = ["Output", "Printed", "join_frames", "seconds"]


@dataclass(frozen=True)
class Printed:
    """One line, and the engine's stamps of its first and last piece."""

    first_stamp: str
    last_stamp: str
    text: str


def join_frames(frames: Iterable[bytes], after: str = "") -> Iterator[Printed]:
    """Turn the frames of a log stream after the stamp `after` into lines (pure).

    Stamps have nine digits and one zone, so they compare as text. The engine cuts lines at 16 KiB
    and puts a stamp before each piece; only the last piece of a line ends with a newline. Lines
    that are too long are cut and marked, see `lines.py`.
    """
    first, last, line = "", "", UnfinishedLine()
    for frame in frames:
        head, _, text = frame.partition(b" ")
        if (stamp := head.decode("utf-8", "surrogateescape")) <= after:
            continue
        last = stamp
        first = first or last
        line.add(text.removesuffix(b"\n"))
        if text.endswith(b"\n"):
            yield Printed(first, last, line.finish())
            first = ""
    if first:
        yield Printed(first, last, line.finish())


def seconds(stamp: str) -> float:
    """Return seconds since 1970 of RFC 3339 with nanoseconds."""
    return datetime.fromisoformat(stamp).timestamp()


class Output:
    """Follows the containers of one run."""

    def __init__(self, api: docker.APIClient, usage: ContainerUsage) -> None:
        self._api, self._usage = api, usage
        self._last_stamp: dict[str, str] = {}
        self._inbox: Inbox | None = None
        self._clock_ahead = 0.0

    def report_to(self, inbox: Inbox) -> None:
        """Report to this inbox from now on, in the time of this machine's clock."""
        self._inbox = inbox
        if not self._api.base_url.startswith("http+docker://localhost"):
            self._clock_ahead = seconds(self._api.info()["SystemTime"]) - time.time()

    def follow(self, task: str, container: str) -> None:
        """Report each line of one start of a container, then its end; returns at once."""
        threading.Thread(
            target=self._follow, args=(task, container), name=f"follow-{task}", daemon=True
        ).start()

    def find_position(self, task: str, container: str, known: KnownOutput) -> bool:
        """Find where another supervisor stopped reading, so that `follow` continues there.

        Returns whether the container was started since that supervisor last requested it.
        """
        stream = self._api.logs(container, stream=True, follow=False, timestamps=True)
        printed = list(join_frames(stream))
        if count := overlap(known.printed, [line.text for line in printed]):
            self._last_stamp[task] = printed[count - 1].last_stamp
        state = self._api.inspect_container(container)["State"]
        return seconds(state["StartedAt"]) - self._clock_ahead >= known.since

    def forget(self, task: str) -> None:
        """Forget a task's position: its container is removed, and the next one has a new log."""
        self._last_stamp.pop(task, None)

    def _follow(self, task: str, container: str) -> None:
        inbox = self._inbox
        assert inbox is not None, "report_to comes first"
        try:
            self._read_lines(task, container, inbox, follow=True)
            code = self._api.wait(container, timeout=None)["StatusCode"]
            self._usage.ended(container)
            # Docker 20.10 loses a last line without newline on a followed stream about every
            # third time, but not on a second request.
            self._read_lines(task, container, inbox, follow=False)
            state = self._api.inspect_container(container)["State"]
            ended = seconds(state["FinishedAt"]) - self._clock_ahead
            inbox.put(Exited(task, ended, code, bool(state["OOMKilled"])))
        except Exception as error:  # any error: without its output the run must end
            if isinstance(error, APIError) and error.status_code in (404, 409):
                # It was removed, or is being removed, while it ran.
                inbox.put(Exited(task, time.time(), 128 + signal.SIGKILL))
            else:
                inbox.put(EngineDown(lost(f"follow {task}", error)))

    def _read_lines(self, task: str, container: str, inbox: Inbox, *, follow: bool) -> None:
        """Report lines that the container printed after the last reported one."""
        after = self._last_stamp.get(task, "")
        since = int(seconds(after)) if after else None
        stream = self._api.logs(container, stream=True, follow=follow, timestamps=True, since=since)
        for printed in join_frames(stream, after):
            self._last_stamp[task] = printed.last_stamp
            wall = seconds(printed.first_stamp) - self._clock_ahead
            inbox.put(Line(task, wall, printed.text))
