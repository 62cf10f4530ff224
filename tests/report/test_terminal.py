"""What the end of a run looks like on a terminal."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import pytest
from rich.console import Console

from emulator.analysis import Analysis, FaultResult
from emulator.checks import summary
from emulator.report.terminal import print_summary


def printed(time: Mapping[str, float], faults: Sequence[FaultResult] = ()) -> list[str]:
    numbers = Analysis("succeeded", "worker-0 finished", 10.0, {}, time=time, faults=faults)
    told = summary(run_id="r", scenario="s", engine="fake", analysis=numbers, verdicts=[])
    stream = io.StringIO()
    print_summary(told, Console(file=stream, width=120))
    return stream.getvalue().splitlines()


@pytest.mark.parametrize(
    ("time", "line"),
    [
        (
            {"startup": 3.0, "productive": 2.0, "wasted": 0.0, "recovery": 5.0},
            ["time: productive 20%, recovery 50%, startup 30%"],
        ),
        ({"productive": 9.9, "eval": 0.1}, ["time: productive 99%, eval 1%"]),
        ({"productive": 9.91, "eval": 0.09}, ["time: productive 99%"]),
        ({"productive": 0.0, "other": 10.0}, ["time: other 100%"]),
        ({"productive": 0.0, "other": 0.0}, []),
    ],
)
def test_the_time_is_one_line_of_what_took_a_hundredth_or_more(
    time: Mapping[str, float], line: list[str]
) -> None:
    assert [found for found in printed(time) if found.startswith("time")] == line


def test_a_fault_tells_when_it_had_saved_before_when_it_was_gone() -> None:
    fault = FaultResult("0", "preempt", "ps-0", "applied", saved=1.5, gone=2.5, exit_code=137)
    lines = printed({}, [fault])
    (row,) = [line.split() for line in lines if "preempt" in line]
    (head,) = [line.split() for line in lines if "saved" in line]
    assert head[:5] == ["fault", "status", "saved", "gone", "exit"]
    assert row == [
        "0:",
        "preempt",
        "ps-0",
        "applied",
        "1.50s",
        "2.50s",
        "137",
        "?",
        ">",
        "?",
        ">",
        "?",
    ]
