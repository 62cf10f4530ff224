"""Lines of steps in words."""

from __future__ import annotations

import io

import pytest

from emulator.report.live import LivePrinter
from emulator.report.step_line import in_words
from tests.histories import a_plan

STEP = '{"emulate": "step", "step": 90, "examples": 11520, "loss": 0.3002}'


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (STEP, "step 90  loss 0.300"),
        ('{"emulate": "step", "step": 7}', "step 7"),
        (
            '{"step": 7, "emulate": "step", "wall": 1, "loss": 1.5e-13, "lr": 1041.5, "n": 3, '
            '"k": 4, "neg": -0.25, "ok": true, "why": "warm", "of": [1], "bad": NaN, "no": null}',
            "step 7  loss 1.50e-13  lr 1042  k 4  neg -0.250  ok True  why warm",
        ),
        ('{"emulate": "step", "step": 7, "why": "a\\u001b[2J", "s": ""}', "step 7"),
        ('{"emulate": "phase", "phase": "checkpoint", "state": "begin"}', "checkpoint begins"),
        (
            '{"emulate": "phase", "phase": "restore", "state": "end", "step": 100}',
            "restore ends  step 100",
        ),
        *((line, line) for line in ("", "{", "step 7", '{"emulate": "step"}', f" {STEP}", "[1]")),
        *((line, line) for line in ('{"step": 1}', '{"emulate": "step", "step": "7"}')),
        ('{"emulate": "phase", "phase": "x", "state": "?"}',) * 2,
    ],
)
def test_a_line_that_reports_a_step_is_put_in_words_and_no_other(line: str, words: str) -> None:
    assert in_words(line) == words


def test_a_run_shows_words_and_with_verbose_what_was_printed() -> None:
    for verbose, shown in ((False, "step 90  loss 0.300"), (True, STEP)):
        stream = io.StringIO()
        printer = LivePrinter(stream, verbose=verbose)
        printer.follow(a_plan("{worker: 1}"), [("worker-0", STEP), ("worker-0", "hello")])
        assert stream.getvalue() == f"worker-0 | {shown}\nworker-0 | hello\n"
