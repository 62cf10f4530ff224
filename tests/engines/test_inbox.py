"""The inbox: lines wait for room, by their number and by their length; nothing else waits."""

from __future__ import annotations

import queue
import threading

import pytest

from emulator.engines import base
from emulator.engines.base import Exited, Inbox, Line, Lines
from tests.engines.inbox import EachLine


def fill(inbox: Inbox, line: Line, count: int) -> threading.Thread:
    """Put lines into it on a thread, as an engine does."""

    def prints() -> None:
        for _ in range(count):
            inbox.put(line)

    thread = threading.Thread(target=prints, name="prints", daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(("length", "room"), [(0, 20), (10, 20), (100, 10), (5000, 1)])
def test_a_reader_blocks_while_the_inbox_is_full(
    monkeypatch: pytest.MonkeyPatch, length: int, room: int
) -> None:
    monkeypatch.setattr(base, "LINES_WAITING", 20)
    monkeypatch.setattr(base, "CHARACTERS_WAITING", 1000)
    inbox, line = EachLine(), Line("worker-0", 0.0, "x" * length)
    first = fill(inbox, line, room)
    first.join(60)
    assert not first.is_alive()
    more = fill(inbox, line, 100)
    more.join(0.05)
    assert inbox._lines == room
    for _ in range(room + 100):
        assert inbox.get(timeout=300) == line
    more.join(60)
    assert not more.is_alive()
    assert inbox.empty()
    assert (inbox._lines, inbox._characters) == (0, 0)


def test_a_full_inbox_takes_all_that_is_no_line_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "LINES_WAITING", 1)
    inbox = EachLine()
    inbox.put(Line("worker-0", 0.0, "a"))
    prints = fill(inbox, Line("worker-0", 0.0, "b"), 1)
    end = Exited("worker-1", 0.0, 0)
    inbox.put(end)  # in this thread: it would stand still for ever
    assert prints.is_alive()
    assert [inbox.get(timeout=300) for _ in range(2)][1] == end
    assert inbox.get(timeout=300).text == "b"


def test_what_is_urgent_overtakes_the_lines_and_nothing_else_changes_its_place() -> None:
    """Ctrl-C must not wait for what tasks print."""
    inbox = Inbox()
    lines, end = Lines([Line("worker-0", 0.0, "a")]), Exited("worker-0", 0.0, 0)
    for event in (lines, end):
        inbox.put(event)
    inbox.put("first", urgent=True)
    inbox.put(lines)
    inbox.put("second", urgent=True)
    inbox.put(end)
    taken = [inbox.get(timeout=300) for _ in range(3)]
    assert taken == ["first", "second", lines]
    assert not inbox.empty()
    inbox.put("third", urgent=True)
    assert [inbox.get(timeout=300) for _ in range(4)] == ["third", end, lines, end]
    assert inbox.empty()
    with pytest.raises(queue.Empty):
        inbox.get(timeout=0.001)
    inbox.put("fourth", urgent=True)
    assert not inbox.empty()
    assert inbox.get(timeout=300) == "fourth"
