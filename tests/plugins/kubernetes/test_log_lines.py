"""A Pod's log: the same lines, in whatever pieces its bytes arrive, and none of them twice."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from emulator.engines.kit.lines import LONGEST_LINE, PrintedLine
from emulator.plugins.kubernetes.log_lines import PIECE, LogParser, Position, canonical
from tests.engines.test_lines import cut as in_pieces


def stamp(number: int) -> str:
    return f"2026-11-22T05:12:{10 + number // 10:02}.{number % 10}00000000Z"


def record(number: int, text: bytes) -> bytes:
    return stamp(number).encode() + b" " + text


def lines_of(data: bytes, places: list[int] | None = None) -> list[PrintedLine]:
    lines = LogParser()
    pieces = in_pieces(data, places or [])
    return [*(line for piece in pieces for line in lines.feed(piece)), *lines.finish()]


LONG = b"x" * PIECE + b"y" * PIECE + b"z" * 100
UMLAUTS = "ä".encode() * PIECE


@given(st.lists(st.integers(min_value=0), max_size=8))
def test_lines_are_the_same_however_they_arrive(places: list[int]) -> None:
    data = (
        record(1, b"whole\r\n")
        + record(2, b"\n")
        + record(3, LONG[:PIECE])  # Kubernetes 1.20: a stamp before each piece
        + record(4, LONG[PIECE : 2 * PIECE])
        + record(4, LONG[2 * PIECE :] + b"\n")
        + record(5, LONG + b"\n")  # newer: one before the line
        + record(6, b"it said 2026-11-22T05:12:10.200000000Z before\n")
        + record(7, b"the end of one stream")
        + record(8, b"a line of the other one\n")
        + record(9, b"no newline")
    )
    assert lines_of(data, places) == [
        PrintedLine(stamp(1), "whole"),
        PrintedLine(stamp(2), ""),
        PrintedLine(stamp(3), LONG.decode()),
        PrintedLine(stamp(5), LONG.decode()),
        PrintedLine(stamp(6), "it said 2026-11-22T05:12:10.200000000Z before"),
        PrintedLine(stamp(7), "the end of one stream"),
        PrintedLine(stamp(8), "a line of the other one"),
        PrintedLine(stamp(9), "no newline"),
    ]


@given(st.lists(st.integers(min_value=0), max_size=8), st.booleans())
def test_a_character_that_a_cut_splits_is_replaced_and_the_line_stays_whole(
    places: list[int], is_odd: bool
) -> None:
    raw = b"-" * is_odd + UMLAUTS
    pieces = [raw[at : at + PIECE] for at in range(0, len(raw), PIECE)]
    # As Docker does: each byte that is no UTF-8 becomes a character of three bytes.
    bytewise = re.compile("[\udc80-\udcff]")
    shown = [
        bytewise.sub("\N{REPLACEMENT CHARACTER}", piece.decode("utf-8", "surrogateescape"))
        for piece in pieces
    ]
    data = b"".join(record(number, text.encode()) for number, text in enumerate(shown)) + b"\n"
    assert lines_of(data, places) == [PrintedLine(stamp(0), "".join(shown))]


def test_a_stamp_of_the_program_itself_is_its_text_and_what_the_kubelet_says_has_none() -> None:
    for text in (
        "2026-11-22T05:12:09.000000000Z a log of its own",
        "the next is at 2026-12-24T18:00:00.000000000Z or later",
        "no date: 2026-02-31T18:00:00.000000000Z that is",
        "no date: 2026-12-32T18:00:00.000000000Z that is",
    ):
        assert lines_of(record(3, text.encode() + b"\n")) == [PrintedLine(stamp(3), text)]
    said = f"failed to watch file at {stamp(2)} or so: no space left on device"
    data = record(1, b"a line\n") + b"\n" + said.encode()
    assert lines_of(data) == [PrintedLine(stamp(1), "a line"), PrintedLine("", said)]


@given(st.lists(st.integers(min_value=0), max_size=4))
def test_two_ends_without_a_newline_may_have_crossed(places: list[int]) -> None:
    early, late = (f"2026-11-22T05:12:10.10000{digit}000Z" for digit in (1, 5))
    data = record(0, b"a line\n") + f"{late} one end{early} the other".encode()
    assert lines_of(data, places) == [
        PrintedLine(stamp(0), "a line"),
        PrintedLine(late, "one end"),
        PrintedLine(early, "the other"),
    ]


@given(st.lists(st.integers(min_value=0), max_size=3))
def test_a_very_long_line_is_cut_and_takes_no_more_memory_than_it_keeps(places: list[int]) -> None:
    pieces = LONGEST_LINE // PIECE + 30
    data = b"".join(record(number // 4, b"x" * PIECE) for number in range(pieces)) + b"y\n"
    (line,) = lines_of(data, places)
    more = pieces * PIECE + 1 - LONGEST_LINE
    assert line == PrintedLine(stamp(0), "x" * LONGEST_LINE + f" [cut: {more} bytes more]")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-22T05:12:10.123456789Z", "2026-11-22T05:12:10.123456789Z"),
        ("2026-11-22T05:12:10.1Z", "2026-11-22T05:12:10.100000000Z"),
        ("2026-11-22T05:12:10Z", "2026-11-22T05:12:10.000000000Z"),
        ("2026-11-22T05:12:10.123456789+02:00", "2026-11-22T03:12:10.123456789Z"),
        ("2026-11-22T05:12:10-05:30", "2026-11-22T10:42:10.000000000Z"),
    ],
)
def test_stamps_compare_whatever_zone_a_node_is_in(text: str, expected: str) -> None:
    assert canonical(text) == expected
    assert lines_of(text.encode() + b" x\n") == [PrintedLine(expected, "x")]


def test_an_unfinished_stamp_is_no_line() -> None:
    lines = LogParser()
    assert not [*lines.feed(record(1, b"a")[:20])]
    assert not [*lines.feed(record(1, b"a")[20:])]
    both = [PrintedLine(stamp(1), "a"), PrintedLine(stamp(2), "b")]
    assert [*lines.feed(record(2, b"b\n"))] == both  # of the other stream


LINES = st.lists(st.tuples(st.integers(-3, 3), st.integers(1, 3)), min_size=1, max_size=40)


@given(LINES, st.lists(st.integers(0, 40), max_size=5))
@example([(0, 1)] * 11 + [(-2, 1)], [11])  # a stamp in the second before that of the last line
def test_a_log_that_is_cut_anywhere_is_read_whole_and_once(
    found: list[tuple[int, int]], cuts: list[int]
) -> None:
    """Stamps go back by some tenths, as those of two streams may; lines may be the same."""
    log = [
        PrintedLine(f"{stamp(max(0, number + back))[:-9]}{number:08}Z", "text")
        for number, (back, times) in enumerate(found)
        for _ in range(times)
    ]
    position, reported = Position(), list[PrintedLine]()
    for end in [*sorted(cut % (len(log) + 1) for cut in cuts), len(log)]:
        position.begin_again()
        # The kubelet skips each record that is older.
        served = [line for line in log[:end] if line.stamp >= position.since.rstrip("Z")]
        reported += [line for line in served if position.passes(line)]
    assert reported == log


def test_a_log_that_was_rotated_goes_on_with_what_there_is() -> None:
    position = Position()
    assert position.since == ""
    assert position.passes(PrintedLine(stamp(1), "old"))
    assert position.since == "2026-11-22T05:12:09Z"
    position.begin_again()
    assert position.passes(PrintedLine(stamp(5), "new"))
    assert position.passes(PrintedLine(stamp(4), "newer"))
