"""What is stored is read back, whatever has happened to it since."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from emulator.errors import RecordError
from emulator.validation.stored import read_stored, stored_json, stored_lines, value_of


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
