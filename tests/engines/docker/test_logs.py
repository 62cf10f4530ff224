"""Frames of Docker's log stream become lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.engines.docker.log_stream import LogLines, Printed, seconds
from emulator.engines.lines import LONGEST_LINE, overlap

A, B, C = (f"2026-01-02T03:04:05.00000000{n}Z" for n in (1, 2, 3))


def join_frames(frames: Iterable[bytes], after: str = "") -> Iterator[Printed]:
    log = LogLines(after)
    for frame in frames:
        yield from log.frame(1, frame)
    yield from log.finish()


def frames(*pieces: tuple[str, str]) -> list[bytes]:
    return [f"{stamp} {text}".encode() for stamp, text in pieces]


def test_each_frame_with_a_newline_is_a_line() -> None:
    assert list(join_frames(frames((A, "one\n"), (B, "two\r\n"), (C, "\n")))) == [
        Printed(A, A, "one"),
        Printed(B, B, "two"),
        Printed(C, C, ""),
    ]


def test_pieces_of_a_long_line_are_joined_and_keep_both_stamps() -> None:
    assert list(join_frames(frames((A, "lo"), (B, "ng\n"), (C, "end")))) == [
        Printed(A, B, "long"),
        Printed(C, C, "end"),
    ]


def test_pieces_of_the_two_streams_are_never_joined() -> None:
    log = LogLines()
    pieces = [(1, A, "o"), (2, A, "err"), (1, B, "ut\n"), (2, C, "or"), (1, C, "rest")]
    found = [line for n, stamp, text in pieces for line in log.frame(n, f"{stamp} {text}".encode())]
    assert [*found, *log.finish()] == [
        Printed(A, B, "out"),
        Printed(C, C, "rest"),
        Printed(A, C, "error"),
    ]


def test_an_unfinished_line_is_read_again_with_the_piece_that_the_stream_lacked() -> None:
    """The pieces of a line may all have one stamp."""
    log = LogLines()
    first = [(2, A, "half"), (1, A, "whole\n"), (1, B, "lo")]
    found = [line for n, stamp, text in first for line in log.frame(n, f"{stamp} {text}".encode())]
    assert (found, log.after) == ([Printed(A, A, "whole")], "")
    log.begin_again()
    again = [*first, (1, B, "ng"), (2, C, "err")]
    found = [line for n, stamp, text in again for line in log.frame(n, f"{stamp} {text}".encode())]
    assert [*found, *log.finish()] == [Printed(A, C, "halferr"), Printed(B, B, "long")]


def test_what_was_read_before_is_left_out() -> None:
    assert list(join_frames(frames((A, "old"), (B, "old\n"), (C, "new\n")), after=B)) == [
        Printed(C, C, "new")
    ]


def test_a_line_that_is_too_long_is_cut_and_marked_the_same_however_it_comes() -> None:
    size, long = 16 * 1024, LONGEST_LINE + 100_000
    text = ("y" * (LONGEST_LINE - 1) + "é" + "z" * 100_000)[: long - 1]
    raw = text.encode()

    def pieces(size: int) -> list[bytes]:
        cuts = [raw[at : at + size] for at in range(0, len(raw), size)]
        return [
            *(A.encode() + b" " + cut for cut in cuts),
            B.encode() + b" \n",
            b"%s next\n" % C.encode(),
        ]

    first, second = join_frames(pieces(size))
    assert (
        first.text == f"{'y' * (LONGEST_LINE - 1)} [cut: {len(raw) - LONGEST_LINE + 1} bytes more]"
    )
    assert (first.first_stamp, first.last_stamp, second) == (A, B, Printed(C, C, "next"))
    # After a take-over it is read again, in other pieces, and found.
    again = [line.text for line in join_frames(pieces(5000))]
    assert overlap([first.text], again) == 1


def test_bytes_that_are_no_text_survive() -> None:
    (line,) = join_frames([A.encode() + b" \xff\xfe\n"])
    assert line.text.encode("utf-8", "surrogateescape") == b"\xff\xfe"


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
