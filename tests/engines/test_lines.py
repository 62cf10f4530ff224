"""How long a line may be, whatever the pieces in which it arrives."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.engines.kit.lines import (
    DRAWN,
    LONGEST_LINE,
    DrawnLine,
    EndOfOutput,
    LineSplitter,
    UnfinishedLine,
    seconds,
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Cut bytes at some places, as they may arrive."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[one:other] for one, other in itertools.pairwise(edges)]


def split_lines(chunks: Iterable[bytes], longest: int = LONGEST_LINE) -> Iterator[str]:
    lines = LineSplitter(longest)
    for chunk in chunks:
        yield from lines.feed(chunk)
    yield from lines.finish()


def text_of(*pieces: bytes, longest: int = 8) -> str:
    line = UnfinishedLine(longest)
    for piece in pieces:
        line.add(piece)
    return line.finish()


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        (b"", ""),
        (b"loss 0.4", "loss 0.4"),
        (b"loss 0.4\r", "loss 0.4"),
        (b"loss 0.4\r\r", "loss 0.4 [cut: 1 bytes more]"),
        (b"loss 0.41", "loss 0.4 [cut: 1 bytes more]"),
        (b"loss 0.41\r", "loss 0.4 [cut: 1 bytes more]"),
        (b"loss 0.4" + b"x" * 1000, "loss 0.4 [cut: 1000 bytes more]"),
        ("loss …".encode(), "loss …"),
        ("losses …".encode(), "losses  [cut: 3 bytes more]"),  # no character is split
        ("losses é!".encode(), "losses  [cut: 3 bytes more]"),
        ("loss 💡".encode(), "loss  [cut: 4 bytes more]"),
        (b"\x80" * 9, "\udc80" * 8 + " [cut: 1 bytes more]"),  # no UTF-8 at all
    ],
)
def test_a_line_is_cut_and_marked(printed: bytes, text: str) -> None:
    assert text_of(printed) == text


@given(
    st.lists(st.binary(max_size=6).map(lambda piece: piece.replace(b"\n", b"")), max_size=8),
    st.integers(1, 12),
)
def test_the_pieces_do_not_matter(pieces: list[bytes], longest: int) -> None:
    assert text_of(*pieces, longest=longest) == text_of(b"".join(pieces), longest=longest)


@given(st.binary(max_size=40), st.lists(st.integers(0, 40)), st.integers(1, 12))
def test_the_chunks_do_not_matter(printed: bytes, cuts: list[int], longest: int) -> None:
    assert list(split_lines(cut(printed, cuts), longest)) == list(split_lines([printed], longest))


def test_a_line_that_is_finished_leaves_nothing_for_the_next() -> None:
    printed = [b"0123456789\r\n\nab", b"c\n01", b"2"]
    lines = ["01234567 [cut: 2 bytes more]", "", "abc", "012"]
    assert list(split_lines(printed, 8)) == lines


def test_the_limit_is_one_mebibyte() -> None:
    lines = list(split_lines([b"x" * LONGEST_LINE + b"\n" + b"x" * (LONGEST_LINE + 5)]))
    assert lines == ["x" * 1048576, "x" * 1048576 + " [cut: 5 bytes more]"]


def test_an_endless_line_takes_no_more_memory_than_the_limit() -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(4000):  # 250 MB
            yield b"x" * 65536

    tracemalloc.start()
    try:
        (line,) = split_lines(endless())
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert line.endswith(f" [cut: {4000 * 65536 - LONGEST_LINE} bytes more]")
    assert most < 5 * LONGEST_LINE


def test_what_is_drawn_is_the_end_of_the_unfinished_line() -> None:
    line = DrawnLine()
    line.feed(b"Epoch 1/2\n")
    assert not line.is_drawn
    line.feed(b" 1/20 [>..]")
    assert not line.is_drawn  # nothing of it was drawn again
    line.feed(b"\b\b\r 2/20 [=>.]")
    assert line.is_drawn
    assert line.take_drawn() == " 1/20 [>..]\b\b\r 2/20 [=>.]"
    assert not line.is_drawn  # nothing is new
    line.feed(b"\n")
    line.feed(b"Epoch 2/2\n")
    assert (line.is_drawn, line.newlines) == (False, 3)
    assert line.last_drawn == (2, b" 1/20 [>..]\b\b\r 2/20 [=>.]")


@given(st.text("ab\r\n", max_size=40), st.lists(st.integers(0, 40)))
def test_of_what_is_drawn_the_pieces_do_not_matter(printed: str, cuts: list[int]) -> None:
    line = DrawnLine()
    for piece in cut(printed.encode(), cuts):
        line.feed(piece)
    *lines, rest = printed.split("\n")
    assert line.newlines == len(lines)
    number, end = line.last_drawn
    assert end.decode() == (lines[number - 1] if number else "")
    assert line.take_drawn() == rest


def test_of_a_long_drawn_line_the_end_is_kept() -> None:
    line = DrawnLine()
    for number in range(10_000):
        line.feed(b"\r%d/10000 [==>..]" % number)
    text = line.take_drawn()
    assert (len(text), text[-18:]) == (DRAWN, "\r9999/10000 [==>..]"[-18:])


@pytest.mark.parametrize(
    ("pieces", "lines", "left_out"),
    [
        ([], [], 0),
        ([b"rest of a line\nnext\nlast"], ["next", "last"], 15),
        ([b"no newline"], [], 10),
        ([b"a\n" * 100, b"the last\n"], ["a"] * 5 + ["the last"], 190),
        ([b"x" * 100, b"\n", b"the last\n"], ["the last"], 101),
    ],
)
def test_of_an_output_that_is_left_out_whole_lines_at_the_end_are_kept(
    pieces: list[bytes], lines: list[str], left_out: int
) -> None:
    end = EndOfOutput(size=20)
    for piece in pieces:
        end.feed(piece)
    assert (list(end.lines()), end.left_out) == (lines, left_out)


def test_what_comes_after_a_newline_is_a_whole_line() -> None:
    """The last words were lost where the output was given up just before them."""
    splitter = LineSplitter()
    assert list(splitter.feed(b"flood\n\n")) == ["flood", ""]
    end = EndOfOutput(size=20, is_between_lines=splitter.is_between_lines)
    end.feed(b"last\n")
    assert (list(end.lines()), end.left_out) == (["last"], 0)
    assert list(splitter.feed(b"flo")) == []
    assert not splitter.is_between_lines
    assert list(splitter.feed(b"od\n")) == ["flood"]
    assert splitter.is_between_lines


def test_stamps_are_seconds_since_1970() -> None:
    assert seconds("1970-01-01T00:01:00.500000000Z") == 60.5
