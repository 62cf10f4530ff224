"""What the parents of warm tasks answer, in between what the tasks print (pure)."""

from __future__ import annotations

import json
from typing import Any

from emulator.engines.docker.log_stream import Printed

STREAMS = {1, 2}
"""Standard output and standard error: each ends with an answer of its own."""


class Answers:
    """Takes the answers to one request out of the lines of a container."""

    def __init__(self, mark: str, request: str) -> None:
        """`mark` begins each answer, wherever in a line; `request` is the id of this request."""
        self._mark, self._request = mark, request
        self._streams: set[int] = set()
        self.answer: dict[str, Any] = {}
        self.stamp = ""
        """The engine's stamp of the last one."""

    @property
    def complete(self) -> bool:
        """Whether both streams have answered: nothing that the task printed comes after that."""
        return self._streams == STREAMS

    def take(self, printed: Printed) -> Printed | None:
        """Return a line of the task, without the answer in it; None if it has nothing else."""
        text, mark, answer = printed.text.partition(self._mark)
        if not mark:
            return printed
        self._note(answer, printed.last_stamp)
        return printed._replace(text=text) if text else None  # a last line without its newline

    def _note(self, text: str, stamp: str) -> None:
        try:
            answer = json.loads(text)
        except ValueError:  # cut off, because it follows a line that is too long: it is repeated
            return
        if answer["request"] == self._request:
            self._streams.add(answer.pop("stream"))
            self.answer, self.stamp = answer, stamp
