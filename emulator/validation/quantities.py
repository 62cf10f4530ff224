"""Quantities as clusters write them: `500m` of a core, `2Gi` of memory, `1e3` (pure).

Source: k8s.io/apimachinery/pkg/api/resource, the grammar of `Quantity` in Kubernetes.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

_BINARY = {f"{letter}i": 2 ** (10 * power) for power, letter in enumerate("KMGTPE", 1)}
_DECIMAL = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_QUANTITY = re.compile(r"([+-]?)([0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})([A-Za-z0-9+-]{0,6})")
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,2})")
_SIZES = (("g", 2**30), ("m", 2**20), ("k", 2**10), ("b", 1))


def parse_quantity(value: object) -> Fraction:
    """Return the number that a quantity means: cores, bytes or pieces.

    Raises ValueError if it is none, or below 0.
    """
    if isinstance(value, float):
        # An API server checks the fields of these resources for a whole number or text.
        raise ValueError(f'{value} should be text; write "{value}" in quotes')
    found = _QUANTITY.fullmatch(str(value))
    factor = _factor(found[3]) if found else None
    if found is None or factor is None:
        raise ValueError(f"{value!r} is not a quantity, such as 500m, 2 or 4Gi")
    number = Fraction(found[2]) * factor
    if found[1] == "-" and number:
        raise ValueError(f"{value!r} is below 0")
    return number


def _factor(suffix: str) -> Fraction | None:
    """Return what a suffix multiplies by; None: there is no such suffix."""
    if suffix in _BINARY:
        return Fraction(_BINARY[suffix])
    if exponent := _EXPONENT.fullmatch(suffix):
        return Fraction(10) ** int(exponent[1])
    return Fraction(10) ** _DECIMAL[suffix] if suffix in _DECIMAL else None


def as_size(quantity: Fraction) -> str:
    """Return bytes as a scenario writes them: `512m`, `2g`, `1000b`; parts of a byte count."""
    size = math.ceil(quantity)
    suffix, unit = next((suffix, unit) for suffix, unit in _SIZES if size % unit == 0)
    return f"{size // unit}{suffix}"


def as_cores(quantity: Fraction) -> float | int:
    """Return cores as a scenario writes them, in thousandths, rounded up as Kubernetes does."""
    thousandths = math.ceil(quantity * 1000)
    return thousandths // 1000 if thousandths % 1000 == 0 else thousandths / 1000
