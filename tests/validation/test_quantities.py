"""Quantities of Kubernetes."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.validation.quantities import as_cores, as_size, parse_quantity
from emulator.validation.units import parse_size


def test_every_suffix_of_a_quantity() -> None:
    decimal = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
    binary = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
    for suffix, power in decimal.items():
        assert parse_quantity(f"1{suffix}") == Fraction(10) ** power
    for suffix, power in binary.items():
        assert parse_quantity(f"1{suffix}") == 2**power
    sizes = (1, 1023, 2**10, 3 * 2**20, 2**30, Fraction(2**11 - 1, 2))
    assert [as_size(Fraction(n)) for n in sizes] == ["1b", "1023b", "1k", "3m", "1g", "1k"]
    cores = [as_cores(Fraction(n, 1000)) for n in (1, 999, 1000, 1001)]
    assert cores == [0.001, 0.999, 1, 1.001]
    assert isinstance(cores[2], int)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("500m", Fraction(1, 2)),
        (2, 2),
        ("4Gi", 4 * 2**30),
        ("1.5Gi", 3 * 2**29),
        ("1e3", 1000),
        ("1E", 10**18),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("0.1", Fraction(1, 10)),
        ("+1k", 1000),
        ("100n", Fraction(1, 10**7)),
        ("-0", 0),
    ],
)
def test_quantities(text: object, number: Fraction | int) -> None:
    assert parse_quantity(text) == number


@pytest.mark.parametrize(
    "value", ["", "two", "5 Gi", "5GB", "-1", "1.2.3", True, 0.5, None, "1e", "1e999", "9" * 99]
)
def test_what_is_no_quantity(value: object) -> None:
    with pytest.raises(ValueError, match=r"is not a quantity|is below 0|should be text"):
        parse_quantity(value)


@given(st.integers(1, 2**50))
def test_sizes_keep_their_bytes(size: int) -> None:
    assert parse_size(as_size(Fraction(size))) == size
