"""One thread reads all output, and passes on what has arrived as one event."""

from __future__ import annotations

import queue
import socket
import threading

import pytest

from emulator.engines import base
from emulator.engines.base import Exited, Inbox, Line, Lines
from emulator.engines.kit.streams import (
    EVERY,
    LEAST,
    MUCH,
    UNHURRIED,
    Arrived,
    Pace,
    Streams,
    _in_order,
)
from tests.engines.inbox import EachLine


class Source:
    """A task whose output comes through a socket; `fails` is raised when it is read."""

    def __init__(self, task: str, fails: Exception | None = None) -> None:
        self.task, self.fails = task, fails
        self.reading, self.writing = socket.socketpair()
        self.reading.setblocking(False)
        self.over = threading.Event()
        self.error: Exception | None = None
        self.thread = ""
        self.given_up = threading.Semaphore(0)

    def fileno(self) -> int:
        return self.reading.fileno()

    def read(self) -> Arrived:
        if self.fails:
            raise self.fails
        try:
            data = self.reading.recv(65536)
        except BlockingIOError:
            return Arrived([], 0, has_ended=False)
        lines = [Line(self.task, 0.0, text) for text in data.decode().split()]
        return Arrived(lines, len(data), has_ended=not data)

    def give_up(self) -> None:
        self.given_up.release()

    def ended(self, error: Exception | None) -> None:
        self.error, self.thread = error, threading.current_thread().name
        self.reading.close()
        self.over.set()

    def write(self, text: str) -> None:
        self.writing.sendall(text.encode())

    def close(self) -> None:
        """Close it, and wait until its end is announced."""
        self.writing.close()
        assert self.over.wait(60)


class Rounds:
    """Stands in for the wait between two batches: each is made to wait until it is let go."""

    def __init__(self) -> None:
        self.waits, self.go = threading.Semaphore(0), threading.Semaphore(0)
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.waits.release()
        assert self.go.acquire(timeout=300)


def texts(inbox: Inbox) -> list[str]:
    """Return the lines of the next event."""
    return [line.text for line in inbox.get(timeout=300).lines]


def test_what_arrives_between_two_rounds_is_one_event() -> None:
    streams = Streams(inbox := Inbox(), rounds := Rounds())
    one, other = Source("worker-0"), Source("worker-1")
    streams.add(one)
    assert rounds.waits.acquire(timeout=300)  # the thread has looked, and waits
    streams.add(other)
    one.write("a b ")
    other.write("x ")
    one.write("c ")
    rounds.go.release()
    event = inbox.get(timeout=300)
    assert isinstance(event, Lines)
    found: dict[str, list[str]] = {}
    for line in event.lines:
        found.setdefault(line.task, []).append(line.text)
    assert found == {"worker-0": ["a", "b", "c"], "worker-1": ["x"]}
    rounds.go.release(1000)
    for source in (one, other):
        source.close()
    assert inbox.empty()


def test_lines_come_before_the_end_and_the_end_is_reported_on_a_thread_of_its_own() -> None:
    streams = Streams(inbox := Inbox())
    source = Source("worker-0")
    source.write("last ")
    source.writing.close()
    streams.add(source)
    assert source.over.wait(60)
    assert texts(inbox) == ["last"]
    assert (source.error, source.thread) == (None, "ended")


def test_an_error_ends_its_source_alone() -> None:
    streams = Streams(inbox := Inbox())
    broken, sound = Source("worker-0", ValueError("no chunk")), Source("worker-1")
    streams.add(sound)
    streams.add(broken)
    assert broken.over.wait(60)
    assert str(broken.error) == "no chunk"
    sound.write("still here ")
    assert texts(inbox) == ["still", "here"]
    for source in (sound, broken):
        source.close()


def test_the_thread_ends_with_the_last_source_and_another_begins_with_the_next() -> None:
    streams = Streams(inbox := Inbox())
    for text in ("first", "second"):
        source, others = Source("worker-0"), set(threading.enumerate())
        streams.add(source)
        started = set(threading.enumerate()) - others
        (thread,) = [one for one in started if one.name == "streams"]
        source.write(text)
        assert texts(inbox) == [text]
        source.close()
        thread.join(60)
        assert not thread.is_alive()


def test_a_source_is_read_although_nothing_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams(Inbox())
    source = Source("worker-0")
    streams.add(source)
    looked = threading.Event()

    def read() -> Arrived:
        looked.set()
        return Arrived([], 0, has_ended=True)

    monkeypatch.setattr(source, "read", read)
    streams.look_at(source)
    assert looked.wait(60)
    source.close()


def test_a_source_that_has_ended_is_not_read_again() -> None:
    """A task may end while its last output is read: its end is seen before it is announced."""
    streams = Streams(inbox := Inbox())
    ended, lasting = Source("worker-0"), Source("worker-1")
    streams.add(lasting)
    streams.add(ended)
    ended.close()
    ended.over.clear()
    streams.look_at(ended)
    lasting.write("still here ")
    assert texts(inbox) == ["still", "here"]
    lasting.close()
    assert not ended.over.is_set()
    streams.look_at(lasting)  # its thread has ended as well


def test_many_lines_are_several_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emulator.engines.kit.streams.IN_AN_EVENT", 3)
    streams = Streams(inbox := Inbox())
    source = Source("worker-0")
    source.write("a b c d e f g ")
    streams.add(source)
    source.close()
    assert [texts(inbox) for _ in range(3)] == [["a", "b", "c"], ["d", "e", "f"], ["g"]]


@pytest.mark.parametrize(
    ("stamped", "hurried", "size", "seconds"),
    [
        (True, False, 1, UNHURRIED),
        (True, False, MUCH - 1, UNHURRIED),
        (True, False, MUCH, LEAST),  # its socket would be full before the next batch
        (False, False, MUCH, LEAST),
        (True, True, 1, EVERY),
        (False, False, 1, EVERY),  # the time of a step would be that of the batch
    ],
)
def test_batches_are_rarer_while_nothing_depends_on_a_line(
    stamped: bool, hurried: bool, size: int, seconds: float
) -> None:
    inbox, rounds = Inbox(), Rounds()
    inbox.hurried = hurried
    streams = Streams(inbox, rounds, stamped=stamped)
    quiet, source = Source("worker-0"), Source("worker-1")
    source.write("x" * size)  # an unfinished line counts as well
    streams.add(source)
    streams.add(quiet)
    assert rounds.waits.acquire(timeout=300)
    assert rounds.seconds == [seconds]
    rounds.go.release(1000)
    for one in (quiet, source):
        one.close()


def test_the_waits_become_long_again_as_less_arrives_in_them() -> None:
    """A task that printed without end was read at 1 MB/s: a long wait came after each large batch.

    In a millisecond, little arrives from any task: that is no sign that it prints little.
    """
    pace = Pace()
    waits = [pace.after(size, calm=True) for size in (MUCH, 1, 1, MUCH, 1)]
    assert waits == [LEAST, 2 * LEAST, 4 * LEAST, LEAST, 2 * LEAST]
    waits = [pace.after(1, calm=True) for _ in range(20)]
    assert waits == sorted(waits)
    assert (waits[-1], sum(waits) < 4 * 20 * UNHURRIED) == (UNHURRIED, True)
    assert pace.after(1, calm=False) == EVERY  # something depends on a line


def test_a_source_is_given_up_when_more_has_come_than_is_still_wanted() -> None:
    streams = Streams(inbox := Inbox())
    much, little = Source("worker-0"), Source("worker-1")
    for source in (much, little):
        streams.add(source)
        source.write("wanted " * 100)
        taken = 0
        while taken < 100:
            taken += len(inbox.get(timeout=300).lines)
    inbox.rest = 20
    little.write("last words ")
    much.write("x " * 11)
    assert much.given_up.acquire(timeout=300)
    much.write("more " * 100)
    for source in (much, little):
        source.close()
    assert not much.given_up.acquire(blocking=False)  # once is enough
    assert not little.given_up.acquire(blocking=False)


def test_a_long_wait_ends_once_something_depends_on_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emulator.engines.kit.streams.UNHURRIED", 3600.0)
    inbox = Inbox()
    inbox.hurried = False
    streams = Streams(inbox, stamped=True)
    source = Source("worker-0")
    source.write("first ")
    streams.add(source)
    assert texts(inbox) == ["first"]
    source.write("second ")
    source.writing.close()
    inbox.hurried = True
    assert texts(inbox) == ["second"]
    assert source.over.wait(60)


def test_lines_are_in_the_order_of_their_time_and_those_of_one_task_as_they_were_read() -> None:
    # The clock of the first was set back: the order of its lines stays.
    batch = (("a", (1.0, 3.0, 2.5)), ("b", (2.0, 4.0)))
    a, b = ([Line(task, wall, f"{task} {wall}") for wall in walls] for task, walls in batch)
    expected = ["a 1.0", "b 2.0", "a 3.0", "a 2.5", "b 4.0"]
    assert [line.text for line in _in_order([a, b])] == expected
    assert _in_order([a]) == a
    # What was drawn on a line, at the time of reading, and then the line with its stamp.
    drawn, line = Line("a", 9.0, "\r69/70", is_finished=False), Line("a", 8.0, "\r70/70")
    other = Line("b", 8.5, "b")
    found = [one.text for one in _in_order([[drawn], [other], [line]]) if one.task == "a"]
    assert found == ["\r69/70", "\r70/70"]


# --- The inbox: lines wait for room, by their number and by their length; nothing else waits ------


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
