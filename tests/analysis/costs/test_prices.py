"""Prices of a scenario: what they mean, and what is refused, with its line."""

from __future__ import annotations

import pytest

from emulator.scenario.loader import parse
from tests.scenario.mistakes import only_problem

TEXT = """\
name: priced
program: {command: [train]}
cluster: {worker: 2, ps: 1}
helpers: {board: {command: [serve]}}
"""


WORKERS = [
    ("{spot: 1}", ".spot: '1' is not a price"),
    ("2e9/h", ": '2e9/h' is not a price"),
    ("2000000000/h", ": 2000000000/h is too large; the maximum is 1000000000/h"),
    ("{}", "write `0.35/h`, {on_demand, spot} or"),
    ("{purchase: 9000}", "both `purchase` and `lifetime`"),
    ("{lifetime: 3y}", "both `purchase` and `lifetime`"),
    ("{purchase: 9, lifetime: 3y, spot: 1/h}", "rented (`on_demand`, `spot`) or bought"),
    ("{spot: 1/h, used: 50%}", "`used` is for machines"),
    ("{spott: 1/h}", ".spott: unknown key (did you mean 'spot'?)"),
    ("{purchase: 0, lifetime: 1y}", ".purchase"),
    ("{purchase: 9, lifetime: 1s}", ".lifetime"),
]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        *((f"prices:\n  ps: 1/h\n  worker: {price}\n", text) for price, text in WORKERS),
        ("prices: {worker: 0.35, ps: 1/h}", "prices.worker: '0.35' is not a price; write '0.35/h'"),
        ("prices: 0.35/h", "write `prices: {worker: 0.35/h}`"),
        ("prices: {worker: 1/h}", "has no price for ps (add `ps: 0.35/h`, or `ps: 0/h`"),
        ("prices: {worker: 1/h, ps: 1/h, worke: 1/h}", "did you mean 'worker'?"),
        ("prices: {worker: 1/h, ps: 1/h, board: 1/h}", "is a helper"),
        ("currency: a b", "'a b' is not a currency, such as EUR"),
        ("currency: 12345678901", "currency"),
    ],
)
def test_a_price_that_is_not_understood_is_refused_with_its_line(lines: str, text: str) -> None:
    found = only_problem(TEXT + lines)
    assert found.startswith("s.yaml:7: prices.worker" if "\n  worker" in lines else "s.yaml:5: ")
    assert text in found


def test_a_plain_price_is_that_on_demand_and_a_key_can_be_added_to_it() -> None:
    text = TEXT + "prices: {worker: 0.40/h, ps: 0/h}\n"
    (plain, spot) = (
        parse(text, sets=sets).prices["worker"] for sets in ([], ["prices.worker.spot=0.12/h"])
    )
    assert (plain.kind, plain.per_hour, plain.saved_per_hour) == ("on demand", 0.40, None)
    assert (spot.kind, spot.per_hour) == ("spot", 0.12)
    assert spot.saved_per_hour == pytest.approx(0.28)


def test_a_bought_machine_costs_its_price_in_the_hours_in_which_it_works() -> None:
    bought = "{purchase: 26280, lifetime: 3y, used: 50%}"
    price = parse(f"{TEXT}prices: {{worker: {bought}, ps: 0/h}}\n").prices["worker"]
    assert (price.kind, price.per_hour, price.saved_per_hour) == ("own", 2.0, None)
