"""Lines by which a task says that it has noticed a fault of another (pure).

That is a line that names another task, a time-out, a lost connection or a failing disk, unlike all
that the task printed before the first fault. Frameworks say it in words of their own; the pattern
has those of gloo, NCCL, c10d, gRPC, TensorFlow, JAX and the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from emulator.record.events import Complaint

if TYPE_CHECKING:
    from emulator.planning.plan import Task

LONGEST = 200
"""Characters of a line that are kept."""
MOST = 3
"""Lines of a task that are kept after each fault."""
SHAPES = 1000
"""Different lines of a task that are remembered from before the first fault."""

TROUBLE = (
    r"time[ds]?[- ]?out|deadline|watchdog|heartbeat|unavailable|unresponsive|unreachable"
    r"|not (?:responding|responsive)|broken pipe|no route to host|host is down"
    r"|(?:connection|socket|peer|channel|stream)\b.{0,30}\b(?:reset|closed|refused|lost|aborted)"
    r"|no space left|read-only file system|input/output error|stale file handle"
)
SIGNS = (
    *("timeout", "timed out", "time out", "time-out", "deadline", "watchdog", "heartbeat"),
    *("unavailable", "unresponsive", "unreachable", "not respon", "broken pipe", "no route"),
    *("host is down", "reset", "closed", "refused", "lost", "aborted", "no space left"),
    *("read-only file", "input/output err", "stale file"),
)
"""A line that has trouble has one of these: most lines have none, and looking for them is quick."""
_NUMBER = re.compile(r"[0-9a-f]*[0-9][0-9a-f]*", re.IGNORECASE)


class Complaints:
    """What the tasks of a run have complained of."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        tasks = list(tasks)
        self._signs = [*SIGNS, *dict.fromkeys(sign for one in tasks for sign in _signs(one))]
        self._patterns: dict[str, re.Pattern[str]] = {}
        for task in tasks:
            names = [name for other in tasks if other is not task for name in _names(other)]
            words = "|".join([TROUBLE, *(rf"(?<![\w-]){name}(?![\w-])" for name in names)])
            self._patterns[task.name] = re.compile(words, re.IGNORECASE)
        self._usual: dict[str, set[str]] = {name: set() for name in self._patterns}
        self._since: dict[str, set[str]] = {}
        self._is_usual = True

    def after_fault(self) -> None:
        """A fault takes effect: from here on, lines count."""
        self._is_usual = False
        self._since = {name: set() for name in self._patterns}

    def on_line(self, task: str, line: str) -> Complaint | None:
        """Return the complaint that a line is; None: it is none, or not the first of its kind."""
        lower = line.lower()
        if not any(sign in lower for sign in self._signs):
            return None
        if task not in self._patterns or not self._patterns[task].search(line):
            return None
        shape = _NUMBER.sub("0", line.strip()[:LONGEST])
        usual, since = self._usual[task], self._since.get(task, set())
        if self._is_usual:
            if len(usual) < SHAPES:
                usual.add(shape)
            return None
        if shape in usual or shape in since or len(since) >= MOST:
            return None
        since.add(shape)
        return Complaint(task=task, line=line.strip()[:LONGEST])


def _names(task: Task) -> Iterable[str]:
    """Yield the patterns of what programs call a task."""
    yield re.escape(task.name)
    yield rf"{re.escape(task.host)}:{task.port}"
    yield rf"/job:{re.escape(task.role)}/replica:\d+/task:{task.index}"


def _signs(task: Task) -> Iterable[str]:
    """Yield what a line has that names a task so, in lower case."""
    return (task.name.lower(), f"{task.host}:{task.port}".lower(), f"/job:{task.role}/".lower())
