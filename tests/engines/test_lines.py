"""How long a line may be, whatever the pieces in which it arrives."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.engines.lines import LONGEST_LINE, LineSplitter, UnfinishedLine


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
    places = [0, *sorted(cuts), len(printed)]
    chunks = [printed[a:b] for a, b in itertools.pairwise(places)]
    assert list(split_lines(chunks, longest)) == list(split_lines([printed], longest))


def test_a_line_that_is_finished_leaves_nothing_for_the_next() -> None:
    assert list(split_lines([b"0123456789\r\n\nab", b"c\n01", b"2"], 8)) == [
        "01234567 [cut: 2 bytes more]",
        "",
        "abc",
        "012",
    ]


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
