"""Files that grow while they are read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.record.tail import BLOCK, end_of, last_lines, whole_lines


def test_only_whole_lines_are_read_and_each_once(tmp_path: Path) -> None:
    path, offsets = tmp_path / "log", dict[str, int]()
    assert whole_lines(path, "log", offsets) == []
    path.write_bytes(b"a\nb\rc\nto")
    assert whole_lines(path, "log", offsets) == [b"a\n", b"b\rc\n"]
    assert whole_lines(path, "log", offsets) == []
    with path.open("ab") as file:
        file.write(b"rn\n")
    assert whole_lines(path, "log", offsets) == [b"torn\n"]


@pytest.mark.parametrize("after", [b"both\n", b"both\nthree and four\n"])
def test_a_file_that_became_shorter_is_another_also_once_it_has_grown(
    tmp_path: Path, after: bytes
) -> None:
    path, offsets = tmp_path / "samples", dict[str, int]()
    path.write_bytes(b"one\ntwo\n")
    whole_lines(path, "samples", offsets)
    path.write_bytes(after)
    assert whole_lines(path, "samples", offsets) == after.splitlines(keepends=True)


@given(
    lines=st.lists(st.binary(max_size=9).map(lambda b: b.replace(b"\n", b"")), max_size=9),
    torn=st.sampled_from([b"", b"torn"]),
    count=st.integers(0, 12),
)
def test_the_last_lines_are_those_of_all(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], torn: bytes, count: int
) -> None:
    path = tmp_path_factory.mktemp("tail") / "log"
    path.write_bytes(b"".join(line + b"\n" for line in lines) + torn)
    offsets = {"log": last_lines(path, count)}
    expected = [line + b"\n" for line in lines][-count:] if count else []
    assert whole_lines(path, "log", offsets) == expected


def test_of_a_long_file_the_end_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"%d\n" % n for n in range(BLOCK)))
    offsets = {"log": last_lines(path, 3)}
    assert whole_lines(path, "log", offsets) == [b"%d\n" % (BLOCK - n) for n in (3, 2, 1)]
    path.write_bytes(b"x" * 3 * BLOCK + b"\nend\n")
    assert last_lines(path, 1) == 3 * BLOCK + 1
    assert last_lines(path, 2) == 0
    assert last_lines(tmp_path / "none", 2) == 0


def test_the_end_of_a_file_is_its_lines_as_they_were_printed(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    assert end_of(path, 100) == []
    path.write_bytes(b"")
    assert end_of(path, 100) == []
    path.write_bytes("first\n1/2 \r2/2\n\nlast\u2028one\n".encode())
    assert end_of(path, 100) == ["first", "1/2 \r2/2", "", "last\u2028one"]
    path.write_bytes(b"x" * 1000 + b"\nwhole\ntorn")
    assert end_of(path, 12) == ["x", "whole", "torn"]
