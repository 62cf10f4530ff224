"""Docker's log stream: the same lines, in whatever pieces its bytes arrive."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from emulator.engines.docker.log_stream import LogLines, Printed
from emulator.engines.lines import LONGEST_LINE

STAMP = "2026-11-22T05:12:10.00000000{}Z"


def frame(stamp: str, text: bytes) -> bytes:
    body = stamp.encode() + b" " + text
    return b"\x01\0\0\0" + len(body).to_bytes(4, "big") + body


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Cut bytes at some places."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[one:other] for one, other in itertools.pairwise(edges)]


@given(st.lists(st.integers(min_value=0)))
def test_lines_are_the_same_however_they_arrive(places: list[int]) -> None:
    one, two, three, four = (STAMP.format(n) for n in range(1, 5))
    data = (
        frame(one, b"already read\n")
        + frame(two, b"whole\r\n")
        + frame(three, b"in two ")
        + frame(four, b"pieces\n")
        + frame(four, b"no newline")
    )
    lines = LogLines(after=one)
    found = [line for part in cut(data, places) for line in lines.feed(part)]
    assert [*found, *lines.finish()] == [
        Printed(two, two, "whole"),
        Printed(three, four, "in two pieces"),
        Printed(four, four, "no newline"),
    ]
    assert not list(lines.finish())


def test_a_long_line_is_cut_and_takes_no_more_memory_than_it_keeps() -> None:
    lines = LogLines()
    piece = frame(STAMP.format(1), b"x" * 16384)
    for _ in range(200):
        assert not list(lines.feed(piece))
    (line,) = lines.feed(frame(STAMP.format(2), b"\n"))
    assert line.text == "x" * LONGEST_LINE + f" [cut: {200 * 16384 - LONGEST_LINE} bytes more]"
