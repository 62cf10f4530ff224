"""Variants: how `--vary` is split, multiplied out and refused."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import UsageError
from emulator.scenario.matrix import Variant, format_override, variants


def labels(*varied: str) -> list[str]:
    return [variant.label for variant in variants(varied)]


def test_as_many_variants_as_there_may_be_are_made() -> None:
    some, all_, more = (",".join(map(str, range(count))) for count in (500, 1000, 1001))
    for allowed in ([f"seed={some}", "a=1,2"], [f"a={all_}"]):
        assert len(variants(allowed)) == 1000
    for refused, why in (
        ([f"seed={some}", "a=1,2,3"], r"That makes 1,500 variants; 1,000 are the most\."),
        ([f"{k}={all_}" for k in "abc"], "That makes 1,000,000,000 variants; 1,000 are the most"),
        ([f"a={more}"], "has more than 1,000 values"),
    ):
        with pytest.raises(UsageError, match=why):
            variants(refused)


def test_every_combination_the_last_option_changes_fastest() -> None:
    assert labels("a=1,2", "b=x") == ["a=1 b=x", "a=2 b=x"]
    assert variants(["restart.policy=never,on-failure", "faults.0.grace=1s,5s"]) == [
        Variant(("restart.policy=never", "faults.0.grace=1s")),
        Variant(("restart.policy=never", "faults.0.grace=5s")),
        Variant(("restart.policy=on-failure", "faults.0.grace=1s")),
        Variant(("restart.policy=on-failure", "faults.0.grace=5s")),
    ]


@pytest.mark.parametrize(
    ("varied", "why"),
    [
        (["restart.policy"], "--vary restart.policy is not KEY=VALUE,VALUE."),
        (["=never"], "--vary =never is not KEY=VALUE,VALUE."),
        ([" =never"], "--vary  =never is not KEY=VALUE,VALUE."),
        (["a="], "--vary a= has no values."),
        (["a=1,,2"], "--vary a=1,,2: the values are not a YAML list: expected the node content"),
        (["a=1, "], "--vary a=1, : the values are not a YAML list: an empty value at the end."),
        (["a=1,2, 1"], "--vary a=1,2, 1 has 1 twice."),
        (["a=1,2", "b=3", "a=4"], "--vary a=4: a is varied twice."),
        (
            ["a={step: 1,{step: 2}"],
            "--vary a={step: 1,{step: 2}: the values are not a YAML list: expected ',' or '}'",
        ),
        (["a={step: 1]"], "--vary a={step: 1]: the values are not a YAML list: expected ','"),
        (
            ["a=1],[2"],
            "--vary a=1],[2: the values are not a YAML list: expected '<document start>'",
        ),
        (["a=]: ["], "--vary a=]: [: the values are not a YAML list: unbalanced brackets."),
        (["a='1,2"], "--vary a='1,2: the values are not a YAML list: found unexpected end"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(varied: list[str], why: str) -> None:
    with pytest.raises(UsageError) as refused:
        variants(varied)
    assert str(refused.value).startswith(why)
    assert "\n" not in str(refused.value)


def test_a_key_is_set_or_varied_but_not_both() -> None:
    assert len(variants(["seed=1,2"], ["cluster.worker=3"])) == 2
    with pytest.raises(UsageError, match=r"--vary seed=1,2: seed is also given a value"):
        variants(["seed=1,2"], ["seed=5"])


# --- Of a scenario ------------------------------------------------------------------------------


def test_nothing_parametrized_is_the_scenario_as_it_stands() -> None:
    (made,) = variants(parametrize={})
    assert (made, made.label) == (Variant(()), "")


def test_a_key_that_is_varied_or_set_is_not_parametrized_and_others_multiply() -> None:
    parametrize = {"cluster.worker": [2, 4], "seed": [0, 1]}
    made = variants(["seed=7", "timeout=1s,2s"], parametrize=parametrize)
    assert [variant.label for variant in made] == [
        "cluster.worker=2 seed=7 timeout=1s",
        "cluster.worker=2 seed=7 timeout=2s",
        "cluster.worker=4 seed=7 timeout=1s",
        "cluster.worker=4 seed=7 timeout=2s",
    ]
    made = variants([], ["cluster={worker: 3}"], parametrize=parametrize)
    assert [variant.label for variant in made] == ["seed=0", "seed=1"]


def test_what_an_anchor_repeats_is_written_out() -> None:
    same = {"step": 10}
    assert format_override("key", [same, same]) == "key=[{step: 10}, {step: 10}]"


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(_VALUES)
def test_whatever_is_written_is_read_back_from_one_line(value: object) -> None:
    text = format_override("key", value).removeprefix("key=")
    assert yaml.safe_load(text) == value
    assert len(text.splitlines()) <= 1


# --- Whatever comes -----------------------------------------------------------------------------

_PLAIN = st.text(alphabet="ab,'\"[]{}: \\", max_size=8)


@given(st.lists(_PLAIN, min_size=1, max_size=4, unique=True))
def test_whatever_is_quoted_is_one_value(texts: list[str]) -> None:
    quoted = ["'" + text.replace("'", "''") + "'" for text in texts]
    assert [yaml.safe_load(value) for value in quoted] == texts
    assert labels("key=" + ",".join(quoted)) == [f"key={value}" for value in quoted]


@given(st.text(alphabet="ab=,'\"[]{}() :\\", max_size=20))
def test_whatever_is_varied_it_is_split_or_refused(text: str) -> None:
    refusal = ""
    found: list[Variant] = []
    try:
        found = variants([text])
    except UsageError as error:
        refusal = str(error)
    assert found or refusal.startswith(f"--vary {text}")
    # Nothing is lost on the way: the values with their commas make up the text again.
    values = text.partition("=")[2]
    split = ",".join(v.label.partition("=")[2] for v in found)
    assert not found or split.replace(" ", "") == values.replace(" ", "")
