"""Types of fields: bounds, what is written with a unit, and what is similar to a word."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, TypeAdapter, ValidationError

from emulator.errors import RecordError, UsageError
from emulator.faults.network import Partition, Shape
from emulator.faults.preempt import Kill, Preempt
from emulator.validation import fields
from emulator.validation.run_id import check_new_run_id, check_run_id
from emulator.validation.similar import closest, nearest, suggestion
from emulator.validation.stored import read_stored, stored_json, stored_lines, value_of

YEARS = 36_500 * 86_400
MOST = 2**63 - 1


def read(name: str, value: object, context: object = None) -> Any:
    return TypeAdapter[Any](getattr(fields, name)).validate_python(value, context=context)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("Duration", "0", 0),
        ("Duration", "36500d", YEARS),
        (
            "Duration",
            "876000h1ms",
            "3.1536e+09s is too large; the maximum is 36500d (a hundred years",
        ),
        ("Duration", -1, "-1s is too small; the minimum is 0s"),
        ("Duration", math.nan, "nans is too small"),
        ("Duration", True, "'True' is not a duration"),
        ("Delay", "60s", 60),
        ("Delay", "60001ms", "60.001s is too large; the maximum is 60s"),
        ("DurationOrForever", "forever", math.inf),
        ("DurationOrForever", math.inf, math.inf),
        ("DurationOrForever", "36501d", "3.15369e+09s is too large"),
        ("Size", f"{2**53}b", 2**53),
        ("Size", MOST, MOST),
        ("Size", MOST + 1, "is too large"),
        ("Size", 0, 0),
        ("Memory", "6m", 6 << 20),
        ("Memory", "6291455b", "6 MiB is too small; the minimum is 6 MiB"),
        ("Memory", MOST, MOST),
        ("Memory", MOST + 1, "is too large"),
        ("Rate", "1kbit", 1000),
        ("Rate", "999bit", "999bit is too small; the minimum is 1000bit"),
        ("Rate", "1000gbit", 10**12),
        ("Rate", "1000000000001bit", "1000000000001bit is too large; the maximum is 1000000000000"),
        ("Cores", 10_000, 10_000),
        ("Cores", 0, "greater than 0"),
        ("Cores", 10_001, "less than or equal to 10000"),
        ("Share", "100%", 1),
        ("Share", 1.01, "less than or equal to 1"),
        ("Share", -0.1, "greater than or equal to 0"),
        ("Ratio", " 110% ", 1.1),
        ("Ratio", 0, 0),
        ("Ratio", -0.1, "greater than or equal to 0"),
        ("PositiveRatio", 0.1, 0.1),
        ("PositiveRatio", 0, "greater than 0"),
        ("Glob", "a" * 200, "a" * 200),
        ("Glob", "a" * 201, "at most 200 characters"),
        ("Text", 1.5, "1.5"),
        ("Text", False, 'true or false is not text; write "false" in quotes'),
        ("Text", "é" * 50_000, "é" * 50_000),
        (
            "Text",
            "é" * 50_000 + "a",
            "a text of 100001 bytes; the maximum for a program is 100,000",
        ),
        ("Text", "a\0", "contains a NUL, which can't be passed to a program"),
        ("Variable", "", "a variable needs a name"),
        ("Variable", "a b", "a b"),
        ("Variable", "a\n", "is not a variable name; use letters, digits and _"),
        ("Variable", "a=", "'a=' is not a variable name"),
        ("Command", [], []),
        ("Command", [" "], "its first word is empty"),
    ],
)
def test_a_value_is_within_its_bounds(name: str, value: object, expected: object) -> None:
    if not isinstance(expected, str) or expected == value or value == 1.5:
        assert read(name, value) == expected
        return
    with pytest.raises(ValidationError) as refused:
        read(name, value)
    assert expected in refused.value.errors()[0]["msg"]


def test_only_python_may_leave_the_unit_out() -> None:
    assert (read("Duration", 5), read("Duration", "5s", {})) == (5, 5)
    with pytest.raises(ValidationError, match="'5' is not a duration; write '5s'"):
        read("Duration", 5, {})


@pytest.mark.parametrize(
    ("name", "number", "text"),
    [
        ("Duration", 1e-5, "0.00001s"),
        ("Duration", 90.0, "90s"),
        ("DurationOrForever", math.inf, "forever"),
        ("DurationOrForever", 1.5, "1.5s"),
        ("Size", 1024, "1024b"),
        ("Rate", 10**7, "10000000bit"),
    ],
)
def test_a_number_is_written_with_its_unit(name: str, number: float, text: str) -> None:
    adapter = TypeAdapter[Any](getattr(fields, name))
    assert adapter.dump_python(number, mode="json") == text
    assert read(name, text, {}) == number


def test_what_is_read_for_all_variants_is_read_once() -> None:
    calls: list[str] = []

    def content(value: str) -> str:
        calls.append(value)
        if value == "bad":
            raise ValueError("it is bad")
        return value.upper()

    kind = Annotated[str, AfterValidator(lambda v, info: fields.once(info, v, lambda: content(v)))]
    adapter, known = TypeAdapter[str](kind), {"known": dict[object, object]()}
    for _ in range(2):
        assert adapter.validate_python("good", context=known) == "GOOD"
        with pytest.raises(ValidationError, match="it is bad"):
            adapter.validate_python("bad", context=known)
    assert calls == ["good", "bad"]
    assert adapter.validate_python("good") == "GOOD"


def test_the_keys_with_a_unit_are_known() -> None:
    assert Kill.with_units() == set()
    assert Partition.with_units() == {"for"}
    assert Preempt.with_units() == {"grace", "down", "notice", "keep_away", "kill_wait"}
    assert Shape.with_units() == {"for", "delay", "jitter", "bandwidth"}


def test_a_run_id_that_is_refused_is_shown_in_80_characters_at_most() -> None:
    assert check_new_run_id("latest") == "latest"
    for id_, begin in {
        "last": "'last' can't be a run id: to all commands it means the latest run.",
        "A" * 80: f"'{'A' * 80}' can't be a run id.",
        "A" * 81: f"'{'A' * 80}...' can't be a run id.",
    }.items():
        with pytest.raises(UsageError, match="can't be a run id") as refused:
            check_new_run_id(id_)
        assert str(refused.value).startswith(begin)
    assert check_run_id("last") == "last"  # that a run of before has


def test_what_is_similar_is_suggested_unless_comparing_takes_long() -> None:
    assert nearest("a" * 60, ["b", "a" * 61, "a" * 60]) == "a" * 60
    assert nearest("a" * 61, ["a" * 60]) == nearest("a" * 60, ["a" * 61]) == ""
    assert closest("wroker", ["ps", "worker"]) == "did you mean 'worker'?"
    assert closest("x", ["ps", "worker"]) == ""
    assert suggestion("wroker", iter(["ps", "worker"]), "Roles") == (
        "Did you mean 'worker'? Roles: ps, worker."
    )
    assert suggestion("x", ["ps"], "Roles") == "Roles: ps."


# --- What is stored is read back, whatever has happened to it since -------------------------------


@dataclass(frozen=True)
class Value:
    step: int
    rates: Mapping[str, float | None]
    last: int | None = None


def test_a_file_of_just_the_size_is_read_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_stored(path) == read_stored(path, 5) == b"12345"
    (tmp_path / "ring").symlink_to("ring")
    os.mkfifo(tmp_path / "pipe")
    for wrong, most, why in [
        (path, 4, "File too large"),
        (tmp_path, 9, "It is no file"),
        (tmp_path / "pipe", 9, "It is no file"),
        (tmp_path / "ring", 9, "Too many levels of symbolic links"),
    ]:
        with pytest.raises(RecordError) as refused:
            read_stored(wrong, most)
        assert refused.value.message == f"Can't read {wrong}: {why}."
    for missing in (tmp_path / "b", path / "c"):
        with pytest.raises(FileNotFoundError) as nothing:
            read_stored(missing)
        assert nothing.value.filename == str(missing)


def test_lines_end_before_one_that_is_longer_than_any() -> None:
    long = b"a" * (2**24 - 2) + b"\n"
    assert list(stored_lines(io.BytesIO(b"\n" + long + b"a" + long + b"ab\n"))) == [b"\n", long]


def test_json_is_read_to_any_depth_or_refused() -> None:
    assert stored_json(b'{"a": [1]}') == {"a": [1]}
    with pytest.raises(ValueError, match="it is nested too deeply"):
        stored_json(b"[" * 100_000)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({"step": 10**300, "rates": {"a": 0.5, "b": None}}, ""),
        ({"step": -(10**300), "rates": {}, "last": 10**300}, ""),
        ({"step": 10**300 + 1, "rates": {}}, "step: input should be less than or equal to 1000"),
        ({"step": -(10**300) - 1, "rates": {}}, "step: input should be greater than or equal to"),
        ({"step": 1, "rates": {}, "last": 10**301}, "last: input should be less than or equal"),
        ({"step": 1, "rates": {"a": float("nan")}}, "rates: input should be a finite number"),
        ({"step": "1", "rates": {}}, "step: input should be a valid integer"),
        ({"rates": {}}, "step: field required"),
        ({"step": 1, "rates": {}, "more": 1}, "more: extra inputs are not permitted"),
        ([], "input should be a valid dictionary"),
    ],
)
def test_a_value_has_the_types_that_its_class_declares(found: object, why: str) -> None:
    if not why:
        assert isinstance(found, dict)
        assert value_of(Value, found) == Value(**found)
        return
    with pytest.raises(ValueError, match="i") as refused:
        value_of(Value, found)
    assert str(refused.value).startswith(why)
