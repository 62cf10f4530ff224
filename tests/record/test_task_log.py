"""When lines were printed: written beside the log, found again, also in a log that grows."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.record.folder import RunFolder
from emulator.record.task_log import (
    BLOCK,
    LogTimes,
    LogWriter,
    Printed,
    beginning,
    cut_torn,
    end_of,
    end_of_log,
    last_lines,
    new_lines,
    parts_of,
    printed,
    times_of,
    whole_lines,
)

LINES = [("one", 100.0), ("two", 100.004), ("three", 100.02), ("gr\u00fcn", 103.5), ("", 104.0)]


def written(log: Path, *lines: tuple[str, float], limit: int = 2**30, each: int = 2**30) -> Path:
    """Write lines with their times into a log, as many at once as `each` says."""
    log.parent.mkdir(exist_ok=True)
    writer = LogWriter(log, limit)
    for begin in range(0, len(lines), each):
        writer.write(lines[begin : begin + each])
    writer.close()
    return log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(tmp_path / "logs" / "worker-0.log", *LINES)


def test_the_log_has_the_lines_alone_and_the_times_a_row_for_each_moment(log: Path) -> None:
    assert log.read_bytes() == "one\ntwo\nthree\ngr\u00fcn\n\n".encode()
    assert times_of(log).read_text() == "0 100.000\n8 100.020\n14 103.500\n20 104.000\n"
    expected = [Printed("worker-0", text, 100.0 if text == "two" else wall) for text, wall in LINES]
    assert list(printed(log)) == expected


def texts(log: Path, begin: int = 0) -> list[str]:
    return [line.text for line in printed(log, begin)]


@pytest.mark.parametrize(
    ("since", "last", "expected"),
    [
        (None, None, ["one", "two", "three", "gr\u00fcn", ""]),
        (0.0, None, ["one", "two", "three", "gr\u00fcn", ""]),
        (100.02, None, ["three", "gr\u00fcn", ""]),
        (100.03, None, ["gr\u00fcn", ""]),
        (100.03, 1, [""]),
        (103.6, 4, [""]),
        (104.1, None, []),
        (None, 0, []),
    ],
)
def test_lines_are_found_by_time_and_by_number(
    log: Path, since: float | None, last: int | None, expected: list[str]
) -> None:
    assert texts(log, beginning(log, last=last, since=since)) == expected


def test_a_log_that_grows_has_the_times_of_its_new_lines(log: Path) -> None:
    times = LogTimes(log)
    size = log.stat().st_size
    assert times.at(0) == 100.0
    assert times.since(200.0) == size
    written(log, ("later", 205.0))
    assert times.at(size) == 205.0
    assert times.since(200.0) == size


def test_a_clock_that_was_set_back_takes_no_line_from_the_others(log: Path) -> None:
    written(log, ("earlier", 50.0), ("later", 105.0))
    assert texts(log, LogTimes(log).since(104.5)) == ["later"]
    assert [line.wall for line in printed(log)][-3:] == [104.0, 104.0, 105.0]


TORN = (b"", b"4", b"9999 10", b"22 105.0\n21 ", b"\0\xff", b"20 105.0", b"20 -1\n", b"20 9e99\n")


@pytest.mark.parametrize("row", [b"21 104.500\n", b""])
@pytest.mark.parametrize("torn", TORN)
def test_times_of_lines_that_were_never_written_are_cut_off(
    log: Path, row: bytes, torn: bytes
) -> None:
    with times_of(log).open("ab") as file:
        file.write(row + torn)
    cut_torn(log)
    assert times_of(log).read_text() == "0 100.000\n8 100.020\n14 103.500\n20 104.000\n"
    written(log, ("again", 300.0))
    assert [line.wall for line in printed(log)][-2:] == [104.0, 300.0]


def test_lines_of_several_tasks_are_in_the_order_of_time(tmp_path: Path) -> None:
    logs = [
        written(tmp_path / "logs" / "chief-0.log", ("a", 1.0), ("c", 3.0), ("e", 5.0)),
        written(tmp_path / "logs" / "worker-0.log", ("b", 2.0), ("d", 4.0)),
    ]
    run, both = RunFolder(tmp_path), ["chief-0", "worker-0"]
    assert [line.text for line in run.printed([*both, "ps-0"])] == [*"abcde"]
    assert [line.text for line in run.printed(both, since=3.5)] == ["d", "e"]
    assert [line.text for line in run.printed(both, last=1)] == ["d", "e"]
    for log in logs:  # a damaged record is read task by task
        times_of(log).unlink()
    chief = [Printed("chief-0", text, 0.0) for text in "ace"]
    assert [*run.printed(both)] == [*chief, *(Printed("worker-0", text, 0.0) for text in "bd")]


LIMIT = 800
"""Bytes: the first half is 40 lines of ten bytes, each other part 10 lines."""


def full(folder: Path, count: int, *, each: int = 1) -> Path:
    """Write numbered lines of ten bytes, a second apart, into a log with a limit."""
    lines = [(f"{number:09}", 1000.0 + number) for number in range(count)]
    return written(folder / "logs" / "worker-0.log", *lines, limit=LIMIT, each=each)


def test_of_a_log_with_a_limit_the_beginning_and_the_end_are_kept(tmp_path: Path) -> None:
    log = full(tmp_path, 1000)
    kept = [*range(40), *range(960, 1000)]
    assert [int(text) for text in texts(log) if "left out" not in text] == kept
    assert texts(log)[40] == "[9 KiB left out: the log has reached its limit]"
    assert sum(part.end - part.begin for part in parts_of(log)) <= LIMIT
    assert log.with_suffix(".parts").stat().st_mode & 0o777 == 0o700
    assert times_of(log).read_text().count("\n") == 1000


def test_what_is_kept_has_its_time_and_is_found_by_it_and_from_the_end(tmp_path: Path) -> None:
    log = full(tmp_path, 1000)
    assert list(printed(log))[-1] == Printed("worker-0", "000000999", 1999.0)
    assert texts(log, beginning(log, last=3, since=None)) == [f"{n:09}" for n in (997, 998, 999)]
    assert len(texts(log, beginning(log, last=45, since=None))) == 5 + 1 + 40
    assert texts(log, beginning(log, last=None, since=1995.0))[0] == "000000995"
    assert texts(log, beginning(log, last=None, since=1500.0))[1] == "000000960"
    (log.parent / "worker-0.parts" / "notes").touch()
    for count, first in ((9, 991), (10, 990), (11, 989), (40, 960)):  # 10 in the last part
        assert texts(log, beginning(log, last=count, since=None))[0] == f"{first:09}"
    assert end_of_log(log, 100) == [f"{n:09}" for n in range(990, 1000)]
    assert end_of_log(log, 101)[:2] == ["", "000000990"]
    assert end_of_log(log, 25) == ["0997", "000000998", "000000999"]
    assert end_of_log(log, 305)[1:] == [f"{n:09}" for n in range(970, 1000)]


def test_a_reader_that_follows_gets_each_line_once_and_passes_over_what_is_gone(
    tmp_path: Path,
) -> None:
    log, offsets = full(tmp_path, 45), dict[str, int]()

    def follow() -> list[int]:
        found: list[int] = []
        while lines := new_lines(log, "worker-0", offsets):
            found += [int(line) for line in lines]
        return found

    assert follow() == [*range(45)]
    empty = written(tmp_path / "logs" / "empty.log", *[("", 1.0)] * 3, limit=2)
    assert [new_lines(empty, "empty", offsets) for _ in range(3)] == [[b"\n"] * 3, [], []]
    written(log, *[(f"{n:09}", 2000.0) for n in range(45, 47)], limit=LIMIT)
    assert follow() == [45, 46]
    for number in range(47, 200):
        written(log, (f"{number:09}", 2000.0), limit=LIMIT)
    assert follow() == [*range(160, 200)]


@given(st.integers(0, 300), st.integers(1, 60), st.integers(0, 12))
def test_a_log_with_a_limit_goes_on_after_a_crash_at_any_length(
    count: int, each: int, torn: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = full(Path(folder), count, each=each)
        if count:
            with parts_of(log)[-1].path.open("ab") as file:
                file.write(b"x" * torn)
            cut_torn(log)
        assert parts_of(log)[-1].end == 10 * count
        written(log, ("again", 5000.0), limit=LIMIT)
        last = list(printed(log))[-1]
        assert (last.text, last.wall) == ("again", 5000.0)
        numbers = [int(text) for text in texts(log)[:-1] if "left out" not in text]
        assert numbers == sorted(set(numbers))
        assert numbers[:1] == [0][:count]


# --- Files that grow while they are read ----------------------------------------------------------


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
