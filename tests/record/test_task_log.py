"""When lines were printed: written beside the log, found again, also in a log that grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.record.folder import RunFolder
from emulator.record.task_log import (
    LogTimes,
    LogWriter,
    Printed,
    beginning,
    cut_times,
    printed,
    times_of,
)

LINES = [("one", 100.0), ("two", 100.004), ("three", 100.02), ("gr\u00fcn", 103.5), ("", 104.0)]


def written(log: Path, *lines: tuple[str, float]) -> Path:
    log.parent.mkdir(exist_ok=True)
    writer = LogWriter(log)
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
    cut_times(log)
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
