"""When lines were printed: written beside the log, found again, also in a log that grows."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.record.folder import RunFolder
from emulator.record.task_log import (
    LogTimes,
    LogWriter,
    Printed,
    beginning,
    cut_torn,
    end_of_log,
    new_lines,
    parts_of,
    printed,
    times_of,
)

LINES = [("one", 100.0), ("two", 100.004), ("three", 100.02), ("gr\u00fcn", 103.5), ("", 104.0)]


def written(log: Path, *lines: tuple[str, float], limit: int = 2**30) -> Path:
    log.parent.mkdir(exist_ok=True)
    writer = LogWriter(log, limit)
    for text, wall in lines:
        writer.add(text, wall)
    writer.write()
    writer.close()
    return log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(tmp_path / "logs" / "worker-0.log", *LINES)


def test_the_log_has_the_lines_alone_and_the_times_a_row_for_each_moment(log: Path) -> None:
    assert log.read_bytes() == "one\ntwo\nthree\ngr\u00fcn\n\n".encode()
    assert times_of(log).read_text() == "0 100.000\n8 100.020\n14 103.500\n20 104.000\n"


def test_each_line_has_the_time_of_its_moment(log: Path) -> None:
    walls = [100.0, 100.0, 100.02, 103.5, 104.0]
    expected = [
        Printed("worker-0", text, wall) for (text, _), wall in zip(LINES, walls, strict=True)
    ]
    assert list(printed(log)) == expected


@pytest.mark.parametrize(
    ("since", "last", "texts"),
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
    log: Path, since: float | None, last: int | None, texts: list[str]
) -> None:
    begin = beginning(log, last=last, since=since)
    assert [line.text for line in printed(log, begin)] == texts


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
    assert [line.text for line in printed(log, LogTimes(log).since(104.5))] == ["later"]


@pytest.mark.parametrize("torn", [b"", b"4", b"9999 10", b"20 105.000\n21 ", b"\x00\xff"])
def test_times_of_lines_that_were_never_written_are_cut_off(log: Path, torn: bytes) -> None:
    with times_of(log).open("ab") as file:
        file.write(b"21 104.500\n" + torn)
    cut_torn(log)
    assert times_of(log).read_text() == "0 100.000\n8 100.020\n14 103.500\n20 104.000\n"
    written(log, ("again", 300.0))
    assert [line.wall for line in printed(log)][-2:] == [104.0, 300.0]


def test_lines_of_several_tasks_are_in_the_order_of_time(tmp_path: Path) -> None:
    written(tmp_path / "logs" / "chief-0.log", ("a", 1.0), ("c", 3.0), ("e", 5.0))
    written(tmp_path / "logs" / "worker-0.log", ("b", 2.0), ("d", 4.0))
    run = RunFolder(tmp_path)
    assert [line.text for line in run.printed(["chief-0", "worker-0", "ps-0"])] == [*"abcde"]
    assert [line.text for line in run.printed(["chief-0", "worker-0"], since=3.5)] == ["d", "e"]
    assert [line.text for line in run.printed(["chief-0", "worker-0"], last=1)] == ["d", "e"]


def test_an_old_record_is_read_task_by_task(tmp_path: Path) -> None:
    for task, lines in (("chief-0", [("a", 1.0), ("c", 3.0)]), ("worker-0", [("b", 2.0)])):
        times_of(written(tmp_path / "logs" / f"{task}.log", *lines)).unlink()
    run = RunFolder(tmp_path)
    assert not run.has_times(["chief-0", "worker-0"])
    assert [*run.printed(["chief-0", "worker-0"])] == [
        Printed("chief-0", "a", None),
        Printed("chief-0", "c", None),
        Printed("worker-0", "b", None),
    ]
    assert run.has_times(["nobody"])


LIMIT = 800
"""Bytes: the first half is 40 lines of ten bytes, each other part 10 lines."""


def full(folder: Path, count: int, *, each: int = 1) -> Path:
    """Write numbered lines of ten bytes, a second apart, into a log with a limit."""
    log = folder / "logs" / "worker-0.log"
    log.parent.mkdir(exist_ok=True)
    writer = LogWriter(log, LIMIT)
    for number in range(count):
        writer.add(f"{number:09}", 1000.0 + number)
        if number % each == each - 1:
            writer.write()
    writer.write()
    writer.close()
    return log


def texts(log: Path, begin: int = 0) -> list[str]:
    return [line.text for line in printed(log, begin)]


def test_of_a_log_with_a_limit_the_beginning_and_the_end_are_kept(tmp_path: Path) -> None:
    log = full(tmp_path, 1000)
    kept = [*range(40), *range(960, 1000)]
    assert [int(text) for text in texts(log) if "left out" not in text] == kept
    assert texts(log)[40] == "[9 KiB left out: the log has reached its limit]"
    assert sum(part.end - part.begin for part in parts_of(log)) <= LIMIT
    assert times_of(log).read_text().count("\n") == 1000


def test_what_is_kept_has_its_time_and_is_found_by_it_and_from_the_end(tmp_path: Path) -> None:
    log = full(tmp_path, 1000)
    assert list(printed(log))[-1] == Printed("worker-0", "000000999", 1999.0)
    assert texts(log, beginning(log, last=3, since=None)) == [f"{n:09}" for n in (997, 998, 999)]
    assert len(texts(log, beginning(log, last=45, since=None))) == 5 + 1 + 40
    assert texts(log, beginning(log, last=None, since=1995.0))[0] == "000000995"
    assert texts(log, beginning(log, last=None, since=1500.0))[1] == "000000960"
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
        full_size = parts_of(log)[-1].end
        assert full_size == 10 * count
        written(log, ("again", 5000.0), limit=LIMIT)
        last = list(printed(log))[-1]
        assert (last.text, last.wall) == ("again", 5000.0)
        whole = [text for text in texts(log)[:-1] if "left out" not in text]
        numbers = [int(text) for text in whole]
        assert numbers == sorted(set(numbers))
        assert numbers[:1] == [0][:count]
