"""What docs/gallery/communication.md computes, and what the process engine says of bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.gallery.communication import (
    Point,
    StepTime,
    bandwidth_chart,
    bandwidth_text,
    bytes_table,
    crossing,
    ring,
    step_time,
    traffic_chart,
)
from emulator.analysis.traffic import Traffic
from emulator.pytest_plugin.harness import Emulator

MODEL = 1_000_000
"""Bytes: 8 Mbit."""


def test_a_worker_of_a_ring_sends_less_than_two_models() -> None:
    assert [ring(n) for n in (2, 3, 4)] == [1, 4 / 3, 1.5]


def a_ring(*, bandwidth: int | None = None, seconds: float = 0.05) -> Point:
    """Return four workers, each of which sends 1.5 models and 10 % more."""
    each = Traffic(1.65 * MODEL, 1.65 * MODEL)
    return Point(4, 0, MODEL, bandwidth, each, None, seconds)


def a_server(*, bandwidth: int | None = None, seconds: float = 0.03) -> Point:
    """Return four workers with one server, which sends four models."""
    each, ps = Traffic(MODEL, MODEL), Traffic(4 * MODEL, 4.2 * MODEL)
    return Point(4, 1, MODEL, bandwidth, each, ps, seconds)


def test_the_table_compares_with_the_theory() -> None:
    two = replace(a_server(), servers=2, ps=Traffic(2 * MODEL, 2 * MODEL))
    _, _, *rows = bytes_table([a_ring(), a_server(), two]).splitlines()
    assert rows == [
        "| 976.6 KiB | 4 | ring | each worker | 1.50 models | 1.65 models | +10.0% |",
        "| 976.6 KiB | 4 | 1 server | all servers | 4.00 models | 4.00 models | +0.0% |",
        "| 976.6 KiB | 4 | 2 servers | all servers | 4.00 models | 4.00 models | +0.0% |",
    ]


SLOW = 8_000_000
"""Bits per second: a second for a model."""


def test_a_step_waits_for_the_models_between_a_limit_and_none() -> None:
    assert step_time(a_ring(), a_ring(bandwidth=SLOW, seconds=1.55)) == StepTime(0.05, 12_000_000)


def test_the_crossing_point_is_where_both_take_the_same_time() -> None:
    one, other = StepTime(0.05, 12e6), StepTime(0.03, 40e6)
    where = crossing(one, other)
    assert where is not None
    assert one.at(where) == pytest.approx(other.at(where))
    assert where == pytest.approx(1.4e9)
    assert crossing(other, one) == where


@pytest.mark.parametrize("other", [StepTime(0.06, 40e6), StepTime(0.05, 40e6)])
def test_no_crossing_where_one_wins_at_every_bandwidth(other: StepTime) -> None:
    assert crossing(StepTime(0.05, 12e6), other) is None


def test_the_text_says_who_wins_where() -> None:
    limited = a_ring(bandwidth=SLOW, seconds=1.55), a_server(bandwidth=SLOW, seconds=5.03)
    text = bandwidth_text(a_ring(), a_server(), *limited)
    assert "| ring | 50.0 ms | 1550.0 ms | 1.50 | 1.50 |" in text
    assert "| 1 server | 30.0 ms | 5030.0 ms | 5.00 | 4 to 5 |" in text
    assert "1400 Mbit/s, for a model of 976.6 KiB. Below, the ring is faster." in text
    slower = a_server(seconds=0.06)
    assert "the ring wins at every limit" in bandwidth_text(a_ring(), slower, *limited)


def test_the_charts_have_the_lines_of_the_theory_and_what_was_measured() -> None:
    traffic = traffic_chart([a_ring(), a_server()])
    assert {trace.name: [*trace.y] for trace in traffic.data} == {
        "theory: servers together, 2n": [8],
        "theory: a worker of a ring, 2 · 2(n-1)/n": [3],
        "ring, 976.6 KiB": [3.3],
        "1 server, 976.6 KiB": [8.2],
    }
    limited = a_ring(bandwidth=SLOW, seconds=1.55), a_server(bandwidth=SLOW, seconds=5.03)
    chart = bandwidth_chart(a_ring(), a_server(), *limited)
    assert [trace.name for trace in chart.data] == [
        *("ring", "ring, measured", "theory: ring, sending only"),
        *("1 server", "1 server, measured", "theory: 1 server, sending only"),
    ]
    (crossing_line,) = chart.layout.shapes
    assert crossing_line.x0 == pytest.approx(1400)


@pytest.mark.gallery
@pytest.mark.tensorflow
@pytest.mark.usefixtures("host_tensorflow")
def test_processes_have_no_counters_so_that_bytes_are_unknown(emulator: Emulator) -> None:
    result = emulator.run("ring-all-reduce", engine="process")
    statuses = {verdict.expectation: verdict.status for verdict in result.verdicts}
    of_bytes = {name for name in statuses if name.startswith("bytes_per_step.")}
    assert {statuses.pop(name) for name in of_bytes} == {"unknown"}
    assert statuses == {"outcome": "ok", "final_step": "ok", "accuracy": "ok"}
    assert result.verdict == "unknown"
    assert result.summary["bytes_per_step"] == {}
