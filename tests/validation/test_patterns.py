"""Regular expressions that can't hang: what is read, what is refused, and that length costs little.

The bounds in seconds are generous: Python's own engine takes minutes to years for these.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from emulator.faults.schedule import trigger_matches
from emulator.faults.spec import Trigger
from emulator.metrics.formats import FORMATS
from emulator.metrics.steps import StepReader
from emulator.validation.patterns import Pattern, compiled

MIB = 2**20
UNLUCKY = {
    "digits": "9" * MIB,
    "digits and a slash": "9/9 " + "9" * MIB,
    "spaces": " " * MIB,
    "a bar of spaces": "1/2 " + " " * MIB,
    "a bar without an end": "1/2 " + "x" * MIB,
    "spaces and digits": "1/2 " + " 9" * (MIB // 2),
    "many bars": "1/2 [" * (MIB // 5),
    "a long loss": "1/2 [ loss: " + "9" * MIB,
    "a loss of fractions": "1/2 [ loss: " + "9." * (MIB // 2),
    "a loss of exponents": "loss = " + "1e" * (MIB // 2),
    "many losses": "loss = 1, " * (MIB // 10),
    "many steps": "step = " * (MIB // 7),
    "many global steps": "global_" * (MIB // 7),
    "an epoch": "Train Epoch: " + "1" * MIB,
    "many epochs": "Train Epoch: 1 [" * (MIB // 16),
    "an epoch of spaces": "Train Epoch: 1 [1/2 (" + " " * MIB,
    "colours": "\x1b[0" * (MIB // 3),
    "a colour without an end": "\x1b[" + "0" * MIB,
    "redrawn": "9\r" * (MIB // 2),
    "backspaces": "\b" * MIB,
    "redrawn bars": "1/2 [\r" * (MIB // 6),
    "nested JSON": "{" + '"a":{' * (MIB // 5),
    "a JSON number": '{"emulate": "step", "step": 1, "x": 0.' + "9" * MIB + "}",
    "letters": "a" * MIB,
    "words": "é" * (MIB // 2),
}
CATASTROPHIC = {
    "nested repetition": (r"(?P<step>(?:\d+)+)x", "9" * MIB),
    "alternatives": (r"(?P<step>(?:9|99|999)*)x", "9" * MIB),
    "three stars": (r"(?P<step>.*).*.*=", "9" * MIB),
    "words": (r"^(?:\w+\s?)*(?P<step>\d+)$", "a " * (MIB // 2) + "!"),
    "counted": (r"(?:9?){1000}(?P<step>9{900})x", "9" * MIB),
    "nested counts": (r"(?:(?:9?){30}){30}(?P<step>x)", "9" * MIB),
}
# Each takes 0.01 to 2 s. It would take years if it went back and tried again, and pytest ends it.


@pytest.mark.parametrize("rule", ["auto", "json", *FORMATS])
@pytest.mark.parametrize("line", UNLUCKY.values(), ids=UNLUCKY)
def test_no_line_blocks_a_named_pattern(rule: str, line: str) -> None:
    StepReader(rule).read(line)


@pytest.mark.parametrize(("pattern", "line"), CATASTROPHIC.values(), ids=CATASTROPHIC)
def test_no_line_blocks_a_pattern_of_the_users(pattern: str, line: str) -> None:
    assert StepReader(pattern).read(line) == []
    trigger = Trigger(log=pattern)
    assert not trigger_matches(trigger, "worker-0", event="", data={}, line=line)


def test_an_ordinary_pattern_looks_at_a_whole_mebibyte() -> None:
    assert compiled(r"saved checkpoint \d+ to \S+").matches("x" * MIB + "saved checkpoint 7 to /a")
    result = Pattern(r"it (?P<step>\d+) loss (?P<loss>\S+)").search("x" * MIB + "it 12 loss 0.5")
    assert result
    assert (result[1], result[2]) == ("12", "0.5")


@pytest.mark.parametrize(
    ("pattern", "line", "groups"),
    [
        (r"it (?P<step>\d+)", "at it 12", ["12"]),
        (r"(a)?(b)", "b", [None, "b"]),
        (r"loss=(?P<loss>[^ ]+)", "größe loss=grün x", ["grün"]),
        (r"(.)", "\ud800", ["?"]),
        (r"(.+)", "日本", ["日本"]),
        (r"(?i)(STEP)", "a step", ["step"]),
        (r"^(\d+)$", "12", ["12"]),
        (r"a{,2", "a{,2", []),
    ],
)
def test_groups_are_those_of_python(pattern: str, line: str, groups: list[str | None]) -> None:
    result = Pattern(pattern).search(line)
    assert result
    assert [result[number + 1] for number in range(len(groups))] == groups
    if line.isprintable():
        match = re.search(pattern, line)
        assert match
        assert list(match.groups()) == groups
    assert compiled(pattern).matches(line)


def test_digits_and_words_are_those_of_ascii() -> None:
    assert not compiled(r"\d").matches("٣")
    assert not compiled(r"\w").matches("é")
    assert compiled(r"\pL").matches("é")


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "'(' is not a regular expression: missing ): ("),
        ("[a", "'[a' is not a regular expression: missing ]: [a"),
        ("a**", "'a**' is not a regular expression: bad repetition operator: **"),
        (r"x(?=y)", "it looks ahead; RE2, which never hangs, has no such thing"),
        (r"x(?!y)", "it looks ahead; RE2"),
        (r"(?<=x)y", "it looks behind"),
        (r"(?<!x)y", "it looks behind"),
        (r"(a)\1", "it refers back to a group; RE2"),
        (r"(?P<x>a)(?P=x)", "it refers back to a group"),
        (r"(?>a)", "it has an atomic group"),
        (r"(?(1)a|b)", "it has a condition"),
        (r"a{1001}", "invalid repetition size: {1001}"),
        (r"a{,3}", r"write {0,...} for {,3} in 'a{,3}'"),
        (r"\Z", r"invalid escape sequence: \Z"),
        ("\ud800", r"'\ud800' contains half of a character"),
        (r"(?:\pL{100}){10}", "is too large a regular expression; write fewer or smaller"),
    ],
)
def test_what_is_not_possible_is_refused_with_the_reason(pattern: str, why: str) -> None:
    for groups in (True, False):
        with pytest.raises(ValueError, match=re.escape(why)) as refused:
            Pattern(pattern, groups=groups)
        assert "\n" not in str(refused.value)


def test_nothing_is_written_to_stderr_beside_the_reason() -> None:
    """RE2 logs there by default."""
    code = (
        "from emulator.validation.patterns import Pattern, compiled\n"
        "for make in (Pattern, compiled):\n"
        "    try: make('(?=a)')\n"
        "    except ValueError: pass\n"
        "compiled('(?:a?){1000}b').matches('a' * 100_000)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
