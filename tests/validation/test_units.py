"""Durations, sizes and rates: what is read, what is refused, how it is shown."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.analysis.figures import FIGURES
from emulator.validation import limits
from emulator.validation.units import (
    format_count,
    format_duration,
    format_number,
    format_rate,
    format_size,
    parse_duration,
    parse_moment,
    parse_rate,
    parse_size,
)


@pytest.mark.parametrize(
    ("parse", "written", "number"),
    [
        (parse_duration, "500ms", 0.5),
        (parse_duration, "5s", 5.0),
        (parse_duration, "2m", 120.0),
        (parse_duration, "1h", 3600.0),
        (parse_duration, "1d", 86400.0),
        (parse_duration, "3y", 3 * 365 * 86400.0),
        (parse_duration, "1m30s", 90.0),
        (parse_duration, "1.5h", 5400.0),
        (parse_duration, " 5s ", 5.0),
        (parse_duration, "0", 0.0),
        (parse_duration, 0, 0.0),
        (parse_duration, "0s", 0.0),
        (parse_size, "5b", 5),
        (parse_size, "1k", 1024),
        (parse_size, "512m", 512 * 1024**2),
        (parse_size, "1g", 1024**3),
        (parse_size, "1G", 1024**3),
        (parse_size, "1.5GiB", 1024**3 * 3 // 2),
        (parse_size, "2gb", 2 * 1024**3),
        (parse_size, "1t", 1024**4),
        (parse_rate, "5bit", 5),
        (parse_rate, "8kbit", 8000),
        (parse_rate, "100mbit", 10**8),
        (parse_rate, "2.5Gbit", 2_500_000_000),
    ],
)
def test_a_duration_is_read_in_seconds_a_size_in_powers_of_1024_and_a_rate_of_1000(
    parse: Callable[[object], float], written: object, number: float
) -> None:
    assert parse(written) == number


DURATION = (parse_duration, "duration", "write '5s', '2m' or '500ms'")
SIZE = (parse_size, "size", "write '512m' or '1g'")
RATE = (parse_rate, "rate", "write '100mbit' or '1gbit'")


@pytest.mark.parametrize(
    ("parse", "kind", "advice", "written"),
    [
        (parse_duration, "duration", "write '5s'", 5),
        (parse_duration, "duration", "write '2.5s'", "2.5"),
        *((*DURATION, written) for written in ("-5s", "", "5 s", "5S", True, ["5s"])),
        *((*SIZE, written) for written in (512, "m", "5bb", "-1g")),
        *((*RATE, written) for written in (100, "100m", "100MB")),
    ],
)
def test_what_is_no_duration_size_or_rate_is_refused_with_what_to_write(
    parse: Callable[[object], float], kind: str, advice: str, written: object
) -> None:
    with pytest.raises(ValueError, match="is not a") as refused:
        parse(written)
    assert str(refused.value).startswith(f"{str(written)!r} is not a {kind}")
    assert str(refused.value).endswith(advice)


@pytest.mark.parametrize(
    ("parse", "unit"),
    [(parse_duration, "s"), (parse_size, "g"), (parse_rate, "gbit")],
)
def test_a_number_too_long_for_a_float_is_refused(
    parse: Callable[[object], float], unit: str
) -> None:
    with pytest.raises(ValueError, match="a number with too many digits"):
        parse("9" * 400 + unit)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0.00s"),
        (0.417, "0.42s"),
        (9.994, "9.99s"),
        (10.0, "10.0s"),
        (12.34, "12.3s"),
        (60.0, "1m 00s"),
        (185.4, "3m 05s"),
        (3599.6, "1h 00m"),
        (7620.0, "2h 07m"),
        (1e15, "1e+15s"),
        (1.5e300, "1.5e+300s"),
    ],
)
def test_seconds_are_shown_short(seconds: float, shown: str) -> None:
    assert format_duration(seconds) == shown


@pytest.mark.parametrize(
    ("number", "digits", "shown"),
    [
        (0.25, 1, "0.2"),
        (0.25, 3, "0.250"),
        (1234.5678, 2, "1234.57"),
        (7, 0, "7"),
        (7, 2, "7.00"),
        (2**63 - 1, 0, "9223372036854775807"),
        (999_999_999_999_999, 0, "999999999999999"),
        (1e15, 2, "1e+15"),
        (-1e308, 2, "-1e+308"),
        (float("inf"), 2, "inf"),
        (float("nan"), 2, "nan"),
    ],
)
def test_a_number_is_never_longer_than_one_reads(number: float, digits: int, shown: str) -> None:
    assert format_number(number, digits) == shown


@pytest.mark.parametrize(
    ("size", "decimals", "shown"),
    [
        (0, 0, "0 B"),
        (1023, 0, "1023 B"),
        (1024, 0, "1 KiB"),
        (1024**2, 0, "1 MiB"),
        (512 * 1024**2, 0, "512 MiB"),
        (1024**3 * 3 / 2, 0, "1.5 GiB"),
        (2048 * 1024**3, 0, "2.0 TiB"),
        (1023, 2, "1023 B"),
        (4_200_040, 2, "4.01 MiB"),
        (1024**3 * 3 / 2, 2, "1.50 GiB"),
    ],
)
def test_bytes_are_shown_short(size: float, decimals: int, shown: str) -> None:
    assert format_size(size, decimals) == shown


@given(st.integers(0, 10**6), st.integers(0, 59), st.integers(0, 999))
def test_parts_of_a_duration_add_up(minutes: int, seconds: int, milliseconds: int) -> None:
    whole = parse_duration(f"{minutes}m{seconds}s{milliseconds}ms")
    assert whole == pytest.approx(minutes * 60 + seconds + milliseconds / 1000)


@pytest.mark.parametrize(
    ("written", "wall"),
    [
        ("10m", 1_000_000_000 - 600),
        ("0", 1_000_000_000),
        ("2001-09-09T01:46:40Z", 1_000_000_000),
        ("2001-09-09T01:46:40.500Z", 1_000_000_000.5),
        ("2001-09-09T03:46:40+02:00", 1_000_000_000),
        ("2001-09-09", datetime(2001, 9, 9).timestamp()),
    ],
)
def test_a_time_is_a_while_ago_or_a_date(written: str, wall: float) -> None:
    assert parse_moment(written, now=1_000_000_000) == wall


@pytest.mark.parametrize(
    "written", ["", "yesterday", "2001-13-01", "20010909", "10", "-5s", "9999-99"]
)
def test_what_is_no_time_is_refused_with_what_to_write(written: str) -> None:
    with pytest.raises(ValueError, match="is no time; write '10m' for ten minutes ago"):
        parse_moment(written, now=0.0)


def test_a_rate_has_three_digits_or_all_before_the_point() -> None:
    rates = (0, 0.0552, 1, 33.71, 99.94, 99.95, 4315.4, -0.5, -4315.4, 1e15)
    assert list(map(format_rate, rates)) == [
        *("0", "0.0552", "1.00", "33.7", "99.9", "100", "4315", "-0.500", "-4315", "1e+15"),
    ]


def test_one_is_no_plural() -> None:
    assert [format_count(n, "request") for n in (0, 1, 2)] == [
        "0 requests", "1 request", "2 requests",
    ]  # fmt: skip
    assert [FIGURES["lost_steps"].in_words(n) for n in (0, 1, 2)] == [
        "0 steps lost", "1 step lost", "2 steps lost",
    ]  # fmt: skip
    assert FIGURES["restarts"].in_words(1) == "1 restart"


# --- The limits on input, as the users' page has them ---------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


@pytest.mark.parametrize(
    ("row", "numbers"),
    [
        ("a scenario's file", (limits.SCENARIO_BYTES // limits.MIB, limits.VALUES, limits.DEPTH)),
        ("a cluster", (limits.TASKS,)),
        ("a task or helper", (limits.MOUNTS, limits.PORTS, limits.HELPERS)),
        ("faults", (limits.FAULTS,)),
        ("variants", (limits.VARIANTS,)),
        ("a trace", (limits.TRACE_BYTES // limits.MIB, limits.TRACE_ROWS)),
        ("a program's folder", (limits.PROGRAM_BYTES // limits.MIB, limits.PROGRAM_FILES)),
        ("a program's folder", (limits.CONTEXT_BYTES // limits.MIB, limits.CONTEXT_FILES)),
    ],
)
def test_the_page_has_the_limits_in_force(row: str, numbers: tuple[int, ...]) -> None:
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {row}")]
    words = line.replace(",", "").split()
    assert [number for number in numbers if str(number) not in words] == []
