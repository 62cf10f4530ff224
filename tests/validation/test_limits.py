"""The limits on input, as the users' page has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.validation import limits

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


@pytest.mark.parametrize(
    ("row", "numbers"),
    [
        ("a scenario's file", (limits.SCENARIO_BYTES // limits.MIB, limits.VALUES, limits.DEPTH)),
        ("a cluster", (limits.TASKS, limits.GIVEN_BYTES // limits.MIB)),
        ("a task or helper", (limits.MOUNTS, limits.PORTS, limits.HELPERS)),
        ("faults", (limits.FAULTS, limits.STRIKES, limits.LINKS)),
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
