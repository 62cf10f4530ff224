"""Output of which no step is read: which line is one, and the pattern that reads it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.metrics.steps import StepReader
from emulator.metrics.unread import LINES_OF_PATTERN, UnreadWatch, looks_like, suggested, unread

ODD = "finished step {n} of my training, the loss is 0.{n}"


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        (ODD, r"step (?P<step>\d+).*loss is (?P<loss>\S+)"),
        ("at 10{n} the network has loss=0.{n}!", r"at (?P<step>\d+).*loss=(?P<loss>\S+)"),
        ("[INFO] optimizer-step#{n}! (cost 0.5)", r"step#(?P<step>\d+)"),
        ("<<{n}>> done", r"^<<(?P<step>\d+)"),
        ("2026-11-29 05:00:00 INFO iteration {n} is over: nll 3.{n}", r"iteration (?P<step>\d+)"),
    ],
)
def test_the_pattern_that_is_suggested_reads_the_line(line: str, pattern: str) -> None:
    lines = [line.format(n=n) for n in (1, 2, 3, 5)]
    told = suggested(["Starting up with 8 threads", *lines])
    assert told is not None
    assert told.pattern == pattern
    auto, given_one = StepReader(), StepReader(pattern)
    assert [one for each in lines for one in auto.read(each)] == []
    found = [one.data["step"] for one in given_one.read(told.line)]
    assert found == [105] if "10{n}" in line else [5]


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["no number"] * 9,
        ["port 80 is open"] * 9,  # nothing grows
        ["step 1 of it", "step 2 of it"],  # too few
        [f"used {n / 10} GB of memory" for n in range(9)],  # no whole number
        [f"{n}" * 400 for n in range(1, 9)],  # too long
    ],
)
def test_where_nothing_looks_like_a_step_nothing_is_suggested(lines: Sequence[str]) -> None:
    assert suggested(lines) is None


@given(st.lists(st.text() | st.from_regex(r"[a-z(\[\\]{1,5} \d{1,3}[)*+?]?", fullmatch=True)))
def test_whatever_is_printed_a_suggestion_is_none_or_reads_its_line(lines: list[str]) -> None:
    told = suggested([line.replace("1", str(n)) for n in (1, 2, 3) for line in lines])
    if told is not None and told.pattern is not None:
        assert StepReader(told.pattern).read(told.line)


def test_something_is_said_once_after_five_seconds_of_lines_with_numbers() -> None:
    watch = UnreadWatch(["worker-0"], has_pattern=False)
    said = [
        (wall, told)
        for wall in range(100, 120)
        for task in ("worker-0", "ps-0")
        if (told := watch.note(task, ODD.format(n=wall), float(wall)))
    ]
    assert [wall for wall, _ in said] == [105]
    assert unread(said[0][1].line, said[0][1].pattern) == (
        "no step is read yet: `finished step 105 of my training, the loss is 0.105` looks like a "
        r"step. Add `metrics: {steps: 'step (?P<step>\d+).*loss is (?P<loss>\S+)'}` to the scenario"
    )


def test_nothing_is_said_where_steps_are_read_or_no_line_is_one() -> None:
    watch = UnreadWatch(["worker-0"], has_pattern=False)
    assert [watch.note("worker-0", "port 80", float(n)) for n in range(20)] == [None] * 20
    watch.stop()
    assert [watch.note("worker-0", ODD.format(n=n), float(n)) for n in range(20)] == [None] * 20


def test_a_pattern_that_matches_none_of_200_lines_is_told_then() -> None:
    watch = UnreadWatch(["worker-0"], has_pattern=True)
    told = [watch.note("worker-0", f"line {n}", 0.0) for n in range(1, 300)]
    assert [n for n, one in enumerate(told, 1) if one is not None] == [LINES_OF_PATTERN]
    last = told[LINES_OF_PATTERN - 1]
    assert last is not None
    words = "the pattern of `metrics.steps` has matched nothing yet: a line is `line 200`"
    assert unread(last.line, last.pattern) == words


def test_a_quote_in_a_pattern_is_yaml() -> None:
    assert looks_like("'7'", "'(?P<step>\\d+)").endswith(
        "Add `metrics: {steps: '''(?P<step>\\d+)'}` to the scenario"
    )
