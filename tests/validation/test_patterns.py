"""Regular expressions of users: what is read, what is refused, and that no line hangs a run."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from emulator.faults.schedule import trigger_matches
from emulator.faults.spec import Trigger
from emulator.metrics.formats import FORMATS, LONGEST
from emulator.metrics.steps import StepReader
from emulator.validation import patterns
from emulator.validation.patterns import LINE, Pattern, TooSlow, compiled

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
    "alternatives": (r"(?P<step>(?:9|99|999)*)x$", "9" * 1000 + "x!"),
    "words": (r"^(?:\w+\s?)*(?P<step>\d+)$", "a " * (MIB // 2) + "!"),
    "three stars": (r"(?P<step>.*).*.*=\d", "9" * 10_000 + "="),
}
# Each would take years, and pytest ends it.


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search may take a moment only."""
    monkeypatch.setattr(patterns, "TIMEOUT", 0.05)


@pytest.mark.parametrize("rule", ["auto", "json", *FORMATS])
@pytest.mark.parametrize("line", UNLUCKY.values(), ids=UNLUCKY)
def test_no_line_blocks_a_named_pattern(rule: str, line: str) -> None:
    reader = StepReader(rule)
    reader.read(line)
    reader.read(line[:LONGEST])


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(("pattern", "line"), CATASTROPHIC.values(), ids=CATASTROPHIC)
def test_a_pattern_that_takes_too_long_is_not_used_any_more(pattern: str, line: str) -> None:
    reader = StepReader([pattern, r"global (?P<step>\d+)"])
    assert reader.read(line) == []
    assert reader.take_slow() == [pattern]
    assert reader.take_slow() == []
    for one in (reader, reader.again()):
        assert one.read(line) == []
        assert one.take_slow() == []
        assert [seen.data for seen in one.read("global 12")] == [{"step": 12}]
    with pytest.raises(TooSlow) as slow:
        trigger_matches(Trigger(log=pattern), "worker-0", event="", data={}, line=line)
    assert slow.value.pattern == pattern


def test_an_ordinary_pattern_looks_at_a_whole_mebibyte() -> None:
    saved = compiled(r"saved checkpoint \d+ to \S+")
    end = "saved checkpoint 7 to /a"
    assert saved.search("x" * (LINE - len(end)) + end)
    assert not saved.search("x" * LINE + end)
    result = Pattern(r"it (?P<step>\d+) loss (?P<loss>\S+)").search("x" * 1000 + "it 12 loss 0.5")
    assert result
    assert (result["step"], result["loss"]) == ("12", "0.5")


@pytest.mark.parametrize(
    ("pattern", "line", "groups"),
    [
        (r"it (?P<step>\d+)", "at it 12", ("12",)),
        (r"(a)?(b)", "b", (None, "b")),
        (r"loss=(?P<loss>[^ ]+)", "größe loss=grün x", ("grün",)),
        (r"(.+)", "日本", ("日本",)),
        (r"(?i)(STEP)", "a step", ("step",)),
        (r"^(\d+)$", "12", ("12",)),
        (r"(\d)(\w)", "٣é", ("٣", "é")),
        (r"a{,2", "a{,2", ()),
        (r"(a{,3})\Z", "aa", ("aa",)),
        (r"(\d+)(?= steps)", "7 of 12 steps", ("12",)),
        (r"(?<!val_)loss (\S+)", "val_loss 1 loss 2", ("2",)),
        (r"(\w)\1(?P<x>b)(?P=x)", "aabb", ("a", "b")),
        (r"(a)?(?(1)b|(c))", "c", (None, "c")),
        (r"[a[]", "[", ()),
        (r"(a|ab)(c|bcd)", "abcd", ("a", "bcd")),
    ],
)
def test_a_match_is_that_of_python(pattern: str, line: str, groups: tuple[str | None]) -> None:
    result, python = compiled(pattern).search(line), re.search(pattern, line)
    assert result
    assert python
    assert result.groups() == python.groups() == groups
    assert result.span() == python.span()
    assert compiled(pattern).groupindex == re.compile(pattern).groupindex


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "'(' is not a regular expression: missing ) at position 1"),
        ("[a", "'[a' is not a regular expression: unterminated character set at position 2"),
        ("a**", "'a**' is not a regular expression: multiple repeat at position 2"),
        (r"(a)\2", "invalid group reference"),
        (r"\q", r"bad escape \q at position 2"),
        ("(?Lu)a", "is not a regular expression: ASCII, LOCALE and UNICODE flags are mutually"),
        ("(" * 490 + ")" * 490, "has too many groups within groups"),
        ("\ud800", r"'\ud800' contains half of a character"),
        ("a" * 1001, "a regular expression has at most 1000 characters, not 1001"),
    ],
)
def test_what_is_not_possible_is_refused_with_the_reason(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)) as refused:
        Pattern(pattern)
    assert "\n" not in str(refused.value)


def test_nothing_is_written_to_stderr_beside_the_reason() -> None:
    code = (
        "from emulator.validation.patterns import Pattern, compiled\n"
        "for text in ('[[a]', '(?=', 'a{1001}', '[a--b]', '[a||b]'):\n"
        "    try: Pattern(text)\n"
        "    except ValueError: pass\n"
        "compiled('(?:a?){1000}b').search('a' * 100_000)\n"
    )
    command = [sys.executable, "-W", "always", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
