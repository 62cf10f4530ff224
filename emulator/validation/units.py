"""Parsing and formatting of durations, times, sizes, rates, shares: `5s`, `512m`, `80%`.

All functions are pure.
"""

from __future__ import annotations

import contextlib
import math
import re
from datetime import datetime

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "y": 365 * 86400.0}
_BYTES = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_BITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}

LAST_MOMENT = 253_402_214_400.0
"""The end of the year 9999, in seconds since 1970: later there is no date."""
_LONGEST = 1e15
"""Larger numbers are formatted with an exponent."""

_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|y))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|y)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)(?:b|([kmgt])(?:i?b)?)", re.IGNORECASE)
_RATE = re.compile(r"(\d+(?:\.\d+)?)([kmg]?bit)", re.IGNORECASE)
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def parse_duration(text: object) -> float:
    """Return seconds for `500ms`, `5s`, `2m`, `1m30s`, `0`, and `3y` of 365 days each.

    Raises ValueError.
    """
    stripped = str(text).strip()
    if stripped == "0":
        return 0.0
    if not _DURATION.fullmatch(stripped):
        bare = re.fullmatch(r"\d+(\.\d+)?", stripped)
        raise ValueError(
            f"{stripped!r} is not a duration; write "
            + (f"'{stripped}s'" if bare else "'5s', '2m' or '500ms'")
        )
    return _bounded(sum(float(n) * _SECONDS[unit] for n, unit in _DURATION_PART.findall(stripped)))


def parse_moment(text: str, now: float) -> float:
    """Return seconds since 1970 for a duration before `now`, or a date and time as in ISO 8601.

    Without a time zone it is local time. Raises ValueError.
    """
    if "-" in text:
        with contextlib.suppress(ValueError, OverflowError, OSError):
            return datetime.fromisoformat(text).timestamp()
    try:
        return now - parse_duration(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no time; write '10m' for ten minutes ago, or '2026-11-23T06:20:11Z'"
        ) from None


def parse_size(text: object) -> int:
    """Return bytes for `512m`, `1g`, `1.5GiB` (powers of 1024, as in Docker). Raises ValueError."""
    match = _SIZE.fullmatch(str(text).strip())
    if not match:
        raise ValueError(f"{str(text)!r} is not a size; write '512m' or '1g'")
    return int(_bounded(float(match[1]) * _BYTES[(match[2] or "b").lower()]))


def parse_rate(text: object) -> int:
    """Return bits per second for `100mbit` (powers of 1000, as in tc). Raises ValueError."""
    match = _RATE.fullmatch(str(text).strip())
    if not match:
        raise ValueError(f"{str(text)!r} is not a rate; write '100mbit' or '1gbit'")
    return int(_bounded(float(match[1]) * _BITS[match[2].lower()]))


def parse_share(text: str) -> float:
    """Return 0.05 for `5%`. Raises ValueError."""
    match = _SHARE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text.strip()!r} is not a share; write 0.8 or '80%'")
    return _bounded(float(match[1])) / 100


def _bounded(number: float) -> float:
    """Refuse a number that overflows a float to infinity."""
    if math.isinf(number):
        raise ValueError("a number with too many digits")
    return number


def format_number(number: float, digits: int = 0) -> str:
    """Return a number with `digits` decimals; one of more than 15 digits as `1e+308`."""
    if isinstance(number, int) and not digits:
        return str(number)  # exact: a float has 53 bits
    return f"{number:.{digits}f}" if abs(number) < _LONGEST else f"{number:.3g}"


def format_count(count: int, noun: str) -> str:
    """Return `1 request`, `2 requests`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def format_rate(rate: float) -> str:
    """Return a rate with three digits, or all before the point: `0.0552`, `33.7`, `4315`."""
    if not rate or abs(rate) >= 99.95:
        return format_number(rate)
    return f"{rate:#.3g}".rstrip(".")


def format_duration(seconds: float) -> str:
    """Return seconds as short text: `0.42s`, `12.3s`, `3m 05s`, `2h 07m`."""
    if seconds >= _LONGEST:
        return f"{seconds:.3g}s"
    if seconds < 10:
        return f"{seconds:.2f}s"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    return f"{minutes // 60}h {minutes % 60:02d}m"


def format_size(size: float, digits: int = 0) -> str:
    """Return bytes as short text: `512 MiB`, `1.5 GiB`; with `digits` decimals, `4.01 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            decimals = 0 if unit == "B" else digits or int(unit == "GiB")
            return f"{size:.{decimals}f} {unit}"
        size /= 1024
    return f"{format_number(size, 1)} TiB"
