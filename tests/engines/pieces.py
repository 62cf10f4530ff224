"""Bytes in pieces, as they may arrive."""

from __future__ import annotations

import itertools


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Cut bytes at some places."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[one:other] for one, other in itertools.pairwise(edges)]
