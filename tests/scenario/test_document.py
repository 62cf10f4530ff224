from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from emulator.runtime.bundled import scenarios
from emulator.scenario import document
from emulator.scenario.dump import dump

JOBS = Path(__file__).parents[1] / "plugins" / "kubeflow" / "jobs"
FILES = [*scenarios(), *sorted(JOBS.glob("*.yaml"))]
TEXTS = [
    "a: &x {b: 1, c: [1, 2.5, null, true, ~]}\nd: *x\ne: {<<: *x, b: 2}",
    "a: |\n  one\n\n  two\nb: >-\n  three\n  four\nc: 'it''s'\nd: \"\\x41\\u00e9\\n\"",
    "# nothing\n---\n- [a, {b: c}]\n-\n  - 1\n",
    "url: http://host:80/x?y=z#not-a-comment\ntime: 12:30:45\nday: 2026-11-23\nhex: 0x1f",
    "äöü: '\U0001f600'\nlong: " + "word " * 500,
    "{a: 1, a: 2}",
    "",
]


@pytest.mark.parametrize("text", [*TEXTS, *(path.read_text() for path in FILES)])
def test_the_fast_parser_reads_what_the_other_one_reads(text: str) -> None:
    fast = document._read_all(text, 10**6, document._FastLoader)
    assert fast == document._read_all(text, 10**6, document._Loader)


@pytest.mark.parametrize("text", ["a: [", "a: 'b", "\ta: b", "a: b: c", "- a\nb: c", "a: \ud800"])
def test_an_error_has_the_words_of_the_parser_in_python(text: str) -> None:
    with pytest.raises(document.ParseError) as slow:
        document._read(text, document._Loader)
    for read in (document.read, document.read_all):
        with pytest.raises(document.ParseError) as raised:
            read(text)
        assert (raised.value.line, str(raised.value)) == (slow.value.line, str(slow.value))


def test_as_much_as_the_limits_say_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "VALUES", 5)
    monkeypatch.setattr(document, "SCENARIO_BYTES", 15)
    monkeypatch.setattr(document, "DEPTH", 3)
    assert document.read("{a: 1, b: {}}\n\n").data == {"a": 1, "b": {}}
    assert document.read("[[[]]]").data == [[[]]]
    for text, problem in (
        ("{a: 1, b: 2}\n\n\n\n", "more than 15 B"),
        ("{a: 1, b: [2]}", "than 5 k"),
        ("{1: 2, 3: 4, 5}", "than 5 k"),  # though no key of these would be kept
        ("[[[[]]]]", "nested too deeply: 3 "),
    ):
        with pytest.raises(document.ParseError, match=problem):
            document.read(text)


def test_libyaml_is_there() -> None:
    """The fast parser would else be the slow one."""
    assert yaml.__with_libyaml__


def test_documents_have_their_lines_and_empty_ones_are_left_out() -> None:
    found = document.read_all("# none\n---\n---\na: 1\n---\nnull\n---\n\n1: 2\n")
    assert [(one.line, one.data, len(one.mistakes)) for one in found] == [
        (4, {"a": 1}, 0),
        (9, {}, 1),
    ]
    for text, line in {"a: [\n": 2, "a: 1\n---\nb: !!set {}\n": 3, "a: " + "b" * 99: 0}.items():
        with pytest.raises(document.ParseError) as refused:
            document.read_all(text, 99)
        assert refused.value.line == line


@pytest.mark.parametrize("text", ["1e-3", "-2.5E4", "0o17", "y", "N", ".5e3"])
def test_text_that_kubectl_would_read_as_a_number_or_yes_is_quoted(text: str) -> None:
    assert dump({"a": text}) == f"a: '{text}'\n"


def test_what_is_written_has_blocks_and_no_aliases() -> None:
    same = [1, {"c": "é"}]
    data = {"a": "x\ny\n", "b": same, "d": same, "e": [1, "two"]}
    assert dump(data) == (
        "a: |\n  x\n  y\nb:\n  - 1\n  - c: é\nd:\n  - 1\n  - c: é\ne:\n  - 1\n  - two\n"
    )
    assert dump(data, short=True) == (
        "a: |\n  x\n  y\nb:\n  - 1\n  - {c: é}\nd:\n  - 1\n  - {c: é}\ne: [1, two]\n"
    )


def test_on_is_a_key_as_in_yaml_1_2_and_the_value_stays_true() -> None:
    assert document.read("{on: shared}").data == {"on": "shared"}
    assert document.read("on: on").data == {"on": True}
