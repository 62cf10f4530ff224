"""An inbox that returns each line by itself, however they were batched."""

from __future__ import annotations

from collections import deque
from typing import Any

from emulator.engines.base import Inbox, Line, Lines

__all__ = ["EachLine"]


class EachLine(Inbox):
    """Unpacks batches of lines."""

    def __init__(self) -> None:
        super().__init__()
        self._unpacked: deque[Line] = deque()

    def get(self, *, timeout: float | None = None) -> Any:
        """Return the next line or other event."""
        while not self._unpacked:
            event = super().get(timeout=timeout)
            if not isinstance(event, Lines):
                return event
            self._unpacked += event.lines
        return self._unpacked.popleft()

    def empty(self) -> bool:
        """Say whether nothing is there."""
        return not self._unpacked and super().empty()
