"""`$(NAME)` as Kubernetes replaces it, quantities, and text that stays as it is in a scenario."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.manifests.expansion import Text, expand, plain, written
from emulator.manifests.quantities import as_size, parse_quantity
from emulator.scenario.values import read
from emulator.validation.units import parse_size

KNOWN: dict[str, Text] = {
    "VAR_A": ("A",),
    "VAR_B": ("B",),
    "VAR_REF": ("$(VAR_A)",),
    "EMPTY": (),
}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        # The cases of Kubernetes' own test of `Expand` (facts: input and result).
        ("$(VAR_A)", "A"),
        ("___$(VAR_B)___", "___B___"),
        ("$(VAR_A)-$(VAR_B)", "A-B"),
        ("$(VAR_REF)", "$(VAR_A)"),
        ("$(VAR_DNE)", "$(VAR_DNE)"),
        ("$(VAR_A", "$(VAR_A"),
        ("$$(VAR_A)", "$(VAR_A)"),
        ("$$$(VAR_A)", "$A"),
        ("$$$$(VAR_A)", "$$(VAR_A)"),
        ("$VAR_A", "$VAR_A"),
        ("\\$(VAR_A)", "\\A"),
        ("$(foo$$var)", "$(foo$$var)"),
        ("$()", "$()"),
        ("f000-$(VAR_A)$", "f000-A$"),
        ("$?+$$", "$?+$"),
        ("a$(EMPTY)b", "ab"),
        ("$(VAR_A))", "A)"),
        ("echo $(date) $HOME ${HOME}", "echo $(date) $HOME ${HOME}"),
    ],
)
def test_variables_are_replaced_as_kubernetes_does(text: str, result: str) -> None:
    assert expand(text, KNOWN) == plain(result)


@given(st.text(alphabet="${}a(:-", max_size=12))
def test_text_of_a_manifest_stays_as_it_is(text: str) -> None:
    template = read(written(plain(text)))
    assert template.expand({}) == text
    assert not template.malformed


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
