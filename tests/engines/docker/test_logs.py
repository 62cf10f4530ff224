"""Frames of Docker's log stream become lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.engines.docker.log_stream import LogParser, PrintedLine, seconds
from emulator.engines.lines import LONGEST_LINE, overlap
from tests.engines.pieces import cut

A, B, C, D = (f"2026-01-02T03:04:05.00000000{n}Z" for n in (1, 2, 3, 4))


Piece = tuple[int, str, str]


def read(log: LogParser, *pieces: Piece) -> list[PrintedLine]:
    """Give it pieces: each its stream, its stamp and its text."""
    sent = ((n, f"{stamp} {text}".encode(errors="surrogateescape")) for n, stamp, text in pieces)
    return [line for n, frame in sent for line in log.frame(n, frame)]


def whole(*pieces: Piece, after: str = "") -> list[PrintedLine]:
    log = LogParser(after)
    return [*read(log, *pieces), *log.finish()]


def test_an_unfinished_line_is_read_again_with_the_piece_that_the_stream_lacked() -> None:
    """The pieces of a line may all have one stamp."""
    log = LogParser()
    first = [(2, A, "half"), (1, A, "whole\n"), (1, B, "lo")]
    assert (read(log, *first), log.after) == ([PrintedLine(A, A, "whole")], "")
    log.begin_again()
    again = read(log, *first, (1, B, "ng"), (2, C, "err"))
    assert [*again, *log.finish()] == [PrintedLine(A, C, "halferr"), PrintedLine(B, B, "long")]


def test_a_line_that_is_too_long_is_cut_and_marked_the_same_however_it_comes() -> None:
    text = "y" * (LONGEST_LINE - 1) + "é" + "z" * 100_000

    def pieces(size: int) -> list[Piece]:
        cuts = [text[at : at + size] for at in range(0, len(text), size)]
        return [*((1, A, cut) for cut in cuts), (1, B, "\n"), (1, C, "next\n")]

    cut = f"{'y' * (LONGEST_LINE - 1)} [cut: 100002 bytes more]"
    first = [PrintedLine(A, B, cut), PrintedLine(C, C, "next")]
    assert whole(*pieces(16 * 1024)) == first
    # After a take-over it is read again, in other pieces, and found.
    again = [line.text for line in whole(*pieces(5000))]
    assert overlap([cut], again) == 1


def test_stamps_are_seconds_since_1970() -> None:
    assert seconds("1970-01-01T00:01:00.500000000Z") == 60.5


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
        ([], [], 0),
        ([], ["a"], 0),
        (["a"], [], 0),
        (["a"], ["a"], 1),
        (["x", "a", "b"], ["a", "b", "c"], 2),
        (["a", "a", "a"], ["a", "a"], 2),
        (["a", "a"], ["a", "a", "a"], 2),
        (["a", "b", "a"], ["a", "b", "a", "b"], 3),
        (["a", "b"], ["b", "a"], 1),
        ([""], ["", ""], 1),
    ],
)
def test_of_lines_that_repeat_the_most_is_taken(
    read: list[str], printed: list[str], expected: int
) -> None:
    assert overlap(read, printed) == expected


# --- The stream of bytes ------------------------------------------------------------------------


def frame(stamp: str, text: bytes) -> bytes:
    body = stamp.encode() + b" " + text
    return b"\x01\0\0\0" + len(body).to_bytes(4, "big") + body


@given(st.lists(st.integers(min_value=0)))
def test_lines_are_the_same_however_they_arrive(places: list[int]) -> None:
    data = (
        frame(A, b"already read\n")
        + frame(B, b"whole\r\n")
        + frame(C, b"in two ")
        + frame(D, b"pieces\n")
        + frame(D, b"no newline")
    )
    lines = LogParser(after=A)
    found = [line for part in cut(data, places) for line in lines.feed(part)]
    assert [*found, *lines.finish()] == [
        PrintedLine(B, B, "whole"),
        PrintedLine(C, D, "in two pieces"),
        PrintedLine(D, D, "no newline"),
    ]
    assert not list(lines.finish())
