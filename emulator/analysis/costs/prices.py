"""What the machine of a task costs: rented on demand, as a spot machine, or bought."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from emulator.validation.fields import Duration, Model, Price, Share
from emulator.validation.similar import closest
from emulator.validation.units import format_money

if TYPE_CHECKING:
    from emulator.scenario.schema import Scenario

HOUR = 3600.0
"""Seconds."""
MOST = 1e12
"""The largest price of a purchase."""


class MachinePrice(Model):
    """The price of one task's machine, in one of three forms."""

    on_demand: Price | None = None
    """The price of a machine that is not preempted."""
    spot: Price | None = None
    """The price of a machine that may be preempted. It is what the task pays; `on_demand` is then
    what the same machine would cost otherwise."""
    purchase: float | None = Field(strict=True, default=None, gt=0, le=MOST, examples=[2000])
    """The price of a machine that was bought, over its whole lifetime."""
    lifetime: Annotated[Duration, Field(ge=HOUR)] | None = Field(None, examples=["3y"])
    """The time until a bought machine is replaced, at least `1h`."""
    used: Annotated[Share, Field(ge=0.001)] = Field(1.0, examples=[0.6])
    """The share of its lifetime in which a bought machine works."""

    @model_validator(mode="after")
    def _one_form(self) -> MachinePrice:
        rented = self.on_demand is not None or self.spot is not None
        bought = self.purchase is not None or self.lifetime is not None
        if rented and bought:
            raise ValueError("a machine is rented (`on_demand`, `spot`) or bought (`purchase`)")
        if not rented and not bought:
            raise ValueError("write `0.35/h`, {on_demand, spot} or {purchase, lifetime}")
        if bought and (self.purchase is None or self.lifetime is None):
            raise ValueError("a machine that is bought has both `purchase` and `lifetime`")
        if rented and "used" in self.model_fields_set and self.used != 1:
            raise ValueError("`used` is for machines that are bought")
        return self

    @property
    def kind(self) -> Literal["spot", "on demand", "own"]:
        """How the machine is paid for."""
        if self.purchase is not None:
            return "own"
        return "on demand" if self.spot is None else "spot"

    @property
    def per_hour(self) -> float:
        """What an hour of the machine costs.

        For a bought one: its price divided by the hours in which it works.
        """
        if self.purchase is not None and self.lifetime is not None:
            return self.purchase / (self.lifetime / HOUR * self.used)
        return (self.on_demand or 0.0) if self.spot is None else self.spot

    @property
    def saved_per_hour(self) -> float | None:
        """By how much the spot machine is cheaper than on demand; None: one price is missing."""
        if self.spot is None or self.on_demand is None:
            return None
        return self.on_demand - self.spot


def _from_rate(value: object) -> object:
    """Read a plain `0.35/h` as the price on demand."""
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return {"on_demand": value} if is_plain else value


Prices = Annotated[
    dict[
        str,
        Annotated[
            MachinePrice, BeforeValidator(_from_rate, json_schema_input_type=MachinePrice | Price)
        ],
    ],
    Field(examples=[{"worker": "0.35/h"}]),
]
"""By role."""


def _currency(text: str) -> str:
    if text and (not text.isprintable() or any(map(str.isspace, text))):
        raise ValueError(f"{text!r} is not a currency, such as EUR")
    return text


Currency = Annotated[str, Field(max_length=10), AfterValidator(_currency)]


def price_errors(scenario: Scenario) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield path, message and hint for a price of no role, and for a role without a price."""
    roles = list(scenario.cluster)
    for name in scenario.prices:
        if name in scenario.helpers:
            message, hint = "is a helper; only the machines of tasks have a price", "leave it out"
            yield ("prices", name), message, hint
        elif name not in scenario.cluster:
            hint = closest(name, roles) or f"roles: {', '.join(roles[:8])}"
            yield ("prices", name), "is not a role of the cluster", hint
    for role in roles:
        if role not in scenario.prices:  # the sum would silently lack it
            hint = f"add `{role}: 0.35/h`, or `{role}: 0/h` if it costs nothing"
            yield ("prices",), f"has no price for {role}", hint


def in_words(scenario: Scenario) -> Iterator[str]:
    """Yield the prices of all roles, and of all tasks together, as a line; nothing without any."""
    if prices := scenario.prices:
        currency = scenario.currency
        each = (f"{r} {format_money(p.per_hour, currency)} ({p.kind})" for r, p in prices.items())
        total = sum(p.per_hour * scenario.cluster[role].replicas for role, p in prices.items())
        yield f"prices an hour: {', '.join(each)}; all tasks {format_money(total, currency)}"
