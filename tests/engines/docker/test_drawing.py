"""What a container draws is aligned with its log, and says nothing where that is not sure."""

from __future__ import annotations

import pytest

from emulator.engines.docker import drawing
from emulator.engines.docker.drawing import QUIET, SAME, Drawing
from emulator.engines.docker.log_stream import LogParser
from emulator.record.events import Step
from emulator.record.reader import Record
from tests.engines.docker.site import Site

OUT, ERR = 1, 2

BARS = """
import sys, time
for number in range({lines}):
    print("line", number, flush=True)
    time.sleep(0.05)
for epoch in range(3):
    print(f"Epoch {{epoch + 1}}/3", flush=True)
    width = 0
    for n in range(1, 41):
        bar = f"{{n:2}}/40 [{{'=' * n:40}}] - ETA: 1s - loss: {{1 / (n + epoch):.4f}}"
        sys.stdout.write("\\b" * width + "\\r" + bar)
        sys.stdout.flush()
        width = len(bar)
        time.sleep(0.05)
    end = f"40/40 [{{'=' * 40}}] - 2s 50ms/step - loss: 0.1 - accuracy: 0.9"
    print("\\b" * width + "\\r" + end, flush=True)
"""


class Container:
    """One container: what it prints reaches the log and who is attached when the test says so."""

    def __init__(self, *, from_start: bool = True) -> None:
        self.log = LogParser()
        self.drawing = Drawing(self.log, from_start=from_start)
        self._stamp = 0

    def attached(self, text: str, stream: int = OUT) -> list[str]:
        data = text.encode()
        self.drawing.feed(bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data)
        return self.drawing.take_drawn()

    def logged(self, line: str, stream: int = OUT) -> list[str]:
        self._stamp += 1
        stamp = f"2026-01-02T03:04:05.{self._stamp:09}Z"
        assert [one.text for one in self.log.frame(stream, f"{stamp} {line}\n".encode())] == [line]
        return self.drawing.take_drawn()


def bar(begin: int, end: int) -> str:
    return "".join(f"\r{n:4}/100 [{'=' * (n // 5):20}] - ETA: {n}s" for n in range(begin, end))


def test_what_is_drawn_after_the_last_line_of_the_log_is_reported() -> None:
    one = Container()
    assert one.attached("\r1/9") == ["\r1/9"]
    assert one.attached("\r2/9") == ["\r1/9\r2/9"]


def test_it_waits_until_the_log_has_the_lines_before_it() -> None:
    one = Container()
    assert one.attached("\r9/9\nEpoch 2/2\n\r1/9") == []
    assert one.logged("\r9/9") == []
    assert one.logged("Epoch 2/2") == ["\r1/9"]


def test_it_says_nothing_of_a_line_that_the_log_has_finished() -> None:
    one = Container()
    assert one.logged("\r8/9\r9/9") == []
    assert one.logged("Epoch 2/2") == []
    assert one.attached("\r8/9") == []  # late: the log would count it for the second epoch
    assert one.attached("\r9/9\nEpoch 2/2\n\r1/9") == ["\r1/9"]


def test_standard_output_and_standard_error_have_lines_of_their_own() -> None:
    one = Container()
    assert one.attached("epoch 1 begins\n") == []
    assert one.attached("\r1/9", ERR) == ["\r1/9"]
    assert one.logged("a warning", ERR) == []
    assert one.attached("\r2/9", ERR) == []


def test_attached_later_it_finds_its_place_by_a_line_that_both_have() -> None:
    one = Container(from_start=False)
    for number in range(5):
        one.logged(f"earlier {number}")
    assert one.attached(bar(50, 80)) == []
    assert one.attached(bar(80, 100) + "\nEpoch 2/2\n" + bar(1, 3)) == []
    assert one.logged(bar(1, 100)) == []
    assert one.logged("Epoch 2/2") == [bar(1, 3)]
    assert [bar(1, 100).endswith(text) for text in one.attached(bar(3, 100))] == [True]
    assert one.attached("\n") == []
    assert one.attached("Epoch 3/3\n" + bar(1, 2)) == []
    assert one.logged(bar(1, 100)) == []
    assert one.logged("Epoch 3/3") == [bar(1, 2)]
    assert one.attached(bar(2, 3)) == [bar(1, 3)]


@pytest.mark.parametrize("same", ["done", "x" * 2 * SAME, "\r1/2\r2/2"])
def test_lines_that_may_be_repeated_are_no_proof(same: str) -> None:
    one = Container(from_start=False)
    one.logged(same)
    assert one.attached(f"{same}\n\r1/9") == []
    assert one.attached("\r2/9") == []


def test_a_newline_that_was_missed_is_made_up_for() -> None:
    one = Container()
    for line in ("one", "two"):
        one.logged(line)
    assert one.attached(bar(1, 100)) == []
    assert one.logged(bar(1, 100)) == []
    assert one.attached("\n\r1/9") == ["\r1/9"]


def test_a_program_that_draws_nothing_needs_it_no_longer() -> None:
    one = Container()
    for number in range(QUIET):
        one.attached(f"line {number}\n")
    assert not one.drawing.is_needless
    one.attached("\r1/9")
    one.attached("\n")
    for number in range(QUIET):
        one.attached(f"line {number}\n")
    assert one.drawing.is_needless


def test_a_flood_is_not_read_twice() -> None:
    one = Container()
    one.attached("a line\n" * 50_000)
    assert one.drawing.is_needless


@pytest.mark.docker
@pytest.mark.parametrize("lines", [0, 20])
def test_steps_of_a_bar_are_read_within_its_line(
    site: Site, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    """Also where it was not attached any more when the first bar came."""
    monkeypatch.setattr(drawing, "QUIET", 3)
    site.interpreter = "python3"
    result = site.run(BARS.format(lines=lines), "framework: tensorflow\ncluster: {worker: 2}\n")
    assert result.outcome == "succeeded"
    for task in ("worker-0", "worker-1"):
        history = Record(result.folder).history
        steps = [one for one in history if isinstance(one, Step) and one.task == task]
        numbers = [one.step for one in steps]
        assert numbers == sorted(numbers)
        assert {40, 80, 120} <= {*numbers}
        assert len([n for n in numbers if 80 < n < 120]) > 5
        first = [n for n in numbers if n < 40]
        assert len(first) > 5 if lines == 0 else not first
        assert [one.step for one in steps if one.values] == [40, 80, 120]
