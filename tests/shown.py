"""What pages show of an output, compared with what was printed."""

from __future__ import annotations

import re
from collections.abc import Iterable


def pattern(line: str) -> re.Pattern[str]:
    """Return what fits a line of a page: times, counts and ids are others in each run.

    Not those of the last line of pytest, which says how many tests passed and failed.
    """
    line = re.sub(r"^=+|=+$|^_+|_+$|^-+|-+$|─+", "…", line.strip())
    line = re.sub(r"-\d{10}-[0-9a-f]{6}\b", "-…", line)
    line = re.sub(r"\b\d\d-\d\d \d\d:\d\d\b", "…", line)
    if re.search(r"(passed|failed) in ", line):
        line = re.sub(r"in [\d.]+s.*", "in …", line)
    else:
        line = re.sub(r"(?<![=\w.-])\d+(\.\d+)?", "…", line)
    words = (".*".join(re.escape(part) for part in word.split("…")) for word in line.split())
    return re.compile(r"\s+".join(words).replace(r"\s+.*", ".*").replace(r".*\s+", ".*"))


def missing(shown: Iterable[str], printed: Iterable[str]) -> list[str]:
    """Return the first line that a page shows and was not printed, in that order; else nothing."""
    rest = iter(printed)
    return [line for line in shown if line.strip() and not any(map(pattern(line).search, rest))][:1]
