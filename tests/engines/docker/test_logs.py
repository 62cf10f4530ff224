"""Frames of Docker's log stream become lines, and what is drawn on one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.engines.docker import drawing
from emulator.engines.docker.drawing import QUIET, SAME, Drawing
from emulator.engines.docker.logs import LogParser
from emulator.engines.kit.lines import LONGEST_LINE, PrintedLine, overlap
from emulator.record.events import Step
from emulator.record.reader import Record
from tests.engines.docker.site import Site
from tests.engines.test_lines import cut

OUT, ERR = 1, 2
A, B, C, D = (f"2026-01-02T03:04:05.00000000{n}Z" for n in (1, 2, 3, 4))
Piece = tuple[int, str, str]


def frame(stream: int, body: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(body).to_bytes(4, "big") + body


def read(log: LogParser, *pieces: Piece) -> list[PrintedLine]:
    """Give it pieces: each its stream, its stamp and its text."""
    sent = (frame(n, f"{stamp} {text}".encode()) for n, stamp, text in pieces)
    return [*log.feed(b"".join(sent))]


def test_an_unfinished_line_is_read_again_with_the_piece_that_the_stream_lacked() -> None:
    """The pieces of a line may all have one stamp."""
    log = LogParser()
    first = [(2, A, "half"), (1, A, "whole\n"), (1, B, "lo")]
    assert (read(log, *first), log.after) == ([PrintedLine(A, "whole", A)], "")
    log.begin_again()
    again = read(log, *first, (1, B, "ng"), (2, C, "err"))
    assert [*again, *log.finish()] == [PrintedLine(A, "halferr", C), PrintedLine(B, "long", B)]


def test_a_line_that_is_too_long_is_cut_and_marked_the_same_however_it_comes() -> None:
    text = "y" * (LONGEST_LINE - 1) + "é" + "z" * 100_000

    def pieces(size: int) -> list[Piece]:
        cuts = [text[at : at + size] for at in range(0, len(text), size)]
        return [*((1, A, cut) for cut in cuts), (1, B, "\n"), (1, C, "next\n")]

    cut = f"{'y' * (LONGEST_LINE - 1)} [cut: 100002 bytes more]"
    first = [PrintedLine(A, cut, B), PrintedLine(C, "next", C)]
    log = LogParser()
    assert [*read(log, *pieces(16 * 1024)), *log.finish()] == first
    # After a take-over it is read again, in other pieces, and found.
    again = [line.text for line in read(LogParser(), *pieces(5000))]
    assert overlap([cut], again) == 1


LINES = st.lists(st.text("abc", max_size=3), max_size=8)


@given(earlier=LINES, printed=st.lists(st.text("abcdef"), max_size=12, unique=True), data=st.data())
def test_what_was_read_of_a_container_is_found_again(
    earlier: list[str], printed: list[str], data: st.DataObject
) -> None:
    """Its lines are distinct; earlier lives may have printed some of the same."""
    cut = data.draw(st.integers(0, len(printed)))
    found = overlap([*earlier, *printed[:cut]], printed)
    assert found >= cut
    # More is taken only where an earlier life has ended with just these lines.
    assert found == 0 or [*earlier, *printed[:cut]][-found:] == printed[:found]
    if cut:
        assert found == cut  # no line is listed twice


@given(read=LINES, printed=LINES)
def test_the_overlap_is_the_longest(read: list[str], printed: list[str]) -> None:
    fits = [n for n in range(1, len(printed) + 1) if n <= len(read) and read[-n:] == printed[:n]]
    assert overlap(read, printed) == max(fits, default=0)


@pytest.mark.parametrize(
    ("read", "printed", "expected"),
    [
        *(("", "", 0), ("", "a", 0), ("a", "", 0), ("a", "a", 1), ("xab", "abc", 2)),
        *(("aaa", "aa", 2), ("aa", "aaa", 2), ("aba", "abab", 3), ("ab", "ba", 1)),
        ([""], ["", ""], 1),
    ],
)
def test_of_lines_that_repeat_the_most_is_taken(
    read: Sequence[str], printed: Sequence[str], expected: int
) -> None:
    assert overlap(read, printed) == expected


# --- The stream of bytes ------------------------------------------------------------------------


@given(st.lists(st.integers(min_value=0)))
def test_lines_are_the_same_however_they_arrive(places: list[int]) -> None:
    texts = {A: ["already read\n"], B: ["whole\r\n"], C: ["in two "], D: ["pieces\n", "no newline"]}
    bodies = (f"{stamp} {text}" for stamp, found in texts.items() for text in found)
    data = b"".join(frame(OUT, body.encode()) for body in bodies)
    lines = LogParser(after=A)
    found = [line for part in cut(data, places) for line in lines.feed(part)]
    assert [*found, *lines.finish()] == [
        PrintedLine(B, "whole", B),
        PrintedLine(C, "in two pieces", D),
        PrintedLine(D, "no newline", D),
    ]
    assert not list(lines.finish())


# --- What a container draws is aligned with its log, and not where that is not sure ---------------


BARS = """
import sys, time
for number in range({lines}):
    print("line", number, flush=True)
    time.sleep(0.05)
for epoch in range(3):
    print(f"Epoch {{epoch + 1}}/3", flush=True)
    width = 0
    for n in range(1, 41):
        bar = f"{{n:2}}/40 [{{'=' * n:40}}] - ETA: 1s - loss: {{1 / (n + epoch):.4f}}"
        sys.stdout.write("\\b" * width + "\\r" + bar)
        sys.stdout.flush()
        width = len(bar)
        time.sleep(0.05)
    end = f"40/40 [{{'=' * 40}}] - 2s 50ms/step - loss: 0.1 - accuracy: 0.9"
    print("\\b" * width + "\\r" + end, flush=True)
"""


class Container:
    """One container: what it prints reaches the log and who is attached when the test says so."""

    def __init__(self, *, from_start: bool = True) -> None:
        self.log = LogParser()
        self.drawing = Drawing(self.log, from_start=from_start)
        self._stamp = 0

    def attached(self, text: str, stream: int = OUT) -> list[str]:
        self.drawing.feed(frame(stream, text.encode()))
        return self.drawing.take_drawn()

    def logged(self, line: str, stream: int = OUT) -> list[str]:
        self._stamp += 1
        stamp = f"2026-01-02T03:04:05.{self._stamp:09}Z"
        assert [one.text for one in read(self.log, (stream, stamp, f"{line}\n"))] == [line]
        return self.drawing.take_drawn()


def bar(begin: int, end: int) -> str:
    return "".join(f"\r{n:4}/100 [{'=' * (n // 5):20}] - ETA: {n}s" for n in range(begin, end))


def test_what_is_drawn_after_the_last_line_of_the_log_is_reported() -> None:
    one = Container()
    assert one.attached("\r1/9") == ["\r1/9"]
    assert one.attached("\r2/9") == ["\r1/9\r2/9"]


def test_it_waits_until_the_log_has_the_lines_before_it() -> None:
    one = Container()
    assert one.attached("\r9/9\nEpoch 2/2\n\r1/9") == []
    assert one.logged("\r9/9") == []
    assert one.logged("Epoch 2/2") == ["\r1/9"]


def test_it_says_nothing_of_a_line_that_the_log_has_finished() -> None:
    one = Container()
    assert one.logged("\r8/9\r9/9") == []
    assert one.logged("Epoch 2/2") == []
    assert one.attached("\r8/9") == []  # late: the log would count it for the second epoch
    assert one.attached("\r9/9\nEpoch 2/2\n\r1/9") == ["\r1/9"]


def test_standard_output_and_standard_error_have_lines_of_their_own() -> None:
    one = Container()
    assert one.attached("epoch 1 begins\n") == []
    assert one.attached("\r1/9", ERR) == ["\r1/9"]
    assert one.logged("a warning", ERR) == []
    assert one.attached("\r2/9", ERR) == []


def test_attached_later_it_finds_its_place_by_a_line_that_both_have() -> None:
    one = Container(from_start=False)
    for number in range(5):
        one.logged(f"earlier {number}")
    assert one.attached(bar(50, 80)) == []
    assert one.attached(bar(80, 100) + "\nEpoch 2/2\n" + bar(1, 3)) == []
    assert one.logged(bar(1, 100)) == []
    assert one.logged("Epoch 2/2") == [bar(1, 3)]
    assert [bar(1, 100).endswith(text) for text in one.attached(bar(3, 100))] == [True]
    assert one.attached("\n") == []
    assert one.attached("Epoch 3/3\n" + bar(1, 2)) == []
    assert one.logged(bar(1, 100)) == []
    assert one.logged("Epoch 3/3") == [bar(1, 2)]
    assert one.attached(bar(2, 3)) == [bar(1, 3)]


@pytest.mark.parametrize("same", ["done", "x" * 2 * SAME, "\r1/2\r2/2"])
def test_lines_that_may_be_repeated_are_no_proof(same: str) -> None:
    one = Container(from_start=False)
    one.logged(same)
    assert one.attached(f"{same}\n\r1/9") == []
    assert one.attached("\r2/9") == []


def test_a_newline_that_was_missed_is_made_up_for() -> None:
    one = Container()
    for line in ("one", "two"):
        one.logged(line)
    assert one.attached(bar(1, 100)) == []
    assert one.logged(bar(1, 100)) == []
    assert one.attached("\n\r1/9") == ["\r1/9"]


def test_a_program_that_draws_nothing_needs_it_no_longer() -> None:
    one = Container()
    for number in range(QUIET):
        one.attached(f"line {number}\n")
    assert not one.drawing.is_needless
    one.attached("\r1/9")
    one.attached("\n")
    for number in range(QUIET):
        one.attached(f"line {number}\n")
    assert one.drawing.is_needless


def test_a_flood_is_not_read_twice() -> None:
    one = Container()
    one.attached("a line\n" * 50_000)
    assert one.drawing.is_needless


@pytest.mark.docker
@pytest.mark.parametrize("lines", [0, 20])
def test_steps_of_a_bar_are_read_within_its_line(
    site: Site, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    """Also where it was not attached any more when the first bar came."""
    monkeypatch.setattr(drawing, "QUIET", 3)
    site.interpreter = "python3"
    result = site.run(BARS.format(lines=lines), "framework: tensorflow\ncluster: {worker: 2}\n")
    assert result.outcome == "succeeded"
    for task in ("worker-0", "worker-1"):
        history = Record(result.folder).history
        steps = [one for one in history if isinstance(one, Step) and one.task == task]
        numbers = [one.step for one in steps]
        assert numbers == sorted(numbers)
        assert {40, 80, 120} <= {*numbers}
        assert len([n for n in numbers if 80 < n < 120]) > 5
        first = [n for n in numbers if n < 40]
        assert len(first) > 5 if lines == 0 else not first
        assert [one.step for one in steps if one.values] == [40, 80, 120]
