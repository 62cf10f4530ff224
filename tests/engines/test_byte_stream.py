"""A body without an end: the same bytes, in whatever pieces they arrive."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from emulator.engines.byte_stream import ChunkedBody


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Cut bytes at some places."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[one:other] for one, other in itertools.pairwise(edges)]


@given(st.lists(st.binary(min_size=1)), st.lists(st.integers(min_value=0)))
def test_chunks_hold_the_same_bytes_however_they_arrive(
    pieces: list[bytes], places: list[int]
) -> None:
    body = ChunkedBody()
    data = b"".join(map(chunk, pieces)) + b"0\r\n\r\n"
    assert b"".join(body.feed(part) for part in cut(data, places)) == b"".join(pieces)
    assert body.ended


def test_a_chunk_may_have_extensions_and_capital_digits() -> None:
    body = ChunkedBody()
    assert body.feed(b"A;name=value\r\n0123456789\r\n") == b"0123456789"
    assert not body.ended
