"""Prices of a scenario: what they mean, and what is refused, with its line."""

from __future__ import annotations

import pytest

from emulator.errors import ScenarioError
from emulator.scenario.loader import parse
from emulator.scenario.schema import Scenario

TEXT = """\
name: priced
program: {command: [train]}
cluster: {worker: 2, ps: 1}
helpers: {board: {command: [serve]}}
"""


def problem(lines: str) -> tuple[str, str]:
    """Return the place of the only problem, and what it says."""
    with pytest.raises(ScenarioError) as refused:
        parse(TEXT + lines)
    (found,) = refused.value.problems
    return found.place.rpartition(":")[2], f"{found.path}: {found.message} ({found.hint})"


@pytest.mark.parametrize(
    ("lines", "line", "text"),
    [
        ("prices:\n  worker: 0.35\n  ps: 1/h\n", "6", "'0.35' is not a price; write '0.35/h'"),
        ("prices:\n  worker: 0.35/h\n  ps: cheap\n", "7", "'cheap' is not a price"),
        (
            "prices:\n  worker: {spot: 1}\n  ps: 1/h\n",
            "6",
            "prices.worker.spot: '1' is not a price",
        ),
        ("prices: {worker: 2e9/h, ps: 1/h}\n", "5", "'2e9/h' is not a price"),
        ("prices: {worker: 2000000000/h, ps: 1/h}\n", "5", "the maximum is 1000000000/h"),
        ("prices: {worker: {}, ps: 1/h}\n", "5", "write `0.35/h`, {on_demand, spot} or"),
        ("prices: {worker: {purchase: 9000}, ps: 1/h}\n", "5", "both `purchase` and `lifetime`"),
        ("prices: {worker: {lifetime: 3y}, ps: 1/h}\n", "5", "both `purchase` and `lifetime`"),
        (
            "prices: {worker: {purchase: 9, lifetime: 3y, spot: 1/h}, ps: 1/h}\n",
            "5",
            "rented (`on_demand`, `spot`) or bought",
        ),
        ("prices: {worker: {spot: 1/h, used: 50%}, ps: 1/h}\n", "5", "`used` is for machines"),
        ("prices: {worker: {spott: 1/h}, ps: 1/h}\n", "5", "did you mean 'spot'?"),
        ("prices: {worker: {purchase: 0, lifetime: 1y}, ps: 1/h}\n", "5", "prices.worker.purchase"),
        ("prices: {worker: {purchase: 9, lifetime: 1s}, ps: 1/h}\n", "5", "prices.worker.lifetime"),
        ("prices: 0.35/h\n", "5", "write `prices: {worker: 0.35/h}`"),
        ("prices: {worker: 1/h}\n", "5", "has no price for ps (add `ps: 0.35/h`, or `ps: 0/h`"),
        ("prices: {worker: 1/h, ps: 1/h, worke: 1/h}\n", "5", "did you mean 'worker'?"),
        ("prices: {worker: 1/h, ps: 1/h, board: 1/h}\n", "5", "is a helper"),
        ("currency: a b\n", "5", "'a b' is not a currency, such as EUR"),
        ("currency: 12345678901\n", "5", "currency"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(lines: str, line: str, text: str) -> None:
    place, said = problem(lines)
    assert place == line
    assert text in said


def test_a_plain_price_is_that_on_demand_and_a_key_can_be_added_to_it() -> None:
    text = TEXT + "prices: {worker: 0.40/h, ps: 0/h}\n"
    (plain, spot) = (
        parse(text, sets=sets).prices["worker"] for sets in ([], ["prices.worker.spot=0.12/h"])
    )
    assert (plain.kind, plain.per_hour, plain.saved_per_hour) == ("on demand", 0.40, None)
    assert (spot.kind, spot.per_hour) == ("spot", 0.12)
    assert spot.saved_per_hour == pytest.approx(0.28)


@pytest.mark.parametrize(
    "price",
    ["0.35/h", "8.4/d", "{spot: 0.1/h, on_demand: 1/h}", "{purchase: 9, lifetime: 3y, used: 0.3}"],
)
def test_a_plan_has_the_same_prices_when_it_is_read_again(price: str) -> None:
    scenario = parse(f"{TEXT}prices: {{worker: {price}, ps: 0/h}}\ncurrency: EUR\n")
    again = Scenario.model_validate(scenario.model_dump(mode="json"), context={"stored": True})
    assert again.prices == scenario.prices
    assert again.currency == "EUR"
