"""Frames of Docker's log stream become lines."""

from __future__ import annotations

from emulator.engines.docker_logs import Printed, join_frames, seconds

A, B, C = (f"2026-01-02T03:04:05.00000000{n}Z" for n in (1, 2, 3))


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


def test_what_was_read_before_is_left_out() -> None:
    assert list(join_frames(frames((A, "old"), (B, "old\n"), (C, "new\n")), after=B)) == [
        Printed(C, C, "new")
    ]


def test_bytes_that_are_no_text_survive() -> None:
    (line,) = join_frames([A.encode() + b" \xff\xfe\n"])
    assert line.text.encode("utf-8", "surrogateescape") == b"\xff\xfe"


def test_stamps_are_seconds_since_1970() -> None:
    assert seconds("1970-01-01T00:01:00.500000000Z") == 60.5
